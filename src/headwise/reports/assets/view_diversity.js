// How heads grow apart while training: a strip of heads by steps for each model, and their points by step.

const MEASURES = { similarity: "Similarity to the other heads", entropy: "Entropy" };

function diversityModels() {
  return models.filter((model) => given.diversity?.[model.id]);
}

// The last recorded step of a model that is not after this one.
function stepPlace(entry, step) {
  let place = 0;
  entry.steps.forEach((each, number) => {
    if (each <= step) place = number;
  });
  return place;
}

function nowStep() {
  return state.step ?? allSteps().at(-1);
}

addView({
  id: "diversity",
  title: "Diversity of heads over training",
  menu: "Diversity",
  exists: () => diversityModels().length > 0,
  on: ["layer", "head", "step"],
  build(body) {
    this.measures = Object.keys(MEASURES).filter((name) => diversityModels().some((model) => given.diversity[model.id][name]));
    this.measure = this.measures[0];
    this.range = pointRange(diversityModels().flatMap((model) => given.diversity[model.id].points ?? []));
    const steps = allSteps();
    this.slider = make("input", { type: "range", min: "0", max: String(steps.length - 1), step: "1", id: "step", "aria-label": "Step of training",
      oninput: () => choose({ step: steps[Number(this.slider.value)] }) });
    this.play = button("Play", () => this.toggle(), { id: "play", "aria-pressed": "false" });
    this.now = make("output", { for: "step", class: "number" });
    this.readout = make("p", { class: "readout" }, "Rows are heads, columns steps. Point at a cell; click selects the head and the step.");
    this.strips = make("div", { class: "strips" });
    this.place = make("div", { class: "charts" });
    body.append(
      make("div", { class: "controls" }, choice("Measure", this.measures.map((name) => [name, MEASURES[name]]), this.measure, (name) => {
        this.measure = name;
        refresh(this);
      }, { id: "measure" })),
      this.readout, this.strips,
      make("div", { class: "scrubber" }, this.play, this.slider, this.now), this.place);
  },
  update() {
    this.drawStrips();
    this.drawPoints();
  },
  values(model) {
    return given.diversity[model.id][this.measure] ?? [];
  },
  drawStrips() {
    const [low, high] = extent(diversityModels().flatMap((model) => this.values(model).flat()));
    this.scale = [low, high];
    this.heats = diversityModels().filter((model) => this.values(model).length).map((model) => {
      const { steps } = given.diversity[model.id];
      const count = model.layers * model.heads;
      const rgba = new Uint8ClampedArray(4 * count * steps.length);
      for (let place = 0; place < count; place += 1) {
        steps.forEach((_, column) => {
          const value = this.values(model)[column]?.[place];
          if (typeof value === "number") paint(rgba, place * steps.length + column, shade("sequential", (value - low) / (high - low || 1)));
        });
      }
      const column = stepPlace(given.diversity[model.id], nowStep());
      const heat = new HeatMap({
        move: (cell) => this.tell(model, heat, cell),
        act: (cell) => cell && choose({ layer: Math.floor(cell[0] / model.heads), head: cell[0] % model.heads, step: steps[cell[1]] }),
      });
      heat.element.dataset.model = model.id;
      heat.show({
        rows: count, columns: steps.length, title: model.name, rgba, flatColumns: true,
        label: `${MEASURES[this.measure]} of ${count} heads of ${model.name} at ${steps.length} steps`,
        rowLabels: Array.from({ length: count }, (_, place) => `${Math.floor(place / model.heads)}.${place % model.heads}`),
        columnLabels: steps.map(String),
      }, Math.max(1, Math.min(40, 400 / steps.length)), Math.max(3, Math.min(18, 430 / count)));
      heat.cursor = hasHead(model, state.layer, state.head) ? [state.layer * model.heads + state.head, column] : null;
      heat.redraw();
      heat.home = heat.cursor;
      return heat;
    });
    this.strips.replaceChildren(...this.heats.map((heat) => heat.element), legendPicture("sequential", low, high, MEASURES[this.measure]));
  },
  tell(model, heat, cell) {
    heat.point(cell ?? heat.home);
    if (!cell) return;
    const [place, column] = cell;
    this.readout.textContent = `${model.name}, ${headName(Math.floor(place / model.heads), place % model.heads)}, step ${
      given.diversity[model.id].steps[column]}: ${MEASURES[this.measure]} ${short(this.values(model)[column]?.[place])}`;
  },
  drawPoints() {
    const steps = allSteps();
    const step = nowStep();
    this.slider.value = String(steps.indexOf(step));
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    this.now.textContent = `step ${step}`;
    this.shown = diversityModels().filter((model) => given.diversity[model.id].points).map((model) => {
      const entry = given.diversity[model.id];
      const place = stepPlace(entry, step);
      const trails = entry.points[place].map((_, head) => entry.points.slice(0, place).map((points) => points[head]));
      return scatter({ title: `${model.name}, step ${entry.steps[place]}`, model, points: entry.points[place], range: this.range,
        labels: ["component 1", "component 2"], trails, act: selectHead,
        tell: (text) => { this.readout.textContent = text; } });
    });
    this.place.replaceChildren(...this.shown, layerLegend());
  },
  toggle() {
    if (this.timer) {
      this.stop();
      return;
    }
    const steps = allSteps();
    if (nowStep() === steps.at(-1)) choose({ step: steps[0] });
    this.play.textContent = "Pause";
    this.play.setAttribute("aria-pressed", "true");
    this.timer = setInterval(() => {
      const next = steps.indexOf(nowStep()) + 1;
      if (next < steps.length) choose({ step: steps[next] });
      if (next >= steps.length - 1) this.stop();
    }, 450);
  },
  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
    this.play.setAttribute("aria-pressed", "false");
  },
  subtitle() {
    return `${MEASURES[this.measure]}, step ${nowStep()}`;
  },
  pictures() {
    return [...this.heats.map((heat) => heat.picture()), legendPicture("sequential", ...this.scale, MEASURES[this.measure]), ...this.shown, layerLegend()];
  },
  // At the chosen step for reading; all steps for the file.
  entries(wanted) {
    const rows = [];
    for (const model of diversityModels()) {
      const entry = given.diversity[model.id];
      entry.steps.forEach((step, column) => {
        if (wanted !== null && column !== stepPlace(entry, wanted)) return;
        for (let place = 0; place < model.layers * model.heads; place += 1) {
          const point = entry.points?.[column]?.[place];
          rows.push([model.name, step, Math.floor(place / model.heads), place % model.heads,
            ...Object.keys(MEASURES).map((name) => entry[name]?.[column]?.[place] ?? null), point?.[0] ?? null, point?.[1] ?? null]);
        }
      });
    }
    return [{ title: wanted === null ? "Diversity" : `Diversity at step ${wanted}`,
      columns: ["Model", "Step", "Layer", "Head", "Similarity", "Entropy", "Component 1", "Component 2"], rows }];
  },
  tables() {
    return this.entries(nowStep());
  },
  rows() {
    return this.entries(null);
  },
});
