"""Exports of annotation tools as tables: text, label and the spans that were marked, in one row for each example.

doccano writes one JSON object per line, Label Studio one list of all tasks; ERASER is the layout of a benchmark with
documents in a folder of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from headwise.data.mark_sources import ERASER_TOKEN, EXPORTED, Marks
from headwise.data.readers import JsonTable, Table
from headwise.data.text_files import lines, whole_text
from headwise.errors import InputError
from headwise.limits import parse_json

Record = dict[str, Any]


def open_export(table: Table, marks: Marks, label: str) -> Table:
    """The table of an export if the marks come from one; other tables stay as they are.

    Args:
        table: of the file.
        marks: where the marks of the task come from.
        label: the column of the label.
    """
    if marks.source not in _READERS or not isinstance(table, JsonTable):
        return table
    return _READERS[marks.source](table.path, table.encoding, marks.texts, marks.names, label)


@dataclass(frozen=True)
class ExportTable(JsonTable):
    """A file that a tool for annotation wrote."""

    texts: tuple[str, ...]
    """The columns of the texts, in order."""
    names: tuple[str, ...]
    """Names of the spans that count; empty for all."""
    label: str

    def objects(self, wanted: Sequence[str] = ()) -> Iterator[tuple[int, Record]]:
        """Every example with its line, and its spans in the column EXPORTED."""
        for number, record in self._records():
            try:
                yield number, self.convert(record)
            except InputError as error:
                raise InputError(f"{self.path} {self.unit} {number}: {error}") from None
            except (AttributeError, KeyError, TypeError, IndexError, ValueError):  # ValueError: half a sign
                raise InputError(
                    f"{self.path} {self.unit} {number}: expected {self.expected}; export the file again, or name "
                    "another source of marks."
                ) from None

    expected: ClassVar[str]
    """What a record looks like, for messages."""

    def _records(self) -> Iterator[tuple[int, Record]]:
        yield from super().objects()

    def convert(self, record: Record) -> Record:
        """The record with the columns of the texts, the label, and EXPORTED."""
        raise NotImplementedError

    def counts(self, names: Sequence[str]) -> bool:
        """Whether a span with these names is a mark."""
        return not self.names or bool(set(self.names) & set(names))


@dataclass(frozen=True)
class DoccanoTable(ExportTable):
    """JSON lines of doccano: spans as [start, end, name], or as objects where relations are annotated, too."""

    expected: ClassVar[str] = 'an example of doccano, {"text": ..., "label": [[start, end, name], ...]}'

    def convert(self, record: Record) -> Record:
        """The class is in the column of the label, or in `cats`; else it is the only name of the spans."""
        key = next((key for key in ("entities", "label", "labels", "spans") if _has_spans(record.get(key))), None)
        spans = [_doccano_span(span) for span in (record[key] if key else ())]
        classes = [record.get(name) for name in (self.label, "cats") if name != key]
        chosen = next((each for each in classes if each not in (None, [])), None)
        if chosen is None and len({name for *_, name in spans}) == 1:
            chosen = spans[0][2]
        marks = [[start, end] for start, end, name in spans if self.counts([name])]
        return {**record, self.label: _single(chosen, self.label), EXPORTED: marks}


def _has_spans(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list | dict)


def _doccano_span(span: Any) -> tuple[Any, Any, str]:
    if isinstance(span, Mapping):
        return span["start_offset"], span["end_offset"], str(span.get("label"))
    return span[0], span[1], str(span[2])


def _single(value: Any, column: str) -> Any:
    """A class that the tool writes as a list of one."""
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise InputError(f"expected one class in {column!r}, got {value!r:.200}; choose one.")
    return value[0] if value else None


@dataclass(frozen=True)
class LabelStudioTable(ExportTable):
    """The export JSON of Label Studio; of several annotations the ground truth counts, or the first one."""

    unit: ClassVar[str] = "task"
    expected: ClassVar[str] = 'a task of Label Studio, {"data": {...}, "annotations": [{"result": [...]}]}'

    def _records(self) -> Iterator[tuple[int, Record]]:
        first = next((line for line in lines(self.path, self.encoding) if line.strip()), "")
        if not first.lstrip().startswith("["):
            yield from super()._records()
            return
        try:
            tasks = parse_json(whole_text(self.path, self.encoding))
        except ValueError as error:
            raise InputError(f"{self.path}: expected a list of tasks, got invalid JSON ({error}).") from None
        for number, task in enumerate(tasks, 1):
            if not isinstance(task, dict):
                raise InputError(f"{self.path} task {number}: expected {self.expected}, got {task!r:.60}.")
            yield number, task

    def convert(self, record: Record) -> Record:
        """The data of the task, its choices under the names of their controls, and one choice as the label."""
        if "data" not in record:  # not annotated, or written by hand
            return {EXPORTED: [], **record}
        data = dict(record["data"])
        kept = [each for each in record.get("annotations", ()) if not each.get("was_cancelled")]
        kept.sort(key=lambda each: not each.get("ground_truth"))
        marks, choices = [], {}
        for region in kept[0]["result"] if kept else ():
            value = region.get("value", {})
            if "choices" in value:
                choices[region.get("from_name", self.label)] = _single(value["choices"], self.label)
            elif "start" in value and self.counts(value.get("labels", value.get("hypertextlabels", []))):
                marks.append(self._mark(region, data))
        if self.label not in choices and len(choices) == 1:
            choices[self.label] = next(iter(choices.values()))
        return {**data, **choices, EXPORTED: marks}

    def _mark(self, region: Mapping[str, Any], data: Mapping[str, Any]) -> list[int]:
        """[sentence, start, end]; the control that shows a text is called like its column."""
        names, target = self.texts, region.get("to_name")
        if len(names) > 1 and target not in names:
            raise InputError(f"a mark is in {target!r}, expected one of the texts {list(names)}; name the columns so.")
        sentence = names.index(target) if target in names else 0
        value, text = region["value"], data[names[sentence]]
        start, end = value["start"], value["end"]
        if not isinstance(start, int) or not isinstance(end, int):
            raise InputError(f"a mark begins at {start!r:.60}, expected a number of characters; annotate plain text.")
        # A browser counts signs beyond 16 bits, such as emoji, as two.
        if isinstance(text, str) and value.get("text", text[start:end]) != text[start:end]:
            units = text.encode("utf-16-le", "surrogatepass")
            before, inside = units[: 2 * start], units[2 * start : 2 * end]
            if inside.decode("utf-16-le", "replace") == value["text"]:
                start = len(before.decode("utf-16-le"))
                end = start + len(value["text"])
        return [sentence, start, end]


@dataclass(frozen=True)
class EraserTable(ExportTable):
    """The layout of ERASER: split.jsonl, and its documents as docs/NAME or in docs.jsonl beside it."""

    expected: ClassVar[str] = (
        'a row of ERASER, {"annotation_id": ..., "classification": ..., "evidences": [[{"docid": ..., "start_token": '
        '..., "end_token": ...}]]}'
    )
    _documents: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def convert(self, record: Record) -> Record:
        """The last text is that of the documents, which evidence is in; its tokens are what blanks separate."""
        column = self.texts[-1]
        if isinstance(record.get(column), str):
            return {EXPORTED: [], **record}
        evidence = [each for group in record.get("evidences") or () for each in group]
        names = list(record.get("docids") or dict.fromkeys(each["docid"] for each in evidence))
        names = names or [record["annotation_id"]]
        texts = [self._document(name) for name in names]
        starts = {name: sum(len(text) + 1 for text in texts[:number]) for number, name in enumerate(names)}
        marks = []
        for each in evidence:
            start, end = each["start_token"], each["end_token"]
            if start < 0:  # only the sentence is known
                continue
            tokens = [match.span() for match in ERASER_TOKEN.finditer(self._document(each["docid"]))]
            if each["docid"] not in starts or not start < end <= len(tokens):
                raise InputError(
                    f"evidence [{start}, {end}] is not inside {each['docid']!r}, which has {len(tokens)} tokens; "
                    "correct it, or fetch the documents again."
                )
            shift = starts[each["docid"]]
            marks.append([len(self.texts) - 1, shift + tokens[start][0], shift + tokens[end - 1][1]])
        label = record.get(self.label, record.get("classification"))
        return {**record, column: "\n".join(texts), self.label: label, EXPORTED: marks}

    def _document(self, name: str) -> str:
        if name not in self._documents:
            listed = self.path.parent / "docs.jsonl"
            if not self._documents and listed.exists():
                for _, row in JsonTable(listed, self.encoding).objects():
                    self._documents[row["docid"]] = row["document"]
            # A name is never a path, or a file could read others.
            elif re.search(r"[/\\]|^\.*$", name) is None:
                self._documents[name] = whole_text(Path(self.path.parent, "docs", name), self.encoding)
        if name not in self._documents:
            raise InputError(f"no document {name!r}: expected it in docs/ or docs.jsonl beside the file; put it there.")
        return self._documents[name]


_READERS: dict[str, type[ExportTable]] = {
    "doccano": DoccanoTable,
    "label_studio": LabelStudioTable,
    "eraser": EraserTable,
}
