"""TREC's files: qrels, which say what answers a claim, and runs, which say what a search found.

A run has six columns, separated by white space: claim, Q0, document, rank, score, tag. Ours keep the order of documents
with equal scores. Note that trec_eval ignores the rank and orders equal scores by document id, the last in the alphabet
first, so that its figures may differ where scores tie.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from headwise.data.text_files import lines
from headwise.disk import save_content
from headwise.errors import InputError
from headwise.retrieval.collections import Qrels, Run, line_of


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Claim -> document -> grade of a qrels file; grades of 0 and below are kept.

    Two forms are recognised by their content: TREC's four columns (claim, 0, document, grade) separated by white space,
    and BEIR's three separated by tabs under the header query-id, corpus-id, score.
    """
    qrels: dict[str, dict[str, int]] = {}
    for line, claim, document, grade in qrels_rows(path):
        before = qrels.setdefault(claim, {}).setdefault(document, grade)
        if before != grade:
            raise InputError(
                f"{path} line {line}: document {document!r} has the grade {grade} for claim {claim!r}, and had "
                f"{before} on an earlier line; keep one of the two."
            )
    if not qrels:
        raise InputError(f"{path} has no judgements: expected lines of claim, document and grade; write it again.")
    return qrels


def qrels_rows(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Line, claim, document and grade of every line of a qrels file."""
    beir: bool | None = None
    for number, line in _filled_lines(path):
        tabs = [field.strip() for field in line.split("\t")]
        if beir is None:
            beir = tabs[:3] == ["query-id", "corpus-id", "score"]
            if beir:
                continue
        fields = tabs if beir else line.split()
        if len(fields) != (3 if beir else 4) or not all(fields):
            expected = (
                "3 fields separated by tabs (query-id, corpus-id, score)"
                if beir
                else "4 fields (claim, 0, document, grade), or the header query-id, corpus-id, score with tabs above 3"
            )
            raise InputError(f"{path} line {number}: expected {expected}, got {len(fields)}; correct the line.")
        for id in (fields[0], fields[-2]):
            if len(id.split()) != 1:
                raise InputError(
                    f"{path} line {number}: the id {id!r} has white space, which a TREC run cannot hold; rename it, "
                    f"for example {'_'.join(id.split())!r}."
                )
        try:
            yield number, fields[0], fields[-2], int(fields[-1])
        except ValueError:
            raise InputError(
                f"{path} line {number}: expected a whole number as grade, got {fields[-1]!r}; correct the line."
            ) from None


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Claim -> document -> score of a run file: claims in the order of the file, documents best first.

    Lines may come in any order. A worse rank with a higher score is refused, since it is unclear which is meant.
    """
    entries: dict[str, dict[str, tuple[int, int, float]]] = {}
    for number, line in _filled_lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise InputError(
                f"{path} line {number}: expected 6 fields (claim, Q0, document, rank, score, tag), got {len(fields)}; "
                "correct the line."
            )
        claim, _, document, rank, score, _ = fields
        numbers: list[float] = []
        for convert, text, what in ((int, rank, "whole number as rank"), (float, score, "finite number as score")):
            try:
                numbers.append(convert(text))
                finite = math.isfinite(numbers[-1])
            except (ValueError, OverflowError):
                finite = False
            if not finite:
                raise InputError(f"{path} line {number}: expected a {what}, got {text!r}; correct the line.")
        documents = entries.setdefault(claim, {})
        if document in documents:
            raise InputError(
                f"{path} line {number}: document {document!r} was found for claim {claim!r} before; keep one of the "
                "two lines."
            )
        documents[document] = (number, int(numbers[0]), numbers[1])
    if not entries:
        raise InputError(f"{path} is empty: expected lines of claim, Q0, document, rank, score and tag; search again.")
    run = {}
    for claim, documents in entries.items():
        ranked = sorted(documents.items(), key=lambda entry: (entry[1][1], -entry[1][2]))
        for (_, (_, better, lower)), (document, (at, worse, higher)) in zip(ranked, ranked[1:], strict=False):
            if higher > lower:
                raise InputError(
                    f"{path} line {at}: document {document!r} has rank {worse} for claim {claim!r} but the score "
                    f"{higher}, which is above the {lower} of rank {better}; number the ranks by score, the highest "
                    "first."
                )
        run[claim] = {document: value for document, (_, _, value) in ranked}
    return run


def _filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines(path, "utf-8"), 1) if line.strip())


def run_lines(run: Run, tag: str) -> Iterator[str]:
    """The lines of a run file, ranks from 1; scores are written so that they read back as the same numbers."""
    _check_word(tag, "tag")
    for claim, scores in run.items():
        _check_word(claim, "claim id")
        best_first = sorted(scores.items(), key=lambda pair: -pair[1])  # stable: equal scores stay as they are
        for rank, (document, score) in enumerate(best_first, 1):
            _check_word(document, "document id")
            if not math.isfinite(score):
                raise InputError(f"document {document!r} has the score {score} for claim {claim!r}: give it a number.")
            yield f"{claim} Q0 {document} {rank} {float(score)!r} {tag}\n"


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run file, whole or not at all."""
    save_content(path, "".join(run_lines(run, tag)))


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write judgements as TREC's four columns (claim, 0, document, grade), whole or not at all."""
    rows = []
    for claim, grades in qrels.items():
        _check_word(claim, "claim id")
        for document, grade in grades.items():
            _check_word(document, "document id")
            rows.append(f"{claim} 0 {document} {grade}\n")
    save_content(path, "".join(rows))


def write_topics(path: Path, claims: Mapping[str, str]) -> None:
    """Write claims as lines of an id, a tab and the text, as Anserini and ir_datasets read topics."""
    for claim in claims:
        _check_word(claim, "claim id")
    save_content(path, "".join(f"{claim}\t{' '.join(text.split())}\n" for claim, text in claims.items()))


def check_run(run: Run, claims: Container[str], known: Container[str], path: Path | None = None) -> None:
    """Refuse candidates for claims, or among documents, that the collection does not have.

    Args:
        run: claim -> document -> score.
        claims: the ids of all claims of the collection.
        known: the ids of all its documents.
        path: the file of the run, for the message.
    """
    for claim, scores in run.items():
        if claim not in claims:
            what, ids = f"claim {claim!r}", [claim]
        elif (document := next((each for each in scores if each not in known), None)) is not None:
            what, ids = f"document {document!r}, found for claim {claim!r},", [claim, document]
        else:
            continue
        line = line_of(path, *ids) if path else None
        raise InputError(
            f"{path or 'the candidates'}{f' line {line}' if line else ''}: {what} is not in the collection; search "
            "this collection again, or name the one that the candidates are from."
        )


def _check_word(text: str, what: str) -> None:
    """Refuse what a file whose columns are separated by white space cannot hold."""
    if text.split() != [text]:
        raise InputError(
            f"the {what} {text!r} is empty or has white space, which a TREC run cannot hold: rename it, "
            "for example with _ for each space."
        )
