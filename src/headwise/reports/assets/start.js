// Everything is put on the page, what the address asks for is chosen, and the page says that it is ready.

function switchTheme() {
  setTheme(isDark() ? "light" : "dark");
}

function setTheme(theme, remember = true) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  if (remember) {
    try {
      localStorage.setItem("headwise-theme", theme);
    } catch {
      // Not every place where a page lies lets it remember.
    }
  }
  showTheme();
}

function showTheme() {
  forgetTheme();
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
  document.getElementById("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  return Promise.all(views.map(refresh));
}

function rememberedTheme() {
  try {
    const theme = localStorage.getItem("headwise-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // As above.
  }
}

// Paper is white. What was drawn in dark colours is drawn again for it.
function listenToPrinting() {
  let before;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    if (isDark()) setTheme("light", false);
    else before = null;
  });
  addEventListener("afterprint", () => {
    if (before !== null) setTheme(before, false);
  });
}

async function start() {
  rememberedTheme();
  document.getElementById("title").textContent = payload.title;
  document.getElementById("foot").textContent = `Made by Headwise ${payload.version}. This page is one file and makes no network requests${payload.live ? " except to the server that it came from" : ""}.`;
  const main = document.getElementById("content");
  for (const view of views) if (view.exists() || view.later?.()) main.append(frame(view));
  const asked = readHash(location.hash);
  Object.assign(state, asked);
  arrange();
  listeners.push((changed) => {
    for (const view of views) if (view.on.some((name) => changed.has(name))) refresh(view);
    if (changed.has("view")) markMenu();
  });
  buildHelp();
  listenToKeys();
  listenToPrinting();
  document.getElementById("theme").addEventListener("click", switchTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showTheme());
  await showTheme();
  if (asked.view) openView(asked.view, false);
  watchScrolling();
  addEventListener("hashchange", () => {
    const found = readHash(location.hash);
    const { view, ...rest } = found;
    choose(rest);
    if (view) openView(view, false);
    writeHash();
  });
  writeHash();   // the address can be handed on at once
  document.documentElement.dataset.ready = "true";
  performance.mark("headwise-ready");
}

start();
