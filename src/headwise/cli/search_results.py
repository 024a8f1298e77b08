"""The papers of a search and why the best was found: on the terminal, and as a page."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.cli.console import WIDTH, text_table
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.retrieval.explain import Explanation
    from headwise.retrieval.reasons import Reasons
    from headwise.retrieval.search import Paper, SearchResult

# Words of the attention that are listed; without styles, in a file or a pipe, MARK stands around marked words.
STRONGEST, STYLE, MARK = 10, "bold reverse", "**"
NAMES = {"bm25": "BM25", "cosine": "cosine", "reranker": "re-ranker"}


def print_papers(result: SearchResult, documents: int, *, explain: bool) -> None:
    """Print a table of papers, how they were scored, and the explanation, broken only to fit a terminal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    columns = score_columns(result)
    table = Table(box=None)
    for name in ("rank", *columns):
        table.add_column(name.split(": ")[-1], justify="right", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    table.add_column("title")  # the only one that may be cut
    for paper in result.papers:
        title = Text(printable(paper.title) or "-", no_wrap=True, overflow="ellipsis")
        table.add_row(str(paper.rank), *score_cells(paper, columns), Text(printable(paper.id)), title)
    console.print(table)
    console.print(how_scored(result, documents))
    if explain and result.explanation is not None:
        for part in explained(result.explanation, styled=console.color_system is not None):
            console.print()
            console.print(part)


def score_columns(result: SearchResult) -> dict[str, str]:
    """The columns of scores and ranks, with the attribute of a paper that each shows."""
    used = [name for name in NAMES if any(getattr(paper, name) is not None for paper in result.papers)]
    if len(used) == 1 and str(result.score) == NAMES[used[0]]:  # its score is the final one
        used = []
    parts = ({NAMES[name]: name, f"{NAMES[name]}: rank": f"{name}_rank"} for name in used)
    return {"score": "score"} | {label: name for part in parts for label, name in part.items()}


def score_cells(paper: Paper, columns: dict[str, str]) -> list[str]:
    """The cells of these columns."""
    values = (getattr(paper, name) for name in columns.values())
    return ["-" if each is None else str(each) if isinstance(each, int) else f"{each:.3f}" for each in values]


def how_scored(result: SearchResult, documents: int) -> str:
    """How the papers were found, in sentences."""
    read = f" The re-ranker read {result.read} of them." if result.read else ""
    note = f" {result.score.note[0].upper()}{result.score.note[1:]}" if result.score.note else ""
    return f"score: {result.score}. {result.candidates} of {documents} papers are candidates.{read}{note}"


def page_file(path: Path, *, overwrite: bool) -> AbstractContextManager[None]:
    """Refuse a page that cannot be written, before any work, and lock it for the block."""
    from headwise.disk import new_file

    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--explain-html {path}: expected a name that ends in .html.")
    return new_file(path, "--explain-html", replace=overwrite, example="search.html")


def write_page(path: Path, result: SearchResult, documents: int) -> None:
    """Write the papers and the explanation as a page."""
    from headwise.disk import save_content
    from headwise.reports.search_page import search_page

    columns = score_columns(result)
    rows = [[str(each.rank), *score_cells(each, columns), each.id, each.title] for each in result.papers]
    names, reasons = ("rank", *columns, "paper", "title"), [result.explanation] if result.explanation else []
    save_content(path, search_page(result.claim, names, rows, reasons, note=how_scored(result, documents)))


def explained(reasons: Reasons, *, styled: bool) -> Iterator[Text | Table]:
    """The paper with the shared words marked, what it loses without each passage, its words, and how to read this."""
    yield Text(f"claim: {printable(reasons.claim)}")
    yield Text(f"paper: {printable(reasons.id)}")
    yield _marked(reasons, styled=styled)
    carrying = reasons.carrying()
    if carrying is not None:
        part = "title" if carrying.title else "sentence"
        yield Text(f"The {part} that carries the score: {printable(carrying.text)}")
        # With one stage its drop and that of the final score are the same.
        stages = [stage for stage in carrying.drops if len(carrying.drops) > 1]
        columns = [*(NAMES[stage] for stage in stages), "score"]
        rows = [
            [f"{each.drops[stage]:+.4f}" for stage in stages] + [f"{each.drop:+.4f}", printable(each.text)]
            for each in sorted(reasons.passages, key=lambda passage: -passage.drop)
        ]
        yield text_table([], rows, numbers=columns, last="left out")
    if reasons.matches:
        rows = [[printable(each.word), f"{100 * each.share:.1f} %", str(len(each.places))] for each in reasons.matches]
        yield text_table(["shared word"], rows, numbers=["of BM25", "times"])
    if reasons.nearest:
        rows = [[printable(each.word), printable(each.nearest), f"{each.cosine:.3f}"] for each in reasons.nearest]
        yield text_table(["word of the claim", "nearest in the paper"], rows, numbers=["cosine"])
    yield Text(
        "Left out: how much lower each score is when the paper is scored without this passage. Shared words: their "
        "share of the BM25 score. Nearest: by the encoder's vectors of words in their texts; the score is not their "
        "sum."
    )
    if reasons.attention is not None:
        yield from _attention(reasons.attention)


def _marked(reasons: Reasons, *, styled: bool) -> Text:
    text, marked, end = printable(reasons.text), Text(), 0
    for start, after in sorted({place for match in reasons.matches for place in match.places}):
        marked.append(text[end:start])
        shown = text[start:after]
        marked.append(shown if styled else f"{MARK}{shown}{MARK}", STYLE if styled else None)
        end = after
    return marked.append(text[end:])


def _attention(explanation: Explanation) -> Iterator[Text | Table]:
    """The words that a re-ranker attends to most."""
    words = [((word.text,), word.share) for word in explanation.strongest(STRONGEST)]
    links = [((link.text, link.strongest.text), link.strongest.share) for link in explanation.links]
    for headings, rows in ((("word",), words), (("word of the claim", "looks most at"), links)):
        cells = ([*map(printable, texts), f"{100 * share:.1f} %"] for texts, share in rows)
        yield text_table(headings, cells, numbers=["share"])
    parts = (explanation.special_share, explanation.claim_share, explanation.paper_share, 1 / len(explanation.words))
    special, own, to_paper, even = (f"{100 * share:.1f} %" for share in parts)
    yield Text(
        "Attention is where the re-ranker looks, not a proof of why it decides: alone it is no explanation. Over all "
        f"layers and heads, {special} of the claim's attention went to special tokens such as [CLS], {own} to the "
        f"claim itself, and {to_paper} to the paper: shares are of that to its {len(explanation.words)} words, each of "
        f"which would have {even} if the claim looked at them evenly."
        + (" The pair was longer than the model reads: the rest was cut off." if explanation.truncated else "")
    )


def printable(text: str) -> str:
    """The text, character by character, with a space for what would move the cursor or cannot be written."""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character for character in text
    )
