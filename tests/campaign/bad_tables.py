"""Data files with wrong columns, rows, labels, encodings and bytes, in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

from campaign.orders import BAD, OPEN, Case, Draw

Table = list[list[str]]


def wrong_table(draw: Draw) -> Case | None:
    """One mistake in a file of rows."""
    path = draw.pick(draw.order.tables)
    if path is None:
        return None
    delimiter = "," if path.suffix == ".csv" else "\t"
    text = path.read_text(encoding="utf-8")
    table = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    if draw.order.name in ("predict", "data-check") and draw.chance.random() < 0.5:
        return _other_format(draw, path, table)
    headed = draw.order.name != "data-ag-pair"
    if draw.chance.random() < 0.6:
        kind = draw.chance.choice(sorted(ROWS))
        verdict = ROWS[kind]
        _wrong_rows(table, kind, draw.chance)
        content = "".join(delimiter.join(row) + "\n" for row in table).encode()
    else:
        kind = draw.chance.choice(sorted(BYTES))
        change, verdict = BYTES[kind]
        content = change(text)
    path.write_bytes(content)
    # A check of data reports what it sees; news have no header; a prediction and a test set need no label.
    strict = draw.order.command[0] == "train" and headed and not (path.stem == "test" and "a column" in kind)
    return draw.case(f"{draw.name(path)}: {kind}", verdict if strict else OPEN)


# -- rows --------------------------------------------------------------------------------------------------------------

# What may come of rows that are wrong in each way: one label is wrong in training data only, an odd one is a new class.
ROWS = {
    "a column less": BAD,
    "a column of another name": BAD,
    "two columns of one name": BAD,
    "a short row": BAD,
    "a long row": BAD,
    "a header only": BAD,
    "no header": BAD,
    "no label": BAD,
    "one label only": OPEN,
    "an odd label": OPEN,
    "no text": OPEN,
    "an odd text": OPEN,
    "one row": OPEN,
    "a blank row": OPEN,
}
ODD_LABELS = ("nobody", "nan", "inf", "-1", "1e999", " ", "\x00")
ODD_TEXTS = ("\ufffd" * 50, "cat " * 5000, "\u202e\u0300" * 20, "[CLS] [MASK]", '"open', "\x1b[31m", "𝔘𝔫𝔦")


def _wrong_rows(table: Table, kind: str, chance: random.Random) -> None:
    header, column = table[0], chance.randrange(len(table[0]))
    place = chance.randrange(1, len(table))
    row = table[place]
    match kind:
        case "a column less":
            for each in table:
                del each[column]
        case "a column of another name":
            header[column] = chance.choice(("", " ", "nobody", header[column].upper() + "x"))
        case "two columns of one name":
            header[0] = header[1]
        case "a short row":
            row.pop()
        case "a long row":
            row += ["more", "and more"]
        case "a header only":
            del table[1:]
        case "no header":
            del table[0]
        case "no label":
            row[-1] = ""
        case "one label only":
            for each in table[1:]:
                each[-1] = table[1][-1]
        case "an odd label":
            row[-1] = chance.choice(ODD_LABELS)
        case "no text":
            row[0] = chance.choice(("", " ", "\u200b", "\x00"))
        case "an odd text":
            row[0] = chance.choice(ODD_TEXTS)
        case "one row":
            del table[2:]
        case "a blank row":
            table.insert(place, [])


# -- bytes -------------------------------------------------------------------------------------------------------------

BYTES: dict[str, tuple[Callable[[str], bytes], str]] = {
    "Latin-1": (lambda text: text.encode().replace(b"a", b"\xe4", 1), OPEN),
    "UTF-16": (lambda text: text.encode("utf-16"), OPEN),
    "a byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), OPEN),
    "zero bytes": (lambda text: text.encode().replace(b" ", b"\0"), OPEN),
    "old Mac lines": (lambda text: text.replace("\n", "\r").encode(), OPEN),
    "Windows lines": (lambda text: text.replace("\n", "\r\n").encode(), OPEN),
    "an open quote": (lambda text: text.replace(" ", '"', 1).encode(), OPEN),
    "packed by gzip": (lambda text: gzip.compress(text.encode()), BAD),
    "a zip": (lambda text: b"PK\x03\x04" + text.encode(), BAD),
    "HTML": (lambda text: b"<!DOCTYPE html>\n<html><body>404</body></html>\n", BAD),
    "JSON": (lambda text: b'[{"sentence1": "a"}]', BAD),
    "nothing": (lambda text: b"", BAD),
    "one line": (lambda text: text.replace("\n", " ").encode(), BAD),
    "cut off": (lambda text: text.encode()[: len(text) // 2 + 7], OPEN),
    "another delimiter": (lambda text: text.replace("\t", ";").encode(), OPEN),
    "a line of 2 MB": (lambda text: text.encode() + 2_000_000 * b"a" + b"\n", BAD),
    "line separators": (lambda text: text.replace(" ", "\u2028", 3).encode(), OPEN),
    "surrogates": (lambda text: text.encode().replace(b"a", b"\xed\xa0\x80", 1), BAD),
}


# -- formats -----------------------------------------------------------------------------------------------------------


def _other_format(draw: Draw, path: Path, table: Table) -> Case:
    """The same rows as CSV, JSONL or Parquet, and then wrong."""
    kind = draw.chance.choice(("csv", "jsonl", "parquet"))
    target = path.with_suffix(f".{kind}")
    what, verdict = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}[kind](target, table, draw.chance)
    counted = ("other keys", "an object as text", "a list as text")
    if what in counted and draw.order.command == ("data", "check"):  # it reports such rows
        verdict = OPEN
    before, after = draw.name(path), draw.name(target)
    draw.words = [after if word == before else word for word in draw.words]
    return draw.case(f"{after}: {what}", verdict)


def _csv(path: Path, table: Table, chance: random.Random) -> tuple[str, str]:
    kind = chance.choice(sorted(BYTES))
    change, verdict = BYTES[kind]
    path.write_bytes(change("".join(",".join(row) + "\n" for row in table)))
    return kind, OPEN


def _jsonl(path: Path, table: Table, chance: random.Random) -> tuple[str, str]:
    head, *rows = table
    lines = [json.dumps(dict(zip(head, row, strict=False))) for row in rows]
    place = chance.randrange(len(lines))
    kinds: dict[str, str] = {
        "no object": '["a", "b"]',
        "a number": "3",
        "null": "null",
        "no JSON": "{sentence1: a}",
        "an open object": lines[place][:-2],
        "no keys": "{}",
        "a list as text": json.dumps({**json.loads(lines[place]), head[0]: ["a"]}),
        "an object as text": json.dumps({**json.loads(lines[place]), head[0]: {"a": 1}}),
        "a deep value": json.dumps(json.loads(lines[place]))[:-1] + ', "x": ' + 5000 * "[" + 5000 * "]" + "}",
        "a number of 5000 digits": '{"sentence1": ' + 5000 * "9" + "}",
        "a surrogate": '{"sentence1": "\\ud800", "sentence2": "b", "label": "deny"}',
        "other keys": '{"a": "b"}',
    }
    kind = chance.choice(sorted(kinds))
    lines[place] = kinds[kind]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    open_kinds = ("a deep value", "a surrogate")
    return kind, OPEN if kind in open_kinds else BAD


def _parquet(path: Path, table: Table, chance: random.Random) -> tuple[str, str]:
    import pyarrow
    from pyarrow import parquet

    head, *rows = table
    objects = [dict(zip(head, row, strict=False)) for row in rows]
    kind = chance.choice(("cut off", "no footer", "wrong magic", "numbers", "nothing in it", "lists", "no such column"))
    if kind == "numbers":
        objects = [{**each, head[0]: place} for place, each in enumerate(objects)]
    if kind == "lists":
        objects = [{**each, head[0]: [each[head[0]]]} for each in objects]
    if kind == "no such column":
        objects = [{f"{name}x": value for name, value in each.items()} for each in objects]
    whole = pyarrow.Table.from_pylist(objects)
    parquet.write_table(whole.slice(0, 0) if kind == "nothing in it" else whole, path)
    content = path.read_bytes()
    if kind == "cut off":
        path.write_bytes(content[: chance.randrange(len(content))])
    if kind == "no footer":
        path.write_bytes(content[:-8])
    if kind == "wrong magic":
        path.write_bytes(b"QQQQ" + content[4:-4] + b"QQQQ")
    return kind, OPEN if kind in ("numbers", "no such column") else BAD
