"""A comparison as tables of text, and in full as Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headwise.experiments.text_formats import csv_text, escape_markdown

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

# By kind of test, the heading of its p-values; Holm's stands beside the t-test only, the others are in JSON and CSV.
TESTS = {
    "t": "t",
    "permutation": "flips",
    "mcnemar": "McNemar",
    "bootstrap": "bootstrap",
    "randomisation": "swaps",
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


class Column(NamedTuple):
    """A heading, and the cells below it."""

    heading: str
    cells: list[Cell]
    test: bool = False
    """Whether it belongs to the tests, and not to the scores."""


def markdown_table(table: TextTable) -> str:
    """A heading and a table with pipes."""
    rows = [
        [escape_markdown(heading) for heading in table.headings],
        ["---", *["---:"] * (len(table.headings) - 1)],
        *([escape_markdown(str(cell)) for cell in row] for row in table.rows),
    ]
    heading = f"### {escape_markdown(table.title)}\n\n" if table.title else ""
    return heading + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def latex_table(table: TextTable) -> str:
    """A floating table with the rules of booktabs; stars are superscripts."""
    rows = [
        " & ".join(escape_latex(cell.text) + (f"$^{{{cell.stars}}}$" if cell.stars else "") for cell in row) + r" \\"
        for row in ([Cell(heading) for heading in table.headings], *table.rows)
    ]
    caption = [rf"\caption{{{escape_latex(table.title)}}}"] if table.title else []
    begin = rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}"
    before = [r"\begin{table}", r"\centering\footnotesize", *caption, begin, r"\toprule"]
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


def columns_of(table: Table, style: Style) -> list[Column]:
    """The columns of a table: tests that no row has are left out."""

    def number(value: float | None, form: str) -> Cell:
        return Cell(NOTHING if value is None else format(value, form))

    intervals, differences, seconds = [], [], []
    for row in table.rows:
        scores, test, times = row.scores, row.by_seed, row.times
        known = scores.low is not None and scores.high is not None
        intervals.append(Cell(f"{style.score(scores.low)} to {style.score(scores.high)}" if known else NOTHING))
        difference = style.score(None if test is None else test.difference, "+")
        if test is not None and test.low is not None:
            difference += f" ({style.score(test.low, '+')} to {style.score(test.high, '+')})"
        differences.append(Cell(difference))
        spread = "" if times is None or times.deviation is None else f" ± {times.deviation:.2f}"
        seconds.append(Cell(NOTHING if times is None else f"{times.seconds:.2f}{spread}"))
    columns = [
        Column("system", [Cell(row.system) for row in table.rows]),
        Column("seeds", [Cell(str(len(row.seeds))) for row in table.rows]),
        Column("mean ± sd", [style.mean(row) for row in table.rows]),
        Column("95 % interval", intervals),
        Column("difference (95 %)", differences),
    ]
    if style.times:
        ratios = [number(None if row.times is None else row.times.ratio, ".2f") for row in table.rows]
        columns += [Column("s/epoch", seconds), Column("× time", ratios)]
    tests = [(kind, heading) for kind, heading in TESTS.items() if any(kind in row.p for row in table.rows)]
    for kind, heading in tests:
        columns.append(Column(heading, [number(row.p.get(kind), ".4f") for row in table.rows], test=True))
        if kind == "t":
            columns.append(Column("Holm", [number(row.holm.get(kind), ".4f") for row in table.rows], test=True))
    if any(kind == "permutation" for kind, _ in tests):
        by_seed = [row.by_seed for row in table.rows]
        effects = [number(test.effect if test else None, "+.2f") for test in by_seed]
        detectable = [Cell(style.score(test.detectable if test else None)) for test in by_seed]
        columns += [Column("d_z", effects, test=True), Column("MDE", detectable, test=True)]
    return columns


def detail(comparison: Comparison, table: Table, style: Style) -> TextTable:
    """One table in full."""
    columns = columns_of(table, style)
    title = f"{table.metric} on {comparison.split}, against {comparison.baseline}"
    headings, cells = tuple(column.heading for column in columns), [column.cells for column in columns]
    return TextTable(_titled(table, title), headings, tuple(zip(*cells, strict=True)))


def overviews(comparison: Comparison, style: Style) -> dict[int, TextTable]:
    """Of blocks with several metrics, all of them side by side; by the index of the first of its tables."""
    blocks: dict[tuple[str, ...], list[int]] = {}
    for index, table in enumerate(comparison.tables):
        blocks.setdefault(tuple(table.within.values()), []).append(index)
    found = {}
    for indices in blocks.values():
        tables = [comparison.tables[index] for index in indices]
        if len(tables) > 1:
            rows = tuple(
                (Cell(same[0].system), *(style.mean(row) for row in same))
                for same in zip(*(table.rows for table in tables), strict=True)
            )
            title = _titled(tables[0], f"all metrics on {comparison.split}")
            found[indices[0]] = TextTable(title, ("system", *(table.metric for table in tables)), rows)
    return found


def _titled(table: Table, title: str) -> str:
    return f"{table.title}: {title}" if table.title else title


def text_tables(comparison: Comparison, style: Style) -> list[TextTable]:
    """All tables in order."""
    above = overviews(comparison, style)
    tables = []
    for index, table in enumerate(comparison.tables):
        tables += [above[index]] if index in above else []
        tables.append(detail(comparison, table, style))
    return tables


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
