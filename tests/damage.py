"""Damage to files, for the tests of what the commands say about it: JSON with other values, and bytes that are off."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What a value may become. The last ones are written as text, since they are no JSON, or not what JSON makes of it.
DEEP = "[" * 3000 + "]" * 3000
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "text": "damaged",
    "number": 3,
    "large number": 100_000,
    "negative": -1,
    "fraction": 0.5,
    "empty list": [],
    "empty object": {},
    "nested list": [[[1]]],
    "list of objects": [{"a": 1}],
    "object of objects": {"a": {"b": 1}},
}
TEXTS = {"NaN": "NaN", "Infinity": "-Infinity", "too large": "1e999", "huge": "1" + 25 * "0", "deep": DEEP}
GONE, MARK = "gone", "@@damage@@"
# Of a long list of numbers every one would be the same case again.
ENDS = 2


def paths_in(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value; of lists, the first ones and the last one."""
    if before:
        yield before
    if isinstance(document, dict):
        for name, value in document.items():
            yield from paths_in(value, (*before, name))
    elif isinstance(document, list):
        for place in sorted({*range(min(ENDS, len(document))), *([len(document) - 1] if document else [])}):
            yield from paths_in(document[place], (*before, place))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


def without(document: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return changed


def damaged_json(text: str, path: tuple[Any, ...], how: str) -> str:
    """A document with one of its values, or all of it, gone or something else."""
    document = json.loads(text)
    if how == GONE:
        return json.dumps(without(document, path)) if path else ""
    if how in VALUES:
        return json.dumps(with_value(document, path, VALUES[how]) if path else VALUES[how])
    marked = json.dumps(with_value(document, path, MARK)) if path else f'"{MARK}"'
    return marked.replace(f'"{MARK}"', TEXTS[how])


def damaged_bytes(content: bytes, seed: int, count: int = 20) -> Iterator[tuple[str, bytes]]:
    """Cut, emptied, and with bits turned over, more of them at the beginning, where headers are."""
    chance = random.Random(seed)
    yield "empty", b""
    yield "zeros", bytes(len(content))
    for _ in range(count // 2):
        size = chance.randrange(len(content))
        yield f"cut to {size} bytes", content[:size]
    for number in range(count):
        place = chance.randrange(min(len(content), 400) if number % 2 else len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        yield f"byte {place} is {changed[place]}", bytes(changed)


def damages(path: Path, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """So many ways to damage a file, most of them as JSON if it is such."""
    content, chance = path.read_bytes(), random.Random(seed)
    ways: list[Any] = list(damaged_bytes(content, seed))
    text, rest = content.decode(errors="replace"), ""
    if path.suffix == ".jsonl":
        text, _, rest = text.partition("\n")
    if path.suffix in (".json", ".jsonl"):
        ways += [(place, how) for place in ((), *paths_in(json.loads(text))) for how in (GONE, *VALUES, *TEXTS)]
    for name, way in chance.sample(ways, min(count, len(ways))):
        if isinstance(name, tuple):
            where = ".".join(map(str, name)) or "all"
            yield f"{where}: {way}", (damaged_json(text, name, way) + ("\n" + rest if rest else "")).encode()
        else:
            yield name, way
