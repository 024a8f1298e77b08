"""`headwise retrieve`: candidates for claims as a TREC run, and what they are worth."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress import progress
from headwise.cli.score import WIDTH, measures_table
from headwise.errors import DiskError, InputError
from headwise.experiments.collections import CollectionChoice
from headwise.experiments.ranking import check_per_query, write_per_query
from headwise.experiments.retrieve import TAG, Retrieved, Searching, check_output, retrieve
from headwise.tasks.retrieval.index import IndexOptions
from headwise.tasks.retrieval.trec import run_lines, write_run
from headwise.tasks.retrieval.words import Words

if TYPE_CHECKING:
    from headwise.training.progress import Listener

# What tables and files of measures call this ranking.
NAME = "bm25"
# How many of the claims that nothing was found for are named.
NAMED = 5


@dataclass(frozen=True)
class Asked:
    """What the caller asks for."""

    choice: CollectionChoice
    split: str | None
    top: int
    output: Path | None
    per_query: Path | None
    overwrite: bool
    rebuild: bool
    as_json: bool


def run_retrieve(asked: Asked, *, stem: str, stop_words: str, k1: float, b: float, cache: Path | None) -> None:
    """Search, write the run, and print the measures."""
    _check(asked)
    searching = Searching(IndexOptions(Words(stem, stop_words), k1, b), cache, asked.rebuild)
    with progress() as shown:
        try:
            found = retrieve(asked.choice, asked.split, asked.top, searching, shown)
            _write(asked, found)
        except KeyboardInterrupt:
            shown.end()
            shown.tell("stopped; no run was written, and the same command begins again with what the cache has")
            raise
        _tell_missing(found, shown)
    _show(asked, found)


def _check(asked: Asked) -> None:
    """Refuse what cannot be written, before any work."""
    check_output(asked.output, overwrite=asked.overwrite)
    check_per_query(asked.per_query, overwrite=asked.overwrite)
    if asked.output is None:
        if asked.as_json:
            raise InputError("--json needs --output: without it the run goes to standard output; name a file for it.")
    elif asked.per_query is not None and asked.output.absolute() == asked.per_query.absolute():
        raise InputError(f"--output and --per-query are both {asked.output}: name two files.")


def _write(asked: Asked, found: Retrieved) -> None:
    """Write both files, each whole or not at all."""
    if asked.per_query is not None and found.scores is None:
        raise InputError(f"--per-query {asked.per_query}: no claim is judged, so there is nothing to write; leave it.")
    if asked.output is not None:
        try:
            write_run(asked.output, found.run, TAG)
        except OSError as error:
            raise DiskError(f"{asked.output} could not be written: {error.strerror or error}.") from error
    if asked.per_query is not None and found.scores is not None:
        write_per_query(asked.per_query, {NAME: found.scores})


def _tell_missing(found: Retrieved, shown: Listener) -> None:
    if missing := found.without_candidates:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        shown.tell(f"{len(missing)} of {len(found.run)} claims share no word with any document: {named}")


def _show(asked: Asked, found: Retrieved) -> None:
    if asked.as_json:
        answer: dict[str, Any] = {**found.summary(), "top": asked.top, "output": str(asked.output)}
        if asked.per_query is not None:
            answer["per_query"] = str(asked.per_query)
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    if asked.output is None:
        typer.echo("".join(run_lines(found.run, TAG)), nl=False)
    if found.scores is not None:
        _print(measures_table({NAME: found.scores}), sys.stderr if asked.output is None else sys.stdout)
    if asked.output is not None:
        typer.echo(f"saved in {asked.output}")


def _print(table: Table, stream: TextIO) -> None:
    """Print a table, broken only to fit a terminal."""
    Console(file=stream, width=None if stream.isatty() else WIDTH).print(table)
