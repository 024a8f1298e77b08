"""`headwise heads prune-curve`: what is left of every task without the heads that one of them needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from headwise.cli.progress import progress
from headwise.cli.score import print_tables
from headwise.experiments.apply import Source, finished_record
from headwise.experiments.head_files import answers_folder, json_text
from headwise.experiments.measure_curve import measure_curve, write_curve
from headwise.experiments.prune_curve import PruneCurve
from headwise.experiments.prune_masks import CurveSettings
from headwise.experiments.run_tasks import load_tasks
from headwise.training.quiet import quiet_libraries


@dataclass(frozen=True)
class CurveOrder:
    """What the user asked for."""

    run: Path
    asked: Mapping[str, Any]
    """The settings of the curve that the user gave, by the names of `CurveSettings`."""
    seed: int
    source: Source
    output: Path | None
    batch: int | None

    @contextmanager
    def opened(self) -> Iterator[tuple[CurveSettings, Path]]:
        """All settings, and the folder of the results, locked; refuses what can be refused without the model."""
        settings = CurveSettings(**self.asked, seed=self.seed)
        finished_record(self.run)
        with answers_folder(self.run, self.output) as folder:
            yield settings, folder

    def measure(self, settings: CurveSettings) -> PruneCurve:
        """Load the run and measure the curve."""
        quiet_libraries()
        tasks = load_tasks(self.run)
        with progress() as shown:
            return measure_curve(tasks, settings, self.source, batch=self.batch, listener=shown)


def show_curve(order: CurveOrder, *, as_json: bool) -> None:
    """Measure a curve, write it, and print it."""
    with order.opened() as (settings, folder):
        curve = order.measure(settings)
        paths = write_curve(folder, curve)
    if as_json:
        typer.echo(json_text({**curve.as_dict(), "files": [str(path) for path in paths]}), nl=False)
        return
    print_tables(curve_table(curve))
    typer.echo(f"saved in {folder}")


def curve_table(curve: PruneCurve) -> Table:
    """Whose heads were pruned, and how many, in rows; what is left of each task in columns."""
    layers, heads = curve.shape
    table = Table(
        title=f"{curve.settings.split}, of {layers * heads} heads",
        title_justify="left",
        box=None,
        caption_justify="left",
    )
    for name in ("pruned", "heads of"):
        table.add_column(name, no_wrap=True)
    for task, metric in curve.metrics.items():
        table.add_column(f"{task}\n{metric}", justify="right", no_wrap=True)
    table.add_row("none", "", *(f"{value:.4f}       " for value in curve.base))
    for order in curve.settings.orders:
        _add_rows(table, curve, curve.matrix(order)[:, :, None], "least of " if order == "ascending" else "")
    if curve.settings.repeats:
        table.caption = f"random, like: means of {curve.settings.repeats} masks; like: as many heads in each layer."
        for step, values in enumerate(curve.random):
            table.add_row(_label(curve, step), "random", *_cells(curve, values.mean(0)))
        _add_rows(table, curve, curve.layer_matched, "like ")
    return table


def _add_rows(table: Table, curve: PruneCurve, values: Any, words: str) -> None:
    """From values [K,S,R,T]."""
    for row, task in enumerate(curve.tasks):
        if task in curve.pruned_for:
            for step in range(len(curve.counts)):
                table.add_row(_label(curve, step), f"{words}{task}", *_cells(curve, values[step, row].mean(0)))


def _label(curve: PruneCurve, step: int) -> str:
    return curve.settings.label(step, curve.counts[step])


def _cells(curve: PruneCurve, values: Any) -> list[str]:
    """The metric, and what share of the base that is."""
    shares = (f"{value / base:.0%}" if base > 0 else "n/a" for value, base in zip(values, curve.base, strict=True))
    return [f"{value:.4f} {share:>6}" for value, share in zip(values, shares, strict=True)]
