// Pictures as SVG with concrete colours: what is on the screen is what an exported file holds.

const FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

function svgPicture(width, height, label) {
  return draw("svg", {
    xmlns: SVG_SPACE, width, height, viewBox: `0 0 ${round(width)} ${round(height)}`, role: "img", "aria-label": label,
    "font-family": FONT, "font-size": 11,
  });
}

function words(x, y, text, { anchor = "start", size = 11, fill = ink("ink"), turn = null, weight = null } = {}) {
  return draw("text", {
    x, y, "text-anchor": anchor, "font-size": size, fill, "font-weight": weight,
    transform: turn === null ? null : `rotate(${turn} ${round(x)} ${round(y)})`,
  }, text);
}

const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, size = 11, weight = "") {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// Text cut to a width, with a mark that it was cut. By characters, not halves of them.
function fitted(text, width, size = 11) {
  const clean = printable(text).replace(/\s+/g, " ");
  if (textWidth(clean, size) <= width) return clean;
  const signs = Array.from(clean);
  let low = 0;
  let high = Math.min(signs.length, 400);
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${signs.slice(0, middle).join("")}…`, size) <= width) low = middle;
    else high = middle - 1;
  }
  return `${signs.slice(0, low).join("")}…`;
}

function wrapped(text, width, size = 11) {
  const lines = [];
  let line = "";
  for (const word of printable(text).split(/\s+/)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && textWidth(longer, size) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  lines.push(line);
  return lines.map((each) => fitted(each, width, size));
}

// Tables as a picture: for views that are words and numbers.
function tablePicture(tablesShown) {
  const width = 960;
  const parts = [];
  let y = 8;
  for (const { title, columns, rows, notes } of tablesShown) {
    if (title) {
      y += 18;
      parts.push(words(16, y, fitted(title, width - 32, 13), { size: 13, weight: "600" }));
      y += 6;
    }
    const most = rows.slice(0, 200);
    const wide = columns.map((name, place) =>
      16 + Math.min(420, Math.max(...[name, ...most.map((row) => cellText(row[place]))].map((cell) => textWidth(cell)))));
    const scale = Math.min(1, (width - 32) / wide.reduce((sum, each) => sum + each, 0));
    const places = [];
    wide.reduce((left, each, column) => {
      places[column] = [left, each * scale];
      return left + each * scale;
    }, 16);
    for (const [number, row] of [columns, ...most].entries()) {
      const cells = row.map((cell, place) => wrapped(cellText(cell), places[place][1] - 12));
      const high = Math.max(...cells.map((lines) => lines.length), 1);
      cells.forEach((lines, place) => lines.forEach((line, index) =>
        parts.push(words(places[place][0], y + 15 + 14 * index, line, { weight: number ? null : "600" }))));
      y += 14 * high + 6;
      parts.push(draw("line", { x1: 16, x2: width - 16, y1: y, y2: y, stroke: ink("rule") }));
    }
    if (rows.length > most.length) {
      y += 15;
      parts.push(words(16, y, `… and ${rows.length - most.length} more rows, which the CSV file has.`));
    }
    for (const note of notes ?? []) {
      for (const line of wrapped(note, width - 32, 10)) {
        y += 14;
        parts.push(words(16, y, line, { size: 10, fill: ink("faint") }));
      }
    }
    y += 14;
  }
  const picture = svgPicture(width, y + 8, tablesShown.map((each) => each.title).filter(Boolean).join("; ") || "Values");
  picture.append(...parts);
  return picture;
}

// A picture with its legend under it.
function withLegend(picture, legend) {
  const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
  const both = svgPicture(Math.max(width, Number(legend.getAttribute("width"))), height + Number(legend.getAttribute("height")) + 4, picture.getAttribute("aria-label"));
  legend.setAttribute("y", round(height + 4));
  both.append(picture, legend);
  return both;
}

// Several pictures in one, in lines as wide as a page.
function collage(pictures, title) {
  const most = 1400;
  const placed = [];
  let x = 12;
  let y = 34;
  let high = 0;
  let wide = 200;
  for (const picture of pictures) {
    const width = Number(picture.getAttribute("width"));
    const height = Number(picture.getAttribute("height"));
    if (x > 12 && x + width > most) {
      x = 12;
      y += high + 12;
      high = 0;
    }
    placed.push([picture, x, y]);
    x += width + 12;
    high = Math.max(high, height);
    wide = Math.max(wide, x);
  }
  wide = Math.max(wide, Math.min(most, textWidth(title, 14, "600") + 32));
  const whole = svgPicture(wide, y + high + 12, title);
  whole.append(draw("rect", { width: "100%", height: "100%", fill: ink("page") }));
  whole.append(words(12, 22, fitted(title, wide - 24, 14), { size: 14, weight: "600" }));
  for (const [picture, left, top] of placed) {
    const copy = picture.cloneNode(true);
    for (const [name, value] of Object.entries({ x: left, y: top })) copy.setAttribute(name, round(value));
    copy.removeAttribute("style");
    copy.removeAttribute("class");
    whole.append(copy);
  }
  return whole;
}
