// What is chosen, kept in the hash of the address so that a link shows the same. What a hash says is checked, not believed.

const listeners = [];

function startState() {
  const pair = baseModel ? [baseModel.id, runModel.id] : [runModel.id];
  const first = given.heads?.changes?.[0];
  const start = first ? [first.layer, first.head] : firstHead();
  return {
    view: null,
    statistic: given.heads?.statistics[0]?.id ?? null,
    layer: start[0],
    head: start[1],
    example: examples[0]?.id ?? null,
    models: pair,
    scale: "root",
    step: null,
    weight: null,
    silenced: null,
    ranking: null,
  };
}

function firstHead() {
  for (let layer = 0; layer < runModel.layers; layer += 1) {
    for (let head = 0; head < runModel.heads; head += 1) if (hasHead(runModel, layer, head)) return [layer, head];
  }
  return [0, 0];
}

const state = startState();

const CHECKS = {
  view: (text) => (shownViews().some((view) => view.id === text) ? text : undefined),
  statistic: (text) => (given.heads?.statistics.some((each) => each.id === text) ? text : undefined),
  layer: (text) => wholeNumber(text, mostLayers),
  head: (text) => wholeNumber(text, mostHeads),
  example: (text) => (exampleOf(text) ? text : undefined),
  models: (text) => {
    const ids = text.split(",");
    const fine = ids.length === state.models.length && new Set(ids).size === ids.length && ids.every(modelOf);
    return fine ? ids : undefined;
  },
  scale: (text) => (text === "root" || text === "linear" ? text : undefined),
  step: (text) => {
    const value = Number(text);
    return text !== "" && allSteps().includes(value) ? value : undefined;
  },
  // Which point of the plots is looked at, from the left; a plot with fewer shows its last.
  weight: (text) => wholeNumber(text, mostPoints("weights")),
  silenced: (text) => wholeNumber(text, mostPoints("pruning")),
  ranking: (text) => wholeNumber(text, Math.max(0, ...plotGroups(asList(given.pruning)).map((group) => silencingSeries(group).length))),
};

function wholeNumber(text, limit) {
  return /^\d{1,4}$/.test(text) && Number(text) < limit ? Number(text) : undefined;
}

function readHash(hash) {
  const found = {};
  let pairs;
  try {
    pairs = new URLSearchParams(hash.replace(/^#/, ""));
  } catch {
    return found;
  }
  for (const [name, check] of Object.entries(CHECKS)) {
    const text = pairs.get(name);
    const value = text === null ? undefined : check(text);
    if (value !== undefined) found[name] = value;
  }
  return found;
}

function hashOf(chosen) {
  const pairs = new URLSearchParams();
  for (const name of Object.keys(CHECKS)) {
    const value = chosen[name];
    if (value !== null && value !== undefined) pairs.set(name, Array.isArray(value) ? value.join(",") : value);
  }
  return `#${pairs}`;
}

function writeHash() {
  try {
    history.replaceState(null, "", hashOf(state));
  } catch {
    // Some places where a page can be shown have no address of their own; the page works without.
  }
}

function choose(changes) {
  const changed = Object.keys(changes).filter((name) => String(state[name]) !== String(changes[name]));
  Object.assign(state, changes);
  if (!changed.length) return;
  writeHash();
  for (const listener of listeners) listener(new Set(changed));
}

function chosenModels() {
  return state.models.map(modelOf);
}

function chosenExample() {
  return exampleOf(state.example);
}

function selectHead(layer, head) {
  choose({ layer, head });
}

// Heads from the most to the least changed; without a comparison, in their order.
function headOrder() {
  const changes = given.heads?.changes;
  if (changes?.length) return changes.map((entry) => [entry.layer, entry.head]);
  const order = [];
  for (let layer = 0; layer < runModel.layers; layer += 1) {
    for (let head = 0; head < runModel.heads; head += 1) if (hasHead(runModel, layer, head)) order.push([layer, head]);
  }
  return order;
}

function moveInOrder(by) {
  const order = headOrder();
  if (!order.length) return;
  const now = order.findIndex(([layer, head]) => layer === state.layer && head === state.head);
  const next = now < 0 ? 0 : (now + by + order.length) % order.length;
  selectHead(...order[next]);
}

function moveExample(by) {
  if (!examples.length) return;
  const now = examples.findIndex((example) => example.id === state.example);
  choose({ example: examples[(now + by + examples.length) % examples.length].id });
}

function mostPoints(view) {
  return Math.max(0, ...plotGroups(asList(given[view])).map((group) => group.points.length));
}

function allSteps() {
  const steps = new Set(Object.values(given.diversity ?? {}).flatMap((entry) => entry.steps));
  return [...steps].sort((one, other) => one - other);
}
