"""The server of `headwise explore`: the page of a report, and models that read what is typed there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from headwise.cli.loopback_server import Site
from headwise.data import Split
from headwise.errors import InputError
from headwise.experiments.analysis.example_views import ExpectedPattern, check_texts, view_examples
from headwise.experiments.apply import Loaded
from headwise.limits import parse_json
from headwise.reports.report_page import Page, packed
from headwise.reports.report_runs import RUN
from headwise.reports.report_views import example_payload

LONGEST = 4000
"""Characters of a text."""
# A body holds two texts, each character up to twelve bytes in JSON, the heads that are off, and the words around them.
LARGEST_BODY = 2 * 12 * LONGEST + 20_000
# So many heads that are off are named in a title.
FEW = 4
EXPECTED = 'expected {"texts": ["...", "..."]}, and perhaps "off": [[layer, head], ...].'
# Whole maps up to here; longer texts get the largest weights of each row.
WHOLE_TOKENS = 128


class Explorer(Site):
    """The page and the models."""

    largest_body = LARGEST_BODY
    too_large = f"a text may have {LONGEST} characters at most: cut it."

    def __init__(
        self, page: Page, models: Mapping[str, Loaded], patterns: Mapping[str, ExpectedPattern | None] | None = None
    ) -> None:
        """Make the page live; `patterns` are those that the heads of each model were compared with."""
        super().__init__()
        self.answers = {"look": self.look}
        self._models, self._patterns = models, patterns or {}
        self._busy, self._questions = threading.Lock(), 0
        self._foremost = [model["role"] for model in page.payload["models"]].index(RUN)
        first = next(iter(models.values()))
        live = {"url": f"/{self.token}/look", "pair": first.task.sentences == 2, "longest_characters": LONGEST}
        self.html = Page({**page.payload, "live": live}, page.arrays).html(live=True).encode()

    def look(self, body: bytes) -> dict[str, Any]:
        """What the models do with typed texts; one request at a time."""
        texts, off = _question(body)
        without = ""
        if off:
            heads = ", ".join(f"{layer}.{head}" for layer, head in off)
            without = f" without {heads if len(off) <= FEW else f'{len(off)} heads'}"
        with self._busy:
            views = []
            for name, run in self._models.items():
                split = Split((check_texts(run, texts),), (None,))
                title, expected = f"typed {self._questions + 1}{without}", self._patterns.get(name)
                views += view_examples(run, split, [title], [None], expected=expected, silenced=off)
            self._questions += 1
            name = f"live{self._questions}"
        exact = len(views[0].tokens) <= WHOLE_TOKENS
        example, arrays = example_payload(list(self._models), views, name, exact=exact, foremost=self._foremost)
        example["off"] = [list(head) for head in off]
        return {"example": example, "arrays": {key: packed(content) for key, content in arrays.items()}}


def _question(body: bytes) -> tuple[list[str], list[tuple[int, int]]]:
    """The texts of a request, and the heads that are switched off."""
    try:
        content = parse_json(body)
        texts, off = content["texts"], content.get("off", [])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(EXPECTED) from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or not isinstance(off, list):
        raise InputError(EXPECTED)
    for head in off:
        if not isinstance(head, list) or len(head) != 2 or not all(type(number) is int for number in head):
            raise InputError(EXPECTED)
    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError("a text holds half of a letter (a lone surrogate): write it again.")
        if len(text) > LONGEST:
            raise InputError(f"a text has {len(text)} characters: expected at most {LONGEST}; cut it.")
    return texts, sorted({(layer, head) for layer, head in off})
