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
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of every run: training.num_train_epochs=1."),
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
    changes: Change = None,
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
    from headwise.cli.sweep_output import Order, run_order
    from headwise.experiments.sweeps.sweep import SweepPlace

    order = Order(
        file=file, scale=scale, changes=tuple(changes or ()), only=tuple(only or ()), seeds=seeds, as_json=as_json
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


# The command `headwise tune`.


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
    changes: Change = None,
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
    from headwise.cli.tune_output import Order, run_tune
    from headwise.experiments.tuning.tuner import TunePlace

    order = Order(
        recipe=recipe,
        vary=tuple(vary or ()),
        changes=tuple(changes or ()),
        seeds=seeds,
        study=study,
        storage=storage,
        as_json=as_json,
    )
    space = order.space()
    place = TunePlace(output or Path("tunes") / order.name(space), data, cache, download, threads)
    run_tune(order, space, place, order.search(space, sampler, trials, prune=prune), dry_run=dry_run)


# The command `headwise compare`.


Names = list[str] | None


def add_compare(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(compare)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="A folder of `headwise sweep`; or files of runs, or folders of `headwise train`."),
    ],
    by: Annotated[
        Names,
        typer.Option(help="Axis or recipe key that tells the systems apart; default what the sweep says, or differs."),
    ] = None,
    within: Annotated[Names, typer.Option(help="Axis or recipe key whose values are compared by themselves.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The system that the others are compared with.", show_default=False)
    ] = None,
    only: Annotated[
        Names, typer.Option(metavar="AXIS=LABEL", help="Look at these labels only; several with commas.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Which sweep, if the folder holds several.", show_default=False)
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric; default the main one; TASK/METRIC for several tasks.", show_default=False),
    ] = None,
    all_metrics: Annotated[bool, typer.Option("--all-metrics", help="All metrics, with tests for each.")] = False,
    split: Annotated[
        str | None, typer.Option(help="test or validation; default test if all runs have it.", show_default=False)
    ] = None,
    ignore: Annotated[
        Names, typer.Option(metavar="KEY", help="Let runs differ in this: a recipe key, torch, threads, ...")
    ] = None,
    common_seeds: Annotated[
        bool, typer.Option("--common-seeds", help="Leave out seeds that not all systems have.")
    ] = False,
    stars: Annotated[str, typer.Option(help="Stars by p-values corrected by holm, or raw.")] = "holm",
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap.")] = 9999,
    times: Annotated[bool, typer.Option("--times", help="Show the seconds of an epoch.")] = False,
    percent: Annotated[bool, typer.Option("--percent/--no-percent", help="Show scores times 100.")] = True,
    form: Annotated[
        str | None,
        typer.Option("--format", help="table, markdown, csv, latex or json; default table.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write; its ending (.md .csv .tex .json .txt) says the format.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Compare systems over seeds: means, intervals, paired tests by seed and by example, corrected by Holm."""
    from headwise.cli.compare_output import Output, run_compare
    from headwise.experiments.comparison import Asked
    from headwise.reports.comparison_text import Style

    asked = Asked(
        by=_names(by),
        within=_names(within),
        baseline=baseline,
        sweep=sweep,
        only=_labels(only),
        metric=metric,
        all_metrics=all_metrics,
        split=split,
        ignore=_names(ignore),
        common_seeds=common_seeds,
        stars=stars,
        resamples=resamples,
    )
    run_compare(runs, asked, Output(form, output, overwrite, as_json, Style(percent, times)))


def _names(given: Names) -> tuple[str, ...]:
    """Names by themselves, or with commas between them; each once."""
    return tuple(dict.fromkeys(name.strip() for each in given or () for name in each.split(",") if name.strip()))


def _labels(given: Names) -> dict[str, tuple[str, ...]]:
    from headwise.errors import InputError

    found: dict[str, tuple[str, ...]] = {}
    for each in given or ():
        name, equals, labels = each.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--only {each!r}: expected AXIS=LABEL, such as set=sick.")
        found[name.strip()] = (*found.get(name.strip(), ()), *(label.strip() for label in labels.split(",")))
    return found
