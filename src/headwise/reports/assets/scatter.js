// Heads as points, one panel per model on common axes, coloured by layer.

function pointRange(lists) {
  const points = lists.flat();
  const [left, right] = padded(extent(points.map((point) => point?.[0])));
  const [low, high] = padded(extent(points.map((point) => point?.[1])));
  return { across: [left, right], up: [low, high] };
}

function layerColour(layer, layers) {
  // The palest end of the scale cannot be seen on the page, so the first layer begins a little inside.
  return css(shade("sequential", 0.3 + 0.7 * (layers > 1 ? layer / (layers - 1) : 0.6)));
}

// trails: earlier places of each head, oldest first.
function scatter({ title, model, points, range, labels, trails = null, width = 320, act, tell }) {
  const height = width + 24;
  const [left, right, top, bottom] = [44, width - 10, 30, height - 38];
  const across = linear(range.across, [left, right]);
  const up = linear(range.up, [bottom, top]);
  const picture = svgPicture(width, height, `${title}: ${points.length} heads by two components`);
  picture.append(words(8, 18, fitted(title, width - 16, 12), { size: 12, weight: "600" }));
  picture.append(draw("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "none", stroke: ink("rule") }));
  for (const value of ticks(range.up, 4)) {
    picture.append(words(left - 4, up(value) + 3.5, tickText(value), { anchor: "end", size: 9, fill: ink("faint") }));
  }
  for (const value of ticks(range.across, 4)) {
    picture.append(words(across(value), bottom + 12, tickText(value), { anchor: "middle", size: 9, fill: ink("faint") }));
  }
  picture.append(words((left + right) / 2, height - 10, labels[0], { anchor: "middle", size: 10 }));
  picture.append(words(11, (top + bottom) / 2, labels[1], { anchor: "middle", size: 10, turn: -90 }));
  points.forEach((point, place) => {
    const [layer, head] = [Math.floor(place / model.heads), place % model.heads];
    if (!point || !hasHead(model, layer, head)) return;
    const colour = layerColour(layer, model.layers);
    const chosen = layer === state.layer && head === state.head;
    const trail = (trails?.[place] ?? []).filter(Boolean);
    if (trail.length) {
      const way = [...trail, point].map(([x, y]) => `${round(across(x))} ${round(up(y))}`).join("L");
      picture.append(draw("path", { d: `M${way}`, fill: "none", stroke: colour, "stroke-opacity": chosen ? 1 : 0.7, "stroke-width": chosen ? 2 : 1 }));
    }
    const told = `${model.name}, ${headName(layer, head)} (${short(point[0])}, ${short(point[1])})`;
    picture.append(draw("circle", {
      cx: across(point[0]), cy: up(point[1]), r: chosen ? 7 : 4.5, fill: colour,
      stroke: chosen ? ink("mark") : ink("ink"), "stroke-width": chosen ? 3 : 0.6, "data-layer": layer, "data-head": head,
      class: "point", onclick: () => act(layer, head), onpointerenter: () => tell(told),
    }, draw("title", null, told)));
  });
  // The chosen head lies on top, whatever its number.
  const chosen = picture.querySelector(`circle[data-layer="${state.layer}"][data-head="${state.head}"]`);
  if (chosen) picture.append(chosen);
  return picture;
}

function layerLegend() {
  const layers = mostLayers;
  const step = Math.ceil(layers / 24);
  const shown = Array.from({ length: layers }, (_, layer) => layer).filter((layer) => layer % step === 0);
  const picture = svgPicture(70 + 26 * shown.length, 30, `Colours of the layers 0 to ${layers - 1}`);
  picture.append(words(8, 19, "Layer", { size: 10 }));
  shown.forEach((layer, place) => {
    picture.append(draw("rect", { x: 48 + 26 * place, y: 8, width: 24, height: 15, fill: layerColour(layer, layers) }));
    picture.append(words(60 + 26 * place, 19, layer, {
      anchor: "middle", size: 10, fill: inkOn(shade("sequential", 0.3 + 0.7 * (layers > 1 ? layer / (layers - 1) : 0.6))),
    }));
  });
  return picture;
}
