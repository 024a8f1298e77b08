// Elements from data. Text of users goes through textContent and setAttribute only, so it can never become markup.

const SVG_SPACE = "http://www.w3.org/2000/svg";

// XML knows no control characters and no half surrogates: a file with one would not open at all.
function printable(text) {
  return String(text)
    .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]/g, "\uFFFD")
    .toWellFormed();
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

function make(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function draw(tag, properties, ...children) {
  const node = document.createElementNS(SVG_SPACE, tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, typeof value === "number" ? round(value) : printable(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : printable(child));
  }
  return node;
}

// Two digits of a pixel are enough, and they keep exported files small.
function round(value) {
  return String(Math.round(value * 100) / 100);
}

function choice(label, options, chosen, act, properties) {
  const select = make("select", { onchange: () => act(select.value), ...properties });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  select.value = String(chosen);
  return make("label", { class: "choice" }, make("span", null, label), select);
}

function button(text, act, properties) {
  return make("button", { type: "button", onclick: act, ...properties }, text);
}

function table({ title, columns, rows, notes }, most = Infinity) {
  const shown = rows.slice(0, most);
  const body = shown.map((row) =>
    make("tr", null, row.map((cell, place) =>
      make(place ? "td" : "th", place ? { class: typeof cell === "number" ? "number" : null } : { scope: "row" },
        make("bdi", null, cellText(cell))))));
  const head = make("tr", null, columns.map((name, place) =>
    make("th", { scope: "col", class: place && typeof rows[0]?.[place] === "number" ? "number" : null }, make("bdi", null, name))));
  const element = make("table", null, title ? make("caption", null, title) : null,
    make("thead", null, head), make("tbody", null, body));
  const cut = rows.length > shown.length
    ? make("p", { class: "note" }, `The first ${shown.length} of ${rows.length} rows; the CSV file has all.`) : null;
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": title || "Values" },
    element, cut, (notes ?? []).map((note) => make("p", { class: "note" }, note)));
}

function cellText(cell) {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "number" ? short(cell) : String(cell);
}
