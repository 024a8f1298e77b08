(() => {
"use strict";

// One example at a time; the server has all of them, and the file. Texts go through textContent only.

const find = (id) => document.getElementById(id);
const list = find("texts");
let example = null;  // as the server sent it
let words = [];  // of all texts: { node, gap, sentence, index, marked }
let here = 0;  // the word of the cursor
let range = null;  // while one is marked with Shift: { from, before }
let drag = null;  // while one is marked with the mouse: { place, moved, pointer, range }
let changed = false;  // whether the marks differ from those of the file
let busy = false;
let waiting = [];  // keys that were pressed while the server was busy
const drafts = new Map();  // marks of examples that were left without being saved

// -- showing ----------------------------------------------------------------------------------------------------------

function make(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function show(answer) {
  example = answer;
  const { number, total, done } = answer;
  const over = number === total;
  find("position").textContent = over ? `${total} of ${total}` : `${number + 1} of ${total}`;
  find("progress").max = total;
  find("progress").value = done;
  find("example").hidden = over;
  find("end").hidden = !over;
  find("previous").disabled = number === 0;
  for (const id of ["clear", "skip", "save"]) find(id).hidden = over;
  range = null;
  drag = null;
  if (over) showEnd(answer.summary);
  else showTexts(answer);
}

function showEnd({ output, saved, marked, unmarked, skipped }) {
  words = [];
  changed = false;
  find("summary").textContent = `${saved} saved in ${output}: ${marked} with marks, ${unmarked} without, ${skipped} skipped.`;
  say(`All examples are done. ${find("summary").textContent}`);
  find("end").focus();
}

function showTexts({ texts, label, number, total, names }) {
  const moving = list.contains(document.activeElement) || document.activeElement === document.body || document.activeElement === find("end");
  words = [];
  list.replaceChildren(...texts.map((pieces, sentence) => {
    const text = make("div", { class: "text", dir: "auto" });
    if (texts.length > 1) {
      text.setAttribute("role", "group");
      text.setAttribute("aria-label", names[sentence]);
    }
    pieces.forEach((piece, place) => {  // gap, word, gap, word, ..., gap
      if (place % 2 === 0) {
        text.append(make("span", { class: "gap" }, piece));
        return;
      }
      const node = make("span", { class: "word", role: "option", "aria-selected": "false", id: `word-${words.length}`, "data-word": words.length }, piece);
      words.push({ node, gap: text.lastChild, sentence, index: (place - 1) / 2, marked: false });
      text.append(node);
    });
    return texts.length > 1 ? make("div", { class: "text-box" }, make("span", { class: "text-name", "aria-hidden": "true" }, names[sentence]), text) : text;
  }));
  find("label").textContent = label ?? "none";
  find("label").classList.toggle("none", label === null);
  const draft = drafts.get(number);
  mark((word) => inside(draft ?? example.words, word));
  changed = Boolean(draft);
  list.scrollTop = 0;
  go(0);
  showState();
  say(`Example ${number + 1} of ${total}, label ${label ?? "none"}`);
  if (moving) list.focus({ preventScroll: true });
}

function showState() {
  const count = words.filter((word) => word.marked).length;
  const file = { new: "not saved yet", saved: "saved", skipped: "skipped" }[example.state];
  find("state").textContent = `${count} ${count === 1 ? "word" : "words"} marked, ${changed && example.state !== "new" ? "changed" : file}`;
}

function say(text) {
  find("status").textContent = text;
}

function complain(text) {
  find("problem").textContent = text;
  find("problem").hidden = !text;
}

// -- marks ------------------------------------------------------------------------------------------------------------

const inside = (ranges, { sentence, index }) => ranges.some(([text, first, last]) => text === sentence && first <= index && index <= last);

function mark(rule) {
  words.forEach((word, place) => { word.marked = rule(word, place); });
  words.forEach((word, place) => {
    const [before, after] = [words[place - 1], words[place + 1]];
    const joined = (other) => word.marked && Boolean(other?.marked) && other.sentence === word.sentence;
    word.node.setAttribute("aria-selected", word.marked);
    word.node.classList.toggle("joined-before", joined(before));
    word.node.classList.toggle("joined-after", joined(after));
    word.gap.classList.toggle("on", joined(before));
  });
}

function change(rule) {
  changed = true;
  mark(rule);
  showState();
}

function marked() {
  const ranges = [];
  words.forEach(({ sentence, index, marked: on }, place) => {
    if (!on) return;
    const last = ranges.at(-1);
    if (words[place - 1]?.marked && last?.[0] === sentence) last[2] = index;
    else ranges.push([sentence, index, index]);
  });
  return ranges;
}

const toggle = (place) => change((word, each) => (each === place ? !word.marked : word.marked));

// From a word to another one of the same text.
function stretch({ from, before }, to) {
  const [first, last] = [Math.min(from, to), Math.max(from, to)];
  change((word, place) => before[place] || (first <= place && place <= last));
}

const begin = (from) => ({ from, before: words.map((word) => word.marked) });

// -- the cursor -------------------------------------------------------------------------------------------------------

function go(place) {
  words[here]?.node.classList.remove("here");
  here = Math.max(0, Math.min(place, words.length - 1));
  list.removeAttribute("aria-activedescendant");
  if (!words.length) return;
  words[here].node.classList.add("here");
  words[here].node.scrollIntoView({ block: "nearest" });
  list.setAttribute("aria-activedescendant", words[here].node.id);
}

// The word above or below: the nearest one on the next line that has words.
function vertical(step) {
  const box = (place) => words[place].node.getClientRects()[0];
  const from = box(here);
  const middle = from.left + from.width / 2;
  const apart = (place) => Math.abs(box(place).left + box(place).width / 2 - middle);
  let line = null;
  let best = here;
  for (let place = here + step; place >= 0 && place < words.length; place += step) {
    const rect = box(place);
    if ((rect.top - from.top) * step < from.height / 2) continue;
    line ??= rect.top;
    if (Math.abs(rect.top - line) > from.height / 2) break;
    if (best === here || apart(place) < apart(best)) best = place;
  }
  return best;
}

function target(key) {
  const forward = words[here] && getComputedStyle(words[here].node).direction === "rtl" ? -1 : 1;
  return { ArrowLeft: () => here - forward, ArrowRight: () => here + forward, ArrowUp: () => vertical(-1),
    ArrowDown: () => vertical(1), Home: () => 0, End: () => words.length - 1 }[key]?.();
}

function arrow(key, extend, repeat) {
  const to = target(key);
  if (!extend) {
    range = null;
    if (to < 0 && !repeat) return previous();
    return go(to);
  }
  range ??= begin(here);
  const own = [...words.keys()].filter((place) => words[place].sentence === words[range.from].sentence);
  go(Math.max(own[0], Math.min(to, own.at(-1))));
  stretch(range, here);
  return null;
}

// -- the server -------------------------------------------------------------------------------------------------------

async function request(name, content) {
  busy = true;
  list.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
    const said = await answer.json().catch(() => ({ error: `The server answered ${answer.status} without a reason.` }));
    if (said.error) throw new Error(said.error);
    complain("");
    if (name === "save") drafts.delete(content.number);
    show(said);
  } catch (problem) {
    waiting = [];
    complain(problem instanceof TypeError ? "The server does not answer: is the command still running? Nothing was saved." : problem.message);
  } finally {
    busy = false;
    list.removeAttribute("aria-busy");
  }
  while (waiting.length && !busy) press(waiting.shift());
}

// An example that is in the file already is not written again if nothing has changed: a skipped one stays skipped.
function save() {
  if (example.number === example.total) return;
  if (example.state !== "new" && !changed) request("example", { number: example.number + 1 });
  else request("save", { number: example.number, words: marked() });
}

const skip = () => example.number < example.total && request("save", { number: example.number, skip: true });

function previous() {
  if (example.number === 0) return;
  if (changed) drafts.set(example.number, marked());
  request("example", { number: example.number - 1 });
}

const clear = () => words.length && change(() => false);

// -- keys and mouse ---------------------------------------------------------------------------------------------------

const ONCE = { Enter: save, Backspace: previous, s: skip, u: clear, " ": () => words.length && toggle(here) };

function press({ key, shift, repeat }) {
  if (busy) {
    waiting.push({ key, shift, repeat });
    return;
  }
  if (words.length && target(key) !== undefined) {
    arrow(key, shift, repeat);
  } else if (key === "ArrowLeft" && !repeat) {
    previous();  // from an example without words, or from the end
  } else if (ONCE[key] && !repeat) {
    range = null;
    ONCE[key]();
  }
}

document.addEventListener("keydown", (event) => {
  if (!example || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.target.closest("button, summary") && ["Enter", " "].includes(key)) return;
  if (!ONCE[key] && !/^(Arrow|Home|End)/.test(key)) return;
  event.preventDefault();
  press({ key, shift: event.shiftKey, repeat: event.repeat });
});

for (const [id, act] of Object.entries({ previous, clear, skip, save })) {
  find(id).addEventListener("click", (event) => {
    if (!example || busy) return;
    range = null;
    if (event.detail > 0) list.focus({ preventScroll: true });  // by mouse: the next key is for the words
    act();
  });
}

const wordAt = (x, y) => {
  const place = document.elementFromPoint(x, y)?.closest(".word")?.dataset.word;
  return place === undefined ? null : Number(place);
};

list.addEventListener("pointerdown", (event) => {
  const place = wordAt(event.clientX, event.clientY);
  if (busy || place === null || event.button !== 0) return;
  drag = { place, moved: false, pointer: event.pointerId, range: begin(place) };
  range = null;
  go(place);
});
document.addEventListener("pointermove", (event) => {
  if (busy || drag?.pointer !== event.pointerId) return;
  const place = wordAt(event.clientX, event.clientY);
  if (place === null || words[place].sentence !== words[drag.place].sentence || (place === drag.place && !drag.moved)) return;
  drag.moved = true;
  go(place);
  stretch(drag.range, place);
});
document.addEventListener("pointerup", (event) => {
  if (drag?.pointer !== event.pointerId) return;
  if (!drag.moved && !busy && wordAt(event.clientX, event.clientY) === drag.place) toggle(drag.place);
  drag = null;
});
document.addEventListener("pointercancel", () => {  // the finger scrolls
  if (drag?.moved) change((_, place) => drag.range.before[place]);
  drag = null;
});

find("keys").open = window.matchMedia("(min-width: 40.01rem)").matches;
request("example", {}).then(() => {
  if (example && example.number < example.total) list.focus({ preventScroll: true });
  document.documentElement.dataset.ready = "true";
});
})();
