// Numbers as people read them, and scales for axes.

function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : digits);
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "") + short(Math.abs(value));
}

// "0.512 ± 0.013": the error is left away where nobody knows it.
function withError(value, error) {
  return error === null || error === undefined ? short(value) : `${short(value)} ± ${short(error)}`;
}

function present(values) {
  return values.filter((value) => typeof value === "number" && Number.isFinite(value));
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (typeof value !== "number" || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

// A little air around the data, and something to divide by when all values are the same.
function padded([low, high], share = 0.06) {
  const air = high > low ? (high - low) * share : Math.abs(high) * 0.1 || 0.5;
  return [low - air, high + air];
}

function ticks([low, high], wanted = 5) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) {
    found.push(Number((place * step).toPrecision(12)));
  }
  return found;
}

function tickText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function linear([from, to], [start, end]) {
  const slope = (end - start) / (to - from || 1);
  return (value) => start + (value - from) * slope;
}
