"""TREC runs, judgements and collections with wrong lines."""

from __future__ import annotations

import json
from pathlib import Path

from campaign.orders import BAD, OPEN, Case, Draw

# What stands in the place of a line; {0} to {5} are its fields.
TREC: dict[str, tuple[str, str]] = {
    "a field less": ("{0} {1} {2} {3} {4}", BAD),
    "a field more": ("{0} {1} {2} {3} {4} {5} x", BAD),
    "one word": ("{0}", BAD),
    "a score of words": ("{0} {1} {2} {3} much {5}", BAD),
    "a score that is no number": ("{0} {1} {2} {3} nan {5}", BAD),
    "an endless score": ("{0} {1} {2} {3} inf {5}", BAD),
    "a huge score": ("{0} {1} {2} {3} 1e999 {5}", BAD),
    "a rank of words": ("{0} {1} {2} first {4} {5}", OPEN),
    "an unknown document": ("{0} {1} nobody {3} {4} {5}", OPEN),
    "an unknown claim": ("nobody {1} {2} {3} {4} {5}", OPEN),
    "a document twice": ("{0} {1} {2} {3} {4} {5}\n{0} {1} {2} {3} {4} {5}", OPEN),
    "a blank line": ("", OPEN),
    "zero bytes": ("{0} {1} {2}\0 {3} {4} {5}", OPEN),
}
QRELS: dict[str, tuple[str, str]] = {
    "a field less": ("{0} {1} {2}", OPEN),
    "one word": ("{0}", BAD),
    "a judgement of words": ("{0} {1} {2} yes", BAD),
    "a judgement of parts": ("{0} {1} {2} 0.5", OPEN),
    "a huge judgement": ("{0} {1} {2} 99999999999999999999999", OPEN),
    "a negative judgement": ("{0} {1} {2} -5", OPEN),
    "a document twice": ("{0} {1} {2} 1\n{0} {1} {2} 0", OPEN),
    "an unknown document": ("{0} {1} nobody 1", OPEN),
}
# What stands in the place of a line of a collection; the keys are _id, title and text.
RECORDS: dict[str, tuple[object, str]] = {
    "no id": ({"_id": None}, BAD),
    "an empty id": ({"_id": ""}, BAD),
    "a number as id": ({"_id": 3}, OPEN),
    "a list as id": ({"_id": ["a"]}, BAD),
    "an id with blanks": ({"_id": "a b"}, OPEN),
    "no text": ({"text": None}, OPEN),
    "a number as text": ({"text": 3}, OPEN),
    "a list as text": ({"text": ["a"]}, BAD),
    "an object as title": ({"title": {"a": 1}}, OPEN),
    "an empty text": ({"text": "", "title": ""}, OPEN),
    "no object": ([1, 2], BAD),
    "a number": (3, BAD),
}
RAW = ('{"_id": "x", "text": ', "not json", '"_id"', "{" * 3000, "\ufeff{}", '{"_id": "x", "text": "\\ud800"}')


def wrong_ranking(draw: Draw) -> Case | None:
    """One wrong line in a run, in judgements or in a collection."""
    path = draw.pick(draw.order.reads)
    if path is None or path.suffix not in (".trec", ".txt", ".jsonl", ".tsv"):
        return None
    if path.suffix == ".jsonl":
        return _wrong_record(draw, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    place = draw.chance.randrange(len(lines))
    kinds = TREC if path.suffix == ".trec" else QRELS
    kind = draw.chance.choice(sorted(kinds))
    form, verdict = kinds[kind]
    fields = lines[place].split()
    if path.suffix == ".tsv":
        fields.insert(1, "0")
    lines[place] = form.format(*fields, *["x"] * 6)
    if path.suffix == ".tsv":
        lines[place] = lines[place].replace(" 0 ", " ", 1).replace(" ", "\t")
        verdict = OPEN
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    # Lines of claims that are not asked for need not be read.
    return draw.case(f"{draw.name(path)} line {place + 1}: {kind}", verdict)


def _wrong_record(draw: Draw, path: Path) -> Case:
    lines = path.read_text(encoding="utf-8").splitlines()
    place = draw.chance.randrange(len(lines))
    if draw.chance.random() < 0.25:
        lines[place] = draw.chance.choice(RAW)
        kind, verdict = f"{lines[place]!r:.30}", OPEN
    else:
        kind = draw.chance.choice(sorted(RECORDS))
        value, verdict = RECORDS[kind]
        record = json.loads(lines[place])
        if isinstance(value, dict):
            record.update(value)
            value = {key: each for key, each in record.items() if each is not None}
        lines[place] = json.dumps(value)
    if draw.chance.random() < 0.2:
        lines.append(lines[0])
        kind, verdict = f"{kind}, and a line twice", OPEN
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if draw.order.command != ("retrieve",):  # other commands need not read every claim and every paper
        verdict = OPEN
    return draw.case(f"{draw.name(path)} line {place + 1}: {kind}", verdict)
