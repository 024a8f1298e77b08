"""What `retrieve` and `rerank` leave behind: a TREC run, the measures of every claim, and a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headwise.cli.score import measures_table, print_tables
from headwise.disk import new_file
from headwise.errors import InputError
from headwise.experiments.ranking import new_per_query, write_per_query
from headwise.metrics.ranking import RankingScores
from headwise.tasks.retrieval.collection import Run
from headwise.tasks.retrieval.trec import run_lines, write_run


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
        """Write both files, each whole or not at all."""
        if self.per_query is not None:
            write_per_query(self.per_query, scores)
        if self.output is not None:
            write_run(self.output, run, tag)

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
