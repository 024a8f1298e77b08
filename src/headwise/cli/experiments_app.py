"""The commands that train many runs: sweep, tune."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table
from headwise.cli.progress_bar import INTERRUPTED, keeping, kept_in, progress, stop_requests
from headwise.cli.train_commands import program
from headwise.disk import check_folder
from headwise.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from headwise.experiments.sweeps.search_space import Search, Space
    from headwise.experiments.sweeps.sweep_file import SweepPlan
    from headwise.experiments.sweeps.tune import TuneResult

# Trials in the table.
TOP = 10
# How the states of the runs of a sweep are printed.
STATES = {"finished": "made now", "present": "already there", "failed": "failed", "interrupted": "not finished"}


@opt.grouped
def sweep(
    file: Annotated[
        str, typer.Argument(callback=opt.read_first, help="YAML file, or a name of `headwise list sweeps`.")
    ],
    options: opt.RecipeOptions,
    scale: Annotated[str | None, typer.Option(help="Scale of the sweep, such as small: MiniLM, minutes.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the results; default sweeps/NAME[-SCALE].")] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    workers: opt.Workers = None,
    threads: opt.Threads = 1,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; default a small one on this machine.")
    ] = None,
    only: opt.Only = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of those of the file: 1,2,3.")] = None,
    controls: Annotated[
        bool, typer.Option("--controls", help="Also train without guides (plain) and with shuffled targets (shuffled).")
    ] = False,
    available: Annotated[bool, typer.Option("--available", help="Leave out runs whose files are missing.")] = False,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the model of every run.")] = False,
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Train every run of a sweep FILE: a recipe times a grid, seeds, sizes and layers. Finished runs are kept."""
    from headwise.experiments.sweeps.jobs import JobSettings
    from headwise.experiments.sweeps.result_folder import ResultFolder
    from headwise.experiments.sweeps.sweep import run_sweep
    from headwise.experiments.sweeps.sweep_file import plan_sweep
    from headwise.experiments.sweeps.worker_pool import choose_engine

    plan = plan_sweep(
        file,
        scale=scale,
        changes=options.changes or (),
        only=only or (),
        seeds=_seeds(seeds),
        controls=controls or None,
    )
    output = output or Path("sweeps") / "-".join([plan.sweep.name, *([scale] if scale else [])])
    if dry_run:
        _show_plan(plan, output, as_json=as_json)
        return
    ResultFolder(output).check()
    settings = JobSettings(output, options.data, options.cache, network=options.download, keep_models=keep_models)
    with keeping(lambda: kept_in(output)):
        pool = choose_engine(engine, workers=workers, threads=threads, address=address)
        with progress() as shown, stop_requests(shown.log) as stops:
            result = run_sweep(plan, settings, pool, shown, available=available, stops=stops)
        content = result.as_data()
        counts = [f"{content[state]} {word}" for state, word in STATES.items() if content[state]]
        left = f", {result.left_out} left out (files missing)" if result.left_out else ""
        failed = (f"failed: {each['run']}: {each['error']}" for each in content["errors"])
        command = shlex.join([*program(), "compare", str(output)])
        saved = f"saved in {output}; compare with: {command}"
        show(as_json, content, f"{content['runs']} runs: {', '.join(counts) or 'none'}{left}", *failed, saved)
    _end(interrupted=result.interrupted, failed=bool(result.errors))


def _end(*, interrupted: bool, failed: bool) -> None:
    """The exit code of many runs."""
    if interrupted:
        typer.echo("headwise: stopped; the same command resumes", err=True)
        raise typer.Exit(INTERRUPTED)
    if failed:
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

    runs, rows = [], []
    for each in plan.runs:
        there = ResultFolder(output).has(each.key)
        runs.append({"key": each.key, "point": dict(each.point), "there": there, "recipe": each.recipe.as_data()})
        rows.append([*each.point.values(), each.key, "yes" if there else ""])
    content: dict[str, Any] = {"sweep": plan.sweep.name, "scale": plan.scale, "output": str(output), "runs": runs}
    content["notes"] = list(plan.notes)
    counts = f"{len(plan.runs)} points, {len(plan.unique)} different runs, in {output}"
    show(as_json, content, text_table([*plan.axes, "key", "there"], rows), counts, *plan.notes)


@opt.grouped
def tune(
    recipe: opt.Recipe,
    options: opt.RecipeOptions,
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
    seeds: Annotated[
        str | None,
        typer.Option(help="Train each combination with these seeds and take the mean: 1,2,3; default the recipe's."),
    ] = None,
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
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Find the values that do best on validation, with Optuna; the best recipe is written to FOLDER/best.yaml."""
    from headwise.experiments.recipe_files import plain_name
    from headwise.experiments.sweeps.jobs import JobSettings
    from headwise.experiments.sweeps.search_space import Search, plan_space
    from headwise.experiments.sweeps.tune import tune

    space = plan_space(recipe, vary=vary or (), changes=options.changes or (), seeds=_seeds(seeds))
    if study is not None and plain_name(study) != study:
        raise InputError(f"--study {study!r}: expected letters, digits, points and hyphens.")
    name = study or space.recipe.name
    search = Search.of(space, sampler, trials, prune=prune)
    output = output or Path("tunes") / name
    settings = JobSettings(output, options.data, options.cache, options.download, threads)
    check_folder(output)
    if dry_run:
        _show_space(name, space, search, output, as_json=as_json)
        return
    # SIGTERM is as good as Ctrl-C; while a model is trained, training takes both and saves.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with keeping(lambda: kept_in(output)), progress() as shown:
            result = tune(space, settings, search, shown, name=name, storage=storage)
    finally:
        signal.signal(signal.SIGTERM, before)
    show(as_json, result.as_data(), *_trials(result, space, options.data))
    _end(interrupted=result.interrupted, failed=result.best is None)


def _show_space(study: str, space: Space, search: Search, output: Path, *, as_json: bool) -> None:
    from headwise.experiments.sweeps.sweep_file import label_of

    keys: dict[str, Any] = space.as_data()
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
    tried = {key: each.get("choices") or {k: v for k, v in each.items() if v} for key, each in keys.items()}
    table = text_table(("key", "tried"), ([key, label_of(values)] for key, values in tried.items()))
    size = "endless" if space.size is None else str(space.size)
    seeds = f"{len(space.seeds)} {'seed' if len(space.seeds) == 1 else 'seeds'}"
    counts = f"{search.trials} trials ({search.sampler}) of {size} combinations, {seeds} each, in {output}"
    show(as_json, content, table, counts)


def _trials(result: TuneResult, space: Space, data: Path | None) -> Iterator[Table | str]:
    """The best trials, the failed ones, and what to do next."""
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
        yield text_table(["trial", f"validation {result.primary}", *keys, "steps"], rows)
    yield from (f"failed: {trial}: {error}" for trial, error in result.errors.items())
    counts = [f"{result.count(state)} {state}" for state in STATES.values() if result.count(state)]
    trials = f"{len(result.rows)} {'trial' if len(result.rows) == 1 else 'trials'}"
    yield f"{trials}: {', '.join(counts) or 'none'}"
    if result.best is not None:
        folder = [] if data is None else ["--data", str(data)]
        command = shlex.join([*program(), "train", str(result.output / BEST), *folder])
        yield f"best: {describe(result.best.parameters)}; train it with: {command}"
    elif result.count(FAILED):
        yield "no trial was finished, so there is no best one"
