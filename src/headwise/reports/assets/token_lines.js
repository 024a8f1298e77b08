// Two columns of tokens with lines from each token to those it attends to. One token can be chosen, in all models at once.

const ROW_HEIGHT = 20;
const LINES_WIDTH = 130;
const MOST_LINES = 600;

class TokenLines {
  constructor(choose) {
    this.choose = choose;
    this.caption = make("figcaption");
    this.box = make("div", { class: "token-lines" });
    this.element = make("figure", { class: "lines-figure" }, this.caption, make("div", { class: "lines-scroll" }, this.box));
  }

  show(example, model, map, chosen) {
    this.map = map;
    this.example = example;
    this.caption.textContent = model.name;
    const column = (side) => example.tokens.map((token, place) => {
      const kind = `token segment-${example.segments?.[place] ?? 0}`;
      if (side === "to") return make("span", { class: kind }, make("bdi", null, token));
      return make("button", {
        type: "button", class: kind, "data-place": place, tabindex: place === (chosen ?? 0) ? "0" : "-1",
        onpointerenter: () => this.choose(place), onfocus: () => this.choose(place),
      }, make("bdi", null, token));
    });
    this.from = make("div", { class: "tokens from", role: "group", "aria-label": `From, ${model.name}` }, column("from"));
    this.to = make("div", { class: "tokens to", "aria-hidden": "true" }, column("to"));
    this.from.addEventListener("keydown", (event) => this.walk(event));
    this.from.addEventListener("pointerleave", () => {
      if (!this.from.contains(document.activeElement)) this.choose(null);
    });
    this.picture = draw("svg", { width: LINES_WIDTH, height: ROW_HEIGHT * map.size, role: "img" });
    this.box.replaceChildren(this.from, this.picture, this.to);
    this.mark(chosen);
  }

  walk(event) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") {
      document.activeElement.blur();
      this.choose(null);
    }
    if (!by) return;
    event.preventDefault();
    const place = Number(event.target.closest("[data-place]").dataset.place) + by;
    const next = this.from.querySelector(`[data-place="${place}"]`);
    if (!next) return;
    for (const each of this.from.querySelectorAll("[tabindex='0']")) each.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // The same as one SVG, with the tokens inside.
  asPicture() {
    const { tokens } = this.example;
    const side = 8 + Math.min(130, Math.max(...tokens.map((token) => textWidth(token, 11))));
    const title = this.caption.textContent;
    const picture = svgPicture(Math.max(2 * side + LINES_WIDTH, textWidth(title, 12) + 16), 30 + ROW_HEIGHT * tokens.length, `${title}: ${this.picture.getAttribute("aria-label")}`);
    const lines = draw("g", { transform: `translate(${round(side)} 26)` });
    lines.append(...[...this.picture.children].map((line) => line.cloneNode()));
    picture.append(words(8, 16, title, { size: 12, weight: "600" }), lines);
    tokens.forEach((token, place) => {
      const y = 26 + ROW_HEIGHT * (place + 0.5) + 4;
      picture.append(words(side - 4, y, fitted(token, side - 6), { anchor: "end" }), words(side + LINES_WIDTH + 4, y, fitted(token, side - 6)));
    });
    return picture;
  }

  // null: all tokens at once, the strongest lines only.
  mark(chosen) {
    if (!this.map) return;
    const { size } = this.map;
    const tokens = this.example.tokens;
    const lines = [];
    if (chosen === null) {
      for (let row = 0; row < size; row += 1) for (const [column, value] of strongest(this.map, row, 4)) lines.push([row, column, value]);
      lines.sort((one, other) => other[2] - one[2]);
      lines.length = Math.min(lines.length, MOST_LINES);
    } else {
      for (const [column, value] of strongest(this.map, chosen, 64)) lines.push([chosen, column, value]);
    }
    this.picture.replaceChildren(...lines.map(([row, column, value]) => draw("line", {
      x1: 0, x2: LINES_WIDTH, y1: ROW_HEIGHT * (row + 0.5), y2: ROW_HEIGHT * (column + 0.5), stroke: ink("accent"),
      "stroke-width": chosen === null ? 1 : 1 + 3 * value, "stroke-opacity": Math.max(0.04, Math.sqrt(value) * (chosen === null ? 0.6 : 1)),
      "data-to": column,
    })));
    const best = chosen === null ? [] : strongest(this.map, chosen, 5);
    this.picture.setAttribute("aria-label", printable(chosen === null ? "Strongest attention of all tokens"
      : `${tokens[chosen]} attends to ${best.map(([column, value]) => `${tokens[column]} ${short(value)}`).join(", ")}`));
    const reached = new Map(best);
    for (const [place, node] of [...this.from.children].entries()) node.classList.toggle("chosen", place === chosen);
    for (const [place, node] of [...this.to.children].entries()) node.classList.toggle("reached", reached.has(place));
  }
}
