// One head's attention on one example, from either form of array. Values are stored as 255 * root(attention).

const SQUARES = Float32Array.from({ length: 256 }, (_, value) => (value / 255) ** 2);

function check(bytes, wanted, name) {
  if (bytes.length !== wanted) throw new Error(`The array “${name}” has ${bytes.length} bytes instead of ${wanted}.`);
}

// -> {size, root: [T*T], whole: every value is known, rest: [T] mass that was not kept, least: [T] root of a bound on it}
function readMap(example, model, layer, head) {
  const entry = example.maps?.[model.id];
  if (!entry || layer >= model.layers || head >= model.heads) return null;
  const bytes = cached(entry.array);
  if (!bytes) return null;
  const size = example.tokens.length;
  const place = layer * model.heads + head;
  const all = model.layers * model.heads;
  if (entry.form === "exact") {
    check(bytes, all * size * size, entry.array);
    const root = bytes.subarray(place * size * size, (place + 1) * size * size);
    return { size, root, whole: true, rest: new Float32Array(size), least: new Uint8Array(size) };
  }
  return readTop(entry, bytes, size, place, all);
}

function readTop(entry, bytes, size, place, all) {
  const width = entry.wide ? 2 : 1;
  const count = all * size * entry.kept;
  check(bytes, count * (width + 1), entry.array);
  const root = new Uint8Array(size * size);
  const rest = new Float32Array(size);
  const least = new Uint8Array(size);
  for (let row = 0; row < size; row += 1) {
    let kept = 0;
    let smallest = 255;
    for (let rank = 0; rank < entry.kept; rank += 1) {
      const at = (place * size + row) * entry.kept + rank;
      const key = width === 2 ? bytes[2 * at] | (bytes[2 * at + 1] << 8) : bytes[at];
      const value = bytes[count * width + at];
      smallest = Math.min(smallest, value);
      if (value === 0 || key >= size) continue;   // rows with fewer keys are filled up with zeros
      root[row * size + key] = value;
      kept += SQUARES[value];
    }
    // A zero among the kept means that all the others are zero too: then nothing is missing.
    const complete = smallest === 0 || entry.kept >= size;
    rest[row] = complete ? 0 : Math.max(0, 1 - kept);
    least[row] = complete ? 0 : smallest;
  }
  return { size, root, whole: false, rest, least };
}

function readSquare(name, size) {
  const bytes = cached(name);
  if (bytes) check(bytes, size * size, name);
  return bytes ?? null;
}

function attention(map, row, column) {
  return SQUARES[map.root[row * map.size + column]];
}

// Was this value left out, rather than zero?
function leftOut(map, row, column) {
  return map.least[row] > 0 && map.root[row * map.size + column] === 0;
}

function valueText(map, row, column) {
  if (!map) return "–";
  if (leftOut(map, row, column)) return `not kept (at most ${short(SQUARES[map.least[row]])})`;
  return short(attention(map, row, column));
}

function strongest(map, row, most) {
  const found = [];
  for (let column = 0; column < map.size; column += 1) {
    const value = attention(map, row, column);
    if (value > 0) found.push([column, value]);
  }
  return found.sort((one, other) => other[1] - one[1]).slice(0, most);
}

// Where the second text begins, or null: the lines between the quadrants of a pair.
function boundary(example) {
  const second = (example.segments ?? []).indexOf(1);
  return second > 0 && example.segments.includes(0) ? second : null;
}

// Of the attention of the tokens of one text, the mean shares that go to each text, to special tokens, and unknown.
function quadrants(example, map) {
  const shares = [];
  for (const from of [0, 1]) {
    const sums = { 0: 0, 1: 0, "-1": 0, rest: 0 };
    let rows = 0;
    for (let row = 0; row < map.size; row += 1) {
      if (example.segments[row] !== from) continue;
      rows += 1;
      sums.rest += map.rest[row];
      for (let column = 0; column < map.size; column += 1) {
        sums[example.segments[column]] += attention(map, row, column);
      }
    }
    for (const key of Object.keys(sums)) sums[key] = rows ? sums[key] / rows : null;
    shares.push(sums);
  }
  return shares;
}

// The cells that a knowledge guide wants most: at least half of the largest wish of their row.
function wishes(root, size) {
  const marked = new Uint8Array(size * size);
  for (let row = 0; row < size; row += 1) {
    let most = 0;
    for (let column = 0; column < size; column += 1) most = Math.max(most, SQUARES[root[row * size + column]]);
    if (most === 0) continue;
    for (let column = 0; column < size; column += 1) {
      if (SQUARES[root[row * size + column]] >= most / 2) marked[row * size + column] = 1;
    }
  }
  return marked;
}

// How much attention lies on the marked cells, a mean over the rows that have any.
function matchScore(map, marked) {
  let sum = 0;
  let rows = 0;
  for (let row = 0; row < map.size; row += 1) {
    let wanted = false;
    let mass = 0;
    for (let column = 0; column < map.size; column += 1) {
      if (!marked[row * map.size + column]) continue;
      wanted = true;
      mass += attention(map, row, column);
    }
    if (wanted) {
      rows += 1;
      sum += mass;
    }
  }
  return rows ? sum / rows : null;
}
