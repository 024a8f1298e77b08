"""`headwise rerank`: candidates in the order of a re-ranker as a TREC run, and what that is worth."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress import progress
from headwise.cli.quiet import quiet_libraries
from headwise.cli.score import WIDTH, measures_table
from headwise.errors import InputError, choices
from headwise.experiments.collections import CollectionChoice
from headwise.experiments.ranking import check_per_query, write_per_query
from headwise.experiments.rerank import TAG, Candidates, Reranked, Scoring, collection_of, read_candidates, rerank
from headwise.experiments.retrieve import check_output
from headwise.metrics.ranking import RankingScores
from headwise.tasks.retrieval.trec import run_lines, write_run
from headwise.training.predict import PRECISIONS

INTERRUPTED = 130


@dataclass(frozen=True)
class Asked:
    """What the caller asks for."""

    run: Path
    candidates: Path
    choice: CollectionChoice | None
    """None: the collection of training."""
    split: str | None
    top: int | None
    output: Path | None
    per_query: Path | None
    overwrite: bool
    as_json: bool


def run_rerank(asked: Asked, *, batch: int | None, precision: str, cache: Path | None) -> None:
    """Score the candidates, write the run, and print the measures before and after."""
    _check(asked, precision)
    quiet_libraries()
    scoring = Scoring(batch, precision, cache, asked.output, asked.overwrite)
    with progress() as shown:
        try:
            choice = asked.choice or collection_of(asked.run)
            candidates = read_candidates(asked.candidates, choice, asked.split, asked.top, cache, shown)
            _check_judged(asked, candidates)
            found = rerank(asked.run, candidates, scoring, shown)
        except KeyboardInterrupt:
            shown.end()
            shown.tell("headwise: stopped; the scores so far are kept, and the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None
    _write(asked, found)
    _show(asked, found)
    found.kept.unlink(missing_ok=True)


def _check(asked: Asked, precision: str) -> None:
    """Refuse what cannot be done or written, before any work."""
    check_output(asked.output, overwrite=asked.overwrite)
    check_per_query(asked.per_query, overwrite=asked.overwrite)
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision}: {choices(precision, PRECISIONS)}.")
    if asked.output is None:
        if asked.as_json:
            raise InputError("--json needs --output: without it the run goes to standard output; name a file for it.")
    elif asked.per_query is not None and asked.output.absolute() == asked.per_query.absolute():
        raise InputError(f"--output and --per-query are both {asked.output}: name two files.")


def _check_judged(asked: Asked, candidates: Candidates) -> None:
    if asked.per_query is not None and candidates.scores is None:
        raise InputError(f"--per-query {asked.per_query}: no claim is judged, so there is nothing to write; leave it.")


def _write(asked: Asked, found: Reranked) -> None:
    """Write both files, each whole or not at all."""
    scores = _scores(found)
    if asked.per_query is not None:
        write_per_query(asked.per_query, scores)
    if asked.output is not None:
        write_run(asked.output, found.run, TAG)


def _show(asked: Asked, found: Reranked) -> None:
    if asked.as_json:
        answer: dict[str, Any] = {"run": str(asked.run), **found.summary(), "output": str(asked.output)}
        if asked.per_query is not None:
            answer["per_query"] = str(asked.per_query)
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    if asked.output is None:
        typer.echo("".join(run_lines(found.run, TAG)), nl=False)
    if scores := _scores(found):
        _print(measures_table(scores), sys.stderr if asked.output is None else sys.stdout)
    if asked.output is not None:
        typer.echo(f"saved in {asked.output}")


def _scores(found: Reranked) -> dict[str, RankingScores]:
    """Before and after; none where no claim is judged."""
    before, after = found.candidates.scores, found.scores
    return {} if before is None or after is None else {"candidates": before, "reranked": after}


def _print(table: Table, stream: TextIO) -> None:
    """Print a table, broken only to fit a terminal."""
    Console(file=stream, width=None if stream.isatty() else WIDTH).print(table)
