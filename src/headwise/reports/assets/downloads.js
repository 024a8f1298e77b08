// Files made in the browser: CSV of the numbers, SVG of the pictures, PNG of the SVG.

// A spreadsheet would run a text that begins like a formula: it gets a ' in front. Numbers are ours and stay numbers.
// The last four are the wide forms of the first four.
const formula = /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;

function csvCell(cell) {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  let text = String(cell);
  if (formula.test(text)) text = `'${text}`;
  return /[",\r\n']/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText(tablesGiven) {
  const block = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n");
  if (tablesGiven.length === 1) return `${block(tablesGiven[0])}\r\n`;
  // Several tables of different columns: each with its title above and an empty line below.
  return tablesGiven.map((each) => `${csvCell(each.title ?? "")}\r\n${block(each)}\r\n`).join("\r\n");
}

function svgText(picture) {
  return new XMLSerializer().serializeToString(picture);
}

async function pngBlob(picture) {
  const width = Number(picture.getAttribute("width"));
  const height = Number(picture.getAttribute("height"));
  const scale = Math.min(2, 12000 / width, 12000 / height, Math.sqrt(60e6 / (width * height)));
  const address = URL.createObjectURL(new Blob([svgText(picture)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, refuse) =>
      canvas.toBlob((blob) => (blob ? done(blob) : refuse(new Error("The picture is too large for a PNG."))), "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

async function download(view, kind) {
  const name = `headwise-${view.id}.${kind}`;
  if (kind === "csv") {
    // The mark at the start tells spreadsheets that this is UTF-8.
    save(new Blob(["\uFEFF", csvText(view.rows())], { type: "text/csv;charset=utf-8" }), name);
    return;
  }
  const pictures = view.pictures?.() ?? [];
  const title = [payload.title, view.title, view.subtitle?.()].filter(Boolean).join(" – ");
  const whole = collage(pictures.length ? pictures : [tablePicture(view.tables())], title);
  save(kind === "svg" ? new Blob([svgText(whole)], { type: "image/svg+xml" }) : await pngBlob(whole), name);
}
