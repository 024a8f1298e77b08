"""The commands of experiments: sweep, tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.allow_code import AllowCode

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Data = Annotated[Path | None, typer.Option(help="Folder with the tasks' files.", show_default=False)]
Download = Annotated[bool, typer.Option("--download", help="Allow the network for models and data that are not here.")]
Change = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of every run: training.epochs=1.")
]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder for knowledge and indexes; default HEADWISE_CACHE or the user's cache.", show_default=False
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Threads of each run; they decide the last bits, so results stay comparable at one.")
]


def add_sweeps(app: typer.Typer) -> None:
    """Put the commands on the command line."""
    app.command()(sweep)


def sweep(
    file: Annotated[str, typer.Argument(help="YAML file, or a name of `headwise list sweeps`.", show_default=False)],
    scale: Annotated[
        str | None, typer.Option(help="A scale of the sweep, such as small: MiniLM, minutes.", show_default=False)
    ] = None,
    data: Data = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results; default sweeps/NAME[-SCALE].", show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; default one per core.", show_default=False)
    ] = None,
    threads: Threads = 1,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; default a small one on this machine.", show_default=False)
    ] = None,
    change: Change = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="AXIS=LABEL", help="Only these points: system=plain,ag.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="In place of the file's seeds: 1,2,3.", show_default=False)] = None,
    available: Annotated[bool, typer.Option("--available", help="Leave out runs whose files are not here.")] = False,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the model of every run.")] = False,
    cache: Cache = None,
    download: Download = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs and stop.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Make every run of a sweep FILE: a recipe times a grid, seeds, sizes and layers. What is there is not repeated."""
    from headwise.cli.sweep import Order, run_order
    from headwise.experiments.sweeps.sweep import SweepPlace

    order = Order(
        file=file, scale=scale, changes=tuple(change or ()), only=tuple(only or ()), seeds=seeds, as_json=as_json
    )
    plan = order.plan()
    place = SweepPlace(
        output or Path("sweeps") / "-".join([plan.sweep.name, *([scale] if scale else [])]),
        data,
        cache,
        network=download,
        keep_models=keep_models,
        available=available,
    )
    run_order(order, plan, place, engine=engine, workers=workers, threads=threads, address=address, dry_run=dry_run)
