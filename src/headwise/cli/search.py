"""`headwise search`: the papers behind one claim, and where the claim's attention goes in the best of them."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.cli.progress import progress
from headwise.cli.score import WIDTH
from headwise.cli.stopping import keeping
from headwise.experiments.explain import Explanation, Word
from headwise.experiments.reranker_run import Named
from headwise.experiments.search import Found, Paper, Reading, check_claim, open_searcher
from headwise.training.quiet import quiet_libraries

# How many words are named and marked.
STRONGEST = 10
# Seen without colours too.
STYLE = "bold reverse"
# After Ctrl-C.
KEPT = "nothing was found yet, and the same command begins again with what the cache has"
# Where there are no styles: in a file or a pipe.
MARK = "**"


def run_search(
    run: Path,
    claim: str,
    named: Named,
    *,
    top: int,
    depth: int,
    explain: bool,
    batch: int | None,
    precision: str,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Search for one claim and print what was found."""
    claim = check_claim(claim)
    reading = Reading(top, depth, explain, batch, precision)
    quiet_libraries()
    with keeping(lambda: KEPT), progress() as shown:
        searcher = open_searcher(run, named, cache=cache, listener=shown)
        found = searcher.search(claim, reading, shown)
    if as_json:
        about = {"run": str(run), "collection": str(searcher.folder), "documents": len(searcher.index.corpus)}
        typer.echo(json.dumps({**about, **found.as_dict()}, indent=2, ensure_ascii=False))
    else:
        _print(found, len(searcher.index.corpus))


def _print(found: Found, documents: int) -> None:
    """Print tables and text, broken only to fit a terminal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(_papers(found))
    console.print(f"model: the logit of the re-ranker, which read the best {found.candidates} of {documents} by BM25.")
    if found.explanation is not None:
        for part in _explained(found.papers[0], found.explanation, styled=console.color_system is not None):
            console.print()
            console.print(part)


def _papers(found: Found) -> Table:
    """A row for each paper, the best first."""
    table = Table(box=None)
    for name in ("rank", "model", "BM25", "BM25 rank"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    table.add_column("title")  # the only one that may give way
    for paper in found.papers:
        numbers = (str(paper.rank), f"{paper.score:.3f}", f"{paper.bm25_score:.3f}", str(paper.bm25_rank))
        title = Text(_visible(paper.title) or "-", no_wrap=True, overflow="ellipsis")
        table.add_row(*numbers, Text(_visible(paper.id)), title)
    return table


def _explained(paper: Paper, explanation: Explanation, *, styled: bool) -> Iterator[Text | Table]:
    words = explanation.strongest(STRONGEST)
    yield Text(f"claim: {_visible(explanation.claim)}")
    yield Text(f"paper: {_visible(paper.id)} {_visible(paper.title)}".rstrip())
    yield _marked(explanation, words, styled=styled)
    yield _words(words)
    yield _links(explanation)
    yield Text(_remarks(explanation))


def _marked(explanation: Explanation, words: list[Word], *, styled: bool) -> Text:
    """What the model read of the paper, with these words set off."""
    text, marked, place = _visible(explanation.text), Text(), 0
    for word in sorted(words, key=lambda word: word.start):
        marked.append(text[place : word.start])
        shown = text[word.start : word.end]
        marked.append(shown if styled else f"{MARK}{shown}{MARK}", STYLE if styled else None)
        place = word.end
    marked.append(text[place : explanation.read])
    return marked.append(" ..." if explanation.truncated and text[explanation.read :].strip() else "")


def _words(words: list[Word]) -> Table:
    table = Table("word", box=None)
    table.add_column("share", justify="right", no_wrap=True)
    for word in words:
        table.add_row(Text(_visible(word.text)), _percent(word.share))
    return table


def _links(explanation: Explanation) -> Table:
    table = Table("word of the claim", "looks most at", box=None)
    table.add_column("share", justify="right", no_wrap=True)
    for link in explanation.links:
        strongest = link.strongest
        table.add_row(Text(_visible(link.text)), Text(_visible(strongest.text)), _percent(strongest.share))
    return table


def _remarks(explanation: Explanation) -> str:
    """What one has to know to read the tables."""
    parts = (explanation.special_share, explanation.claim_share, explanation.paper_share)
    special, claim, paper = map(_percent, parts)
    even = _percent(1 / len(explanation.words))
    remarks = [
        "Attention is where the model looks, not a proof of why it decides.",
        f"Over all layers and heads, {special} of the claim's attention went to special tokens such as [CLS], {claim} "
        f"to the claim itself, and {paper} to the paper: shares are of that to its {len(explanation.words)} words,",
        f"each of which would have {even} if the claim looked at them evenly.",
    ]
    if explanation.truncated:
        remarks.append("The pair was longer than the model reads: the rest was cut off.")
    return " ".join(remarks)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _visible(text: str) -> str:
    """The text, character by character, with a space for what would move the cursor or cannot be written."""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character for character in text
    )
