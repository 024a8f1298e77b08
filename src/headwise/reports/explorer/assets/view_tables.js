// Dissociation of tasks as matrices, results over seeds, and what things cost.

addView({
  id: "dissociation",
  title: "Dissociation of tasks",
  menu: "Dissociation",
  exists: () => asList(given.dissociation).length > 0,
  build(body) {
    this.place = make("div", { class: "charts" });
    body.append(this.place);
  },
  update() {
    this.shown = asList(given.dissociation).map(matrixChart);
    this.place.replaceChildren(...this.shown.map((picture, place) => make("figure", null, picture,
      (asList(given.dissociation)[place].notes ?? []).map((note) => make("p", { class: "note" }, note)))));
  },
  pictures() {
    return this.shown;
  },
  tables: () => asList(given.dissociation).map(({ title, rows, columns, values, notes }) => ({
    title, columns: ["", ...columns], rows: rows.map((name, place) => [name, ...values[place]]), notes,
  })),
});

addView({
  id: "results",
  title: "Results over seeds",
  menu: "Results",
  exists: () => asList(given.results).length > 0,
  build(body) {
    body.append(...asList(given.results).map((each) => table(each)));
  },
  tables: () => asList(given.results),
});

addView({
  id: "times",
  title: "Times",
  exists: () => asList(given.times).length > 0,
  build(body) {
    body.append(...asList(given.times).map((each) => table(each)));
  },
  tables: () => asList(given.times),
});
