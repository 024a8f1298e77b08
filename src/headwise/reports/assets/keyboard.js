// Keys that work anywhere on the page, and the dialog that tells them.

const KEYS = [
  ["← ↑ → ↓", "move in a head grid, a map or a column of tokens"],
  ["Enter", "select the head under the cursor; in a map, show the lines of that row"],
  ["n / p", "next / previous most changed head"],
  ["e / E", "next / previous example"],
  ["t", "light or dark"],
  ["?", "this help"],
  ["Esc", "close this help; leave a token"],
];

function buildHelp() {
  const dialog = document.getElementById("help");
  dialog.append(
    make("h2", { id: "help-title" }, "Keys"),
    make("dl", { class: "keys" }, KEYS.map(([key, text]) => make("div", null, make("dt", null, make("kbd", null, key)), make("dd", null, text)))),
    make("p", { class: "note" }, "The address of the page holds what you have chosen: copy it to show someone the same. Layers and heads are counted from 0."),
    make("form", { method: "dialog" }, make("button", { id: "help-close" }, "Close")));
  document.getElementById("help-open").addEventListener("click", () => dialog.showModal());
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    // A letter in a field is a letter; in a list of choices it finds a choice.
    if (event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, dialog")) return;
    const act = {
      n: () => moveInOrder(1), p: () => moveInOrder(-1), e: () => moveExample(1), E: () => moveExample(-1),
      t: switchTheme, "?": () => document.getElementById("help").showModal(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
