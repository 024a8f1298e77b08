// Colours. The scales run evenly in lightness (by way of OKLab), so they can be read without seeing hue;
// models differ by dash as well as by colour.

// Asked for thousands of times while drawing, and each answer of the browser may cost a layout: so they are kept.
const inks = new Map();
let darkNow = null;

function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}

function isDark() {
  const asked = document.documentElement.dataset.theme;
  darkNow ??= asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return darkNow;
}

function forgetTheme() {
  inks.clear();
  darkNow = null;
}

function fromOklch(lightness, chroma, degrees) {
  const angle = (degrees * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((part) => {
    const bounded = Math.min(1, Math.max(0, part));
    const coded = bounded <= 0.0031308 ? 12.92 * bounded : 1.055 * bounded ** (1 / 2.4) - 0.055;
    return Math.round(255 * coded);
  });
}

// Much is dark on a light page and bright on a dark one; nothing is near the page itself.
function sequentialColour(share, dark) {
  const bell = Math.sin(Math.PI * Math.min(1, share * 0.92 + 0.04));
  return dark
    ? fromOklch(0.24 + 0.69 * share, 0.02 + 0.11 * bell, 268 - 168 * share)
    : fromOklch(0.985 - 0.72 * share, 0.01 + 0.115 * bell, 108 + 162 * share);
}

// Less is blue, more is orange.
function divergingColour(share, dark) {
  const size = Math.abs(share);
  const hue = share < 0 ? 255 : 52;
  return dark ? fromOklch(0.27 + 0.5 * size, 0.15 * size, hue) : fromOklch(0.985 - 0.42 * size, 0.16 * size, hue);
}

const palettes = new Map();

// 256 colours, from 0 to 1 or from -1 to 1.
function palette(kind) {
  const key = `${kind}${isDark()}`;
  if (!palettes.has(key)) {
    const colour = kind === "diverging" ? (share) => divergingColour(2 * share - 1, isDark())
      : (share) => sequentialColour(share, isDark());
    palettes.set(key, Array.from({ length: 256 }, (_, place) => colour(place / 255)));
  }
  return palettes.get(key);
}

function shade(kind, share) {
  const place = Math.round(255 * Math.min(1, Math.max(0, kind === "diverging" ? (share + 1) / 2 : share)));
  return palette(kind)[place];
}

function css([red, green, blue]) {
  return `rgb(${red},${green},${blue})`;
}

// Black or white, whichever is easier to read on this colour.
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111111" : "#ffffff";
}

// Blue, vermilion, green, purple, yellow, sky: hues that stay apart for all common kinds of colour vision.
const LINES_LIGHT = ["#0b62a8", "#c4500a", "#00795a", "#a8457f", "#8a6a00", "#2a7f99"];
const LINES_DARK = ["#6cb4f2", "#f58b45", "#3ecb9c", "#e693c2", "#e8c441", "#7fd6ee"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2"];

function lineColour(place) {
  return (isDark() ? LINES_DARK : LINES_LIGHT)[place % 6];
}

function lineDash(place) {
  return DASHES[place % 6] || null;
}

function modelPlace(id) {
  return Math.max(0, models.findIndex((model) => model.id === id));
}

// The ramp that explains colours: an SVG, so that it can be exported with its picture.
function legendPicture(kind, low, high, label) {
  const width = 220;
  const picture = svgPicture(width + 90, 34, `Colour scale of ${label}: ${short(low)} to ${short(high)}`);
  const parts = 44;
  for (let part = 0; part < parts; part += 1) {
    const share = part / (parts - 1);
    picture.append(draw("rect", {
      x: 45 + (part * width) / parts, y: 14, width: width / parts + 0.5, height: 12,
      fill: css(shade(kind, kind === "diverging" ? 2 * share - 1 : share)),
    }));
  }
  picture.append(
    draw("rect", { x: 45, y: 14, width, height: 12, fill: "none", stroke: ink("rule") }),
    words(45, 10, label, { size: 10 }),
    words(41, 24, tickText(Number(low.toPrecision(3))), { anchor: "end", size: 10 }),
    words(49 + width, 24, tickText(Number(high.toPrecision(3))), { size: 10 }),
  );
  return picture;
}
