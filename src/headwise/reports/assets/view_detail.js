// One head on one example: its map in both models, their difference, the quadrants of a pair, lines between tokens.

const detailLocal = { size: "large", target: true, token: null };   // small things that a link need not carry

function mapNames(example, chosen) {
  const names = chosen.filter((model) => example.maps?.[model.id]).map((model) => example.maps[model.id].array);
  if (example.target) names.push(example.target.array);
  return names;
}

// Room for every token where that is possible at all; else as many as fit beside each other.
function cellSize(size, room, panels) {
  if (detailLocal.size === "fit") return Math.max(0.5, (room / panels - 24 - 96) / size);
  if (size > 64) return Math.max(1, Math.floor(700 / size));
  const wide = (room / panels - 24 - 96) / size;
  return Math.max(LABEL_ROOM, Math.min(30, wide));
}

function mapLegend({ kind, most }) {
  return legendPicture(kind, kind === "diverging" ? -most : 0, most, `attention, ${state.scale} scale`);
}

addView({
  id: "detail",
  title: "One head on one example",
  menu: "Head detail",
  exists: () => examples.length > 0,
  later: () => Boolean(payload.live),
  on: ["layer", "head", "example", "models", "scale"],

  build(body) {
    this.controls = make("div", { class: "controls" });
    this.answers = make("div", { class: "answers" });
    this.maps = make("div", { class: "maps" });
    this.readout = make("p", { class: "readout", id: "detail-readout" });
    this.shares = make("div", { class: "shares" });
    this.lines = make("div", { class: "all-lines" });
    this.heats = [];
    this.columns = [];
    body.append(
      this.controls, this.answers, this.readout, this.maps, this.shares,
      make("h3", null, "From token to token"),
      make("p", { class: "note" }, "Point at a token on a left side, or go there with Tab and the arrow keys: lines lead to the tokens it attends to."),
      this.lines, given.examples?.note ? make("p", { class: "note" }, given.examples.note) : null);
    new ResizeObserver(() => {
      if (Math.abs((this.width ?? 0) - this.maps.clientWidth) > 24 && this.shown) this.drawMaps();
    }).observe(this.maps);
  },

  update() {
    const example = chosenExample();
    const chosen = chosenModels();
    this.drawControls(example, chosen);
    this.drawAnswers(example);
    detailLocal.token = null;
    const asked = `${state.example}/${state.models}`;
    this.asked = asked;
    return withArrays(mapNames(example, chosen), this.section, () => this.asked === asked, () => this.drawAll(example, chosen));
  },

  drawAll(example, chosen) {
    this.shown = {
      example,
      panels: chosen.map((model) => ({
        model, map: hasHead(model, state.layer, state.head) ? readMap(example, model, state.layer, state.head) : null,
      })),
      marked: example.target ? wishes(readSquare(example.target.array, example.tokens.length), example.tokens.length) : null,
    };
    this.cell = null;
    this.drawMaps();
    this.drawShares();
    this.drawLines();
    this.tell(null);
  },

  drawControls(example, chosen) {
    const focused = this.controls.contains(document.activeElement) ? document.activeElement.id : null;
    const numbers = (count) => Array.from({ length: count }, (_, place) => [place, place]);
    const pick = (place, label) => choice(label, models.map((model) => [model.id, model.name]), state.models[place], (id) => {
      const pair = [...state.models];
      if (pair.length > 1 && pair[1 - place] === id) pair[1 - place] = pair[place];
      pair[place] = id;
      choose({ models: pair });
    }, { id: `model-${place}` });
    this.controls.replaceChildren(
      choice("Example", examples.map((each) => [each.id, each.title]), example.id, (id) => choose({ example: id }), { id: "example" }),
      choice("Layer", numbers(mostLayers), state.layer, (value) => choose({ layer: Number(value) }), { id: "layer" }),
      choice("Head", numbers(mostHeads), state.head, (value) => choose({ head: Number(value) }), { id: "head" }),
      make("span", { class: "pairing" },
        button("‹", () => moveInOrder(-1), { id: "previous-head", title: "Previous head in the order of change (p)", "aria-label": "Previous most changed head" }),
        button("›", () => moveInOrder(1), { id: "next-head", title: "Next head in the order of change (n)", "aria-label": "Next most changed head" })),
      ...(models.length > 1 ? [pick(0, "Left"), ...(chosen.length > 1 ? [pick(1, "Right")] : [])] : []),
      choice("Scale", [["root", "root"], ["linear", "linear"]], state.scale, (scale) => choose({ scale }), { id: "scale" }),
      choice("Map size", [["large", "legible"], ["fit", "side by side"]], detailLocal.size, (size) => {
        detailLocal.size = size;
        this.drawMaps();
      }, { id: "map-size" }),
      ...(example.target ? [this.targetBox(example)] : []),
    );
    if (focused) document.getElementById(focused)?.focus();
  },

  targetBox(example) {
    const box = make("input", { type: "checkbox", id: "target", onchange: () => {
      detailLocal.target = box.checked;
      this.drawMaps();
    } });
    box.checked = detailLocal.target;
    return make("label", { class: "choice tick" }, box, make("span", null, `Outline of target: ${example.target.name}`));
  },

  drawAnswers(example) {
    const texts = (example.texts ?? []).map((text, place) =>
      make("p", { class: "text", dir: "auto" }, make("span", { class: "part" }, example.texts.length > 1 ? "AB"[place] ?? place : "Text"), make("bdi", null, text)));
    const items = models.filter((model) => example.answers?.[model.id]).map((model) => {
      const { prediction, probabilities = {} } = example.answers[model.id];
      // Numbers and ranks are not right or wrong: only classes, which have probabilities, get a mark.
      const judged = example.gold !== null && example.gold !== undefined && Object.keys(probabilities).length > 0;
      const right = judged ? (prediction === example.gold ? " ✓" : " ✗") : "";
      return make("div", { class: "answer" }, make("strong", null, model.name), make("span", null, make("bdi", null, prediction), right),
        make("span", { class: "faint" }, Object.entries(probabilities).map(([label, value]) => `${label} ${short(value)}`).join(" · ")));
    });
    this.answers.replaceChildren(...texts, make("div", { class: "answer-row" },
      example.gold === null || example.gold === undefined ? null : make("div", { class: "answer" }, make("strong", null, "Right answer"), make("bdi", null, example.gold)), items));
  },

  specs() {
    const { example, panels, marked } = this.shown;
    const size = example.tokens.length;
    const second = boundary(example);
    const common = {
      rows: size, columns: size, rowLabels: example.tokens, columnLabels: example.tokens,
      lines: second === null ? [] : [{ row: second }, { column: second }], outline: marked && detailLocal.target ? marked : null,
    };
    const where = `${headName(state.layer, state.head)}, ${example.title}`;
    const found = panels.filter(({ map }) => map).map(({ model, map }) => ({
      ...common, title: model.name, label: `Attention of ${model.name}, ${where}: ${size} by ${size} tokens`,
      rgba: attentionPixels(map, state.scale), kind: "sequential", most: 1,
    }));
    if (panels.length === 2 && panels.every(({ map }) => map)) {
      const [first, other] = panels;
      const most = largestDifference(first.map, other.map) || 1;
      found.push({
        ...common, title: `${other.model.name} minus ${first.model.name}`, label: `Difference of attention, ${where}`,
        rgba: differencePixels(first.map, other.map, state.scale, most), kind: "diverging", most,
      });
    }
    return found;
  },

  drawMaps() {
    const { example, panels } = this.shown;
    this.width = this.maps.clientWidth;
    const specs = this.specs();
    const cell = cellSize(example.tokens.length, Math.max(300, this.width || 900), Math.max(1, panels.length === 2 ? 3 : 1));
    this.heats = specs.map((spec) => {
      const heat = new HeatMap({ move: (at) => this.tell(at), act: (at) => at && this.chooseToken(at[0]) });
      heat.canvas.setAttribute("aria-describedby", "detail-readout");
      heat.show(spec, cell);
      heat.element.append(mapLegend(spec));
      return heat;
    });
    const missing = panels.filter(({ map }) => !map).map(({ model }) => make("p", { class: "note" }, this.whyMissing(example, model)));
    this.maps.replaceChildren(...this.heats.map((heat) => heat.element), ...missing);
  },

  whyMissing(example, model) {
    if (!hasHead(model, state.layer, state.head)) return `${model.name} has no ${headName(state.layer, state.head)}.`;
    return `${model.name}: there is no map of this example.`;
  },

  // What lies under the pointer, in all maps at once.
  tell(cell) {
    this.cell = cell;
    for (const heat of this.heats) heat.point(cell);
    const { example, panels } = this.shown;
    if (!cell) {
      this.readout.textContent = "Rows attend to columns. Point into a map, or go there with the arrow keys; Enter shows the lines of that row.";
      return;
    }
    const [row, column] = cell;
    const known = panels.filter(({ map }) => map);
    const values = known.map(({ model, map }) => {
      const rest = map.rest[row] > 0.005 ? ` (${short(map.rest[row])} of this row not kept)` : "";
      return `${model.name} ${valueText(map, row, column)}${rest}`;
    });
    if (known.length === 2) values.push(`difference ${signed(attention(known[1].map, row, column) - attention(known[0].map, row, column))}`);
    this.readout.textContent = `From “${example.tokens[row]}” (${row}) to “${example.tokens[column]}” (${column}): ${values.join("; ")}`;
  },

  shareTable() {
    const { example, panels, marked } = this.shown;
    const found = [];
    const known = panels.filter(({ map }) => map);
    if (boundary(example) !== null) {
      found.push({
        title: "Where the attention of each text goes",
        columns: ["Model", "A→A", "A→B", "A→special", "A not kept", "B→A", "B→B", "B→special", "B not kept"],
        rows: known.map(({ model, map }) => {
          const [from, back] = quadrants(example, map);
          return [model.name, from[0], from[1], from[-1], from.rest, back[0], back[1], back[-1], back.rest];
        }),
        notes: ["Means over the tokens of a text; A is the first text, B the second."],
      });
    }
    if (marked) {
      found.push({
        title: `Attention on the target “${example.target.name}”`, columns: ["Model", "Share on the outlined cells"],
        rows: known.map(({ model, map }) => [model.name, matchScore(map, marked)]),
      });
    }
    return found;
  },

  drawShares() {
    this.shares.replaceChildren(...this.shareTable().map((each) => table(each)));
  },

  drawLines() {
    const { example, panels } = this.shown;
    this.columns = panels.filter(({ map }) => map).map(({ model, map }) => {
      const lines = new TokenLines((place) => this.chooseToken(place));
      lines.show(example, model, map, detailLocal.token);
      return lines;
    });
    this.lines.replaceChildren(...this.columns.map((each) => each.element));
    // Long texts scroll together, so that the same tokens stay beside each other.
    const boxes = this.columns.map((each) => each.box.parentElement);
    for (const box of boxes) box.addEventListener("scroll", () => boxes.forEach((other) => { other.scrollTop = box.scrollTop; }), { passive: true });
  },

  chooseToken(place) {
    if (detailLocal.token === place) return;
    detailLocal.token = place;
    for (const lines of this.columns) lines.mark(place);
  },

  subtitle: () => `${headName(state.layer, state.head)}, ${chosenExample().title}`,

  pictures() {
    const maps = this.heats.map((heat) => withLegend(heat.picture(), mapLegend(heat.spec)));
    const few = this.shown.example.tokens.length <= 64;   // beyond, the lines would be a picture of nothing
    return [...maps, ...(few ? this.columns.map((each) => each.asPicture()) : [])];
  },

  tables() {
    if (!this.shown) return [];
    const { example, panels } = this.shown;
    const known = panels.filter(({ map }) => map);
    const rows = [];
    for (let row = 0; row < example.tokens.length; row += 1) {
      const columns = new Set(known.flatMap(({ map }) => strongest(map, row, 3).map(([column]) => column)));
      for (const column of [...columns].sort((one, other) => one - other)) rows.push(this.tableRow(known, row, column));
    }
    return [...this.shareTable(), {
      title: `${headName(state.layer, state.head)}, ${example.title}: the three strongest of each row`, columns: this.tableColumns(known), rows,
    }];
  },

  tableColumns(known) {
    return ["From", "From token", "To", "To token", ...known.map(({ model }) => model.name), ...(known.length === 2 ? ["Difference"] : [])];
  },

  tableRow(known, row, column) {
    const { tokens } = this.shown.example;
    const values = known.map(({ map }) => (leftOut(map, row, column) ? null : attention(map, row, column)));
    const difference = known.length === 2 ? [values.includes(null) ? null : values[1] - values[0]] : [];
    return [row, tokens[row], column, tokens[column], ...values, ...difference];
  },

  // Every value that is known to any of the models.
  rows() {
    if (!this.shown) return [];
    const { example, panels } = this.shown;
    const known = panels.filter(({ map }) => map);
    const rows = [];
    for (let row = 0; row < example.tokens.length; row += 1) {
      for (let column = 0; column < example.tokens.length; column += 1) {
        if (known.some(({ map }) => !leftOut(map, row, column))) rows.push(this.tableRow(known, row, column));
      }
    }
    return [{ title: "Attention", columns: this.tableColumns(known), rows }];
  },
});
