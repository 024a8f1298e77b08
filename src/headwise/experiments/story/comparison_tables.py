"""A comparison as tables of text: the same cells that `headwise compare` shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwise.experiments.comparison import Asked, Comparison, Row, Table, compare
from headwise.metrics.significance import RESAMPLES

NOTHING = "\N{EN DASH}"
# By kind of test, the heading of its p-values.
TESTS = {"t": "t", "permutation": "flips", "mcnemar": "McNemar", "bootstrap": "bootstrap", "randomisation": "swaps"}

Columns = dict[str, Callable[[Row], str]]


def comparison_tables(
    folder: Path, sweep: str | None = None, *, resamples: int = RESAMPLES
) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables of a sweep as it wants to be compared, scores times 100, and what must be known about all of them.

    Of a sweep that is not finished, the seeds that all systems have; the notes say what is left out.

    Args:
        folder: of `headwise sweep`.
        sweep: which of its sweeps, if it holds several.
        resamples: of the bootstrap.
    """
    comparison = compare([folder], Asked(sweep=sweep, common_seeds=True, resamples=resamples))
    tables = [_table(comparison, table) for table in comparison.tables]
    return tables, [*comparison.notes, *comparison.legend]


def _table(comparison: Comparison, table: Table) -> dict[str, Any]:
    title = f"{table.metric} on {comparison.split}, against {comparison.baseline}"
    columns = _columns(table)
    return {
        "title": f"{table.title}: {title}" if table.title else title,
        "columns": list(columns),
        "rows": [[cell(row) for cell in columns.values()] for row in table.rows],
        "notes": [],
    }


def _columns(table: Table) -> Columns:
    """Tests that no row has are left out."""
    columns: Columns = {
        "system": lambda row: row.system,
        "seeds": lambda row: str(len(row.seeds)),
        "mean ± sd": _mean,
        "95 % interval": lambda row: _interval(row.scores.low, row.scores.high),
        "difference (95 %)": _difference,
    }
    for kind, heading in TESTS.items():
        if any(kind in row.p for row in table.rows):
            columns[heading] = _p(kind)
            if kind == "t":
                columns["Holm"] = lambda row: _number(row.holm.get("t"), ".4f")
    if any("permutation" in row.p for row in table.rows):
        columns["d_z"] = lambda row: _number(row.by_seed.effect if row.by_seed else None, "+.2f")
        columns["MDE"] = lambda row: _points(row.by_seed.detectable if row.by_seed else None)
    return columns


def _p(kind: str) -> Callable[[Row], str]:
    return lambda row: _number(row.p.get(kind), ".4f")


def _mean(row: Row) -> str:
    spread = row.scores.deviation
    return f"{_points(row.scores.mean)}{'' if spread is None else f' ± {_points(spread)}'} {row.stars}".rstrip()


def _difference(row: Row) -> str:
    test = row.by_seed
    if test is None:
        return NOTHING
    interval = "" if test.low is None else f" ({_interval(test.low, test.high, '+')})"
    return _points(test.difference, "+") + interval


def _interval(low: float | None, high: float | None, sign: str = "") -> str:
    return NOTHING if low is None or high is None else f"{_points(low, sign)} to {_points(high, sign)}"


def _points(value: float | None, sign: str = "") -> str:
    return _number(None if value is None else 100 * value, f"{sign}.2f")


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)
