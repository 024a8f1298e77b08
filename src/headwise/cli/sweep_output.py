"""`headwise sweep`: make the runs of a sweep, and tell what became of them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from headwise.cli.console import print_tables
from headwise.cli.progress_bar import INTERRUPTED, Stops, keeping, kept_in, progress
from headwise.cli.train_commands import program
from headwise.errors import InputError
from headwise.experiments.engines import choose_engine
from headwise.experiments.sweeps.plan import SweepPlan, plan_sweep
from headwise.experiments.sweeps.sweep import SweepOutcome, SweepPlace, run_sweep
from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.training.encoders import quiet_libraries


@dataclass(frozen=True)
class Order:
    """What the user asked for."""

    file: str
    scale: str | None
    changes: tuple[str, ...]
    only: tuple[str, ...]
    seeds: str | None
    as_json: bool

    def plan(self) -> SweepPlan:
        """The runs, all checked."""
        return plan_sweep(
            self.file, scale=self.scale, changes=self.changes, only=self.only, seeds=parse_seeds(self.seeds)
        )


def parse_seeds(text: str | None) -> list[int] | None:
    """`1,2,3`."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--seeds {text}: expected whole numbers with commas between them, such as 1,2,3.")
    return [int(part) for part in parts]


def run_order(
    order: Order,
    plan: SweepPlan,
    place: SweepPlace,
    *,
    engine: str,
    workers: int | None,
    threads: int,
    address: str | None,
    dry_run: bool,
) -> None:
    """Make the runs, or show them."""
    quiet_libraries()
    if dry_run:
        _show_plan(plan, place.output, as_json=order.as_json)
        return
    ResultFolder(place.output).check()
    with keeping(lambda: kept_in(place.output)):
        chosen = choose_engine(engine, workers=workers, threads=threads, address=address)
        with progress() as shown, Stops(shown.tell).listening() as stops:
            outcome = run_sweep(plan, place, chosen, shown, stops=stops.count)
        _show(outcome, as_json=order.as_json)
    if outcome.interrupted:
        typer.echo("headwise: stopped; the same command goes on where it was", err=True)
        raise typer.Exit(INTERRUPTED)
    if outcome.errors:
        raise typer.Exit(1)


def _show_plan(plan: SweepPlan, output: Path, *, as_json: bool) -> None:
    folder = ResultFolder(output)
    rows = [
        {"key": each.key, "point": dict(each.point), "there": folder.has(each.key), "recipe": each.recipe.as_data()}
        for each in plan.runs
    ]
    if as_json:
        content = {"sweep": plan.sweep.name, "scale": plan.scale, "output": str(output), "runs": rows}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    table = Table(*(axis.name for axis in plan.axes), "key", "there", box=None)
    for each in plan.runs:
        table.add_row(
            *(escape(label) for label in each.point.values()), each.key, "yes" if folder.has(each.key) else ""
        )
    print_tables(table)
    typer.echo(f"{len(plan.runs)} points, {len(plan.unique)} different runs, in {output}")


def _show(outcome: SweepOutcome, *, as_json: bool) -> None:
    data = outcome.as_data()
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    words = {"finished": "made now", "present": "already there", "failed": "failed", "interrupted": "not finished"}
    told = [f"{data[state]} {said}" for state, said in words.items() if data[state]]
    left = f", {outcome.left_out} left out (files missing)" if outcome.left_out else ""
    typer.echo(f"{data['runs']} runs: {', '.join(told) or 'none'}{left}")
    for each in data["errors"]:
        typer.echo(f"failed: {each['run']}: {each['error']}")
    typer.echo(f"saved in {outcome.output}; compare with: {shlex.join([*program(), 'compare', str(outcome.output)])}")
