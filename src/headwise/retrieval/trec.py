"""TREC's files: qrels, which say what answers a claim, and runs, which say what a search found.

A run has six columns, separated by white space: claim, Q0, document, rank, score, tag. Ours keep the given order
of documents with equal scores. Note that trec_eval passes over the rank and orders equal scores by document id,
the last in the alphabet first, so that its figures may differ where scores tie.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator
from pathlib import Path

from headwise.data.text_files import lines
from headwise.disk import save_content
from headwise.errors import InputError
from headwise.retrieval.collections import Run, line_of

# line, rank, score, document
_Entry = tuple[int, int, float, str]


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Claim -> document -> grade of a qrels file; grades of 0 and below are kept.

    Two forms are known by their content: TREC's four columns (claim, 0, document, grade) separated by white space,
    and BEIR's three separated by tabs under the header query-id, corpus-id, score.
    """
    found: dict[str, dict[str, int]] = {}
    for line, claim, document, grade in qrels_rows(path):
        before = found.setdefault(claim, {}).setdefault(document, grade)
        if before != grade:
            raise InputError(
                f"{path} line {line}: document {document!r} has the grade {grade} for claim {claim!r}, and had "
                f"{before} on an earlier line; keep one of the two."
            )
    if not found:
        raise InputError(f"{path} has no judgements: expected lines of claim, document and grade; write it again.")
    return found


def qrels_rows(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Line, claim, document and grade of every line of a qrels file."""
    numbered = ((number, line) for number, line in enumerate(lines(path, "utf-8"), 1) if line.strip())
    number, first = next(numbered, (0, ""))
    beir = _tabs(first)[:3] == ["query-id", "corpus-id", "score"]
    if number and not beir:
        yield _judgement(path, number, first, beir=False)
    for number, line in numbered:
        yield _judgement(path, number, line, beir=beir)


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Claim -> document -> score of a run file: claims in the order of the file, documents best first.

    Lines may come in any order. A worse rank with a higher score is refused, since nobody can say which is meant.
    """
    entries: dict[str, list[_Entry]] = {}
    seen: dict[str, set[str]] = {}
    for number, line in enumerate(lines(path, "utf-8"), 1):
        if line.strip():
            claim, entry = _entry(path, number, line)
            if entry[3] in seen.setdefault(claim, set()):
                raise InputError(
                    f"{path} line {number}: document {entry[3]!r} was found for claim {claim!r} before; "
                    "keep one of the two lines."
                )
            seen[claim].add(entry[3])
            entries.setdefault(claim, []).append(entry)
    if not entries:
        raise InputError(f"{path} is empty: expected lines of claim, Q0, document, rank, score and tag; search again.")
    return {claim: _ordered(path, claim, found) for claim, found in entries.items()}


def run_lines(run: Run, tag: str) -> Iterator[str]:
    """The lines of a run file, ranks from 1; scores are written so that they read back as the same numbers."""
    _check_word(tag, "tag")
    for claim, found in run.items():
        _check_word(claim, "claim id")
        best_first = sorted(found.items(), key=lambda pair: -pair[1])  # stable: equal scores stay as they are
        for rank, (document, score) in enumerate(best_first, 1):
            _check_word(document, "document id")
            if not math.isfinite(score):
                raise InputError(f"document {document!r} has the score {score} for claim {claim!r}: give it a number.")
            yield f"{claim} Q0 {document} {rank} {float(score)!r} {tag}\n"


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run file, whole or not at all."""
    save_content(path, "".join(run_lines(run, tag)))


def check_run(run: Run, claims: Container[str], known: Container[str], path: Path | None = None) -> None:
    """Refuse candidates for claims, or among documents, that the collection does not have.

    Args:
        run: Claim -> document -> score.
        claims: The ids of all claims of the collection.
        known: The ids of all its documents.
        path: The file of the run, for the message.
    """
    for claim, found in run.items():
        stranger = None if claim in claims else f"claim {claim!r}"
        document = None if stranger else next((document for document in found if document not in known), None)
        if stranger or document is not None:
            line = line_of(path, claim, *([] if document is None else [document])) if path else None
            raise InputError(
                f"{path or 'the candidates'}{f' line {line}' if line else ''}: "
                f"{stranger or f'document {document!r}, found for claim {claim!r},'} is not in the collection; search "
                "this collection again, or name the one that the candidates are from."
            )


def claims_without_candidates(run: Run, claims: Collection[str], path: Path | None = None) -> list[str]:
    """The claims for which a run has nothing; they count 0 in averages over all claims.

    Raises InputError if the run has nothing for any of them, since it then is of other claims.
    """
    missing = [claim for claim in claims if not run.get(claim)]
    if len(missing) == len(claims):
        raise InputError(
            f"{path or 'the run'} has no candidates for any of the {len(claims)} claims, such as {missing[:1]}; name "
            "the split or the collection that it was made for."
        )
    return missing


def _tabs(line: str) -> list[str]:
    return [field.strip() for field in line.split("\t")]


def _judgement(path: Path, number: int, line: str, *, beir: bool) -> tuple[int, str, str, int]:
    fields = _tabs(line) if beir else line.split()
    if len(fields) != (3 if beir else 4) or not all(fields):
        expected = (
            "3 fields separated by tabs (query-id, corpus-id, score)"
            if beir
            else "4 fields (claim, 0, document, grade), or the header query-id, corpus-id, score with tabs above 3"
        )
        raise InputError(f"{path} line {number}: expected {expected}, got {len(fields)}; mend the line.")
    claim, document, grade = fields[0], fields[-2], fields[-1]
    try:
        return number, claim, document, int(grade)
    except ValueError:
        raise InputError(
            f"{path} line {number}: expected a whole number as grade, got {grade!r}; mend the line."
        ) from None


def _entry(path: Path, number: int, line: str) -> tuple[str, _Entry]:
    fields = line.split()
    if len(fields) != 6:
        raise InputError(
            f"{path} line {number}: expected 6 fields (claim, Q0, document, rank, score, tag), got {len(fields)}; "
            "mend the line."
        )
    claim, _, document, rank, score, _ = fields
    try:
        place = int(rank)
    except ValueError:
        raise InputError(
            f"{path} line {number}: expected a whole number as rank, got {rank!r}; mend the line."
        ) from None
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path} line {number}: expected a finite number as score, got {score!r}; mend the line.")
    return claim, (number, place, value, document)


def _ordered(path: Path, claim: str, entries: list[_Entry]) -> dict[str, float]:
    """Documents by rank; those of equal rank by score."""
    entries = sorted(entries, key=lambda entry: (entry[1], -entry[2]))
    for (_, rank, score, _), (line, worse, higher, document) in zip(entries, entries[1:], strict=False):
        if higher > score:
            raise InputError(
                f"{path} line {line}: document {document!r} has rank {worse} for claim {claim!r} but the score "
                f"{higher}, which is above the {score} of rank {rank}; number the ranks by score, the highest first."
            )
    return {document: score for _, _, score, document in entries}


def _check_word(text: str, what: str) -> None:
    """Refuse what a file whose columns are separated by white space cannot hold."""
    if text.split() != [text]:
        raise InputError(
            f"the {what} {text!r} is empty or has white space, which a TREC run cannot hold: rename it, "
            "for example with _ for each space."
        )
