"""`headwise retrieve`: candidates for claims as a TREC run, and what they are worth."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwise.cli.progress_bar import keeping, progress
from headwise.cli.search_output import measures_table, print_tables
from headwise.disk import new_file
from headwise.errors import InputError, choices
from headwise.experiments.searcher import Named, collection_of, run_folder
from headwise.metrics.ranking import RankingScores
from headwise.retrieval.bm25 import IndexOptions, Words
from headwise.retrieval.candidates import Candidates, Chosen, brings_texts, read_candidates, read_given
from headwise.retrieval.collections import Run
from headwise.retrieval.ranking_tests import new_per_query, write_per_query
from headwise.retrieval.rerank import RERANK_TAG, Scoring, remove_finished, rerank
from headwise.retrieval.retrieve import BM25_TAG, CollectionChoice, Retrieved, Searching, retrieve
from headwise.retrieval.trec import run_lines, write_run
from headwise.training.callbacks import Listener
from headwise.training.encoders import quiet_libraries
from headwise.training.predict import PRECISIONS

if TYPE_CHECKING:
    from headwise.training.callbacks import Listener


# What `retrieve` and `rerank` leave behind: a TREC run, the measures of every claim, and a table.


@dataclass(frozen=True)
class RunOutput:
    """Where the run and the measures go, and in which form the result is told."""

    output: Path | None
    """None: the run goes to standard output, and the table beside it to standard error."""
    per_query: Path | None
    overwrite: bool
    as_json: bool

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Refuse what cannot be written, before any work, and lock both files for the block."""
        if self.output is None:
            if self.as_json:
                raise InputError(
                    "--json needs --output: without it the run goes to standard output; name a file for it."
                )
        elif self.per_query is not None and self.output.absolute() == self.per_query.absolute():
            raise InputError(f"--output and --per-query are both {self.output}: name two files.")
        with ExitStack() as stack:
            if self.output is not None:
                stack.enter_context(new_file(self.output, "--output", replace=self.overwrite, example="run.trec"))
            stack.enter_context(new_per_query(self.per_query, overwrite=self.overwrite))
            yield

    def check_judged(self, scores: object) -> None:
        """Refuse to write measures where no claim is judged."""
        if self.per_query is not None and not scores:
            raise InputError(
                f"--per-query {self.per_query}: no claim is judged, so there is nothing to write; leave it out."
            )

    def write(self, run: Run, tag: str, scores: Mapping[str, RankingScores]) -> None:
        """Write both files, each whole or not at all; without the second, a new first one goes, too."""
        fresh = self.per_query is not None and not self.per_query.exists()
        if self.per_query is not None:
            write_per_query(self.per_query, scores)
        try:
            if self.output is not None:
                write_run(self.output, run, tag)
        except BaseException:
            if self.per_query is not None and fresh:
                self.per_query.unlink(missing_ok=True)
            raise

    def show(self, run: Run, tag: str, scores: Mapping[str, RankingScores], answer: Mapping[str, Any]) -> None:
        """Print the run if it has no file, and the measures; as JSON, the answer with the names of the files."""
        if self.as_json:
            files = {"output": str(self.output)} | ({"per_query": str(self.per_query)} if self.per_query else {})
            typer.echo(json.dumps({**answer, **files}, indent=2, ensure_ascii=False))
            return
        if self.output is None:
            typer.echo("".join(run_lines(run, tag)), nl=False)
        if scores:
            print_tables(measures_table(scores), stream=sys.stderr if self.output is None else None)
        if self.output is not None:
            typer.echo(f"saved in {self.output}")


# What tables and files of measures call this ranking.
NAME = "bm25"
# How many of the claims that nothing was found for are named.
NAMED = 5
# After Ctrl-C.
KEPT = "no run was written, and the same command begins again with what the cache has"


@dataclass(frozen=True)
class RetrieveRequest:
    """What the caller asks for."""

    choice: CollectionChoice
    split: str | None
    top: int
    output: RunOutput
    rebuild: bool


def run_retrieve(
    asked: RetrieveRequest, *, stem: str, stop_words: str, k1: float, b: float, cache: Path | None
) -> None:
    """Search, write the run, and print the measures."""
    with asked.output.opened():
        _retrieve(asked, stem=stem, stop_words=stop_words, k1=k1, b=b, cache=cache)


def _retrieve(asked: RetrieveRequest, *, stem: str, stop_words: str, k1: float, b: float, cache: Path | None) -> None:
    output = asked.output
    searching = Searching(IndexOptions(Words(stem, stop_words), k1, b), cache, asked.rebuild)
    with progress() as shown:
        with keeping(lambda: KEPT):
            found = retrieve(asked.choice, asked.split, asked.top, searching, shown)
            scores = {} if found.scores is None else {NAME: found.scores}
            output.check_judged(scores)
            output.write(found.run, BM25_TAG, scores)
        _tell_missing(found, shown)
    output.show(found.run, BM25_TAG, scores, {**found.summary(), "top": asked.top})


def _tell_missing(found: Retrieved, shown: Listener) -> None:
    if missing := found.without_candidates:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        shown.tell(f"{len(missing)} of {len(found.run)} claims share no word with any document: {named}")


# `headwise rerank`: candidates in the order of a re-ranker as a TREC run, and what that is worth.


@dataclass(frozen=True)
class RerankRequest:
    """What the caller asks for."""

    run: Path
    candidates: Path
    named: Named
    chosen: Chosen
    output: RunOutput


def run_rerank(asked: RerankRequest, *, batch: int | None, precision: str, cache: Path | None) -> None:
    """Score the candidates, write the run, and print the measures before and after."""
    if asked.output.output is not None:
        remove_finished(asked.output.output)
    with asked.output.opened():
        _rerank(asked, batch=batch, precision=precision, cache=cache)


def _rerank(asked: RerankRequest, *, batch: int | None, precision: str, cache: Path | None) -> None:
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
    output.write(found.run, RERANK_TAG, found.measures)
    output.show(found.run, RERANK_TAG, found.measures, {"run": str(asked.run), **found.summary()})
    found.done()


def _read(asked: RerankRequest, cache: Path | None, shown: Listener) -> Candidates:
    if brings_texts(asked.candidates):
        named = asked.named
        choice = None if named.folder is None else collection_of(asked.run, named)
        return read_given(asked.candidates, choice, asked.chosen, shown)
    return read_candidates(asked.candidates, collection_of(asked.run, asked.named), asked.chosen, cache, shown)
