"""The claims of SciFact, from its CSV export or from the authors' JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.tasks.retrieval.numpy_text import numbers
from headwise.tasks.retrieval.records import claim_of, id_of, number_of, objects, rows, value_of

_COLUMNS = ("id", "claim", "evidence_doc_id", "evidence_label", "cited_doc_ids")
_ANSWERS = ("SUPPORT", "CONTRADICT")
_NONE = ("", "NEI")


@dataclass(frozen=True)
class ClaimRow:
    """A line of a file of claims; CSV files have one for every piece of evidence, so a claim may have several."""

    line: int
    id: str
    text: str
    evidence: tuple[str, ...]
    """The documents that support or contradict the claim, as far as this line says."""
    cited: tuple[str, ...]


def csv_rows(path: Path) -> Iterator[ClaimRow]:
    """The rows of a claims_*.csv."""
    for line, (id, text, document, label, cited) in rows(path, _COLUMNS):
        evidence = (number_of(document, path, line),) if _answers(label.strip(), path, line) else ()
        try:
            ids = tuple(numbers(cited))
        except ValueError as error:
            raise InputError(
                f"{path} line {line}: expected cited_doc_ids such as [13734012 5152028], got {error}; mend the line."
            ) from None
        yield ClaimRow(line, id_of(id, path, line), claim_of(text, path, line), evidence, ids)


def json_rows(path: Path) -> Iterator[ClaimRow]:
    """The objects of a claims_*.jsonl; those of the test part have only an id and a claim."""
    for line, record in objects(path):
        id = id_of(value_of(record, "id", path, line), path, line)
        text = claim_of(value_of(record, "claim", path, line), path, line)
        cited = record.get("cited_doc_ids", [])
        if not isinstance(cited, list):
            raise InputError(f"{path} line {line}: expected a list as 'cited_doc_ids', got {cited!r}; mend the line.")
        ids = tuple(id_of(document, path, line) for document in cited)
        yield ClaimRow(line, id, text, _evidence(record.get("evidence", {}), path, line), ids)


def _evidence(value: Any, path: Path, line: int) -> tuple[str, ...]:
    """The documents of evidence such as {"13734012": [{"sentences": [4], "label": "SUPPORT"}]}."""
    try:
        labels = {document: [piece["label"] for piece in pieces] for document, pieces in value.items()}
    except (AttributeError, TypeError, KeyError):
        raise InputError(
            f'{path} line {line}: expected evidence such as {{"13734012": [{{"label": "SUPPORT"}}]}}, got {value!r}; '
            "mend the line."
        ) from None
    # All of them are looked at, so that no wrong label hides behind a right one.
    answers = {document: [_answers(str(label), path, line) for label in found] for document, found in labels.items()}
    return tuple(id_of(document, path, line) for document, found in answers.items() if any(found))


def _answers(label: str, path: Path, line: int) -> bool:
    """Whether a label says that the document answers the claim."""
    if label in _NONE:
        return False
    if label not in _ANSWERS:
        raise InputError(f"{path} line {line}: unknown label {label!r}; {choices(label, (*_ANSWERS, 'NEI'))}.")
    return True
