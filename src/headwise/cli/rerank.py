"""`headwise rerank`: candidates in the order of a re-ranker as a TREC run, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headwise.cli.progress import progress
from headwise.cli.run_output import RunOutput
from headwise.errors import InputError, choices
from headwise.experiments.candidates import Candidates, Chosen, brings_texts, read_candidates, read_given
from headwise.experiments.rerank import TAG, Scoring, rerank
from headwise.experiments.reranker_run import Named, collection_of, run_folder
from headwise.training.predict import PRECISIONS
from headwise.training.progress import Listener
from headwise.training.quiet import quiet_libraries


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
    with asked.output.opened():
        _rerank(asked, batch=batch, precision=precision, cache=cache)


def _rerank(asked: Asked, *, batch: int | None, precision: str, cache: Path | None) -> None:
    output = asked.output
    asked = replace(asked, run=run_folder(asked.run))
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision}: {choices(precision, PRECISIONS)}.")
    quiet_libraries()
    scoring = Scoring(batch, precision, cache, output.output, output.overwrite)
    with progress() as shown:
        candidates = _read(asked, cache, shown)
        output.check_judged(candidates.claims.qrels)
        found = rerank(asked.run, candidates, scoring, shown)
    output.write(found.run, TAG, found.measures)
    output.show(found.run, TAG, found.measures, {"run": str(asked.run), **found.summary()})
    found.done()


def _read(asked: Asked, cache: Path | None, shown: Listener) -> Candidates:
    if brings_texts(asked.candidates):
        named = asked.named
        choice = None if named.folder is None else collection_of(asked.run, named)
        return read_given(asked.candidates, choice, asked.chosen, shown)
    return read_candidates(asked.candidates, collection_of(asked.run, asked.named), asked.chosen, cache, shown)
