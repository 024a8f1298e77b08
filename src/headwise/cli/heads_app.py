"""The commands `headwise heads ...`: what the heads of a trained model do, and which of them its tasks need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperCommand

from headwise.cli.parameters import AllowCode, AsJson, Batch, Data, Download, OneTask, Run
from headwise.cli.progress_bar import progress

if TYPE_CHECKING:
    from headwise.experiments.head_studies.prune_curve import PruneCurve
    from headwise.training import Listener

heads = typer.Typer(help="Ask what the heads of a trained model do.", no_args_is_help=True, rich_markup_mode=None)

Output = Annotated[Path | None, typer.Option(help="Folder for the results; default RUN/heads.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace earlier results of this command.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random choices.")]
Granularity = Annotated[str, typer.Option(help="sample, token (the authors') or batch.")]
Normalise = Annotated[str, typer.Option(help="none, or layer: divide each layer's scores by their length.")]
Split = Annotated[str, typer.Option(help="Which examples.")]
Examples = Annotated[int, typer.Option(min=1, help="Largest number of each task, a seeded sample.")]

# Options of the curve have no default here, so that a curve on disk is compared only with the options that are given.
Percent = Annotated[
    list[float] | None, typer.Option(help="Percent of all heads to prune, one or more; default 20 30 40.")
]
Number = Annotated[list[int] | None, typer.Option(help="Numbers of heads to prune, one or more, instead of --percent.")]
PrunedFor = Annotated[
    list[str] | None,
    typer.Option("--task", help="Whose heads are pruned; may be repeated. Default: every task's in turn."),
]
Order = Annotated[str | None, typer.Option(help="descending (default): the most important heads first; or ascending.")]
Controls = Annotated[
    bool | None,
    typer.Option("--controls/--no-controls", help="Also random masks and the ascending order; default yes."),
]
Random = Annotated[
    int | None, typer.Option(min=0, help="Random masks for each step, and as many layer-matched ones; default 3.")
]
Exact = Annotated[
    bool | None, typer.Option("--exact/--one-shot", help="Measure importance again before every step; default no.")
]
KeepPerLayer = Annotated[int | None, typer.Option(min=0, help="Heads of each layer that always stay; default 0.")]
CurveGranularity = Annotated[str | None, typer.Option(help="sample (default), token (the authors') or batch.")]
CurveNormalise = Annotated[str | None, typer.Option(help="none (default) or layer.")]
CurveExamples = Annotated[int | None, typer.Option(min=1, help="Examples for importance; default 10000.")]
ImportanceSplit = Annotated[str | None, typer.Option(help="Split for importance; default train.")]
CurveSplit = Annotated[str | None, typer.Option(help="Split that is evaluated; default validation.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Evaluate only so many examples, from the first.")]


class ManyNumbers(TyperCommand):
    """A command whose options --percent and --number take all the numbers that follow: `--percent 20 30 40`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every further number, as the parser needs it."""
        return super().parse_args(ctx, spread_numbers(args))


def spread_numbers(words: list[str]) -> list[str]:
    """`--percent 20 30` as `--percent 20 --percent 30`."""
    spread: list[str] = []
    option = ""  # the one that the next number belongs to
    for word in words:
        if (name := word.partition("=")[0]) in ("--percent", "--number"):
            option = name
        elif not option or not _is_number(word):
            option = ""
        elif spread[-1] != option:
            spread.append(option)
        spread.append(word)
    return spread


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _curve_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a curve among the options of a command that have a value, lists as tuples."""
    from headwise.experiments.head_studies.curve_masks import CurveSettings

    names = [name for name in CurveSettings.__dataclass_fields__ if name != "seed"]
    present = {name: options[name] for name in names if options[name] is not None and options[name] != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in present.items()}


@contextmanager
def _study(run: Path, name: str, output: Path | None, overwrite: bool) -> Iterator[tuple[Path, Listener]]:
    """Lock the folder of a study's results while the block measures and writes them; gives it, and the progress."""
    from headwise.experiments.head_studies.head_files import FOLDER, new_results
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    folder = run / FOLDER if output is None else output.expanduser()
    with progress() as shown, new_results(run, folder, [folder / f"{name}.json"], overwrite=overwrite):
        yield folder, shown


def _print(
    content: Mapping[str, Any], paths: list[Path], as_json: bool, *tables: Table, lines: Iterable[str] = ()
) -> None:
    """Print a result as JSON with its files, or as tables with further lines and the folder."""
    from headwise.cli.console import print_tables
    from headwise.experiments.head_studies.head_files import json_text

    if as_json:
        typer.echo(json_text({**content, "files": [str(path) for path in paths]}), nl=False)
        return
    print_tables(*tables)
    for line in (*lines, f"saved in {paths[-1].parent}"):
        typer.echo(line)


def _table(
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Iterable[str]],
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """A table without lines: texts in the left columns, numbers in the right ones."""
    table = Table(title=title, title_justify="left", box=None, caption=caption, caption_justify="left")
    for index, name in enumerate((*left, *right)):
        table.add_column(name, justify="left" if index < len(left) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _number(value: float | None, digits: int = 1, missing: str = "n/a") -> str:
    return missing if value is None or isnan(value) else f"{value:.{digits}f}"


# -- patterns ----------------------------------------------------------------------------------------------------------


@heads.command("patterns")
def patterns(
    run: Run,
    split: Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")] = "test",
    task: OneTask = None,
    data: Data = None,
    pattern: Annotated[
        list[str] | None, typer.Option(help="A pattern to look for; may be repeated. Default: all fixed ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of examples, from the first of the split.")] = 200,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each pattern.")] = 3,
    batch: Batch = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Show which heads of RUN follow which pattern.

    For each pattern, such as looking at the next token: the share of attention on the targets of the pattern, if
    attention were even, for the mean of all heads, and for the strongest. Layers and heads count from 0.
    """
    from headwise.cli.console import print_tables
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_patterns import study_patterns
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    source, names = Source(data, download), pattern or ()
    with progress() as shown:
        scores = study_patterns(run, split, source, pattern=names, task=task, limit=limit, batch=batch, progress=shown)
    strongest = {name: scores.strongest(name, top) for name in scores.patterns}
    if as_json:
        content = scores.as_dict()
        for name, score in content["patterns"].items():
            score["strongest"] = [head._asdict() for head in strongest[name]]
        typer.echo(json.dumps({"run": str(run), "split": split, **content}, indent=2))
        return
    table = Table("pattern", "examples", "even", "mean", "strongest heads", box=None)
    for name, each in scores.patterns.items():
        named = [f"layer {head.layer} head {head.head}: {head.share:.2f}" for head in strongest[name]]
        numbers = (_number(value, 2, "-") for value in (each.even, each.share))
        table.add_row(name, str(each.examples), *numbers, "\n".join(named) or "-")
    print_tables(table)


# -- importance --------------------------------------------------------------------------------------------------------


@heads.command("importance")
def importance(
    run: Run,
    task: Annotated[list[str] | None, typer.Option(help="A task; may be repeated. Default: all of RUN.")] = None,
    granularity: Granularity = "sample",
    normalise: Normalise = "none",
    examples: Examples = 10_000,
    split: Split = "train",
    seed: Seed = 0,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each task.")] = 5,
    data: Data = None,
    output: Output = None,
    overwrite: Overwrite = False,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Show how much each task of RUN needs each head, and how sure that is.

    A head's score is the slope of the loss when its output is turned down. Writes importance.json and importance.csv.
    """
    from headwise.experiments.apply import Source, load_tasks
    from headwise.experiments.head_studies import head_files, head_importance

    settings, name = head_importance.ImportanceSettings(granularity, normalise, examples, split, seed), "importance"
    with _study(run, name, output, overwrite) as (folder, shown):
        tasks = load_tasks(run, task or ())
        content = head_importance.measure_importance(tasks, settings, Source(data, download), progress=shown)
        rows = list(head_importance.importance_rows(content))
        paths = head_files.write_result(folder, name, content, rows=rows)
    strongest = Table("task", "examples", "strongest heads", box=None)
    for name, each in content["tasks"].items():
        ranked = sorted((row for row in rows if row["task"] == name), key=lambda row: row["rank"])
        lines = [
            f"layer {row['layer']} head {row['head']}: {row['score']:.4g}"
            + ("" if row["half_width"] is None else f" ± {row['half_width']:.3g}")
            for row in ranked[:top]
        ]
        strongest.add_row(name, str(each["examples"]), "\n".join(lines))
    halves = {name: each["stability"] for name, each in content["tasks"].items() if each["stability"]}
    shares = sorted({share for each in halves.values() for share in each["overlap"]}, key=float)
    stability = _table(
        ["task"],
        ["rank correlation", *(f"overlap of top {float(share):.0%}" for share in shares)],
        (
            [name, f"{each['spearman']:.3f}", *(_number(each["overlap"].get(share), 2, "-") for share in shares)]
            for name, each in halves.items()
        ),
        title="two halves of the examples",
    )
    between = [_overlap_table(content["similarity"])] if "similarity" in content else []
    _print(content, paths, as_json, strongest, stability, *between)


def _overlap_table(similarity: Mapping[str, Any]) -> Table:
    """How far tasks need the same heads, with the overlap to expect by chance in the column names."""
    overlap, tasks = similarity["overlap"], similarity["tasks"]
    chance = (f"top {float(share):.0%} (chance {similarity['chance'][share]:.2f})" for share in overlap)
    rows = [
        [
            f"{tasks[one]}, {tasks[other]}",
            _number(similarity["spearman"][one][other], 3),
            *(f"{values[one][other]:.2f}" for values in overlap.values()),
        ]
        for one, other in combinations(range(len(tasks)), 2)
    ]
    return _table(["tasks"], ["rank correlation", *chance], rows, "between tasks")


# -- pruning curves ----------------------------------------------------------------------------------------------------


@heads.command("prune-curve", cls=ManyNumbers)
def prune_curve(
    run: Run,
    percent: Percent = None,
    number: Number = None,
    task: PrunedFor = None,
    order: Order = None,
    controls: Controls = None,
    random: Random = None,
    exact: Exact = None,
    keep_per_layer: KeepPerLayer = None,
    granularity: CurveGranularity = None,
    normalise: CurveNormalise = None,
    examples: CurveExamples = None,
    importance_split: ImportanceSplit = None,
    split: CurveSplit = None,
    limit: Limit = None,
    seed: Seed = 0,
    batch: Batch = None,
    data: Data = None,
    output: Output = None,
    overwrite: Overwrite = False,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Silence the heads that each task of RUN needs most, and evaluate every task without them.

    Beside them, as controls: the heads that a task needs least, random heads, and random heads of the same layers.
    Writes prune-curve.json, prune-curve.csv and prune-curve.safetensors (the predictions).
    """
    options = _curve_settings(locals())
    from headwise.experiments.apply import Source, load_tasks
    from headwise.experiments.head_studies.curve_masks import CurveSettings
    from headwise.experiments.head_studies.prune_curve import measure_curve, write_curve

    settings, source = CurveSettings(**options, seed=seed), Source(data, download)
    with _study(run, "prune-curve", output, overwrite) as (folder, shown):
        curve = measure_curve(load_tasks(run), settings, source, batch=batch, progress=shown)
        paths = write_curve(folder, curve)
    _print(curve.as_dict(), paths, as_json, _curve_table(curve))


def _curve_table(curve: PruneCurve) -> Table:
    """Whose heads were pruned, and how many, in rows; what is left of each task in columns."""
    from headwise.experiments.head_studies.curve_masks import step_label

    settings, base = curve.settings, curve.base
    pruned = [(index, task) for index, task in enumerate(curve.tasks) if task in curve.pruned_for]
    words = {"descending": "", "ascending": "least of "}
    parts = [
        (words[order] + task, curve.matrix(order)[:, index, None])
        for order in settings.orders
        for index, task in pruned
    ]
    caption = None
    if settings.repeats:
        caption = f"random, like: means of {settings.repeats} masks; like: as many heads in each layer."
        parts.append(("random", curve.random))
        parts += [(f"like {task}", curve.layer_matched[:, index]) for index, task in pruned]
    rows = [["none", "", *(f"{value:.4f}       " for value in base)]]
    for what, masked in parts:  # [K,R,T]
        for step, values in enumerate(masked.mean(1)):
            shares = (f"{value / whole:.0%}" if whole > 0 else "n/a" for value, whole in zip(values, base, strict=True))
            cells = (f"{value:.4f} {share:>6}" for value, share in zip(values, shares, strict=True))
            rows.append([step_label(curve.percent(step), curve.counts[step]), what, *cells])
    columns = [f"{task}\n{metric}" for task, metric in curve.metrics.items()]
    title = f"{settings.split}, of {curve.shape[0] * curve.shape[1]} heads"
    return _table(["pruned", "heads of"], columns, rows, title, caption)


# -- D-scores ----------------------------------------------------------------------------------------------------------


@heads.command("dissociation", cls=ManyNumbers)
def dissociation(
    run: Run,
    percent: Percent = None,
    number: Number = None,
    task: PrunedFor = None,
    order: Order = None,
    controls: Controls = None,
    random: Random = None,
    exact: Exact = None,
    keep_per_layer: KeepPerLayer = None,
    granularity: CurveGranularity = None,
    normalise: CurveNormalise = None,
    examples: CurveExamples = None,
    importance_split: ImportanceSplit = None,
    split: CurveSplit = None,
    limit: Limit = None,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the examples for the intervals.")] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="For the intervals, and for the curve if it is measured now: one on disk has its own."
        ),
    ] = 0,
    batch: Batch = None,
    data: Data = None,
    output: Output = None,
    overwrite: Overwrite = False,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Show whether losing one task's heads hurts that task, and that task more than the others: D-scores.

    Uses the curve of `headwise heads prune-curve`; without one it is measured first, with the same options. Writes
    dissociation.json and dissociation.csv; --overwrite replaces these, never the curve.
    """
    options = _curve_settings(locals())
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_dissociation import study_dissociation

    more: dict[str, Any] = {"resamples": resamples, "seed": seed, "batch": batch}
    with _study(run, "dissociation", output, overwrite) as (folder, shown):
        scores, paths = study_dissociation(run, folder, options, Source(data, download), **more, progress=shown)
    _print(scores, paths, as_json, *_score_tables(scores), lines=_remarks(scores))


def _labelled_steps(scores: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The steps of the curve by their names, and their mean."""
    from headwise.experiments.head_studies.curve_masks import step_label

    steps = {step_label(step["percent"], step["heads"]): step for step in scores["steps"]}
    return {**steps, "mean": scores["mean"]}


def _score_tables(scores: Mapping[str, Any]) -> tuple[Table, Table]:
    """The scores of steps and variants with their intervals, and the mean by row beside its controls."""

    def cell(variant: str, task: str | None, score: Any, low: Any, high: Any) -> str:
        """A score with its interval, of one task or of the mean."""
        values = [
            part[variant]["mean"] if task is None else part[variant]["tasks"][task] for part in (score, low, high)
        ]
        return "n/a" if values[0] is None else "{} [{}, {}]".format(*map(_number, values))

    rows, controls = [], []
    for label, step in _labelled_steps(scores).items():
        for variant in ("reference", "row", "column"):
            ends = step, step["interval"]["low"], step["interval"]["high"]
            first = label if variant == "reference" else ""
            rows.append([first, variant, *(cell(variant, task, *ends) for task in (*scores["tasks"], None))])
        # The mean by column is the same as that by row.
        cells = [_number(step["row"]["mean"]), _number(step["ascending"]["row"]["mean"]) if step["ascending"] else "-"]
        for null in step["null"].values():
            p = null and null["p"] and null["p"]["row"]["mean"]
            cells += [cell("row", None, null["mean"], null["low"], null["high"]), _number(p, 3)] if null else ["-", "-"]
        controls.append([label, *cells])
    caption = (
        "D-scores in points; row: losing a task's heads hurts it more than others, column: it is hurt more by losing "
        f"its own than others'. [95 % interval over examples, {scores['resamples']} draws]"
    )
    columns = ["observed", "ascending", "random masks", "p", "layer-matched", "p"]
    return (
        _table(["pruned", "D-score"], [*scores["tasks"], "mean"], rows, caption=caption),
        _table(["pruned"], columns, controls, "mean by row, and its controls"),
    )


def _remarks(scores: Mapping[str, Any]) -> Iterator[str]:
    mean = scores["mean"]
    for number, pair in enumerate(mean["double_dissociation"]):
        steps = _labelled_steps(scores).items()
        labels = [label for label, step in steps if step["double_dissociation"][number]["holds"]]
        where = f"at {', '.join(labels)}" if labels else "no"
        if pair["holds"] is None:
            where = "n/a"
        share = mean["interval"]["double_dissociation"][number]["holds"]
        resampled = "" if share is None else f" (on average over steps in {share:.0%} of the draws)"
        yield f"double dissociation of {' and '.join(pair['tasks'])}: {where}{resampled}"
    for task, reason in mean["undefined"].items():
        yield f"n/a for {task}: {reason}"
    for control, reason in scores["missing"].items():
        yield f"no {control.replace('_', '-')} null: {reason}"
    if scores["dropped"]:
        yield f"{scores['dropped']} draws were left out, in which a task fell to 0 or below"


# -- similarity --------------------------------------------------------------------------------------------------------


@heads.command("similarity")
def similarity(
    run: Run,
    examples: Examples = 2000,
    split: Split = "train",
    granularity: Granularity = "sample",
    normalise: Normalise = "none",
    seed: Seed = 0,
    data: Data = None,
    output: Output = None,
    overwrite: Overwrite = False,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Show how alike the tasks of RUN are: the heads they need, and where their losses pull the shared encoder.

    Shows the D-scores of `headwise heads dissociation` too, if it was run before. Writes similarity.json.
    """
    from headwise.experiments.apply import Source, load_tasks
    from headwise.experiments.head_studies import head_files, head_importance

    settings, source = (
        head_importance.ImportanceSettings(granularity, normalise, examples, split, seed),
        Source(data, download),
    )
    with _study(run, "similarity", output, overwrite) as (folder, shown):
        content = head_importance.measure_similarity(load_tasks(run), settings, source, folder=folder, progress=shown)
        paths = head_files.write_result(folder, "similarity", content)
    tasks, gradients = content["tasks"], content["gradients"]
    pairs = {
        ", ".join(pair["tasks"]): (pair, [tasks.index(task) for task in pair["tasks"]]) for pair in content["pairs"]
    }
    cosines = _table(
        ["tasks"],
        ["cosine", "halves of each", "D-score of the two"],
        (
            [
                names,
                _number(pair["gradient_cosine"], 3),
                ", ".join(_number(gradients["ceiling"][index], 3) for index in at),
                _number(pair["d_score"], 1, "-"),
            ]
            for names, (pair, at) in pairs.items()
        ),
        "gradients of the encoder",
        "halves: cosine between two halves of one task's examples; where it is low, a gradient is mostly noise.",
    )
    layers = (
        [part, *(_number(values["cosine"][one][other], 3) for _, (one, other) in pairs.values())]
        for part, values in gradients["groups"].items()
    )
    by_layer = _table(["part"], list(pairs), layers, "by layer")
    _print(content, paths, as_json, _overlap_table(content["importance"]), cosines, by_layer)
