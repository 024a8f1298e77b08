"""A comparison as tables of text, and in full as Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.experiments.text_formats import csv_text, escape_markdown

if TYPE_CHECKING:
    from headwise.experiments.comparison import Comparison, Row, Table

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
    rows = [
        " & ".join(escape_latex(cell.text) + (f"$^{{{cell.stars}}}$" if cell.stars else "") for cell in row)
        for row in table.rows
    ]
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


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


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

    def interval(self, low: float | None, high: float | None, sign: str = "") -> str:
        """From, to."""
        return NOTHING if low is None or high is None else f"{self.score(low, sign)} to {self.score(high, sign)}"

    def mean(self, row: Row) -> str:
        """With its standard deviation."""
        spread = row.scores.deviation
        return self.score(row.scores.mean) + ("" if spread is None else f" ± {self.score(spread)}")

    def difference(self, row: Row) -> str:
        """With its interval."""
        test = row.by_seed
        if test is None:
            return NOTHING
        interval = "" if test.low is None else f" ({self.interval(test.low, test.high, '+')})"
        return self.score(test.difference, "+") + interval


@dataclass(frozen=True)
class Column:
    """A heading, and what stands below it."""

    heading: str
    cell: Callable[[Row], Cell]
    test: bool = False
    """Whether it belongs to the tests, and not to the scores."""


def columns_of(table: Table, style: Style) -> list[Column]:
    """The columns of a table: tests that no row has are left out."""
    scores = [
        Column("system", lambda row: Cell(row.system)),
        Column("seeds", lambda row: Cell(str(len(row.seeds)))),
        Column("mean ± sd", lambda row: Cell(style.mean(row), row.stars)),
        Column("95 % interval", lambda row: Cell(style.interval(row.scores.low, row.scores.high))),
        Column("difference (95 %)", lambda row: Cell(style.difference(row))),
    ]
    tests = [column for kind in TESTS if any(kind in row.p for row in table.rows) for column in _p_columns(kind)]
    effects = [
        Column("d_z", lambda row: Cell(_number(row.by_seed.effect if row.by_seed else None, "+.2f")), test=True),
        Column("MDE", lambda row: Cell(style.score(row.by_seed.detectable if row.by_seed else None)), test=True),
    ]
    times = [Column("s/epoch", lambda row: Cell(_seconds(row))), Column("× time", lambda row: Cell(_ratio(row)))]
    return [
        *scores,
        *(times if style.times else []),
        *tests,
        *(effects if any("permutation" in row.p for row in table.rows) else []),
    ]


def detail(comparison: Comparison, table: Table, style: Style) -> TextTable:
    """One table in full."""
    columns = columns_of(table, style)
    rows = tuple(tuple(column.cell(row) for column in columns) for row in table.rows)
    title = f"{table.metric} on {comparison.split}, against {comparison.baseline}"
    return TextTable(_titled(table, title), tuple(column.heading for column in columns), rows)


def overviews(comparison: Comparison, style: Style) -> dict[int, TextTable]:
    """Of blocks with several metrics, all of them side by side; by the place of the first of its tables."""
    blocks: dict[tuple[str, ...], list[int]] = {}
    for place, table in enumerate(comparison.tables):
        blocks.setdefault(tuple(table.within.values()), []).append(place)
    return {
        places[0]: _overview(comparison, [comparison.tables[place] for place in places], style)
        for places in blocks.values()
        if len(places) > 1
    }


def text_tables(comparison: Comparison, style: Style) -> list[TextTable]:
    """All tables in order."""
    above = overviews(comparison, style)
    found = []
    for place, table in enumerate(comparison.tables):
        found += [above[place]] if place in above else []
        found.append(detail(comparison, table, style))
    return found


def words_of(comparison: Comparison, style: Style) -> list[str]:
    """Notes and legend, one sentence or two each."""
    return [*comparison.notes, *comparison.legend, *([TIMES] if style.times else [])]


def comparison_markdown(comparison: Comparison, style: Style) -> str:
    """Tables, notes and legend as Markdown."""
    tables = [markdown_table(table) for table in text_tables(comparison, style)]
    lines = "".join(f"- {escape_markdown(line)}\n" for line in words_of(comparison, style))
    return "\n".join([*tables, lines])


def comparison_latex(comparison: Comparison, style: Style) -> str:
    r"""Tables, notes and legend as LaTeX; needs \usepackage{booktabs}."""
    tables = [latex_table(table) for table in text_tables(comparison, style)]
    lines = [escape_latex(line) for line in words_of(comparison, style)]
    return "\n".join(["% needs \\usepackage{booktabs}", *tables, r"{\footnotesize", "\n\n".join(lines), r"\par}", ""])


def comparison_csv(comparison: Comparison) -> str:
    """A row for each system of each table, in full precision."""
    return csv_text(comparison.frame().to_dict("records"))


def _p_columns(kind: str) -> list[Column]:
    columns = [Column(TESTS[kind], lambda row: Cell(_number(row.p.get(kind), ".4f")), test=True)]
    if kind == "t":
        columns.append(Column("Holm", lambda row: Cell(_number(row.holm.get(kind), ".4f")), test=True))
    return columns


def _overview(comparison: Comparison, tables: list[Table], style: Style) -> TextTable:
    rows = tuple(
        (Cell(row.system), *(Cell(style.mean(table.rows[place]), table.rows[place].stars) for table in tables))
        for place, row in enumerate(tables[0].rows)
    )
    title = _titled(tables[0], f"all metrics on {comparison.split}")
    return TextTable(title, ("system", *(table.metric for table in tables)), rows)


def _titled(table: Table, title: str) -> str:
    return f"{table.title}: {title}" if table.title else title


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _seconds(row: Row) -> str:
    if row.times is None:
        return NOTHING
    spread = row.times.deviation
    return f"{row.times.seconds:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def _ratio(row: Row) -> str:
    return NOTHING if row.times is None else _number(row.times.ratio, ".2f")
