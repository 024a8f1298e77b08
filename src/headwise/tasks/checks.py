"""Small checks of what a recipe may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.errors import InputError, choices


def one_of(value: Any, known: Sequence[str], option: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{option}: {value!r} is not known; {choices(str(value), known)}.")
    return value


def text(value: Any, option: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{option}: expected a text, got {value!r}; quote it if it is one.")
    return value


def texts(value: Any, option: str) -> tuple[str, ...]:
    """Texts, all different; a single one may stand alone."""
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items:
        raise InputError(f"{option}: expected a list of texts, got {value!r}; list at least one.")
    found = tuple(text(item, option) for item in items)
    if len(set(found)) < len(found):
        raise InputError(f"{option}: expected different texts, got {list(found)!r}; name each once.")
    return found


def mapping(value: Any, option: str) -> Mapping[Any, Any]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise InputError(f"{option}: expected a mapping, got {value!r}; write it as key: value.")
    return value


def written(value: Any, option: str) -> str:
    """A label as it is written in a file; whole numbers may be given as such."""
    # YAML reads yes, no, on and off as booleans, which is never what was meant.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{option}: expected a text or a whole number, got {value!r}; quote it.")
    return str(value)
