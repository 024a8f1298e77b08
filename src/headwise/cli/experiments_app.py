"""The commands that train many runs: sweep, tune."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import print_json, print_tables, text_table
from headwise.cli.progress_bar import INTERRUPTED, keeping, kept_in, progress, stop_requests
from headwise.cli.train_commands import program
from headwise.disk import check_folder
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.experiments.sweeps.search_space import Search, Space
    from headwise.experiments.sweeps.sweep_file import SweepPlan
    from headwise.experiments.sweeps.tune import TuneResult

STOPPED = "headwise: stopped; the same command resumes"
# Trials in the table.
TOP = 10
# How the states of the runs of a sweep are printed.
STATES = {"finished": "made now", "present": "already there", "failed": "failed", "interrupted": "not finished"}


def sweep(
    file: Annotated[
        str, typer.Argument(callback=opt.read_first, help="YAML file, or a name of `headwise list sweeps`.")
    ],
    scale: Annotated[str | None, typer.Option(help="Scale of the sweep, such as small: MiniLM, minutes.")] = None,
    data: opt.Data = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the results; default sweeps/NAME[-SCALE].")] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    workers: opt.Workers = None,
    threads: opt.Threads = 1,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; default a small one on this machine.")
    ] = None,
    changes: opt.Change = None,
    only: opt.Only = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of those of the file: 1,2,3.")] = None,
    available: Annotated[bool, typer.Option("--available", help="Leave out runs whose files are missing.")] = False,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the model of every run.")] = False,
    cache: opt.Cache = None,
    download: opt.Download = False,
    dry_run: opt.DryRun = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Train every run of a sweep FILE: a recipe times a grid, seeds, sizes and layers. Finished runs are kept."""
    from headwise.experiments.sweeps.jobs import JobSettings
    from headwise.experiments.sweeps.result_folder import ResultFolder
    from headwise.experiments.sweeps.sweep import run_sweep
    from headwise.experiments.sweeps.sweep_file import plan_sweep
    from headwise.experiments.sweeps.worker_pool import choose_engine
    from headwise.training.encoders import quiet_libraries

    plan = plan_sweep(file, scale=scale, changes=changes or (), only=only or (), seeds=_seeds(seeds))
    output = output or Path("sweeps") / "-".join([plan.sweep.name, *([scale] if scale else [])])
    quiet_libraries()
    if dry_run:
        _show_plan(plan, output, as_json=as_json)
        return
    ResultFolder(output).check()
    settings = JobSettings(output, data, cache, network=download, keep_models=keep_models)
    with keeping(lambda: kept_in(output)):
        pool = choose_engine(engine, workers=workers, threads=threads, address=address)
        with progress() as shown, stop_requests(shown.log) as stops:
            result = run_sweep(plan, settings, pool, shown, available=available, stops=stops)
        content = result.as_data()
        if as_json:
            print_json(content)
        else:
            counts = [f"{content[state]} {word}" for state, word in STATES.items() if content[state]]
            left = f", {result.left_out} left out (files missing)" if result.left_out else ""
            typer.echo(f"{content['runs']} runs: {', '.join(counts) or 'none'}{left}")
            for each in content["errors"]:
                typer.echo(f"failed: {each['run']}: {each['error']}")
            command = shlex.join([*program(), "compare", str(output)])
            typer.echo(f"saved in {output}; compare with: {command}")
    if result.interrupted:
        typer.echo(STOPPED, err=True)
        raise typer.Exit(INTERRUPTED)
    if result.errors:
        raise typer.Exit(1)


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--seeds {text}: expected whole numbers with commas between them, such as 1,2,3.")
    return [int(part) for part in parts]


def _show_plan(plan: SweepPlan, output: Path, *, as_json: bool) -> None:
    from headwise.experiments.sweeps.result_folder import ResultFolder

    has = ResultFolder(output).has
    if as_json:
        runs = [
            {"key": each.key, "point": dict(each.point), "there": has(each.key), "recipe": each.recipe.as_data()}
            for each in plan.runs
        ]
        print_json({"sweep": plan.sweep.name, "scale": plan.scale, "output": str(output), "runs": runs})
        return
    rows = ([*each.point.values(), each.key, "yes" if has(each.key) else ""] for each in plan.runs)
    print_tables(text_table([*plan.axes, "key", "there"], rows))
    typer.echo(f"{len(plan.runs)} points, {len(plan.unique)} different runs, in {output}")


def tune(
    recipe: opt.Recipe,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Values to try: guides.mdg.weight=[0.1, 0.01], or training.learning_rate={low: 1e-5, high: 1e-3, "
            "log: true}; may be repeated; default 0.1, 0.01, 0.001 and 0.0001 (the paper's) for the weight of each "
            "guide.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Finished and pruned trials in all; default the whole grid, or 20.")
    ] = None,
    changes: opt.Change = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Train each combination with these seeds and take the mean: 1,2,3; default the recipe's."),
    ] = None,
    data: opt.Data = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the results; default tunes/NAME.")] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Database of the study; default an SQLite file in the folder.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study; default that of the recipe.")] = None,
    sampler: Annotated[
        str | None, typer.Option(help="grid, tpe or random; default grid if all combinations can be tried.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Stop trials that fall behind.")] = True,
    threads: opt.Threads = 1,
    cache: opt.Cache = None,
    download: opt.Download = False,
    dry_run: opt.DryRun = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Find the values that do best on validation, with Optuna; the best recipe is written to FOLDER/best.yaml."""
    from headwise.experiments.recipe_files import plain_name
    from headwise.experiments.sweeps.jobs import JobSettings
    from headwise.experiments.sweeps.search_space import Search, plan_space
    from headwise.experiments.sweeps.tune import tune
    from headwise.training.encoders import quiet_libraries

    space = plan_space(recipe, vary=vary or (), changes=changes or (), seeds=_seeds(seeds))
    if study is not None and plain_name(study) != study:
        raise InputError(f"--study {study!r}: expected letters, digits, points and hyphens.")
    name = study or space.recipe.name
    search = Search.of(space, sampler, trials, prune=prune)
    settings = JobSettings(output or Path("tunes") / name, data, cache, download, threads)
    quiet_libraries()
    check_folder(settings.output)
    if dry_run:
        _show_space(name, space, search, settings.output, as_json=as_json)
        return
    # SIGTERM is as good as Ctrl-C; while a model is trained, training takes both and saves.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with keeping(lambda: kept_in(settings.output)), progress() as shown:
            result = tune(space, settings, search, shown, name=name, storage=storage)
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        print_json(result.as_data())
    else:
        _show_trials(result, space, data)
    if result.interrupted:
        typer.echo(STOPPED, err=True)
        raise typer.Exit(INTERRUPTED)
    if result.best is None:
        raise typer.Exit(1)


def _show_space(study: str, space: Space, search: Search, output: Path, *, as_json: bool) -> None:
    from headwise.experiments.sweeps.sweep_file import label_of

    keys: dict[str, Any] = space.as_data()
    if as_json:
        content = {
            "study": study,
            "output": str(output),
            "sampler": search.sampler,
            "prune": search.prune,
            "trials": search.trials,
            "combinations": space.size,
            "seeds": list(space.seeds),
            "space": keys,
            "recipe": space.recipe.as_data(),
        }
        print_json(content)
        return
    tried = {key: each.get("choices") or {k: v for k, v in each.items() if v} for key, each in keys.items()}
    print_tables(text_table(("key", "tried"), ([key, label_of(values)] for key, values in tried.items())))
    size = "endless" if space.size is None else str(space.size)
    seeds = f"{len(space.seeds)} {'seed' if len(space.seeds) == 1 else 'seeds'}"
    typer.echo(f"{search.trials} trials ({search.sampler}) of {size} combinations, {seeds} each, in {output}")


def _show_trials(result: TuneResult, space: Space, data: Path | None) -> None:
    from headwise.experiments.sweeps.search_space import describe
    from headwise.experiments.sweeps.study import FAILED, FINISHED, STATES
    from headwise.experiments.sweeps.sweep_file import label_of
    from headwise.experiments.sweeps.tune import BEST

    keys = [axis.key for axis in space.axes]
    if result.best is not None:
        best = [row for row in result.rows if row.state == FINISHED][:TOP]
        rows = (
            [str(row.number), f"{row.value:.4f}", *(label_of(row.parameters[key]) for key in keys), str(row.steps)]
            for row in best
        )
        print_tables(text_table(["trial", f"validation {result.primary}", *keys, "steps"], rows))
    for trial, error in result.errors.items():
        typer.echo(f"failed: {trial}: {error}")
    counts = [f"{result.count(state)} {state}" for state in STATES.values() if result.count(state)]
    trials = f"{len(result.rows)} {'trial' if len(result.rows) == 1 else 'trials'}"
    typer.echo(f"{trials}: {', '.join(counts) or 'none'}")
    if result.best is not None:
        folder = [] if data is None else ["--data", str(data)]
        command = shlex.join([*program(), "train", str(result.output / BEST), *folder])
        typer.echo(f"best: {describe(result.best.parameters)}; train it with: {command}")
    elif result.count(FAILED):
        typer.echo("no trial was finished, so there is no best one")
