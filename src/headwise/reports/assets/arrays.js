// Arrays are unpacked when somebody looks, and forgotten when they are many: 512 tokens make 38 MB per model.

const MOST_BYTES = 300e6;
const unpacked = new Map();
const underway = new Map();
const delivered = new Map();   // base64 of arrays that came later, from a server

function deliver(name, packed) {
  delivered.set(name, packed);
}

function cached(name) {
  const bytes = unpacked.get(name);
  if (bytes) {   // to the end: the first is the one that was not asked for longest
    unpacked.delete(name);
    unpacked.set(name, bytes);
  }
  return bytes;
}

function load(name) {
  const known = cached(name);
  if (known) return Promise.resolve(known);
  if (!underway.has(name)) {
    underway.set(name, unpack(name).finally(() => underway.delete(name)));
  }
  return underway.get(name);
}

async function unpack(name) {
  const packed = delivered.get(name) ?? document.getElementById(`array-${name}`)?.textContent;
  if (packed === undefined) throw new Error(`The page has no array “${name}”.`);
  const text = atob(packed.trim());
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  keep(name, whole);
  return whole;
}

function keep(name, bytes) {
  unpacked.set(name, bytes);
  let total = 0;
  for (const each of unpacked.values()) total += each.byteLength;
  for (const [oldest, each] of unpacked) {
    if (total <= MOST_BYTES || oldest === name) break;
    unpacked.delete(oldest);
    total -= each.byteLength;
  }
}

// Draws at once what is there already (so that printing works), and later what has to be unpacked first.
// `current` says whether the answer is still wanted when it comes.
function withArrays(names, section, current, act) {
  const missing = names.filter((name) => !cached(name));
  if (!missing.length) {
    delete section.dataset.busy;
    act();
    return Promise.resolve();
  }
  section.dataset.busy = "true";
  return Promise.all(names.map(load)).then(() => current() && act()).catch((problem) => {
    if (current()) fail(section, problem);
  }).finally(() => {
    if (current()) delete section.dataset.busy;
  });
}
