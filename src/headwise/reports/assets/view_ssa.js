// Scores that a token head gave to each token, laid over the text.

addView({
  id: "ssa",
  title: "Token scores",
  menu: "Token scores",
  exists: () => examples.some((example) => Object.keys(example.ssa ?? {}).length > 0),
  later: () => Boolean(payload.live),
  on: ["example"],
  build(body) {
    this.note = make("div");
    this.place = make("div");
    body.append(this.note, this.place);
  },
  known: () => models.filter((model) => chosenExample().ssa?.[model.id]),
  update() {
    const example = chosenExample();
    this.note.replaceChildren(exampleNote());
    const parts = this.known().flatMap((model) => {
      const { scores, kept, threshold } = example.ssa[model.id];
      const tokens = example.tokens.flatMap((token, place) => [this.token(token, scores[place], kept?.[place], threshold), " "]);
      const rule = threshold === null || threshold === undefined ? "No threshold: nothing is left out."
        : `Tokens below ${short(threshold)} are not pooled: italics with dots below.`;
      return [make("h3", null, model.name), make("p", { class: "note" }, rule), make("p", { class: "ssa-text", dir: "auto" }, tokens)];
    });
    this.place.replaceChildren(...(parts.length ? [...parts, legendPicture("sequential", 0, 1, "score")]
      : [make("p", { class: "note" }, "Not available for this example.")]));
  },
  token(token, score, kept, threshold) {
    if (score === null || score === undefined) return make("span", { class: "ssa-token frame" }, make("bdi", null, token));
    const colour = shade("sequential", 0.75 * score);   // the darkest quarter would drown the letters
    const out = kept === false && threshold !== null && threshold !== undefined;
    return make("span", { class: out ? "ssa-token left-out" : "ssa-token", title: `${short(score)}${out ? ", not pooled" : ""}`,
      style: { background: css(colour), color: inkOn(colour) } }, make("bdi", null, token));
  },
  subtitle: () => chosenExample().title,
  tables() {
    const example = chosenExample();
    return this.known().map((model) => ({
      title: `${model.name}, ${example.title}`, columns: ["Place", "Token", "Score", "Pooled"],
      rows: example.tokens.map((token, place) => {
        const { scores, kept } = example.ssa[model.id];
        return [place, token, scores[place], scores[place] === null ? "" : kept?.[place] ? "yes" : "no"];
      }),
    }));
  },
  rows() {
    const found = this.tables();
    return found.length ? found : [{ title: "", columns: ["Place", "Token", "Score", "Pooled"], rows: [] }];
  },
});
