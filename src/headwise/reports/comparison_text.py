"""A comparison as tables of text, and in full as Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from headwise.experiments.comparison.comparison import TESTS
from headwise.text_formats import csv_text, escape_markdown, paragraph

if TYPE_CHECKING:
    from headwise.experiments.comparison import Comparison, Row, Table

NOTHING = "\N{EN DASH}"

LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"${sign}$" for sign in "<>|"},
    "±": r"$\pm$",
    "×": r"$\times$",
    NOTHING: "--",
}

TIMES = (
    "s/epoch: seconds of an epoch, mean over epochs and seeds ± standard deviation over seeds; × time: that over the "
    "baseline's. Times depend on the machine and on what else ran there."
)


class Cell(NamedTuple):
    """Text, and stars that stand beside it."""

    text: str
    stars: str = ""

    def __str__(self) -> str:
        """As a terminal shows it."""
        return f"{self.text} {self.stars}".rstrip()


class TextTable(NamedTuple):
    """A table of text; the first column names the rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    tests: int = 0
    """How many of the last columns belong to the tests, and not to the scores."""
    verdicts: tuple[str, ...] = ()
    """Sentences above the table: which guides help."""


def markdown_table(table: TextTable) -> str:
    """A heading and a table with pipes."""
    rows = [
        [escape_markdown(heading) for heading in table.headings],
        ["---", *["---:"] * (len(table.headings) - 1)],
        *([escape_markdown(str(cell)) for cell in row] for row in table.rows),
    ]
    heading = f"### {escape_markdown(table.title)}\n\n" if table.title else ""
    heading += "".join(f"{paragraph(line)}\n\n" for line in table.verdicts)
    return heading + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def latex_table(table: TextTable) -> str:
    """A floating table with the rules of booktabs; stars are superscripts."""
    rows = [
        " & ".join(escape_latex(cell.text) + (f"$^{{{cell.stars}}}$" if cell.stars else "") for cell in row) + r" \\"
        for row in ([Cell(heading) for heading in table.headings], *table.rows)
    ]
    caption = [rf"\caption{{{escape_latex(table.title)}}}"] if table.title else []
    begin = rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}"
    verdicts = [f"{escape_latex(line)}\n" for line in table.verdicts]
    before = [*verdicts, r"\begin{table}", r"\centering\footnotesize", *caption, begin, r"\toprule"]
    after = [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join([*before, rows[0], r"\midrule", *rows[1:], *after])


def escape_latex(text: str) -> str:
    """Text that LaTeX shows as it is; a minus sign before a number is one."""
    escaped = "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return re.sub(r"(?<![\w.}-])-(?=\d)", "$-$", escaped)


@dataclass(frozen=True)
class Style:
    """How numbers are shown."""

    percent: bool = True
    """Scores times 100."""
    times: bool = False
    """With the seconds of an epoch."""

    def score(self, value: float | None, sign: str = "") -> str:
        """A score, or a difference of scores, with a sign if asked for."""
        if value is None:
            return NOTHING
        return format(100 * value, f"{sign}.2f") if self.percent else format(value, f"{sign}.4f")

    def mean(self, row: Row) -> Cell:
        """With its standard deviation and its stars."""
        spread = row.scores.deviation
        return Cell(self.score(row.scores.mean) + ("" if spread is None else f" ± {self.score(spread)}"), row.stars)


def text_tables(comparison: Comparison, style: Style) -> list[TextTable]:
    """All tables in order; above a block with several metrics stands one with all of them side by side."""
    tables = []
    for _, tables_of_block in groupby(comparison.tables, key=lambda table: table.within):
        block = list(tables_of_block)
        if len(block) > 1:
            rows = tuple(
                (Cell(same[0].system), *(style.mean(row) for row in same))
                for same in zip(*(table.rows for table in block), strict=True)
            )
            names = dict.fromkeys(name for table in block for name in table.references)
            rows += tuple(
                (Cell(name), *(Cell(style.score(table.references.get(name))) for table in block)) for name in names
            )
            title = _titled(block[0], f"all metrics on {comparison.split}")
            tables.append(TextTable(title, ("system", *(table.metric for table in block)), rows))
        for table in block:
            title = _titled(table, f"{table.metric} on {comparison.split}, against {comparison.baseline}")
            kinds = [kind for kind in TESTS if any(kind in row.p for row in table.rows)]
            scores = [_score_cells(row, style) for row in table.rows]
            tests = [_test_cells(row, kinds, style) for row in table.rows]
            rows = tuple((*one.values(), *other.values()) for one, other in zip(scores, tests, strict=True))
            headings = (*scores[0], *tests[0])
            for name, value in table.references.items():  # no seeds, no tests
                cells = {"system": Cell(name), "mean ± sd": Cell(style.score(value))}
                rows += (tuple(cells.get(heading, Cell(NOTHING)) for heading in headings),)
            verdicts = _verdict_lines(comparison, table, style, several=len(block) > 1)
            tables.append(TextTable(title, headings, rows, len(tests[0]), verdicts))
    return tables


def _verdict_lines(comparison: Comparison, table: Table, style: Style, *, several: bool) -> tuple[str, ...]:
    """The verdicts of a table, with what they are about if there is more than one table."""
    where = ", ".join(part for part in (table.title, table.metric if several else "") if part)
    sentences = [each.sentence(percent=style.percent) for each in comparison.verdicts_of(table).values()]
    return tuple(f"{where}: {each}" if where else each for each in sentences)


def _titled(table: Table, title: str) -> str:
    return f"{table.title}: {title}" if table.title else title


def _score_cells(row: Row, style: Style) -> dict[str, Cell]:
    """The scores of a system by their headings."""
    scores, test, times = row.scores, row.by_seed, row.times
    interval, difference = NOTHING, style.score(row.get("by_seed.difference"), "+")
    if scores.low is not None:
        interval = f"{style.score(scores.low)} to {style.score(scores.high)}"
    if test is not None and test.low is not None:
        difference += f" ({style.score(test.low, '+')} to {style.score(test.high, '+')})"
    cells = {
        "system": Cell(row.system),
        "seeds": Cell(str(len(row.seeds))),
        "mean ± sd": style.mean(row),
        "95 % interval": Cell(interval),
        "difference (95 %)": Cell(difference),
    }
    if style.times:
        spread = "" if times is None or times.deviation is None else f" ± {times.deviation:.2f}"
        cells["s/epoch"] = Cell(NOTHING if times is None else f"{times.seconds:.2f}{spread}")
        cells["× time"] = _number(row.get("times.ratio"), ".2f")
    return cells


def _test_cells(row: Row, kinds: Sequence[str], style: Style) -> dict[str, Cell]:
    """The tests of a system by their headings, of the kinds that a row of its table has."""
    cells = {}
    for kind in kinds:
        cells[TESTS[kind][1]] = _number(row.p.get(kind), ".4f")
        if kind == "t":  # Holm's for the other tests are in JSON and CSV
            cells["Holm"] = _number(row.holm.get(kind), ".4f")
    if "permutation" in kinds:
        cells["d_z"] = _number(row.get("by_seed.effect"), "+.2f")
        cells["MDE"] = Cell(style.score(row.get("by_seed.detectable")))
    return cells


def _number(value: float | None, form: str) -> Cell:
    return Cell(NOTHING if value is None else format(value, form))


def words_of(comparison: Comparison, style: Style) -> list[str]:
    """Notes and legend, one sentence or two each."""
    return [*comparison.notes, *comparison.legend, *([TIMES] if style.times else [])]


def comparison_markdown(comparison: Comparison, style: Style) -> str:
    """Tables, notes and legend as Markdown."""
    tables = [markdown_table(table) for table in text_tables(comparison, style)]
    return "\n".join([*tables, "".join(f"- {escape_markdown(line)}\n" for line in words_of(comparison, style))])


def comparison_latex(comparison: Comparison, style: Style) -> str:
    r"""Tables, notes and legend as LaTeX; needs \usepackage{booktabs}."""
    tables = [latex_table(table) for table in text_tables(comparison, style)]
    lines = [escape_latex(line) for line in words_of(comparison, style)]
    return "\n".join(["% needs \\usepackage{booktabs}", *tables, r"{\footnotesize", "\n\n".join(lines), r"\par}", ""])


def comparison_csv(comparison: Comparison) -> str:
    """A row for each system of each table, in full precision."""
    return csv_text(comparison.frame().to_dict("records"))
