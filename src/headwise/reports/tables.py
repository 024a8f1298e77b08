"""Tables as text: Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwise.experiments.text_formats import escape_markdown

NOTHING = "\N{EN DASH}"

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "±": r"$\pm$",
    "×": r"$\times$",
    NOTHING: "--",
}


@dataclass(frozen=True)
class Cell:
    """Text, and stars that stand beside it."""

    text: str
    stars: str = ""

    def __str__(self) -> str:
        """As a terminal shows it."""
        return f"{self.text} {self.stars}".rstrip()


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column names the rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def columns(self, places: Sequence[int]) -> TextTable:
        """Some of the columns."""
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return TextTable(self.title, tuple(self.headings[place] for place in places), rows)


def markdown_table(table: TextTable) -> str:
    """A heading and a table with pipes."""
    lines = [
        _piped(escape_markdown(heading) for heading in table.headings),
        _piped(["---", *["---:"] * (len(table.headings) - 1)]),
    ]
    lines += [_piped(escape_markdown(str(cell)) for cell in row) for row in table.rows]
    heading = f"### {escape_markdown(table.title)}\n\n" if table.title else ""
    return heading + "\n".join(lines) + "\n"


def latex_table(table: TextTable) -> str:
    """A floating table with the rules of booktabs; stars are superscripts."""
    rows = [" & ".join(_latex_cell(cell) for cell in row) for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\footnotesize",
            *([rf"\caption{{{escape_latex(table.title)}}}"] if table.title else []),
            rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}",
            r"\toprule",
            " & ".join(escape_latex(heading) for heading in table.headings) + r" \\",
            r"\midrule",
            *(rf"{row} \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Text that LaTeX shows as it is; a minus sign before a number is one."""
    escaped = "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return re.sub(r"(?<![\w.}-])-(?=\d)", "$-$", escaped)


def _latex_cell(cell: Cell) -> str:
    return escape_latex(cell.text) + (f"$^{{{cell.stars}}}$" if cell.stars else "")


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
