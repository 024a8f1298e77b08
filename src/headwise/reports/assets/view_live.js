// Explore mode: a text goes to the server that the page came from and comes back as one more example.

let liveCount = 0;

// Names of arrays are made unique, so that one answer cannot take the place of another.
function receive({ example, arrays = {} }) {
  liveCount += 1;
  const prefix = `live${liveCount}/`;
  for (const [name, packed] of Object.entries(arrays)) deliver(prefix + name, packed);
  const own = (name) => (name in arrays ? prefix + name : name);
  const renamed = { ...example, maps: {}, means: {} };
  for (const [id, entry] of Object.entries(example.maps ?? {})) renamed.maps[id] = { ...entry, array: own(entry.array) };
  for (const [id, name] of Object.entries(example.means ?? {})) renamed.means[id] = own(name);
  if (example.target) renamed.target = { ...example.target, array: own(example.target.array) };
  if (exampleOf(renamed.id)) renamed.id = `${renamed.id}-live${liveCount}`;
  examples.push(renamed);
  arrange();
  choose({ example: renamed.id });
  return renamed;
}

addView({
  id: "live",
  title: "Try a text",
  exists: () => Boolean(payload.live),
  build(body) {
    const { pair, longest_characters: longest } = payload.live;
    const area = (label, name) => make("label", { class: "area" }, make("span", null, label),
      make("textarea", { name, rows: "3", maxlength: longest ?? null, required: true, dir: "auto" }));
    this.fields = make("fieldset", null, make("legend", { class: "hidden" }, "Text to look at"),
      area(pair ? "First text" : "Text", "first"), pair ? area("Second text", "second") : null,
      this.switches(),
      make("button", { type: "submit", id: "live-send" }, "Show its attention"));
    this.status = make("p", { class: "note", role: "status" });
    this.problem = make("p", { class: "problem", role: "alert", id: "live-problem", hidden: true });
    this.form = make("form", { id: "live-form", onsubmit: (event) => {
      event.preventDefault();
      this.send();
    } }, this.fields);
    this.seen = [];
    body.append(this.form, this.status, this.problem);
  },
  // Heads that the models have to do without when they read the next text.
  switches() {
    this.off = new Set();
    this.grid = make("div", { class: "scroll" });
    this.count = make("summary");
    this.showSwitches();
    return make("details", { id: "live-heads" }, this.count,
      make("p", { class: "note" }, "Click heads off, send the text again, and see what the models answer without them."),
      this.grid, make("div", { class: "controls" },
        button("The chosen head", () => this.toggle(state.layer, state.head), { id: "live-chosen" }),
        button("All on", () => {
          this.off.clear();
          this.showSwitches();
        }, { id: "live-all-on" })));
  },
  toggle(layer, head) {
    const name = `${layer}.${head}`;
    if (!this.off.delete(name)) this.off.add(name);
    this.showSwitches([layer, head]);
  },
  showSwitches(focus = null) {
    const { layers, heads } = runModel;
    this.count.textContent = this.off.size ? `Switch heads off (${this.off.size} of ${layers * heads} are off)` : "Switch heads off";
    const inside = this.grid.contains(document.activeElement);
    this.grid.replaceChildren(offGrid({ layers, heads, label: `Heads: ${this.off.size} off`, how: "off",
      off: (layer, head) => this.off.has(`${layer}.${head}`),
      act: (layer, head) => this.toggle(layer, head) }));
    if (inside && focus) this.grid.querySelector(`.cell[data-layer="${focus[0]}"][data-head="${focus[1]}"]`)?.focus();
  },
  async send() {
    const off = [...this.off].map((name) => name.split(".").map(Number));
    const texts = [...this.form.querySelectorAll("textarea")].map((each) => each.value);
    this.fields.disabled = true;
    this.form.setAttribute("aria-busy", "true");
    this.problem.hidden = true;
    this.status.textContent = "The models are reading …";
    try {
      const answer = await fetch(payload.live.url, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ texts, off }),
      });
      const said = await answer.json().catch(() => ({ error: `The server answered ${answer.status} without a reason.` }));
      if (said.error || !said.example) throw new Error(said.error ?? `The server answered ${answer.status} without an example.`);
      const example = receive(said);
      this.seen.push(example);
      this.status.textContent = `Shown below as “${example.title}”.`;
      fillValues(this);
    } catch (problem) {
      this.status.textContent = "";
      this.problem.textContent = problem instanceof TypeError ? "The server does not answer: is it still running?" : problem.message;
      this.problem.hidden = false;
    } finally {
      this.fields.disabled = false;
      this.form.removeAttribute("aria-busy");
    }
  },
  tables() {
    return [{ title: "Texts tried", columns: ["Example", "Texts", "Heads off", "Answers"],
      rows: this.seen.map((each) => [each.title, (each.texts ?? []).join(" | "),
        (each.off ?? []).map(([layer, head]) => `${layer}.${head}`).join(" "),
        Object.entries(each.answers ?? {}).map(([id, answer]) => `${nameOf(id)}: ${answer.prediction}`).join(", ")]) }];
  },
});
