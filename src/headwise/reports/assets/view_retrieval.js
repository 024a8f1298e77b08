// Claims and their papers, as ranked before and after.

const FIRST_CLAIMS = 10;

function rankMove(paper) {
  const [before, after] = [paper.ranks?.[baseModel?.id], paper.ranks?.[runModel.id]];
  return typeof before === "number" && typeof after === "number" ? before - after : null;
}

addView({
  id: "retrieval",
  title: "Retrieval before and after",
  menu: "Retrieval",
  exists: () => Boolean(given.retrieval?.claims.length),
  build(body) {
    const { claims } = given.retrieval;
    this.most = FIRST_CLAIMS;
    this.cards = make("div", { class: "cards" });
    this.more = button("Show more claims", () => {
      this.most += FIRST_CLAIMS;
      this.showClaims();
    }, { id: "more-claims" });
    body.append(make("p", { class: "note" }, `${claims.length} claim${claims.length === 1 ? "" : "s"}. Arrows show how a paper moved${baseModel ? ` from ${baseModel.name} to ${runModel.name}` : ""}; ★ marks relevant papers.`),
      this.cards, this.more);
    this.showClaims();
  },
  showClaims() {
    const { claims } = given.retrieval;
    this.more.hidden = claims.length <= this.most;
    this.cards.replaceChildren(...claims.slice(0, this.most).map((claim) => make("article", { class: "card" },
      make("p", null, make("strong", null, `Claim ${claim.id}: `), make("bdi", null, claim.text)),
      make("ol", { class: "moves" }, this.sorted(claim).map((paper) => this.paper(paper))))));
  },
  sorted(claim) {
    const rank = (paper) => paper.ranks?.[runModel.id] ?? Infinity;
    return [...claim.papers].sort((one, other) => rank(one) - rank(other));
  },
  paper(paper) {
    const move = rankMove(paper);
    const ranks = models.filter((model) => typeof paper.ranks?.[model.id] === "number").map((model) =>
      `${model.name} ${paper.ranks[model.id]}${typeof paper.scores?.[model.id] === "number" ? ` (score ${short(paper.scores[model.id])})` : ""}`);
    const arrow = move === null ? "" : move > 0 ? `▲ ${move} up` : move < 0 ? `▼ ${-move} down` : "= same";
    return make("li", { "data-paper": paper.id },
      make("span", { class: move > 0 ? "up" : move < 0 ? "down" : "" }, make("strong", null, `rank ${paper.ranks?.[runModel.id] ?? "–"}`), ` ${arrow}`),
      make("span", null, paper.relevant ? make("span", { title: "relevant", "aria-label": "relevant" }, "★ ") : null, make("bdi", null, paper.text),
        make("span", { class: "note" }, ` — ${paper.id}; ${ranks.join(", ")}`)));
  },
  tables() {
    const rows = given.retrieval.claims.flatMap((claim) => claim.papers.map((paper) => [
      claim.id, claim.text, paper.id, paper.text, paper.relevant ? "yes" : "no",
      ...models.flatMap((model) => [paper.ranks?.[model.id] ?? null, paper.scores?.[model.id] ?? null]),
    ]));
    return [{ title: "Retrieval", columns: ["Claim", "Text of claim", "Paper", "Text of paper", "Relevant",
      ...models.flatMap((model) => [`Rank, ${model.name}`, `Score, ${model.name}`])], rows }];
  },
});
