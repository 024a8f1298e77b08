"""How tests start Chromium."""

# As few doings of its own as can be: no network, no sandbox (which root may not have); a profile is given by each test.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
