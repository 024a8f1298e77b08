// What was run, what came out, what changed; and what should not be concluded from it.

addView({
  id: "summary",
  title: "Summary",
  exists: () => Boolean(given.summary),
  build(body) {
    const { facts = [], tables: results = [], changed = [] } = given.summary;
    if (facts.length) {
      body.append(make("dl", { class: "facts" }, facts.map(([term, text]) =>
        make("div", null, make("dt", null, term), make("dd", null, make("bdi", null, text))))));
    }
    if (changed.length) {
      body.append(make("h3", null, "What changed"), make("ul", { class: "changed" }, changed.map((each) => make("li", null, each))));
    }
    body.append(...results.map((each) => table(each)));
  },
  tables() {
    const { facts = [], tables: results = [], changed = [] } = given.summary;
    const found = [];
    if (facts.length) found.push({ title: "Facts", columns: ["What", "Value"], rows: facts });
    if (changed.length) found.push({ title: "What changed", columns: ["What changed"], rows: changed.map((each) => [each]) });
    return [...found, ...results];
  },
});

addView({
  id: "caveats",
  title: "How far to trust this",
  menu: "Honesty",
  exists: () => Boolean(given.caveats),
  build(body) {
    const { caveat, items = [], negative = [] } = given.caveats;
    body.append(make("p", { class: "caveat" }, caveat));
    if (items.length) {
      body.append(make("dl", { class: "facts" }, items.map(([term, text]) =>
        make("div", null, make("dt", null, term), make("dd", null, text)))));
    }
    if (negative.length) {
      body.append(make("h3", null, "What did not work"), make("ul", null, negative.map((each) => make("li", null, each))));
    }
  },
  tables() {
    const { caveat, items = [], negative = [] } = given.caveats;
    return [{ title: "How far to trust this", columns: ["What", "Text"],
      rows: [["Caveat", caveat], ...items, ...negative.map((each) => ["Did not work", each])] }];
  },
});
