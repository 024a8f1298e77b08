// Means with intervals over whatever was varied: layers, sizes of training sets, weights of guides, heads pruned.

function plotsView(id, title, menu) {
  const plots = asList(given[id]);
  addView({
    id,
    title,
    menu,
    exists: () => plots.length > 0,
    build(body) {
      this.place = make("div", { class: "charts" });
      body.append(this.place);
    },
    update() {
      this.shown = plots.map((plot) => lineChart({
        title: plot.title, xLabel: plot.x, yLabel: plot.y, categories: plot.categories ?? null, width: 480, height: 290,
        series: plot.series.map((each, place) => ({ ...each, y: each.mean, place: seriesPlace(each, place) })),
      }));
      this.place.replaceChildren(...this.shown.map((picture, place) => make("figure", null, picture,
        (plots[place].notes ?? []).map((note) => make("p", { class: "note" }, note)))));
    },
    pictures() {
      return this.shown;
    },
    tables: () => plots.map((plot) => ({
      title: plot.title,
      columns: ["Series", plot.x, plot.y, "Low", "High"],
      rows: plot.series.flatMap((each) => each.x.map((x, place) =>
        [each.name, plot.categories?.[x] ?? x, each.mean[place], each.low?.[place] ?? null, each.high?.[place] ?? null])),
      notes: plot.notes,
    })),
  });
}

// A series that bears the name of a model looks like that model everywhere.
function seriesPlace(each, place) {
  const known = models.findIndex((model) => model.name === each.name);
  return known >= 0 ? known : place;
}

plotsView("layers", "By guided layers", "Layers");
plotsView("sizes", "By size of the training set", "Sizes");
plotsView("weights", "By weight of the guides", "Weights");
plotsView("pruning", "Pruning heads", "Pruning");
