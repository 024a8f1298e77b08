"""`headwise rerank`: candidates in the order of a re-ranker as a TREC run, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from headwise.cli.progress import progress
from headwise.cli.quiet import quiet_libraries
from headwise.cli.run_output import RunOutput
from headwise.errors import InputError, choices
from headwise.experiments.candidates import Candidates, Chosen, brings_texts, read_candidates, read_given
from headwise.experiments.rerank import TAG, Reranked, Scoring, rerank
from headwise.experiments.reranker_run import Named, collection_of
from headwise.metrics.ranking import RankingScores
from headwise.training.predict import PRECISIONS
from headwise.training.progress import Listener

INTERRUPTED = 130


@dataclass(frozen=True)
class Asked:
    """What the caller asks for."""

    run: Path
    candidates: Path
    named: Named
    chosen: Chosen
    output: RunOutput


def run_rerank(asked: Asked, *, batch: int | None, precision: str, cache: Path | None) -> None:
    """Score the candidates, write the run, and print the measures before and after."""
    output = asked.output
    output.check()
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision}: {choices(precision, PRECISIONS)}.")
    quiet_libraries()
    scoring = Scoring(batch, precision, cache, output.output, output.overwrite)
    with progress() as shown:
        try:
            candidates = _read(asked, cache, shown)
            output.check_judged(candidates.scores)
            found = rerank(asked.run, candidates, scoring, shown)
        except KeyboardInterrupt:
            shown.end()
            shown.tell("headwise: stopped; the scores so far are kept, and the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None
    scores = _scores(found)
    output.write(found.run, TAG, scores)
    output.show(found.run, TAG, scores, {"run": str(asked.run), **found.summary()})
    found.kept.unlink(missing_ok=True)


def _read(asked: Asked, cache: Path | None, shown: Listener) -> Candidates:
    if brings_texts(asked.candidates):
        named = asked.named
        choice = None if named.folder is None else collection_of(asked.run, named)
        return read_given(asked.candidates, choice, asked.chosen, shown)
    return read_candidates(asked.candidates, collection_of(asked.run, asked.named), asked.chosen, cache, shown)


def _scores(found: Reranked) -> dict[str, RankingScores]:
    """Before and after; none where no claim is judged."""
    before, after = found.candidates.scores, found.scores
    return {} if before is None or after is None else {"candidates": before, "reranked": after}
