// A view: {id, title, exists(), build(body), update(), on: [names of the state it shows], tables(), rows?(), pictures?()}.
// `subtitle` says in a saved picture what was chosen. `later` says that its data may still come.
// `tables` are its values for reading, `rows` all its values for a CSV file (the same unless said).

const views = [];

function addView(view) {
  view.rows ??= () => view.tables();
  view.on ??= [];
  views.push(view);
}

function shownViews() {
  return views.filter((view) => view.exists());
}

function fail(section, problem) {
  const place = section.querySelector(":scope > .problem");
  place.textContent = problem instanceof Error ? problem.message : String(problem);
  place.hidden = false;
}

function calm(section) {
  section.querySelector(":scope > .problem").hidden = true;
}

function frame(view) {
  const body = make("div", { class: "body" });
  const values = make("div", { class: "values" });
  const details = make("details", { class: "as-table", ontoggle: () => fillValues(view) },
    make("summary", null, "Values as a table"), values);
  const tools = make("div", { class: "tools", role: "group", "aria-label": `Save: ${view.title}` },
    ["svg", "png", "csv"].map((kind) => button(kind.toUpperCase(), () =>
      download(view, kind).catch((problem) => fail(view.section, problem)),
      { "data-save": kind, title: `Save as ${kind.toUpperCase()}` })));
  view.section = make("section", { id: view.id, "aria-labelledby": `${view.id}-title` },
    make("div", { class: "section-top" }, make("h2", { id: `${view.id}-title` }, view.title), tools),
    make("p", { class: "problem", role: "alert", hidden: true }), body, details);
  view.details = details;
  view.valuesPlace = values;
  view.body = body;
  try {
    view.build(body);
  } catch (problem) {   // one view that cannot be built must not take the others with it
    fail(view.section, problem);
  }
  return view.section;
}

// Tables are made when somebody opens them, and kept right while they are open.
function fillValues(view) {
  if (!view.details.open) {
    view.valuesPlace.replaceChildren();
    return;
  }
  try {
    view.valuesPlace.replaceChildren(...view.tables().map((each) => table(each, 600)));
  } catch (problem) {
    fail(view.section, problem);
  }
}

function refresh(view) {
  if (!view.section || !view.exists()) return;
  calm(view.section);
  let done;
  try {
    done = view.update?.();
  } catch (problem) {
    fail(view.section, problem);
  }
  if (done instanceof Promise) return done.then(() => fillValues(view));
  fillValues(view);
  return undefined;
}

// Views that an example brings with it appear when the first such example is there.
function arrange() {
  const menu = document.getElementById("menu");
  const shown = shownViews();
  for (const view of views) if (view.section) view.section.hidden = !shown.includes(view);
  menu.replaceChildren(make("ul", null, shown.map((view) => make("li", null, make("a", {
    href: `#${new URLSearchParams({ view: view.id })}`, "data-view": view.id,
    onclick: (event) => {
      event.preventDefault();
      openView(view.id);
    },
  }, view.menu ?? view.title)))));
  markMenu();
}

function markMenu() {
  for (const link of document.querySelectorAll("#menu a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function openView(id, focus = true) {
  const section = document.getElementById(id);
  if (!section || section.hidden) return;
  choose({ view: id });
  const quiet = matchMedia("(prefers-reduced-motion: reduce)").matches || !focus;
  section.scrollIntoView({ behavior: quiet ? "auto" : "smooth", block: "start" });
  holdMenuUntil = performance.now() + 900;
  if (focus) {
    const heading = section.querySelector("h2");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

// While the page scrolls to a chosen view, the views that pass by are not "chosen".
let holdMenuUntil = 0;

function watchScrolling() {
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      if (performance.now() < holdMenuUntil) return;
      const line = innerHeight * 0.3;
      const passed = shownViews().filter((view) => view.section.getBoundingClientRect().top <= line);
      if (passed.length) choose({ view: passed.at(-1).id });
    }, 120);
  }, { passive: true });
}
