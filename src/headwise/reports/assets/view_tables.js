// Matrices of tasks, results over seeds, and what things cost.

function matricesView(id, title, menu) {
  const matrices = asList(given[id]);
  addView({
    id,
    title,
    menu,
    exists: () => matrices.length > 0,
    build(body) {
      this.place = make("div", { class: "charts" });
      body.append(this.place);
    },
    update() {
      this.shown = matrices.map(matrixChart);
      this.place.replaceChildren(...this.shown.map((picture, place) => make("figure", null, picture,
        (matrices[place].notes ?? []).map((note) => make("p", { class: "note" }, note)))));
    },
    pictures() {
      return this.shown;
    },
    tables: () => matrices.map(({ title: name, rows, columns, values, notes }) => ({
      title: name, columns: ["", ...columns], rows: rows.map((row, place) => [row, ...values[place]]), notes,
    })),
  });
}

matricesView("dissociation", "Dissociation of tasks", "Dissociation");
matricesView("overlap", "Heads that tasks share", "Shared heads");

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
