"""One HTML file from a payload, arrays and the assets beside this file; the browser needs nothing else."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

_ASSETS = files("headwise.reports.explorer") / "assets"

# The scripts are joined in this order into one function: first what others stand on, then the views, then the start.
_SCRIPTS = (
    "elements.js",
    "numbers.js",
    "payload.js",
    "arrays.js",
    "maps.js",
    "state.js",
    "colours.js",
    "vector.js",
    "chart.js",
    "scatter.js",
    "heat.js",
    "downloads.js",
    "views.js",
    "view_summary.js",
    "view_curves.js",
    "view_heads.js",
    "view_live.js",
    "token_lines.js",
    "view_detail.js",
    "view_figures.js",
    "view_diversity.js",
    "view_plots.js",
    "view_silenced.js",
    "view_tables.js",
    "view_ssa.js",
    "view_retrieval.js",
    "view_flips.js",
    "keyboard.js",
    "start.js",
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def page(payload: Mapping[str, Any], arrays: Mapping[str, bytes], *, live: bool = False) -> str:
    """The whole page as text: the payload as JSON, each array deflated beside it, styles and scripts inside.

    Args:
        payload: What the page shows, as plain JSON values; numbers that are not finite are refused.
        arrays: Raw bytes by the names under which the payload speaks of them.
        live: Whether the page may ask the server that it came from (`payload["live"]` says where).
    """
    return Template(_asset("page.html")).substitute(
        policy=_POLICY + ("; connect-src 'self'" if live else ""),
        title=escape(str(payload.get("title", ""))),
        style=_asset("page.css"),
        payload=_json(payload),
        arrays="\n".join(_array(name, content) for name, content in arrays.items()),
        script="\n".join(_asset(name) for name in _SCRIPTS),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _json(payload: Mapping[str, Any]) -> str:
    """JSON in which nothing can end the element that holds it."""
    text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def packed(content: bytes) -> str:
    """An array as the page unpacks it: base64 of raw deflate, which DecompressionStream("deflate-raw") reads."""
    press = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(press.compress(content) + press.flush()).decode("ascii")


def _array(name: str, content: bytes) -> str:
    return (
        f'<script type="text/plain" class="array" id="array-{escape(name)}" data-bytes="{len(content)}">'
        f"{packed(content)}</script>"
    )
