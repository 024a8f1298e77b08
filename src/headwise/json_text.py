"""JSON that somebody else may have written: read with a limit on its nesting."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Nothing that headwise writes is nested half as deep."""


def parse_json(text: str | bytes, *, parse_int: Callable[[str], Any] | None = None) -> Any:
    """What a JSON text holds; a ValueError if it is not JSON, or nested deeper than MAX_DEPTH levels.

    Python's own functions that walk nested data, such as repr, raise a RecursionError at about 1,000 levels: text that
    deep is refused before anything walks over it.
    """
    try:
        content = json.loads(text, parse_int=parse_int)
    except RecursionError:
        deep = True
    else:
        deep = deeper_than(MAX_DEPTH, content)
    if deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return content


def deeper_than(levels: int, data: Any) -> bool:
    """Whether lists and mappings are nested deeper than this; those that contain themselves are."""
    inside = [data]
    for _ in range(levels + 1):
        inside = _containers(inside)
        if not inside:
            return False
        inside = [each for part in inside for each in (part.values() if isinstance(part, dict) else part)]
    return True


def _containers(values: list[Any]) -> list[Any]:
    """The lists and mappings among them, each once: what is shared need not be walked over again."""
    return list({id(each): each for each in values if isinstance(each, dict | list | tuple)}.values())
