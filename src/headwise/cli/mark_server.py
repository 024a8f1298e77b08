"""The server of `headwise mark`: a page to mark words, which saves every example as soon as it is done."""

from __future__ import annotations

import hashlib
import os
import sys
import webbrowser
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import typer

from headwise.cli.loopback_server import Site, run_until_interrupt, serve
from headwise.data.marking import LONGEST, Marking
from headwise.errors import InputError
from headwise.limits import parse_json

# Two texts, of which every other character is a marked word: [1,24999,24999], for each.
LARGEST_BODY = 2 * (LONGEST // 2 // 2) * 20 + 20_000
EXPECTED = 'expected {"number": 0, "words": [[sentence, first word, last word], ...], "skip": false}.'


class Marker(Site):
    """The page and the examples."""

    largest_body = LARGEST_BODY
    too_large = "the request is too large: mark fewer words."

    def __init__(self, marking: Marking, name: str) -> None:
        """Serve the examples of a file with this name."""
        super().__init__()
        self.answers = {"example": self.example, "save": self.save}
        self.html = mark_page(name).encode()
        self._marking = marking

    def example(self, body: bytes) -> dict[str, Any]:
        """An example by its number; without one the first that is not done."""
        number = _content(body).get("number", min(self._marking.done, self._marking.total))
        if type(number) is not int:
            raise InputError(EXPECTED)
        return self._marking.example(number)

    def save(self, body: bytes) -> dict[str, Any]:
        """Save the marked words of an example; answers with the next one."""
        content = _content(body)
        number, words, skip = content.get("number"), content.get("words", []), content.get("skip", False)
        if type(number) is not int or type(skip) is not bool or not isinstance(words, list):
            raise InputError(EXPECTED)
        for word in words:
            if not isinstance(word, list) or len(word) != 3 or not all(type(each) is int for each in word):
                raise InputError(EXPECTED)
        return self._marking.save(number, words, skip=skip)


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = parse_json(body)
    except ValueError:
        raise InputError(EXPECTED) from None
    if not isinstance(content, dict):
        raise InputError(EXPECTED)
    return content


def mark_page(name: str) -> str:
    """The page for a file of this name; only its own style and script may run, and it asks only its own server."""
    page, style, script = (
        (files("headwise") / "reports" / "assets" / f"mark.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    return Template(page).substitute(policy=policy, name=escape(name), style=style, script=script)


def _digest(text: str) -> str:
    """How a content policy names a style or a script."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def serve_until_interrupt(
    marking: Marking, name: str, port: int, lines: Iterable[str], *, browser: bool, to_stderr: bool
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        marking: the examples and their marks.
        name: of the file of examples.
        port: 0 for any free one.
        lines: to print before the address.
        browser: whether to open the page, where there is a desktop.
        to_stderr: whether to print on stderr.
    """
    with serve(Marker(marking, name), port) as address, suppress(KeyboardInterrupt):
        for line in (*lines, f"open {address} in a browser on this machine; Ctrl-C ends it"):
            typer.echo(line, err=to_stderr)
        if browser and _has_desktop():
            webbrowser.open(address)
        run_until_interrupt()


def _has_desktop() -> bool:
    """Whether a browser opens beside the terminal; elsewhere one in text mode could take its place."""
    graphical = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return graphical and sys.stderr.isatty()
