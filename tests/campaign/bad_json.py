"""Records, outputs, analyses and other JSON with parts of the wrong type, missing, or more than there should be."""

from __future__ import annotations

import json
import random
from typing import Any

from campaign.bad_recipes import WRONG, part, put
from campaign.orders import BAD, OPEN, SAME, Case, Draw

MODEL = ("config.json", "tokenizer.json", "tokenizer_config.json")
WRONG_TEXTS = ("", "\x00", "../../../etc/passwd", "a" * 5000, "<script>", "\ud800", "nan")


def wrong_json(draw: Draw) -> Case | None:
    """One mistake in one of the JSON files that the command reads."""
    folders = tuple(f"{run}/*.json" for run in draw.order.runs)
    path = draw.pick((*(each for each in (*draw.order.reads, *folders) if not each.endswith(".jsonl")),))
    if path is None or path.suffix != ".json":
        return None
    if draw.chance.random() < 0.15:
        return _wrong_text(draw, path)
    data = json.loads(path.read_text(encoding="utf-8"))
    what, verdict = mistake(data, draw.chance)
    path.write_text(json.dumps(data, indent=2), encoding="utf-8")
    # The files of a model may have other valid values, and a sweep does not read the results that exist.
    if path.name in MODEL or draw.order.failed_runs:
        verdict = OPEN
    return draw.case(f"{draw.name(path)}: {what}", verdict)


def mistake(data: Any, chance: random.Random) -> tuple[str, str]:
    """Change one part of nested data; small files and their first parts are not more likely than others."""
    path, value = _place(data, chance)
    name = ".".join(map(str, path))
    kind = chance.randrange(5)
    if kind == 0:
        del part(data, path[:-1])[path[-1]]
        return f"without {name}", SAME
    if kind == 1:
        put(data, path, None)
        return f"{name}: null", SAME
    if kind == 2 and isinstance(value, list | dict) and value:
        put(data, path, type(value)())
        return f"{name}: empty", SAME
    if kind == 3 and isinstance(value, str):
        wrong = chance.choice(WRONG_TEXTS)
        put(data, path, wrong)
        return f"{name}: {wrong!r:.30}", OPEN
    if kind == 3 and isinstance(value, int | float) and not isinstance(value, bool):
        wrong_number = chance.choice((-1, 10**30, float("nan"), float("inf"), 0))
        put(data, path, wrong_number)
        return f"{name}: {wrong_number!r}", OPEN
    wrong_value = chance.choice(WRONG.get(type(value), ("a", 3, [1])))
    put(data, path, wrong_value)
    return f"{name}: {wrong_value!r}", SAME


def _place(data: Any, chance: random.Random) -> tuple[tuple[str | int, ...], Any]:
    """By going down step by step, so that a long list of numbers does not take all draws."""
    path: tuple[str | int, ...] = ()
    while True:
        inner = [(where, each) for where, each in _children(data)]
        if not inner or (path and chance.random() < 0.25):
            return path, data
        where, data = chance.choice(inner)
        path = (*path, where)


def _children(data: Any) -> list[tuple[str | int, Any]]:
    return list(data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ())


TEXTS: dict[str, tuple[Any, str]] = {
    "a list": (lambda text: "[]", BAD),
    "a number": (lambda text: "3", BAD),
    "null": (lambda text: "null", BAD),
    "an empty object": (lambda text: "{}", BAD),
    "deep lists": (lambda text: 100_000 * "[" + 100_000 * "]", BAD),
    "a deep value": (lambda text: text.rstrip()[:-1] + ', "x": ' + 5000 * "[" + 5000 * "]" + "}", SAME),
    "a number of 5000 digits": (lambda text: text.rstrip()[:-1] + ', "x": ' + 5000 * "9" + "}", SAME),
    "an open object": (lambda text: text.rstrip()[:-1], BAD),
    "words after it": (lambda text: text + "and more\n", BAD),
    "a byte order mark": (lambda text: "\ufeff" + text, SAME),
}


def _wrong_text(draw: Draw, path: Any) -> Case:
    name = draw.chance.choice(sorted(TEXTS))
    change, verdict = TEXTS[name]
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    # Whether a file matters to a command at all is not known here.
    return draw.case(f"{draw.name(path)}: {name}", SAME if verdict == BAD else verdict)
