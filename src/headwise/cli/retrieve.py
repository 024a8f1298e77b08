"""`headwise retrieve`: candidates for claims as a TREC run, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.progress import progress
from headwise.cli.run_output import RunOutput
from headwise.cli.stopping import keeping
from headwise.experiments.collections import CollectionChoice
from headwise.experiments.retrieve import TAG, Retrieved, Searching, retrieve
from headwise.tasks.retrieval.index import IndexOptions
from headwise.tasks.retrieval.words import Words

if TYPE_CHECKING:
    from headwise.training.progress import Listener

# What tables and files of measures call this ranking.
NAME = "bm25"
# How many of the claims that nothing was found for are named.
NAMED = 5
# After Ctrl-C.
KEPT = "no run was written, and the same command begins again with what the cache has"


@dataclass(frozen=True)
class Asked:
    """What the caller asks for."""

    choice: CollectionChoice
    split: str | None
    top: int
    output: RunOutput
    rebuild: bool


def run_retrieve(asked: Asked, *, stem: str, stop_words: str, k1: float, b: float, cache: Path | None) -> None:
    """Search, write the run, and print the measures."""
    with asked.output.opened():
        _retrieve(asked, stem=stem, stop_words=stop_words, k1=k1, b=b, cache=cache)


def _retrieve(asked: Asked, *, stem: str, stop_words: str, k1: float, b: float, cache: Path | None) -> None:
    output = asked.output
    searching = Searching(IndexOptions(Words(stem, stop_words), k1, b), cache, asked.rebuild)
    with progress() as shown:
        with keeping(lambda: KEPT):
            found = retrieve(asked.choice, asked.split, asked.top, searching, shown)
            scores = {} if found.scores is None else {NAME: found.scores}
            output.check_judged(scores)
            output.write(found.run, TAG, scores)
        _tell_missing(found, shown)
    output.show(found.run, TAG, scores, {**found.summary(), "top": asked.top})


def _tell_missing(found: Retrieved, shown: Listener) -> None:
    if missing := found.without_candidates:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        shown.tell(f"{len(missing)} of {len(found.run)} claims share no word with any document: {named}")
