"""The name of a store: a hash of all that decides what it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from headwise.errors import InputError, StateError
from headwise.patterns.base import options_of
from headwise.patterns.knowledge import Knowledge, Resources, Texts
from headwise.patterns.mapped import FORMAT


def store_key(pattern: Knowledge, examples: Sequence[Texts], corpus: Sequence[Texts], resources: Resources) -> str:
    """A hash of the pattern, its options, its sources, and the texts in their order.

    The corpus counts only for patterns that draw on it. Model, seed and longest length never do.
    """
    content = hashlib.sha256(_plain(pattern, about(pattern, resources)).encode())
    _add(content, examples, f"pattern {pattern.name}: example")
    if pattern.from_corpus:
        _add(content, corpus, f"pattern {pattern.name}: corpus example")
    return content.hexdigest()[:32]


def about(pattern: Knowledge, resources: Resources) -> dict[str, Any]:
    """What decides the values besides the texts."""
    return {
        "format": FORMAT,
        "name": pattern.name,
        "options": options_of(pattern),
        "fingerprint": pattern.fingerprint(resources),
    }


def _plain(pattern: Knowledge, data: dict[str, Any]) -> str:
    try:
        return json.dumps(data, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StateError(f"pattern {pattern.name}: its options and fingerprint must be plain data: {error}.") from error


def _add(content: Any, examples: Sequence[Texts], what: str) -> None:
    """Lengths go in as well: otherwise ("ab", "c") and ("a", "bc") would be the same."""
    content.update(b"%d:" % len(examples))
    for number, texts in enumerate(examples):
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{what} {number}: expected a tuple of texts such as ('one', 'two'), got {texts!r:.100}.")
        content.update(b"%d:" % len(texts))
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            content.update(b"%d:" % len(encoded))
            content.update(encoded)
