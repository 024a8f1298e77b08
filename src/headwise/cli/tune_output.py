"""`headwise tune`: look for the best values of a recipe, and tell what was found."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from headwise.cli.console import print_tables
from headwise.cli.progress_bar import INTERRUPTED, keeping, kept_in, progress
from headwise.cli.sweep_output import parse_seeds
from headwise.cli.train_commands import program
from headwise.errors import InputError
from headwise.experiments.recipe_files import plain_name
from headwise.experiments.sweeps.sweep_file import label_of
from headwise.experiments.tuning.search_space import Search, Space, plan_space, words
from headwise.experiments.tuning.tune import BEST, FAILED, FINISHED, STATES, TuneOutcome, tune
from headwise.experiments.tuning.tuner import TunePlace
from headwise.training.encoders import quiet_libraries

# Trials in the table.
TOP = 10


@dataclass(frozen=True)
class Order:
    """What the user asked for."""

    recipe: str
    vary: tuple[str, ...]
    changes: tuple[str, ...]
    seeds: str | None
    study: str | None
    storage: str | None
    as_json: bool

    def space(self) -> Space:
        """What to try, all checked."""
        return plan_space(self.recipe, vary=self.vary, changes=self.changes, seeds=parse_seeds(self.seeds))

    def name(self, space: Space) -> str:
        """That of the study."""
        if self.study is not None and plain_name(self.study) != self.study:
            raise InputError(f"--study {self.study!r}: expected letters, digits, points and hyphens.")
        return self.study or space.recipe.name

    def search(self, space: Space, sampler: str | None, trials: int | None, *, prune: bool) -> Search:
        """How to look for it."""
        return Search.of(space, sampler, trials, prune=prune)


def run_tune(order: Order, space: Space, place: TunePlace, search: Search, *, dry_run: bool) -> None:
    """Go on with a study, or show what it would be."""
    quiet_libraries()
    if dry_run:
        _show_plan(space, place, search, order)
        return
    with keeping(lambda: kept_in(place.output)), progress() as shown, _interruptible():
        outcome = tune(space, place, search, shown, name=order.name(space), storage=order.storage)
    if order.as_json:
        typer.echo(json.dumps(outcome.as_data(), indent=2, ensure_ascii=False))
    else:
        _show(outcome, space, place)
    if outcome.interrupted:
        typer.echo("headwise: stopped; the same command goes on where it was", err=True)
        raise typer.Exit(INTERRUPTED)
    if outcome.best is None:
        raise typer.Exit(1)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C; while a model is trained, training itself takes both and saves."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_plan(space: Space, place: TunePlace, search: Search, order: Order) -> None:
    content: dict[str, Any] = {
        "study": order.name(space),
        "output": str(place.output),
        "sampler": search.sampler,
        "prune": search.prune,
        "trials": search.trials,
        "combinations": space.size,
        "seeds": list(space.seeds),
        "space": space.as_data(),
        "recipe": space.recipe.as_data(),
    }
    if order.as_json:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    table = Table("key", "tried", box=None)
    for axis in space.axes:
        given = axis.as_data()
        tried = given.get("choices") or {name: each for name, each in given.items() if each}
        table.add_row(escape(axis.key), escape(label_of(tried)))
    print_tables(table)
    size = "endless" if space.size is None else str(space.size)
    seeds = f"{len(space.seeds)} {'seed' if len(space.seeds) == 1 else 'seeds'}"
    typer.echo(f"{search.trials} trials ({search.sampler}) of {size} combinations, {seeds} each, in {place.output}")


def _show(outcome: TuneOutcome, space: Space, place: TunePlace) -> None:
    keys = [axis.key for axis in space.axes]
    if outcome.best is not None:
        table = Table("trial", f"validation {outcome.primary}", *(escape(key) for key in keys), "steps", box=None)
        for row in [row for row in outcome.rows if row.state == FINISHED][:TOP]:
            values = (escape(label_of(row.parameters[key])) for key in keys)
            table.add_row(str(row.number), f"{row.value:.4f}", *values, str(row.steps))
        print_tables(table)
    for trial, error in outcome.errors.items():
        typer.echo(f"failed: {trial}: {error}")
    counted = [f"{outcome.count(state)} {state}" for state in STATES.values() if outcome.count(state)]
    trials = f"{len(outcome.rows)} {'trial' if len(outcome.rows) == 1 else 'trials'}"
    typer.echo(f"{trials}: {', '.join(counted) or 'none'}")
    if outcome.best is not None:
        data = [] if place.data is None else ["--data", str(place.data)]
        command = shlex.join([*program(), "train", str(outcome.output / BEST), *data])
        typer.echo(f"best: {words(outcome.best.parameters)}; train it with: {command}")
    elif outcome.count(FAILED):
        typer.echo("no trial came to its end, so there is no best one")
