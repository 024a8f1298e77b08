"""What tests do on a report page: open it, look for things, press keys, catch the files that it saves."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from explorer_payloads import Maker

from headwise.reports.report_page import page

CATCH = """
if (!window.savedBlobs) {
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => { window.savedBlobs.push(blob); return make.call(URL, blob); };
}
window.savedBlobs = [];
"""
READ = """
const done = arguments[arguments.length - 1];
const reader = new FileReader();
reader.onload = () => done([window.savedBlobs.at(-1).type, reader.result.split(",")[1]]);
reader.readAsDataURL(window.savedBlobs.at(-1));
"""


def write_page(maker: Maker, path: Path, **changes: Any) -> str:
    """Writes the page and tells its address."""
    path.write_text(page({**maker.payload(), **changes}, maker.arrays), encoding="utf-8")
    return path.as_uri()


class Tab:
    """A page in the browser."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, hash: str = "") -> Tab:
        self.browser.get("about:blank")  # or a new hash would not load the page anew
        self.browser.get_log("browser")
        self.browser.get(self.address + hash)
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "true", "the page is not ready")
        self.settle()
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def wait(self, done: Callable[[], Any], otherwise: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, otherwise
            time.sleep(0.02)

    def settle(self) -> None:
        self.wait(lambda: not self.run("return document.querySelector('section[data-busy]')"), "still unpacking")

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        found = self.all(selector)
        assert len(found) == 1, f"{selector}: {len(found)} elements"
        return found[0]

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def click(self, selector: str) -> None:
        found = self.one(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        self.run(
            "const found = document.querySelector(arguments[0]); found.value = arguments[1];"
            "for (const kind of ['input', 'change']) found.dispatchEvent(new Event(kind, {bubbles: true}))",
            selector,
            value,
        )
        self.settle()

    def press(self, keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(keys)
        self.settle()

    def focus(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).focus()", selector)

    @property
    def hash(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.run("return location.href")).fragment)
        return {name: values[0] for name, values in found.items()}

    def problems(self) -> list[str]:
        return self.run(
            "return [...document.querySelectorAll('.problem')].filter((e) => !e.hidden).map((e) => e.textContent)"
        )

    def table(self, view: str, number: int = -1) -> list[list[str]]:
        """The rows of a table under "Values as a table", which is opened for that."""
        self.run("document.querySelector(`#${arguments[0]} details.as-table`).open = true", view)
        self.wait(lambda: self.all(f"#{view} .values table"), f"{view} has no table")
        return self.run(
            "const all = [...document.querySelectorAll(`#${arguments[0]} .values table`)];"
            "return [...all.at(arguments[1]).rows].map((r) => [...r.cells].map((c) => c.textContent))",
            view,
            number,
        )

    def saved(self, view: str, kind: str) -> tuple[str, bytes]:
        """Type and bytes of the file that a button makes."""
        self.run(CATCH)
        # A PNG is made by way of an SVG: the last blob counts, and for PNG it is the second.
        wanted = 2 if kind == "png" else 1
        self.run("document.querySelector(arguments[0]).click()", f'#{view} [data-save="{kind}"]')
        self.wait(
            lambda: self.run("return window.savedBlobs.length") >= wanted, f"{view}: no {kind}; {self.problems()}"
        )
        type_, packed = self.browser.execute_async_script(READ)
        return type_, base64.b64decode(packed)

    @property
    def menu(self) -> list[str]:
        return [link.get_attribute("data-view") for link in self.all("#menu a")]

    def csv(self, view: str) -> list[list[str]]:
        type_, content = self.saved(view, "csv")
        assert type_.startswith("text/csv")
        return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))

    def complaints(self) -> list[str]:
        """What the console says, but for advice to those who read pixels, as only tests do."""
        messages = [entry["message"] for entry in self.browser.get_log("browser")]
        return [message for message in messages if "willReadFrequently" not in message]

    def requests(self) -> list[str]:
        """Every address that was asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
