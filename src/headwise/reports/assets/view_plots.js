// Means with intervals over whatever was varied: layers, sizes of training sets, weights of guides, heads pruned.

// `slider` names the part of the state that says which point is looked at, where a view has a slider for that.
function plotsView(id, title, menu, slider = null) {
  const plots = asList(given[id]);
  const groups = plotGroups(plots);
  addView({
    id,
    title,
    menu,
    exists: () => plots.length > 0,
    on: slider ? [slider, "ranking"] : [],
    build(body) {
      this.places = groups.map((group, number) => {
        const charts = make("div", { class: "charts" });
        const point = slider && group.points.length > 1 ? pointSlider(id, group, number, slider) : null;
        const heads = group.plots.some((plot) => plot.series.some((each) => each.off)) ? silencedHeads(id, group, number, slider) : null;
        body.append(make("div", { class: "plots" }, charts, point?.element, heads?.element));
        return { charts, point, heads };
      });
    },
    update() {
      this.shown = groups.map((group, number) => {
        const { charts, point, heads } = this.places[number];
        const pictures = group.plots.map((plot) => lineChart({
          title: plot.title, xLabel: plot.x, yLabel: plot.y, categories: plot.categories ?? null, width: 480, height: 290,
          at: point ? pointOf(group, slider) : null,
          series: plot.series.map((each, place) => ({ ...each, y: each.mean, place: seriesPlace(each, place) })),
        }));
        charts.replaceChildren(...pictures.map((picture, place) => make("figure", null, picture,
          (group.plots[place].notes ?? []).map((note) => make("p", { class: "note" }, note)))));
        point?.show();
        heads?.show();
        return [...pictures, ...(heads?.pictures() ?? [])];
      });
    },
    pictures() {
      return this.shown.flat();
    },
    tables: () => [
      ...plots.map((plot) => ({
        title: plot.title,
        columns: ["Series", plot.x, plot.y, "Low", "High"],
        rows: plot.series.flatMap((each) => each.x.map((x, place) =>
          [each.name, pointName(plot, x), each.mean[place], each.low?.[place] ?? null, each.high?.[place] ?? null])),
        notes: plot.notes,
      })),
      ...plots.filter((plot) => plot.series.some((each) => each.off)).map(silencedTable),
    ],
  });
}

// A series that bears the name of a model looks like that model everywhere.
function seriesPlace(each, place) {
  const known = models.findIndex((model) => model.name === each.name);
  return known >= 0 ? known : place;
}

// Plots whose points stand at the same places are looked at together: {plots, points}.
function plotGroups(plots) {
  const groups = new Map();
  for (const plot of plots) {
    const points = [...new Set(plot.series.flatMap((each) => each.x))].sort((one, other) => one - other);
    const key = JSON.stringify([plot.x, plot.categories ?? null, points]);
    if (!groups.has(key)) groups.set(key, { plots: [], points });
    groups.get(key).plots.push(plot);
  }
  return [...groups.values()];
}

function pointName(plot, x) {
  return plot.categories?.[x] ?? x;
}

function pointPlace(group, slider) {
  return Math.min(state[slider] ?? 0, group.points.length - 1);
}

function pointOf(group, slider) {
  return group.points[pointPlace(group, slider)];
}

// A slider over the points, and what every series has there beside what it has at the first point.
function pointSlider(id, group, number, slider) {
  const [first] = group.plots;
  const name = `${id}-point-${number}`;
  const range = make("input", { type: "range", min: "0", max: String(group.points.length - 1), step: "1", id: name, "aria-label": first.x,
    oninput: () => choose({ [slider]: Number(range.value) }) });
  const now = make("output", { for: name, class: "number" });
  const values = make("div");
  const said = () => `${first.x}: ${pointName(first, pointOf(group, slider))}`;
  return {
    element: make("div", { class: "at-point" }, make("div", { class: "scrubber" }, range, now), values),
    show() {
      range.value = String(pointPlace(group, slider));
      range.setAttribute("aria-valuetext", said());
      now.textContent = said();
      values.replaceChildren(table(pointTable(group, pointOf(group, slider))));
    },
  };
}

function pointTable(group, x) {
  const [first] = group.plots;
  const rows = group.plots.flatMap((plot) => plot.series.map((each) => {
    const place = each.x.indexOf(x);
    const start = each.x.indexOf(group.points[0]);
    const value = each.mean[place] ?? null;
    const before = each.mean[start] ?? null;
    const [low, high] = [each.low?.[place] ?? null, each.high?.[place] ?? null];
    return [`${plot.title}: ${each.name}`, plot.y, value, low === null || high === null ? "" : `${short(low)} to ${short(high)}`,
      value === null || before === null || place === start ? "" : signed(value - before)];
  }));
  return { title: `${first.x}: ${pointName(first, x)}`,
    columns: ["Series", "What", "Mean", "Interval", `Minus ${pointName(first, group.points[0])}`], rows };
}

plotsView("layers", "By guided layers", "Layers");
plotsView("sizes", "By size of the training set", "Sizes");
plotsView("weights", "By weight of the guides", "Weights", "weight");
plotsView("pruning", "Pruning heads", "Pruning", "silenced");
