"""A search with its explanation as one HTML page, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from headwise.reports.token_page import printable
from headwise.retrieval.reasons import Passage, Reasons

HOW_TO_READ = (
    "Shaded: what the final score loses without this passage, relative to the largest loss. Bold: words of the claim "
    "that BM25 finds in the paper."
)
ATTENTION_NOTE = "Attention is where the re-ranker looks. Attention alone is not an explanation of its score."
# Words of the attention that are listed.
STRONGEST = 10


def search_page(
    claim: str, columns: Sequence[str], papers: Iterable[Sequence[str]], reasons: Sequence[Reasons], note: str = ""
) -> str:
    """One HTML page with the papers that were found, and why.

    It opens from disk, asks for nothing from outside and runs no script.

    Args:
        claim: what was searched for.
        columns: of the table of papers.
        papers: the rows of the table, as text.
        reasons: of some of the papers.
        note: below the table.
    """
    assets = files("headwise.reports") / "assets"
    style, page = ((assets / f"tokens.{kind}").read_text("utf-8") for kind in ("css", "html"))
    return Template(page).substitute(
        title=_clean(claim),
        style=style,
        legend=f'{_table(columns, papers)}<p class="note">{_clean(note)}</p>',
        texts="\n".join(_section(each) for each in reasons),
    )


def _section(reasons: Reasons) -> str:
    parts = [f"<h2>{_clean(reasons.id)}</h2>", f'<p class="text" dir="auto">{_marked(reasons)}</p>']
    parts.append(f'<p class="note">{HOW_TO_READ}</p>')
    carrying = reasons.carrying()
    if carrying is not None:
        stages = [stage for stage in carrying.drops if len(carrying.drops) > 1]
        rows = (
            (*(f"{each.drops[stage]:+.4f}" for stage in stages), f"{each.drop:+.4f}", each.text)
            for each in sorted(reasons.passages, key=lambda passage: -passage.drop)
        )
        parts.append(_details("Score that is lost without a passage", (*stages, "final score", "passage"), rows))
    if reasons.matches:
        matches = ((each.word, f"{each.share:.1%}", str(len(each.places))) for each in reasons.matches)
        parts.append(_details("Shared words", ("word", "share of the BM25 score", "times in the paper"), matches))
    if reasons.nearest:
        near = ((each.word, each.nearest, f"{each.cosine:.3f}") for each in reasons.nearest)
        parts.append(_details("Nearest words by their vectors", ("word of the claim", "nearest", "cosine"), near))
    if reasons.attention is not None:
        words = ((each.text, f"{each.share:.1%}") for each in reasons.attention.strongest(STRONGEST))
        parts.append(_details("Attention of the re-ranker", ("word", "share"), words, ATTENTION_NOTE))
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _marked(reasons: Reasons) -> str:
    """The text of the paper, its passages shaded by what they carry, its shared words bold."""
    largest = max([passage.drop for passage in reasons.passages if passage.drop > 0], default=1.0)
    bold = sorted({place for match in reasons.matches for place in match.places})
    written, end = "", 0
    for passage in reasons.passages:
        written += _bold(reasons.text, end, passage.start, bold)
        shade = max(0.0, passage.drop) / largest
        inside = _bold(reasons.text, passage.start, passage.end, bold)
        written += f'<span class="token" style="--score:{shade:.3f}" title="{_drops(passage)}">{inside}</span>'
        end = passage.end
    return written + _bold(reasons.text, end, len(reasons.text), bold)


def _drops(passage: Passage) -> str:
    return f"final score {-passage.drop:+.4f} without it"


def _bold(text: str, start: int, end: int, places: Sequence[tuple[int, int]]) -> str:
    """A part of the text, with the words that lie in it bold."""
    written = ""
    for first, last in places:
        if start <= first and last <= end:
            written += f"{_clean(text[start:first])}<b>{_clean(text[first:last])}</b>"
            start = last
    return written + _clean(text[start:end])


def _details(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    below = f'<p class="note">{note}</p>' if note else ""
    return f"<details open><summary>{title}</summary>{_table(columns, rows)}{below}</details>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(kind: str, row: Iterable[str]) -> Iterator[str]:
        return (f"<{kind}><bdi>{_clean(cell)}</bdi></{kind}>" for cell in row)

    lines = [f"<tr>{''.join(cells('th', columns))}</tr>", *(f"<tr>{''.join(cells('td', row))}</tr>" for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _clean(text: str) -> str:
    return escape(printable(text.replace("\n", " ").replace("\t", " ")))
