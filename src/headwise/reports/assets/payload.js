// The payload, and questions about it that many views ask.

const payload = JSON.parse(document.getElementById("payload").textContent);
const models = payload.models;
const given = payload.views;
const examples = given.examples ? [...given.examples.list] : [];

const runModel = models.find((model) => model.role === "run") ?? models[0];
const baseModel = models.find((model) => model.role === "baseline") ?? models.find((model) => model !== runModel) ?? null;

function modelOf(id) {
  return models.find((model) => model.id === id);
}

function nameOf(id) {
  return modelOf(id)?.name ?? id;
}

function hasHead(model, layer, head) {
  return layer >= 0 && layer < model.layers && head >= 0 && head < model.heads;
}

function headName(layer, head) {
  return `layer ${layer}, head ${head}`;
}

function exampleOf(id) {
  return examples.find((example) => example.id === id) ?? null;
}

// Figures are given as a list; a single one is as good.
function asList(value) {
  return value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
}

// The largest grid among the models: how far a choice of layer and head can go.
const mostLayers = Math.max(...models.map((model) => model.layers));
const mostHeads = Math.max(...models.map((model) => model.heads));
