// Which heads a pruning curve has silenced at the chosen point: a grid on which a click goes to where a head is first gone.

// The series that say which heads they silence: {plot, each}.
function silencingSeries(group) {
  return group.plots.flatMap((plot) => plot.series.filter((each) => each.off).map((each) => ({ plot, each })));
}

function silencedAt({ each }, x) {
  return new Set(each.off[each.x.indexOf(x)] ?? []);
}

// From left to right, the first point without this head.
function firstWithout({ each }, place) {
  const found = each.x.findIndex((_, at) => (each.off[at] ?? []).includes(place));
  return found < 0 ? null : each.x[found];
}

function silencedHeads(id, group, number, slider) {
  const all = silencingSeries(group);
  const chosen = () => all[Math.min(state.ranking ?? 0, all.length - 1)];
  const name = ({ plot, each }) => (group.plots.length > 1 ? `${plot.title}: ${each.name}` : each.name);
  const readout = make("p", { class: "note", role: "status" }, "Click a head to go to the first point without it.");
  const place = make("div", { class: "scroll" });
  const series = choice("Heads silenced", all.map((one, at) => [String(at), name(one)]), "0", (value) => choose({ ranking: Number(value) }), { id: `${id}-series-${number}` });
  return {
    element: make("div", { class: "silenced" }, make("div", { class: "controls" }, series), readout, place),
    show() {
      const one = chosen();
      series.querySelector("select").value = String(all.indexOf(one));
      const x = pointOf(group, slider);
      const gone = silencedAt(one, x);
      const [layers, heads] = one.plot.shape;
      const focused = place.contains(document.activeElement) ? document.activeElement.dataset : null;
      const act = (layer, head) => {
        const first = firstWithout(one, layer * heads + head);
        if (first !== null) choose({ [slider]: group.points.indexOf(first) });
        readout.textContent = first === null ? `${headName(layer, head)} is never silenced here.`
          : `${headName(layer, head)} is gone from ${one.plot.x} ${pointName(one.plot, first)} on.`;
      };
      place.replaceChildren(offGrid({ layers, heads, label: `${name(one)}: ${gone.size} of ${layers * heads} heads silenced`,
        off: (layer, head) => gone.has(layer * heads + head), act, how: "silenced" }));
      if (focused) place.querySelector(`.cell[data-layer="${focused.layer}"][data-head="${focused.head}"]`)?.focus();
    },
    pictures: () => [offPicture(name(chosen()), chosen().plot.shape, silencedAt(chosen(), pointOf(group, slider)))],
  };
}

// A grid of heads that are on or off: {layers, heads, label, off(l, h), act(l, h), how}. Crosses, not colours alone.
function offGrid({ layers, heads, label, off, act, how }) {
  const rows = [];
  for (let layer = 0; layer < layers; layer += 1) {
    const cells = [make("span", { class: "grid-name", role: "rowheader" }, layer)];
    for (let head = 0; head < heads; head += 1) {
      const gone = off(layer, head);
      cells.push(button(gone ? "×" : "", () => act(layer, head), {
        role: "gridcell", class: gone ? "cell off" : "cell on", tabindex: layer || head ? "-1" : "0",
        "data-layer": layer, "data-head": head, "aria-label": `${headName(layer, head)}: ${gone ? how : "on"}`,
      }));
    }
    rows.push(make("div", { role: "row", class: "grid-row" }, cells));
  }
  const top = make("div", { role: "row", class: "grid-row" }, make("span", { class: "grid-name", role: "columnheader" }, ""),
    Array.from({ length: heads }, (_, head) => make("span", { class: "grid-name", role: "columnheader" }, head)));
  const element = make("div", { role: "grid", class: "head-grid", "aria-label": label }, top, rows);
  element.style.setProperty("--columns", String(heads));
  element.addEventListener("keydown", (event) => moveInGrid(event, { layers, heads }, element));
  // Tab comes back to where one was, by whatever way one came there.
  element.addEventListener("focusin", (event) => {
    for (const each of element.querySelectorAll(".cell")) each.tabIndex = each === event.target ? 0 : -1;
  });
  return make("figure", { class: "grid-figure" }, make("figcaption", null, label), element);
}

function offPicture(title, [layers, heads], gone) {
  const cell = 20;
  const width = 60 + Math.max(cell * heads, 255);
  const picture = svgPicture(width, 54 + cell * layers, `${title}: ${gone.size} of ${layers * heads} heads silenced`);
  picture.append(words(8, 16, fitted(`${title}: ${gone.size} of ${layers * heads} heads silenced`, width - 16, 12), { size: 12, weight: "600" }));
  for (let head = 0; head < heads; head += 1) {
    picture.append(words(40 + cell * (head + 0.5), 36, head, { anchor: "middle", size: 9, fill: ink("faint") }));
  }
  for (let layer = 0; layer < layers; layer += 1) {
    picture.append(words(34, 42 + cell * (layer + 0.5) + 3, layer, { anchor: "end", size: 9, fill: ink("faint") }));
    for (let head = 0; head < heads; head += 1) {
      const off = gone.has(layer * heads + head);
      const [x, y] = [40 + cell * head, 42 + cell * layer];
      picture.append(draw("rect", { x, y, width: cell - 1, height: cell - 1, fill: off ? "none" : lineColour(0), stroke: off ? ink("faint") : null }));
      if (off) picture.append(draw("path", { d: `M${x + 4} ${y + 4}l11 11m0 -11l-11 11`, stroke: ink("faint"), "stroke-width": 1.5, fill: "none" }));
    }
  }
  return picture;
}

function silencedTable(plot) {
  const [, heads] = plot.shape;
  const rows = plot.series.filter((each) => each.off).flatMap((each) => each.x.map((x, place) =>
    [each.name, pointName(plot, x), (each.off[place] ?? []).map((head) => `${Math.floor(head / heads)}.${head % heads}`).join(" ")]));
  return { title: `${plot.title}: heads silenced, as layer.head`, columns: ["Series", plot.x, "Heads"], rows };
}
