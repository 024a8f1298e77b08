// All heads of the chosen models side by side, coloured by one statistic; then the difference, and who changed most.

function statistic() {
  return given.heads.statistics.find((each) => each.id === state.statistic);
}

// With its unit, where it has one.
function statisticLabel() {
  const { name, unit } = statistic();
  return unit ? `${name} (${unit})` : name;
}

function headValue(modelId, layer, head, which = "mean") {
  return given.heads.values[modelId]?.[state.statistic]?.[which]?.[layer]?.[head] ?? null;
}

// A grid to draw: {title, layers, heads, value(l, h), text(l, h), kind, share(value)}
function headGrids() {
  const chosen = chosenModels();
  const { low, high } = statistic();
  const grids = chosen.map((model) => ({
    id: model.id, title: model.name, layers: model.layers, heads: model.heads, kind: "sequential",
    value: (layer, head) => (hasHead(model, layer, head) ? headValue(model.id, layer, head) : null),
    text: (layer, head) => withError(headValue(model.id, layer, head), headValue(model.id, layer, head, "error")),
    share: (value) => (value - low) / (high - low || 1),
  }));
  if (chosen.length < 2) return grids;
  const [first, second] = grids;
  const value = (layer, head) => {
    const [before, after] = [first.value(layer, head), second.value(layer, head)];
    return before === null || after === null ? null : after - before;
  };
  const layers = Math.min(first.layers, second.layers);
  const heads = Math.min(first.heads, second.heads);
  let largest = 0;
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) largest = Math.max(largest, Math.abs(value(layer, head) ?? 0));
  }
  grids.push({
    id: "difference", title: `${second.title} minus ${first.title}`, layers, heads, kind: "diverging", value, largest,
    text: (layer, head) => signed(value(layer, head)),
    share: (each) => each / (largest || 1),
  });
  return grids;
}

function gridElement(view, grid) {
  const rows = [];
  for (let layer = 0; layer < grid.layers; layer += 1) {
    const cells = [make("span", { class: "grid-name", role: "rowheader" }, layer)];
    for (let head = 0; head < grid.heads; head += 1) cells.push(gridCell(view, grid, layer, head));
    rows.push(make("div", { role: "row", class: "grid-row" }, cells));
  }
  const top = make("div", { role: "row", class: "grid-row" }, make("span", { class: "grid-name", role: "columnheader" }, ""),
    Array.from({ length: grid.heads }, (_, head) => make("span", { class: "grid-name", role: "columnheader" }, head)));
  const element = make("div", { role: "grid", class: "head-grid", "aria-label": `${grid.title}: ${statistic().name}`, "data-grid": grid.id,
    style: { "--columns": String(grid.heads) } }, top, rows);
  element.style.setProperty("--columns", String(grid.heads));
  element.addEventListener("keydown", (event) => moveInGrid(event, grid, element));
  return make("figure", { class: "grid-figure" }, make("figcaption", null, grid.title), make("div", { class: "scroll" }, element),
    legendPicture(grid.kind, ...gridRange(grid), grid.id === "difference" ? `difference of ${statisticLabel()}` : statisticLabel()));
}

function gridRange(grid) {
  if (grid.id === "difference") return [-grid.largest, grid.largest];
  return [statistic().low, statistic().high];
}

function gridCell(view, grid, layer, head) {
  const value = grid.value(layer, head);
  const chosen = layer === state.layer && head === state.head;
  const colour = value === null ? null : shade(grid.kind, grid.share(value));
  const what = value === null ? "no value" : grid.text(layer, head);
  const tell = () => {
    view.readout.textContent = `${grid.title}, ${headName(layer, head)}: ${statisticLabel()} ${what}`;
  };
  const cell = button("", () => selectHead(layer, head), {
    role: "gridcell", class: value === null ? "cell empty" : "cell", tabindex: chosen ? "0" : "-1", "data-layer": layer, "data-head": head,
    "aria-selected": chosen ? "true" : "false", "aria-label": `${headName(layer, head)}: ${what}`, onpointerenter: tell, onfocus: tell,
  });
  if (colour) cell.style.background = css(colour);
  if (chosen && colour) cell.style.setProperty("--dot", inkOn(colour));
  return cell;
}

// One stop for Tab per grid; the arrows walk inside.
function moveInGrid(event, grid, element) {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const cell = event.target.closest(".cell");
  if (!by || !cell) return;
  event.preventDefault();
  const layer = Math.min(grid.layers - 1, Math.max(0, Number(cell.dataset.layer) + by[0]));
  const head = Math.min(grid.heads - 1, Math.max(0, Number(cell.dataset.head) + by[1]));
  for (const each of element.querySelectorAll(".cell[tabindex='0']")) each.tabIndex = -1;
  const next = element.querySelector(`.cell[data-layer="${layer}"][data-head="${head}"]`);
  next.tabIndex = 0;
  next.focus();
}

function gridPicture(grid) {
  const cell = 20;
  const picture = svgPicture(60 + Math.max(cell * grid.heads, 255), 62 + cell * grid.layers + 34, `${grid.title}: ${statistic().name}`);
  picture.append(words(8, 16, fitted(grid.title, 44 + Math.max(cell * grid.heads, 255), 12), { size: 12, weight: "600" }));
  for (let head = 0; head < grid.heads; head += 1) {
    picture.append(words(40 + cell * (head + 0.5), 36, head, { anchor: "middle", size: 9, fill: ink("faint") }));
  }
  for (let layer = 0; layer < grid.layers; layer += 1) {
    picture.append(words(34, 42 + cell * (layer + 0.5) + 3, layer, { anchor: "end", size: 9, fill: ink("faint") }));
    for (let head = 0; head < grid.heads; head += 1) {
      const value = grid.value(layer, head);
      picture.append(draw("rect", { x: 40 + cell * head, y: 42 + cell * layer, width: cell - 1, height: cell - 1,
        fill: value === null ? "none" : css(shade(grid.kind, grid.share(value))), stroke: value === null ? ink("rule") : null,
      }, draw("title", null, `${headName(layer, head)}: ${value === null ? "no value" : grid.text(layer, head)}`)));
    }
  }
  const legend = legendPicture(grid.kind, ...gridRange(grid), statisticLabel());
  legend.setAttribute("y", String(50 + cell * grid.layers));
  picture.append(legend);
  return picture;
}

addView({
  id: "heads",
  title: "Heads",
  exists: () => Boolean(given.heads),
  on: ["statistic", "layer", "head", "models"],
  build(body) {
    const { statistics, split, examples: count } = given.heads;
    this.help = make("p", { class: "note" });
    this.controls = make("div", { class: "controls" },
      choice("Statistic", statistics.map((each) => [each.id, each.name]), state.statistic, (value) => choose({ statistic: value }), { id: "statistic" }));
    this.readout = make("p", { class: "readout", id: "heads-readout" }, "Point at a head, or go there with the arrow keys.");
    this.place = make("div", { class: "grids" });
    this.list = make("div", { class: "changes" });
    body.append(
      make("p", { class: "note" }, `Layers downwards, heads across, both counted from 0. Means over ${count} examples (${split}); ± is the standard error.`),
      this.controls, this.help, this.readout, this.place, this.list);
  },
  update() {
    const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset : null;
    const where = focused && document.activeElement.closest("[data-grid]")?.dataset.grid;
    this.controls.querySelector("select").value = state.statistic;
    this.help.textContent = statistic().help ?? "";
    this.place.replaceChildren(...headGrids().map((grid) => gridElement(this, grid)));
    // The grids are new; whoever was inside with the keyboard still is.
    if (where) this.place.querySelector(`[data-grid="${where}"] .cell[data-layer="${focused.layer}"][data-head="${focused.head}"]`)?.focus();
    this.showChanges();
  },
  showChanges() {
    const changes = given.heads.changes;
    if (!changes?.length) return;
    const inList = this.list.contains(document.activeElement);
    const most = changes[0].change || 1;
    this.list.replaceChildren(
      make("h3", { id: "changes-title" }, "Most changed heads"),
      make("p", { class: "note" }, `How far the rows of ${nameOf(runModel.id)} are from those of ${nameOf(baseModel?.id)} on the examples of this page: mean total variation distance, 0 (same) to 1 (disjoint).`),
      make("ol", { "aria-labelledby": "changes-title", tabindex: "-1" }, changes.map(({ layer, head, change, error }) =>
        make("li", null, make("button", {
          type: "button", class: "change", "data-layer": layer, "data-head": head, onclick: () => selectHead(layer, head),
          "aria-current": layer === state.layer && head === state.head ? "true" : null,
        }, make("span", { class: "who" }, `layer ${layer}, head ${head}`),
        make("span", { class: "bar", "aria-hidden": "true" }, make("span", { style: { width: `${(100 * change) / most}%` } })),
        make("span", { class: "number" }, withError(change, error)))))));
    const current = this.list.querySelector("[aria-current]");
    // Scroll inside the list only: the page stays where it is.
    const list = this.list.querySelector("ol");
    if (current) list.scrollTop = current.parentElement.offsetTop - list.offsetTop - list.clientHeight / 2;
    if (inList) current?.focus({ preventScroll: true });
  },
  subtitle: () => statistic().name,
  pictures: () => headGrids().map(gridPicture),
  tables() {
    const rows = [];
    const chosen = chosenModels();
    for (let layer = 0; layer < mostLayers; layer += 1) {
      for (let head = 0; head < mostHeads; head += 1) {
        const values = chosen.flatMap((model) => [headValue(model.id, layer, head), headValue(model.id, layer, head, "error")]);
        const difference = chosen.length > 1 ? [values[0] === null || values[2] === null ? null : values[2] - values[0]] : [];
        rows.push([headName(layer, head), layer, head, ...values, ...difference]);
      }
    }
    const columns = ["Name", "Layer", "Head", ...chosen.flatMap((model) => [model.name, `${model.name}, standard error`]), ...(chosen.length > 1 ? ["Difference"] : [])];
    const found = [{ title: statisticLabel(), columns, rows }];
    if (given.heads.changes?.length) {
      found.push({ title: "Most changed heads", columns: ["Name", "Layer", "Head", "Change", "Standard error"],
        rows: given.heads.changes.map((each) => [headName(each.layer, each.head), each.layer, each.head, each.change, each.error ?? null]) });
    }
    return found;
  },
  // All statistics of all models: one line per number.
  rows() {
    const rows = [];
    for (const model of models) {
      for (const { id } of given.heads.statistics) {
        const values = given.heads.values[model.id]?.[id];
        if (!values) continue;
        values.mean.forEach((line, layer) => line.forEach((mean, head) =>
          rows.push([model.name, id, layer, head, mean, values.error?.[layer]?.[head] ?? null])));
      }
    }
    for (const each of given.heads.changes ?? []) rows.push([runModel.name, "change", each.layer, each.head, each.change, each.error ?? null]);
    return [{ title: "Heads", columns: ["Model", "Statistic", "Layer", "Head", "Mean", "Standard error"], rows }];
  },
});
