// Training curves: one small chart per quantity, models in each by colour and dash.

const KINDS = { raw: "value", weighted: "value times its weight", share: "share of the gradient" };
const GROUPS = { loss: "Loss", validation: "Validation" };

function groupName(group) {
  return GROUPS[group] ?? (group.startsWith("guide:") ? `Guide ${group.slice(6)}` : group);
}

addView({
  id: "curves",
  title: "Training curves",
  menu: "Training",
  exists: () => Boolean(given.curves?.series.length),
  build(body) {
    this.place = make("div");
    body.append(this.place);
  },
  update() {
    const groups = new Map();
    for (const each of given.curves.series) {
      if (!groups.has(each.group)) groups.set(each.group, new Map());
      const charts = groups.get(each.group);
      const key = JSON.stringify([each.kind, each.name]);
      if (!charts.has(key)) charts.set(key, []);
      charts.get(key).push(each);
    }
    this.shown = [];
    this.place.replaceChildren(...[...groups].flatMap(([group, charts]) => {
      const guide = group.startsWith("guide:");
      const pictures = [...charts.values()].map((series) => lineChart({
        title: guide ? `${series[0].name}: ${KINDS[series[0].kind] ?? series[0].kind}` : series[0].name,
        xLabel: "step", yLabel: guide ? (series[0].kind === "share" ? "share" : "value") : series[0].name,
        series: series.map((each) => ({ ...each, name: nameOf(each.model), place: modelPlace(each.model) })),
      }));
      this.shown.push(...pictures);
      return [make("h3", null, groupName(group)), make("div", { class: "charts" }, pictures)];
    }));
  },
  pictures() {
    return this.shown;
  },
  tables() {
    const rows = given.curves.series.flatMap((each) =>
      each.x.map((x, place) => [nameOf(each.model), each.group, each.name, each.kind ?? "", x, each.y[place]]));
    return [{ title: "Training curves", columns: ["Model", "Group", "Name", "Kind", "Step", "Value"], rows }];
  },
});
