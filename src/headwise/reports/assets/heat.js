// Heat maps on canvas. A map is described by {title, rows, columns, rowLabels, columnLabels, rgba, lines, outline}:
// the same pixels are drawn on the screen and written into an SVG.

const LABEL_SIZE = 10;
const LABEL_ROOM = 9.5;   // least room in which a label of that size can be read
const EMBED_FROM = 128;   // from so many rows on an SVG holds a PNG, as half a million rectangles help nobody

function attentionPixels(map, scale, most = 1) {
  const colours = palette("sequential");
  const places = Array.from(SQUARES, (value) =>
    Math.round(255 * Math.min(1, scale === "root" ? Math.sqrt(value / most) : value / most)));
  const rgba = new Uint8ClampedArray(map.root.length * 4);
  for (let place = 0; place < map.root.length; place += 1) {
    const value = map.root[place];
    if (value === 0 && map.least[Math.floor(place / map.size)] > 0) continue;   // not kept: nothing is drawn
    paint(rgba, place, colours[places[value]]);
  }
  return rgba;
}

// Second minus first, on a scale from -most to most.
function differencePixels(first, second, scale, most) {
  const colours = palette("diverging");
  const rgba = new Uint8ClampedArray(first.root.length * 4);
  for (let place = 0; place < first.root.length; place += 1) {
    const row = Math.floor(place / first.size);
    const unknown = (map) => map.root[place] === 0 && map.least[row] > 0;
    if (unknown(first) && unknown(second)) continue;
    let share = (SQUARES[second.root[place]] - SQUARES[first.root[place]]) / most;
    if (scale === "root") share = Math.sign(share) * Math.sqrt(Math.abs(share));
    paint(rgba, place, colours[Math.round(127.5 + 127.5 * Math.max(-1, Math.min(1, share)))]);
  }
  return rgba;
}

function largestDifference(first, second) {
  let most = 0;
  for (let place = 0; place < first.root.length; place += 1) {
    most = Math.max(most, Math.abs(SQUARES[second.root[place]] - SQUARES[first.root[place]]));
  }
  return most;
}

function paint(rgba, place, [red, green, blue]) {
  rgba[4 * place] = red;
  rgba[4 * place + 1] = green;
  rgba[4 * place + 2] = blue;
  rgba[4 * place + 3] = 255;
}

function pixelCanvas(spec) {
  const canvas = document.createElement("canvas");
  canvas.width = spec.columns;
  canvas.height = spec.rows;
  canvas.getContext("2d").putImageData(new ImageData(spec.rgba, spec.columns, spec.rows), 0, 0);
  return canvas;
}

// Where things lie: margins for the labels, and the size of a cell.
function heatLayout(spec, cellWidth, cellHeight) {
  const room = (labels, most) => 8 + Math.min(most, Math.max(8, ...labels.slice(0, 600).map((label) => textWidth(label, LABEL_SIZE))));
  return {
    cellWidth, cellHeight, left: room(spec.rowLabels, 86), top: spec.flatColumns ? 16 : room(spec.columnLabels, 86),
    width: cellWidth * spec.columns, height: cellHeight * spec.rows,
    everyRow: Math.max(1, Math.ceil(LABEL_ROOM / cellHeight)),
    everyColumn: Math.max(1, Math.ceil((spec.flatColumns ? 44 : LABEL_ROOM) / cellWidth)),
  };
}

class HeatMap {
  constructor({ move, act } = {}) {
    this.canvas = make("canvas", { role: "img", tabindex: "0" });
    this.caption = make("figcaption");
    this.element = make("figure", { class: "heat" }, this.caption, make("div", { class: "scroll" }, this.canvas));
    this.cursor = null;
    this.spec = null;
    this.canvas.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event);
      move?.(cell);
    });
    this.canvas.addEventListener("pointerleave", () => move?.(null));
    this.canvas.addEventListener("click", (event) => act?.(this.cellAt(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event, move, act));
  }

  key(event, move, act) {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!this.spec) return;
    if (event.key === "Enter" && this.cursor) act?.(this.cursor);
    if (!by) return;
    event.preventDefault();
    const [row, column] = this.cursor ?? [0, 0];
    move?.([
      Math.min(this.spec.rows - 1, Math.max(0, row + by[0])),
      Math.min(this.spec.columns - 1, Math.max(0, column + by[1])),
    ]);
  }

  cellAt(event) {
    if (!this.spec) return null;
    const box = this.canvas.getBoundingClientRect();
    const { left, top, cellWidth, cellHeight } = this.layout;
    const row = Math.floor((event.clientY - box.top - top) / cellHeight);
    const column = Math.floor((event.clientX - box.left - left) / cellWidth);
    const inside = row >= 0 && column >= 0 && row < this.spec.rows && column < this.spec.columns;
    return inside ? [row, column] : null;
  }

  show(spec, cellWidth, cellHeight = cellWidth) {
    this.spec = spec;
    this.layout = heatLayout(spec, cellWidth, cellHeight);
    this.pixels = pixelCanvas(spec);
    this.caption.textContent = spec.title;
    this.canvas.setAttribute("aria-label", spec.label ?? spec.title);
    const { left, top, width, height } = this.layout;
    const ratio = Math.min(3, Math.max(1, devicePixelRatio || 1));
    this.canvas.width = Math.ceil((left + width + 2) * ratio);
    this.canvas.height = Math.ceil((top + height + 2) * ratio);
    this.canvas.style.width = `${left + width + 2}px`;
    this.canvas.style.height = `${top + height + 2}px`;
    this.ratio = ratio;
    this.redraw();
  }

  point(cell) {
    const same = String(cell) === String(this.cursor);
    this.cursor = cell;
    if (this.spec && !same) this.redraw();
  }

  redraw() {
    const context = this.canvas.getContext("2d");
    const { left, top, width, height, cellWidth, cellHeight } = this.layout;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    // Cells smaller than a pixel are averaged rather than dropped.
    context.imageSmoothingEnabled = cellWidth * this.ratio < 1 || cellHeight * this.ratio < 1;
    context.drawImage(this.pixels, left, top, width, height);
    context.strokeStyle = ink("rule");
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
    this.drawLabels(context);
    this.drawLines(context);
    if (this.cursor) this.drawCursor(context);
  }

  drawLabels(context) {
    const { left, top, cellWidth, cellHeight, everyRow, everyColumn } = this.layout;
    const { rowLabels, columnLabels, flatColumns } = this.spec;
    context.fillStyle = ink("ink");
    context.font = `${LABEL_SIZE}px ${FONT}`;
    context.direction = "ltr";
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let row = 0; row < rowLabels.length; row += everyRow) {
      context.fillText(fitted(rowLabels[row], left - 6, LABEL_SIZE), left - 4, top + cellHeight * (row + 0.5));
    }
    for (let column = 0; column < columnLabels.length; column += everyColumn) {
      const x = left + cellWidth * (column + 0.5);
      context.save();
      if (flatColumns) {
        context.textAlign = column === 0 ? "left" : "center";
        context.fillText(columnLabels[column], column === 0 ? left : x, top - 8);
      } else {
        context.translate(x, top - 4);
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
        context.fillText(fitted(columnLabels[column], top - 6, LABEL_SIZE), 0, 0);
      }
      context.restore();
    }
  }

  drawLines(context) {
    const { left, top, width, height, cellWidth, cellHeight } = this.layout;
    context.strokeStyle = ink("mark");
    context.lineWidth = 1.5;
    for (const { row, column } of this.spec.lines ?? []) {
      context.beginPath();
      if (row !== undefined) {
        context.moveTo(left - 6, top + row * cellHeight);
        context.lineTo(left + width, top + row * cellHeight);
      } else {
        context.moveTo(left + column * cellWidth, top - 6);
        context.lineTo(left + column * cellWidth, top + height);
      }
      context.stroke();
    }
    if (this.spec.outline) {
      context.strokeStyle = ink("outline");
      context.beginPath();
      outlineEdges(this.spec, (x1, y1, x2, y2) => {
        context.moveTo(left + x1 * cellWidth, top + y1 * cellHeight);
        context.lineTo(left + x2 * cellWidth, top + y2 * cellHeight);
      });
      context.stroke();
    }
  }

  drawCursor(context) {
    const { left, top, width, height, cellWidth, cellHeight } = this.layout;
    const [row, column] = this.cursor;
    const [x, y] = [left + (column + 0.5) * cellWidth, top + (row + 0.5) * cellHeight];
    context.strokeStyle = ink("mark");
    context.lineWidth = 1;
    context.setLineDash([3, 2]);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.setLineDash([]);
    if (cellWidth >= 3) context.strokeRect(left + column * cellWidth, top + row * cellHeight, cellWidth, cellHeight);
  }

  picture() {
    return heatPicture(this.spec, this.layout);
  }
}

// Only the edges between marked and unmarked cells: neighbours share one outline.
function outlineEdges({ rows, columns, outline }, edge) {
  const marked = (row, column) =>
    row >= 0 && column >= 0 && row < rows && column < columns && outline[row * columns + column] === 1;
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      if (!marked(row, column)) continue;
      if (!marked(row - 1, column)) edge(column, row, column + 1, row);
      if (!marked(row + 1, column)) edge(column, row + 1, column + 1, row + 1);
      if (!marked(row, column - 1)) edge(column, row, column, row + 1);
      if (!marked(row, column + 1)) edge(column + 1, row, column + 1, row + 1);
    }
  }
}

function heatPicture(spec, { cellWidth, cellHeight, left, top, width, height, everyRow, everyColumn }) {
  const down = 20 + top;
  const picture = svgPicture(Math.max(left + width + 4, textWidth(spec.title, 12) + 12), down + height + 4, spec.label ?? spec.title);
  picture.append(words(4, 14, spec.title, { size: 12, weight: "600" }));
  if (spec.rows > EMBED_FROM || spec.columns > EMBED_FROM) {
    picture.append(draw("image", {
      x: left, y: down, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated",
      href: pixelCanvas(spec).toDataURL("image/png"),
    }));
  } else {
    picture.append(runs(spec, left, down, cellWidth, cellHeight));
  }
  picture.append(draw("rect", { x: left, y: down, width, height, fill: "none", stroke: ink("rule") }));
  for (let row = 0; row < spec.rowLabels.length; row += everyRow) {
    picture.append(words(left - 4, down + cellHeight * (row + 0.5) + 3.5, fitted(spec.rowLabels[row], left - 6, LABEL_SIZE), { anchor: "end", size: LABEL_SIZE }));
  }
  for (let column = 0; column < spec.columnLabels.length; column += everyColumn) {
    const x = left + cellWidth * (column + 0.5);
    picture.append(spec.flatColumns
      ? words(x, down - 5, spec.columnLabels[column], { anchor: "middle", size: LABEL_SIZE })
      : words(x + 3.5, down - 4, fitted(spec.columnLabels[column], top - 6, LABEL_SIZE), { size: LABEL_SIZE, turn: -90 }));
  }
  for (const { row, column } of spec.lines ?? []) {
    const at = row !== undefined ? { x1: left - 6, x2: left + width, y1: down + row * cellHeight, y2: down + row * cellHeight }
      : { y1: down - 6, y2: down + height, x1: left + column * cellWidth, x2: left + column * cellWidth };
    picture.append(draw("line", { ...at, stroke: ink("mark"), "stroke-width": 1.5 }));
  }
  if (spec.outline) {
    let path = "";
    outlineEdges(spec, (x1, y1, x2, y2) => {
      path += `M${round(left + x1 * cellWidth)} ${round(down + y1 * cellHeight)}L${round(left + x2 * cellWidth)} ${round(down + y2 * cellHeight)}`;
    });
    picture.append(draw("path", { d: path, fill: "none", stroke: ink("outline"), "stroke-width": 1.5 }));
  }
  return picture;
}

// Neighbours of one colour become one rectangle.
function runs({ rows, columns, rgba }, left, top, cellWidth, cellHeight) {
  const whole = new Uint32Array(rgba.buffer);
  const group = draw("g", { "shape-rendering": "crispEdges" });
  for (let row = 0; row < rows; row += 1) {
    for (let start = 0; start < columns;) {
      const at = row * columns + start;
      let end = start + 1;
      while (end < columns && whole[row * columns + end] === whole[at]) end += 1;
      if (rgba[4 * at + 3]) {
        group.append(draw("rect", {
          x: left + start * cellWidth, y: top + row * cellHeight, width: (end - start) * cellWidth, height: cellHeight,
          fill: css(rgba.subarray(4 * at, 4 * at + 3)),
        }));
      }
      start = end;
    }
  }
  return group;
}
