// Lines with bands or bars: series = [{name, place, x, y, low, high}]; place decides colour, dash and mark.
// `at` is a place across that is looked at.

const MARKS = [
  (x, y) => draw("circle", { cx: x, cy: y, r: 3 }),
  (x, y) => draw("rect", { x: x - 2.8, y: y - 2.8, width: 5.6, height: 5.6 }),
  (x, y) => draw("path", { d: `M${round(x)} ${round(y - 3.8)}l3.6 6.4h-7.2z` }),
  (x, y) => draw("path", { d: `M${round(x)} ${round(y - 4)}l4 4l-4 4l-4 -4z` }),
  (x, y) => draw("path", { d: `M${round(x)} ${round(y + 3.8)}l3.6 -6.4h-7.2z` }),
  (x, y) => draw("rect", { x: x - 3.6, y: y - 1.6, width: 7.2, height: 3.2 }),
];

// Weights and sizes are often tried in powers: 0.0001, 0.001, ... Those are spread evenly.
function isGeometric(values) {
  const sorted = [...new Set(values)].sort((one, other) => one - other);
  if (sorted.length < 3 || sorted[0] <= 0 || sorted.at(-1) / sorted[0] < 20) return false;
  const unevenness = (numbers) => {
    const gaps = numbers.slice(1).map((value, place) => value - numbers[place]);
    return Math.max(...gaps) / Math.min(...gaps);
  };
  return unevenness(sorted.map(Math.log10)) < unevenness(sorted);
}

// A zero beside powers has no place on such an axis: then the values stand side by side as names do.
function withAxis(chart) {
  if (chart.categories) return chart;
  const values = chart.series.flatMap((each) => each.x);
  if (isGeometric(values)) return { ...chart, powers: true };
  if (!values.includes(0) || !isGeometric(values.filter((value) => value !== 0))) return chart;
  const sorted = [...new Set(values)].sort((one, other) => one - other);
  const at = sorted.includes(chart.at) ? sorted.indexOf(chart.at) : null;
  return { ...chart, at, categories: sorted.map(tickText), series: chart.series.map((each) => ({ ...each, x: each.x.map((value) => sorted.indexOf(value)) })) };
}

function lineChart(chart) {
  const { title, xLabel, yLabel, series, categories = null, width = 330, height = 220, legend = true, powers = false, at = null } = withAxis(chart);
  const named = legend ? series : [];
  const rowsOfLegend = legendRows(named, width - 24);
  const lines = title ? wrapped(title, width - 16, 12).slice(0, 2) : [];
  const top = 10 + 16 * lines.length + 8;
  const turned = categories !== null && categories.some((name) => textWidth(name, 10) > (width - 70) / categories.length - 4);
  const below = (turned ? 62 : 20) + 16;
  const whole = height + 16 * rowsOfLegend.length + (turned ? 40 : 0);
  const bottom = whole - below - 16 * rowsOfLegend.length - 6;
  const [left, right] = [58, width - 12];

  const xs = series.flatMap((each) => each.x);
  const ys = series.flatMap((each) => [...each.y, ...(each.low ?? []), ...(each.high ?? [])]);
  const xRange = categories ? [-0.5, categories.length - 0.5] : padded(extent(powers ? xs.map(Math.log10) : xs), 0.02);
  const yRange = padded(extent(ys));
  const even = linear(xRange, [left, right]);
  const across = powers ? (value) => even(Math.log10(value)) : even;
  const up = linear(yRange, [bottom, top]);

  const picture = svgPicture(width, whole, chartLabel(title, yLabel, series));
  lines.forEach((line, place) => picture.append(words(8, 16 + 16 * place, line, { size: 12, weight: "600" })));
  for (const value of ticks(yRange, 4)) {
    picture.append(draw("line", { x1: left, x2: right, y1: up(value), y2: up(value), stroke: ink("grid") }));
    picture.append(words(left - 5, up(value) + 3.5, tickText(value), { anchor: "end", size: 10, fill: ink("faint") }));
  }
  picture.append(draw("line", { x1: left, x2: right, y1: bottom, y2: bottom, stroke: ink("faint") }));
  const marks = categories ? categories.map((_, place) => place)
    : powers ? thinned([...new Set(xs)].sort((one, other) => one - other), (right - left) / 44) : ticks(xRange, width > 400 ? 7 : 4);
  for (const value of marks) {
    const text = categories ? fitted(categories[value], turned ? 74 : 120, 10) : tickText(value);
    picture.append(draw("line", { x1: across(value), x2: across(value), y1: bottom, y2: bottom + 4, stroke: ink("faint") }));
    picture.append(turned
      ? words(across(value) + 3, bottom + 13, text, { anchor: "end", size: 10, fill: ink("faint"), turn: -40 })
      : words(across(value), bottom + 15, text, { anchor: "middle", size: 10, fill: ink("faint") }));
  }
  if (xLabel) {
    picture.append(words((left + right) / 2, bottom + below - 4, fitted(xLabel, right - left, 10), { anchor: "middle", size: 10 }));
  }
  if (yLabel) {
    picture.append(words(12, (top + bottom) / 2, fitted(yLabel, bottom - top + 20, 10), { anchor: "middle", size: 10, turn: -90 }));
  }
  if (at !== null) {
    picture.append(draw("line", { x1: across(at), x2: across(at), y1: top, y2: bottom, stroke: ink("ink"), "stroke-dasharray": "3 3", class: "at" }));
  }
  series.forEach((each, number) => {
    // Bars of several series at one category stand beside each other.
    const beside = categories && series.length > 1 ? (number - (series.length - 1) / 2) * Math.min(8, 40 / series.length) : 0;
    picture.append(seriesPicture(each, (value) => across(value) + beside, up, categories));
  });
  rowsOfLegend.forEach((row, line) => {
    const y = whole - 16 * (rowsOfLegend.length - line) + 8;
    for (const [each, x] of row) picture.append(legendEntry(each, x + 12, y, width));
  });
  return picture;
}

function thinned(values, most) {
  const every = Math.ceil(values.length / most);
  return values.filter((_, place) => place % every === 0);
}

function chartLabel(title, yLabel, series) {
  const parts = series.map((each) => {
    const values = present(each.y);
    return values.length ? `${each.name}: ${short(values[0])} to ${short(values.at(-1))}` : `${each.name}: no values`;
  });
  return [title, yLabel, parts.join("; ")].filter(Boolean).join(". ");
}

function seriesPicture(each, across, up, categories) {
  const colour = lineColour(each.place);
  const group = draw("g", { fill: colour, stroke: colour });
  const points = [];
  each.x.forEach((x, place) => {
    const y = each.y[place];
    points.push(typeof y === "number" ? [across(x), up(y), place] : null);
  });
  if (each.low && each.high) group.append(categories ? errorBars(each, across, up) : band(each, across, up));
  let path = "";
  let open = false;
  for (const point of points) {
    if (point) path += `${open ? "L" : "M"}${round(point[0])} ${round(point[1])}`;
    open = point !== null;
  }
  group.append(draw("path", { d: path, fill: "none", "stroke-width": 1.8, "stroke-dasharray": lineDash(each.place), "stroke-linejoin": "round" }));
  if (points.length <= 40) {
    for (const point of points) {
      if (!point) continue;
      const mark = MARKS[each.place % 6](point[0], point[1]);
      mark.setAttribute("stroke", "none");
      const [low, high] = [each.low?.[point[2]], each.high?.[point[2]]];
      const interval = typeof low === "number" && typeof high === "number" ? ` [${short(low)}, ${short(high)}]` : "";
      mark.append(draw("title", null, `${each.name}, ${categories?.[each.x[point[2]]] ?? tickText(each.x[point[2]])}: ${short(each.y[point[2]])}${interval}`));
      group.append(mark);
    }
  }
  return group;
}

function band(each, across, up) {
  const known = each.x.map((_, place) => place)
    .filter((place) => typeof each.low[place] === "number" && typeof each.high[place] === "number");
  const above = known.map((place) => `${round(across(each.x[place]))} ${round(up(each.high[place]))}`);
  const under = known.reverse().map((place) => `${round(across(each.x[place]))} ${round(up(each.low[place]))}`);
  return draw("path", { d: above.length ? `M${[...above, ...under].join("L")}Z` : "", stroke: "none", "fill-opacity": 0.18 });
}

function errorBars(each, across, up) {
  const group = draw("g", { "stroke-width": 1.3 });
  each.x.forEach((x, place) => {
    if (typeof each.low[place] !== "number" || typeof each.high[place] !== "number") return;
    const [at, low, high] = [across(x), up(each.low[place]), up(each.high[place])];
    group.append(draw("path", { d: `M${round(at)} ${round(low)}V${round(high)}M${round(at - 3)} ${round(low)}h6M${round(at - 3)} ${round(high)}h6` }));
  });
  return group;
}

function legendRows(series, width) {
  const rows = [];
  let x = width;
  for (const each of series) {
    const wide = Math.min(textWidth(each.name, 10), width - 40) + 44;
    if (x + wide > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push([each, x]);
    x += wide;
  }
  return rows;
}

function legendEntry(each, x, y, width) {
  const colour = lineColour(each.place);
  const mark = MARKS[each.place % 6](x + 12, y);
  mark.setAttribute("fill", colour);
  return draw("g", null,
    draw("line", { x1: x, x2: x + 24, y1: y, y2: y, stroke: colour, "stroke-width": 1.8, "stroke-dasharray": lineDash(each.place) }),
    mark, words(x + 29, y + 3.5, fitted(each.name, width - 60, 10), { size: 10 }));
}

// A matrix with its numbers in the cells.
function matrixChart({ title, rows, columns, values }) {
  const all = present(values.flat());
  const most = Math.max(1e-9, ...all.map(Math.abs));
  const [low, high] = extent(all);
  const kind = low < 0 ? "diverging" : "sequential";
  const left = 20 + Math.min(220, Math.max(30, ...rows.map((name) => textWidth(name))));
  const cell = Math.max(58, Math.min(120, Math.max(...columns.map((name) => textWidth(name))) + 10));
  const width = Math.max(left + cell * columns.length + 12, 260);
  const picture = svgPicture(width, 54 + 30 * rows.length, `${title}: ${rows.length} rows, ${columns.length} columns, ${short(low)} to ${short(high)}`);
  picture.append(words(8, 16, fitted(title, width - 16, 12), { size: 12, weight: "600" }));
  columns.forEach((name, place) =>
    picture.append(words(left + cell * (place + 0.5), 38, fitted(name, cell - 6), { anchor: "middle" })));
  rows.forEach((name, row) => {
    picture.append(words(left - 8, 64 + 30 * row, fitted(name, left - 16), { anchor: "end" }));
    columns.forEach((_, column) => {
      const value = values[row]?.[column];
      const known = typeof value === "number";
      const colour = known ? shade(kind, kind === "diverging" ? value / most : (value - low) / (high - low || 1)) : null;
      picture.append(draw("rect", {
        x: left + cell * column, y: 46 + 30 * row, width: cell - 2, height: 28, fill: known ? css(colour) : "none", stroke: ink("rule"),
      }));
      picture.append(words(left + cell * (column + 0.5) - 1, 64 + 30 * row, known ? short(value) : "–",
        { anchor: "middle", fill: known ? inkOn(colour) : ink("faint") }));
    });
  });
  return picture;
}
