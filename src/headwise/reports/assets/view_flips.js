// Examples whose answer changed, in both directions, with the way to their maps and to the heads that moved.

const FIRST_FLIPS = 20;
const FLIP_KINDS = { all: "All", gained: "Gained", lost: "Lost", other: "Other" };

addView({
  id: "flips",
  title: "Changed answers",
  menu: "Flips",
  exists: () => Boolean(given.flips),
  build(body) {
    const { gained, lost, split } = given.flips;
    this.kind = "all";
    this.most = FIRST_FLIPS;
    this.filters = make("div", { class: "filters", role: "group", "aria-label": "Which changes" });
    this.cards = make("div", { class: "cards" });
    this.more = button("Show more", () => {
      this.most += FIRST_FLIPS;
      this.showFlips();
    }, { id: "more-flips" });
    body.append(make("p", null, `On ${split}, ${gained} answer${gained === 1 ? "" : "s"} became right and ${lost} became wrong.`),
      this.filters, this.cards, this.more);
    this.showFlips();
  },
  chosen() {
    return given.flips.list.filter((flip) => this.kind === "all" || flip.kind === this.kind);
  },
  showFlips() {
    // Of all answers, though the list may hold fewer.
    const counts = { gained: given.flips.gained, lost: given.flips.lost, other: given.flips.other ?? 0 };
    counts.all = counts.gained + counts.lost + counts.other;
    const focused = this.filters.contains(document.activeElement);
    this.filters.replaceChildren(...Object.entries(FLIP_KINDS).map(([kind, name]) =>
      button(`${name} (${counts[kind] ?? 0})`, () => {
        this.kind = kind;
        this.most = FIRST_FLIPS;
        this.showFlips();
        fillValues(this);
      }, { "data-kind": kind, "aria-pressed": String(kind === this.kind) })));
    if (focused) this.filters.querySelector(`[data-kind="${this.kind}"]`).focus();
    const found = this.chosen();
    this.more.hidden = found.length <= this.most;
    this.cards.replaceChildren(...found.slice(0, this.most).map((flip) => this.card(flip)),
      found.length ? "" : make("p", { class: "note" }, "None."));
  },
  card(flip) {
    const go = (changes) => {
      choose(changes);
      openView("detail");
    };
    const there = flip.page_example && exampleOf(flip.page_example);
    const links = [];
    if (there) {
      links.push(button("Show its attention", () => go({ example: flip.page_example }), { class: "small", "data-example": flip.page_example }));
      for (const [layer, head, change] of flip.heads ?? []) {
        links.push(button(`${headName(layer, head)}${typeof change === "number" ? ` (${short(change)})` : ""}`,
          () => go({ example: flip.page_example, layer, head }), { class: "small", "data-layer": layer, "data-head": head, title: "A head that moved on this example" }));
      }
    }
    return make("article", { class: "card", "data-kind": flip.kind },
      make("p", null, make("span", { class: `tag ${flip.kind in FLIP_KINDS ? flip.kind : "other"}` }, flip.kind), make("strong", null, make("bdi", null, flip.title)),
        " — right answer ", make("bdi", null, flip.gold ?? "–"), "; before ", make("bdi", null, flip.before), ", after ", make("bdi", null, flip.after)),
      (flip.texts ?? []).map((text) => make("p", { class: "text", dir: "auto" }, text)),
      links.length ? make("div", { class: "row" }, links) : null);
  },
  tables() {
    return [{ title: "Changed answers", columns: ["Example", "Title", "Kind", "Right answer", "Before", "After", "Texts", "Heads that moved"],
      rows: this.chosen().map((flip) => [flip.example, flip.title, flip.kind, flip.gold, flip.before, flip.after, (flip.texts ?? []).join(" | "),
        (flip.heads ?? []).map(([layer, head, change]) => `${layer}.${head}${typeof change === "number" ? ` (${short(change)})` : ""}`).join(" ")]) }];
  },
});
