"""The command `headwise tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.allow_code import AllowCode
from headwise.cli.sweeps_app import AsJson, Cache, Change, Data, Download, Threads


def add_tune(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(tune)


def tune(
    recipe: Annotated[str, typer.Argument(help="YAML file, or a name of `headwise list recipes`.", show_default=False)],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="What to try: guides.mdg.weight=[0.1, 0.01], or training.learning_rate={low: 1e-5, high: 1e-3, "
            "log: true}; default the weight of every guide over the paper's 0.1, 0.01, 0.001, 0.0001.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Finished and pruned trials in all; default the whole grid, or 20.", show_default=False
        ),
    ] = None,
    change: Change = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Train each combination with these and take the mean: 1,2,3.", show_default=False),
    ] = None,
    data: Data = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results; default tunes/NAME.", show_default=False)
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Database of the study; default a file of SQLite in the folder.", show_default=False
        ),
    ] = None,
    study: Annotated[str | None, typer.Option(help="Its name; default that of the recipe.", show_default=False)] = None,
    sampler: Annotated[
        str | None, typer.Option(help="grid, tpe or random; default grid if all can be tried.", show_default=False)
    ] = None,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Stop trials that fall behind.")] = True,
    threads: Threads = 1,
    cache: Cache = None,
    download: Download = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be tried and stop.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the values that do best on validation, with Optuna; the best recipe is written to FOLDER/best.yaml."""
    from headwise.cli.tune import Order, run_tune
    from headwise.experiments.tuning.objective import TunePlace

    order = Order(
        recipe=recipe,
        vary=tuple(vary or ()),
        changes=tuple(change or ()),
        seeds=seeds,
        study=study,
        storage=storage,
        as_json=as_json,
    )
    space = order.space()
    place = TunePlace(output or Path("tunes") / order.name(space), data, cache, download, threads)
    run_tune(order, space, place, order.search(space, sampler, trials, prune=prune), dry_run=dry_run)
