// Figures that depend on the chosen example only: mean maps of all models, and the heads as points.

function exampleNote() {
  return make("p", { class: "note" }, "Example: ", make("strong", null, make("bdi", null, chosenExample().title)), " — ",
    button("choose another", () => {
      openView("detail", false);
      document.getElementById("example")?.focus();
    }, { class: "small" }));
}

addView({
  id: "means",
  title: "Mean attention of all heads",
  menu: "Mean maps",
  exists: () => examples.some((example) => Object.keys(example.means ?? {}).length > 0),
  later: () => Boolean(payload.live),
  on: ["example", "scale"],
  build(body) {
    this.note = make("div");
    this.place = make("div", { class: "maps" });
    this.readout = make("p", { class: "readout" });
    body.append(this.note, this.readout, this.place);
  },
  update() {
    const example = chosenExample();
    this.note.replaceChildren(exampleNote());
    this.readout.textContent = "Rows attend to columns; each value is a mean over all heads of a model.";
    const names = Object.values(example.means ?? {});
    this.asked = example.id;
    return withArrays(names, this.section, () => this.asked === example.id, () => this.drawAll(example));
  },
  drawAll(example) {
    const size = example.tokens.length;
    const second = boundary(example);
    this.shown = models.filter((model) => example.means?.[model.id]).map((model) => ({
      model,
      map: { size, root: readSquare(example.means[model.id], size), least: new Uint8Array(size), rest: new Float32Array(size) },
    }));
    // Means over many heads are small: the scale ends at the largest of all models instead of at 1.
    const most = Math.max(1e-4, ...this.shown.map(({ map }) => SQUARES[map.root.reduce((one, other) => Math.max(one, other), 0)]));
    this.most = most;
    const cell = Math.max(size > 64 ? 0.6 : 4, Math.min(26, 300 / size));
    this.heats = this.shown.map(({ model, map }) => {
      const heat = new HeatMap({ move: (at) => this.tell(example, at) });
      heat.show({
        rows: size, columns: size, rowLabels: example.tokens, columnLabels: example.tokens, title: model.name,
        label: `Mean attention of ${model.name}, ${example.title}`, rgba: attentionPixels(map, state.scale, most),
        lines: second === null ? [] : [{ row: second }, { column: second }],
      }, cell);
      return heat;
    });
    this.place.replaceChildren(...this.heats.map((heat) => heat.element),
      this.shown.length ? legendPicture("sequential", 0, most, `attention, ${state.scale} scale`) : make("p", { class: "note" }, "Not available for this example."));
  },
  tell(example, cell) {
    for (const heat of this.heats) heat.point(cell);
    if (!cell) return;
    const [row, column] = cell;
    this.readout.textContent = `From “${example.tokens[row]}” (${row}) to “${example.tokens[column]}” (${column}): ${
      this.shown.map(({ model, map }) => `${model.name} ${short(attention(map, row, column))}`).join("; ")}`;
  },
  subtitle: () => chosenExample().title,
  pictures() {
    return [...this.heats.map((heat) => heat.picture()), legendPicture("sequential", 0, this.most, `attention, ${state.scale} scale`)];
  },
  entries(most) {
    const { tokens, title } = chosenExample();
    const rows = [];
    for (let row = 0; row < tokens.length; row += 1) {
      const columns = most ? new Set(this.shown.flatMap(({ map }) => strongest(map, row, most).map(([column]) => column)))
        : tokens.keys();
      for (const column of [...columns].sort((one, other) => one - other)) {
        rows.push([row, tokens[row], column, tokens[column], ...this.shown.map(({ map }) => attention(map, row, column))]);
      }
    }
    return [{ title: `Mean attention, ${title}${most ? `: the ${most} strongest of each row` : ""}`,
      columns: ["From", "From token", "To", "To token", ...this.shown.map(({ model }) => model.name)], rows }];
  },
  tables() {
    return this.entries(3);
  },
  rows() {
    return this.entries(0);
  },
});

addView({
  id: "points",
  title: "Heads as points",
  menu: "Head PCA",
  exists: () => examples.some((example) => Object.keys(example.points ?? {}).length > 0),
  later: () => Boolean(payload.live),
  on: ["example", "layer", "head"],
  build(body) {
    this.note = make("div");
    this.place = make("div", { class: "charts" });
    this.readout = make("p", { class: "readout" }, "Point at a head to see its name; click selects it.");
    body.append(this.note, make("p", { class: "note" }, "Each point is the map of one head on this example; near points attend alike. One projection for all models."),
      this.readout, this.place);
  },
  update() {
    const example = chosenExample();
    this.note.replaceChildren(exampleNote());
    const known = models.filter((model) => example.points?.[model.id]);
    const range = pointRange(known.map((model) => example.points[model.id]));
    const share = (place) => {
      const part = example.explained?.[place];
      return `component ${place + 1}${typeof part === "number" ? ` (${Math.round(100 * part)}% of variance)` : ""}`;
    };
    this.shown = known.map((model) => scatter({
      title: model.name, model, points: example.points[model.id], range, labels: [share(0), share(1)], act: selectHead,
      tell: (text) => { this.readout.textContent = text; },
    }));
    this.place.replaceChildren(...this.shown, known.length ? layerLegend() : make("p", { class: "note" }, "Not available for this example."));
  },
  subtitle: () => chosenExample().title,
  pictures() {
    return [...this.shown, layerLegend()];
  },
  tables() {
    const example = chosenExample();
    const rows = models.filter((model) => example.points?.[model.id]).flatMap((model) =>
      example.points[model.id].map((point, place) =>
        [model.name, Math.floor(place / model.heads), place % model.heads, point?.[0] ?? null, point?.[1] ?? null]));
    return [{ title: `Heads as points, ${example.title}`, columns: ["Model", "Layer", "Head", "Component 1", "Component 2"], rows }];
  },
});
