"""The commands `headwise heads ...`: what the heads of a trained model do, and which of them its tasks need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
    from headwise.experiments.head_studies.head_dissociation import CurveDissociation
    from headwise.experiments.head_studies.head_similarity import TaskSimilarity
    from headwise.experiments.head_studies.prune_curve import PruneCurve
    from headwise.heads.importance import HeadImportance
    from headwise.heads.similarity import ImportanceSimilarity

heads = typer.Typer(help="Ask what the heads of a trained model do.", no_args_is_help=True, rich_markup_mode=None)

Output = Annotated[Path | None, typer.Option(help="Folder for the results; default RUN/heads.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace earlier results of this command.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random choices.")]
DissociationSeed = Annotated[
    int,
    typer.Option(min=0, help="For the intervals, and for the curve if it is measured now: one on disk has its own."),
]
Granularity = Annotated[str, typer.Option(help="sample, token (the authors') or batch.")]
Normalise = Annotated[str, typer.Option(help="none, or layer: divide each layer's scores by their length.")]

# Options of the curve have no default here, so that a curve on disk is compared only with the options that are given.
Percent = Annotated[
    list[float] | None,
    typer.Option(help="Percent of all heads to prune, one or more; default 20 30 40.", show_default=False),
]
Number = Annotated[
    list[int] | None,
    typer.Option(help="Numbers of heads to prune, one or more, instead of --percent.", show_default=False),
]
PrunedFor = Annotated[
    list[str] | None,
    typer.Option("--task", help="Whose heads are pruned; may be repeated. Default: every task's in turn."),
]
Order = Annotated[
    str | None,
    typer.Option(help="descending (default): the most important heads first; or ascending.", show_default=False),
]
Controls = Annotated[
    bool | None,
    typer.Option(
        "--controls/--no-controls", help="Also random masks and the ascending order; default yes.", show_default=False
    ),
]
Random = Annotated[
    int | None,
    typer.Option(min=0, help="Random masks for each step, and as many layer-matched ones; default 3."),
]
Exact = Annotated[
    bool | None,
    typer.Option("--exact/--one-shot", help="Measure importance again before every step; default no."),
]
KeepPerLayer = Annotated[
    int | None, typer.Option(min=0, help="Heads of each layer that always stay; default 0.", show_default=False)
]
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


def _print(content: Mapping[str, Any], paths: list[Path], as_json: bool, *tables: Table, lines: Any = ()) -> None:
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
    left: tuple[str, ...], right: tuple[str, ...], title: str | None = None, caption: str | None = None
) -> Table:
    """A table without lines: texts in the left columns, numbers in the right ones."""
    table = Table(title=title, title_justify="left", box=None, caption=caption, caption_justify="left")
    for name in (*left, *right):
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
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
    from rich.console import Console

    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_patterns import study_patterns
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    source, names = Source(data, download), pattern or ()
    with progress() as shown:
        scores = study_patterns(run, split, source, pattern=names, task=task, limit=limit, batch=batch, listener=shown)
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
    Console().print(table)


# -- importance --------------------------------------------------------------------------------------------------------


@heads.command("importance")
def importance(
    run: Run,
    task: Annotated[list[str] | None, typer.Option(help="A task; may be repeated. Default: all of RUN.")] = None,
    granularity: Granularity = "sample",
    normalise: Normalise = "none",
    examples: Annotated[int, typer.Option(min=1, help="Largest number of each task, a seeded sample.")] = 10_000,
    split: Annotated[str, typer.Option(help="Which examples.")] = "train",
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
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_importance import ImportanceSettings, study_importance
    from headwise.training.encoders import quiet_libraries

    settings = ImportanceSettings(granularity, normalise, examples, split, seed)
    quiet_libraries()
    with progress() as shown:
        study = study_importance(
            run, settings, Source(data, download), task=task or (), output=output, overwrite=overwrite, listener=shown
        )
    tables = [_strongest_table(study.tasks, top), _stability_table(study.tasks)]
    if study.similarity is not None:
        tables.append(_overlap_table(study.similarity))
    _print(study.content, study.paths, as_json, *tables)


def _strongest_table(tasks: Mapping[str, HeadImportance], top: int) -> Table:
    from headwise.heads.pruning import ranked_heads

    table = Table("task", "examples", "strongest heads", box=None)
    for task, each in tasks.items():
        lines = []
        for layer, head in ranked_heads(each.scores)[:top]:
            width = "" if each.half_width is None else f" ± {each.half_width[layer, head]:.3g}"
            lines.append(f"layer {layer} head {head}: {each.scores[layer, head]:.4g}{width}")
        table.add_row(task, str(each.examples), "\n".join(lines))
    return table


def _stability_table(tasks: Mapping[str, HeadImportance]) -> Table:
    """How alike the rankings of two halves of the examples are."""
    halves = {task: each.stability for task, each in tasks.items() if each.stability is not None}
    shares = sorted({share for each in halves.values() for share in each.overlap})
    columns = ("rank correlation", *(f"overlap of top {share:.0%}" for share in shares))
    table = _table(("task",), columns, "two halves of the examples")
    for task, each in halves.items():
        overlaps = (_number(each.overlap.get(share), 2, "-") for share in shares)
        table.add_row(task, f"{each.spearman:.3f}", *overlaps)
    return table


def _overlap_table(similarity: ImportanceSimilarity) -> Table:
    """How far tasks need the same heads, with the overlap to expect by chance in the column names."""
    chance = (f"top {share:.0%} (chance {similarity.chance[share]:.2f})" for share in similarity.overlap)
    table = _table(("tasks",), ("rank correlation", *chance), "between tasks")
    for at in combinations(range(len(similarity.tasks)), 2):
        overlaps = (f"{values[at]:.2f}" for values in similarity.overlap.values())
        names = ", ".join(similarity.tasks[index] for index in at)
        table.add_row(names, f"{similarity.spearman[at]:.3f}", *overlaps)
    return table


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
    asked = _curve_settings(locals())
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.curve_masks import CurveSettings
    from headwise.experiments.head_studies.prune_curve import study_curve
    from headwise.training.encoders import quiet_libraries

    settings = CurveSettings(**asked, seed=seed)
    quiet_libraries()
    with progress() as shown:
        curve, paths = study_curve(
            run, settings, Source(data, download), batch=batch, output=output, overwrite=overwrite, listener=shown
        )
    _print(curve.as_dict(), paths, as_json, _curve_table(curve))


def _curve_table(curve: PruneCurve) -> Table:
    """Whose heads were pruned, and how many, in rows; what is left of each task in columns."""
    settings, caption = curve.settings, None
    if settings.repeats:
        caption = f"random, like: means of {settings.repeats} masks; like: as many heads in each layer."
    columns = tuple(f"{task}\n{metric}" for task, metric in curve.metrics.items())
    title = f"{settings.split}, of {curve.shape[0] * curve.shape[1]} heads"
    table = _table(("pruned", "heads of"), columns, title, caption)
    table.add_row("none", "", *(f"{value:.4f}       " for value in curve.base))

    def add(step: int, what: str, values: Any) -> None:
        """One row: each metric, and its share of the base."""
        shares = (f"{value / base:.0%}" if base > 0 else "n/a" for value, base in zip(values, curve.base, strict=True))
        cells = (f"{value:.4f} {share:>6}" for value, share in zip(values, shares, strict=True))
        table.add_row(settings.label(step, curve.counts[step]), what, *cells)

    def add_tasks(words: str, values: Any) -> None:
        """From values [K,S,R,T]."""
        for row, task in enumerate(curve.tasks):
            for step in range(len(curve.counts)) if task in curve.pruned_for else ():
                add(step, f"{words}{task}", values[step, row].mean(0))

    for order in settings.orders:
        add_tasks("least of " if order == "ascending" else "", curve.matrix(order)[:, :, None])
    if settings.repeats:
        for step, values in enumerate(curve.random):
            add(step, "random", values.mean(0))
        add_tasks("like ", curve.layer_matched)
    return table


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
    seed: DissociationSeed = 0,
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
    asked = _curve_settings(locals())
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_dissociation import study_dissociation
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    with progress() as shown:
        scores, paths = study_dissociation(
            run,
            asked,
            Source(data, download),
            resamples=resamples,
            seed=seed,
            batch=batch,
            output=output,
            overwrite=overwrite,
            listener=shown,
        )
    _print(scores.as_dict(), paths, as_json, *_score_tables(scores), lines=_remarks(scores))


def _score_tables(scores: CurveDissociation) -> tuple[Table, Table]:
    """The scores of steps and variants with their intervals, and the mean by row beside its controls."""
    from headwise.heads.dissociation import VARIANTS

    caption = (
        "D-scores in points; row: losing a task's heads hurts it more than others, column: it is hurt more by losing "
        f"its own than others'. [95 % interval over examples, {scores.intervals.resamples} draws]"
    )
    table = _table(("pruned", "D-score"), (*scores.curve.tasks, "mean"), caption=caption)
    controls = _table(("pruned",), ("observed", "ascending"), "mean by row, and its controls")
    for name in ("random masks", "p", "layer-matched", "p"):
        controls.add_column(name, justify="right", no_wrap=True)
    within = scores.intervals.scores
    by_row = VARIANTS.index("row"), -1  # the mean by column is the same
    for step, (label, each) in enumerate(zip(_labels(scores), scores.steps, strict=True)):
        for variant, name in enumerate(VARIANTS):
            values = map(_with_interval, each.scores[variant], within.low[step, variant], within.high[step, variant])
            table.add_row(label if variant == 0 else "", name, *values)
        cells = [_number(scores.ascending[step].scores[by_row]) if scores.ascending else "-"]
        for null in scores.nulls.values():
            if null is None:
                cells += ["-", "-"]
                continue
            at = (step, *by_row)
            p = None if null.p is None else null.p[at]
            cells += [_with_interval(null.mean[at], null.low[at], null.high[at]), _number(p, 3)]
        controls.add_row(label, _number(each.scores[by_row]), *cells)
    return table, controls


def _labels(scores: CurveDissociation) -> list[str]:
    curve = scores.curve
    return [*(curve.settings.label(step, count) for step, count in enumerate(curve.counts)), "mean"]


def _with_interval(score: float, low: float, high: float) -> str:
    return "n/a" if isnan(score) else f"{score:.1f} [{low:.1f}, {high:.1f}]"


def _remarks(scores: CurveDissociation) -> Iterator[str]:
    for pair, share in zip(combinations(scores.curve.tasks, 2), scores.intervals.double[-1], strict=True):
        labels = [label for label, each in zip(_labels(scores), scores.steps, strict=True) if each.double[pair]]
        where = f"at {', '.join(labels)}" if labels else "no"
        if scores.mean.double[pair] is None:
            where = "n/a"
        resampled = "" if isnan(share) else f" (on average over steps in {share:.0%} of the draws)"
        yield f"double dissociation of {pair[0]} and {pair[1]}: {where}{resampled}"
    for task, reason in scores.mean.undefined.items():
        yield f"n/a for {task}: {reason}"
    for control, reason in scores.missing.items():
        yield f"no {control.replace('_', '-')} null: {reason}"
    if scores.intervals.dropped:
        yield f"{scores.intervals.dropped} draws were left out, in which a task fell to 0 or below"


# -- similarity --------------------------------------------------------------------------------------------------------


@heads.command("similarity")
def similarity(
    run: Run,
    examples: Annotated[int, typer.Option(min=1, help="Largest number of each task, a seeded sample.")] = 2000,
    split: Annotated[str, typer.Option(help="Which examples.")] = "train",
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
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_importance import ImportanceSettings
    from headwise.experiments.head_studies.head_similarity import study_similarity
    from headwise.training.encoders import quiet_libraries

    settings = ImportanceSettings(granularity, normalise, examples, split, seed)
    quiet_libraries()
    with progress() as shown:
        result, paths = study_similarity(
            run, settings, Source(data, download), output=output, overwrite=overwrite, listener=shown
        )
    _print(result.as_dict(), paths, as_json, _overlap_table(result.importance), *_gradient_tables(result))


def _gradient_tables(result: TaskSimilarity) -> tuple[Table, Table]:
    """The cosine of each two tasks' gradients, beside that of the halves of each task and D-scores; and by layer."""
    caption = "halves: cosine between two halves of one task's examples; where it is low, a gradient is mostly noise."
    columns = ("cosine", "halves of each", "D-score of the two")
    table = _table(("tasks",), columns, "gradients of the encoder", caption)
    ceilings, pairs = dict(zip(result.tasks, result.gradients.ceiling, strict=True)), list(result.pairs())
    for pair in pairs:
        halves = ", ".join(_number(ceilings[task], 3) for task in pair["tasks"])
        d_score = _number(pair["d_score"], 1, "-")
        table.add_row(", ".join(pair["tasks"]), _number(pair["gradient_cosine"], 3), halves, d_score)
    layers = _table(("part",), tuple(", ".join(pair["tasks"]) for pair in pairs), "by layer")
    for name, cosines in result.gradients.groups.items():
        at = (tuple(result.tasks.index(task) for task in pair["tasks"]) for pair in pairs)
        layers.add_row(name, *(_number(cosines[each], 3) for each in at))
    return table, layers
