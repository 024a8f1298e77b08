"""`headwise heads importance`: how much each task needs each head."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress_bar import keeping, progress
from headwise.cli.search_output import print_tables
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.apply import Loaded, Source, finished_record, load_run, load_tasks
from headwise.experiments.head_studies.head_dissociation import NAME as DISSOCIATION
from headwise.experiments.head_studies.head_dissociation import CurveDissociation, dissociate
from headwise.experiments.head_studies.head_files import answers_folder, json_text, several, write_answers
from headwise.experiments.head_studies.head_importance import NAME as IMPORTANCE
from headwise.experiments.head_studies.head_importance import (
    ImportanceSettings,
    importance_content,
    importance_rows,
    missing_marks,
    pattern_scores,
    run_importance,
)
from headwise.experiments.head_studies.head_similarity import NAME as SIMILARITY
from headwise.experiments.head_studies.head_similarity import TaskSimilarity, measure_similarity
from headwise.experiments.head_studies.measure_curve import find_curve, measure_curve, write_curve
from headwise.experiments.head_studies.prune_curve import CurveSettings, PruneCurve
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.splits import read_split
from headwise.heads import PatternScore, PatternSummary
from headwise.heads.dissociation import VARIANTS
from headwise.heads.dissociation_tests import NullDissociation
from headwise.heads.importance import SHARES, HeadImportance
from headwise.heads.pruning import ranked_heads
from headwise.heads.task_similarity import ImportanceSimilarity, importance_similarity
from headwise.patterns import PATTERNS, Pattern, build_pattern, mark_ids
from headwise.patterns.base import Knowledge
from headwise.training.encoders import quiet_libraries


def show_importance(
    run: Path,
    names: Sequence[str],
    settings: ImportanceSettings,
    source: Source,
    *,
    top: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure importance for the tasks named, or for all; write it, and print the strongest heads."""
    finished_record(run)
    with answers_folder(run, output) as folder:
        quiet_libraries()
        tasks = load_tasks(run, names)
        with progress() as shown:
            found = run_importance(tasks.runs, settings, source, shown)
        content = importance_content(tasks, settings, found)
        paths = write_answers(folder, IMPORTANCE, content, rows=importance_rows(found))
    if as_json:
        typer.echo(json_text({**content, "files": [str(path) for path in paths]}), nl=False)
        return
    tables = [_heads(found, top), _stability(found)]
    if len(found) > 1:
        tables.append(overlap_table(importance_similarity({task: each.scores for task, each in found.items()})))
    print_tables(*tables)
    typer.echo(f"saved in {folder}")


def _heads(found: Mapping[str, HeadImportance], top: int) -> Table:
    table = Table("task", "examples", "strongest heads", box=None)
    for task, each in found.items():
        strongest = [_head(each, layer, head) for layer, head in ranked_heads(each.scores)[:top]]
        table.add_row(task, str(each.examples), "\n".join(strongest))
    return table


def _head(found: HeadImportance, layer: int, head: int) -> str:
    width = "" if found.half_width is None else f" ± {found.half_width[layer, head]:.3g}"
    return f"layer {layer} head {head}: {found.scores[layer, head]:.4g}{width}"


def _stability(found: Mapping[str, HeadImportance]) -> Table:
    """How alike the rankings of two halves are."""
    shares = [
        share for share in SHARES if any(each.stability and share in each.stability.overlap for each in found.values())
    ]
    table = Table(title="two halves of the examples", title_justify="left", box=None)
    for name in ("task", "rank correlation", *(f"overlap of top {share:.0%}" for share in shares)):
        table.add_column(name, justify="left" if name == "task" else "right")
    for task, each in found.items():
        if each.stability is not None:
            overlaps = (each.stability.overlap.get(share) for share in shares)
            cells = ("-" if overlap is None else f"{overlap:.2f}" for overlap in overlaps)
            table.add_row(task, f"{each.stability.spearman:.3f}", *cells)
    return table


def overlap_table(found: ImportanceSimilarity) -> Table:
    """How far tasks need the same heads; by chance the overlap would be what stands in the head."""
    table = Table(title="between tasks", title_justify="left", box=None)
    chance = (f"top {share:.0%} (chance {found.chance[share]:.2f})" for share in found.overlap)
    for name in ("tasks", "rank correlation", *chance):
        table.add_column(name, justify="left" if name == "tasks" else "right")
    for first, one in enumerate(found.tasks):
        for second in range(first + 1, len(found.tasks)):
            overlaps = (f"{values[first, second]:.2f}" for values in found.overlap.values())
            table.add_row(f"{one}, {found.tasks[second]}", f"{found.spearman[first, second]:.3f}", *overlaps)
    return table


# `headwise heads similarity`: how alike the tasks of a run are.


def show_similarity(
    run: Path, settings: ImportanceSettings, source: Source, *, output: Path | None, as_json: bool
) -> None:
    """Measure the similarity of a run's tasks, write it, and print it."""
    finished_record(run)
    with answers_folder(run, output) as folder:
        quiet_libraries()
        tasks = load_tasks(run)
        with progress() as shown:
            found = measure_similarity(tasks, settings, source, answers=folder, listener=shown)
        paths = write_answers(folder, SIMILARITY, found.as_dict())
    if as_json:
        typer.echo(json_text({**found.as_dict(), "files": [str(path) for path in paths]}), nl=False)
        return
    print_tables(overlap_table(found.importance), _gradients(found), _layers(found))
    typer.echo(f"saved in {folder}")


def _gradients(found: TaskSimilarity) -> Table:
    """Each two tasks: the cosine of their gradients, beside that of the halves of each, and their D-score."""
    caption = "halves: cosine between two halves of one task's examples; where it is low, a gradient is mostly noise."
    table = Table(title="gradients of the encoder", title_justify="left", box=None, caption=caption)
    table.caption_justify = "left"
    for name in ("tasks", "cosine", "halves of each", "D-score of the two"):
        table.add_column(name, justify="left" if name == "tasks" else "right", no_wrap=True)
    ceilings = dict(zip(found.tasks, found.gradients.ceiling, strict=True))
    for pair in found.pairs():
        halves = ", ".join(_similarity_number(ceilings[task]) for task in pair["tasks"])
        score = "-" if pair["d_score"] is None else f"{pair['d_score']:.1f}"
        table.add_row(", ".join(pair["tasks"]), _similarity_number(pair["gradient_cosine"]), halves, score)
    return table


def _layers(found: TaskSimilarity) -> Table:
    """The cosine of each two tasks by layer."""
    table = Table(title="by layer", title_justify="left", box=None)
    table.add_column("part", no_wrap=True)
    pairs = [tuple(map(found.tasks.index, pair["tasks"])) for pair in found.pairs()]
    for pair in found.pairs():
        table.add_column(", ".join(pair["tasks"]), justify="right")
    for name, cosines in found.gradients.groups.items():
        table.add_row(name, *(_similarity_number(cosines[pair]) for pair in pairs))
    return table


def _similarity_number(value: float) -> str:
    return "n/a" if numpy.isnan(value) else f"{value:.3f}"


# `headwise heads prune-curve`: what is left of every task without the heads that one of them needs.


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


# `headwise heads dissociation`: does losing one task's heads hurt that task, and that task more than the others?


# Of the variants the one whose mean over tasks the controls are shown for; by column the mean is the same.
BY_ROW = VARIANTS.index("row")


def show_dissociation(order: CurveOrder, *, resamples: int, as_json: bool) -> None:
    """Find or measure the curve, compute its D-scores, write them, and print them."""
    with order.opened() as (settings, folder):
        tasks = _tasks(order)
        several(tasks, "a D-score")
        curve = find_curve(folder, order.run, tasks, order.asked)
        if curve is None:
            curve = order.measure(settings)
            write_curve(folder, curve)
            typer.echo(f"the curve is saved in {folder}", err=True)
        else:
            typer.echo(f"with the curve in {folder}: {_described(curve)}", err=True)
        with keeping(lambda: f"the pruning curve in {folder} is kept, and the same command takes it"):
            found = dissociate(curve, resamples=resamples, seed=order.seed)
            paths = write_answers(folder, DISSOCIATION, found.as_dict(), rows=found.rows())
    if as_json:
        typer.echo(json_text({**found.as_dict(), "files": [str(path) for path in paths]}), nl=False)
        return
    print_tables(scores_table(found), controls_table(found))
    for line in _remarks(found):
        typer.echo(line)
    typer.echo(f"saved in {folder}")


def scores_table(found: CurveDissociation) -> Table:
    """Steps and variants in rows, tasks and their mean in columns, with 95 % intervals."""
    caption = (
        "D-scores in points; row: losing a task's heads hurts it more than others, column: it is hurt more by losing "
        f"its own than others'. [95 % interval over examples, {found.intervals.resamples} draws]"
    )
    table = Table(box=None, caption=caption, caption_justify="left")
    for name in ("pruned", "D-score"):
        table.add_column(name, no_wrap=True)
    for name in (*found.curve.tasks, "mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, scores, low, high in _steps(found):
        for variant, name in enumerate(VARIANTS):
            cells = map(_with_interval, scores[variant], low[variant], high[variant])
            table.add_row(label if variant == 0 else "", name, *cells)
    return table


def controls_table(found: CurveDissociation) -> Table:
    """The mean relative D-score of each step beside what masks give that belong to no task."""
    table = Table(title="mean by row, and its controls", title_justify="left", box=None)
    table.add_column("pruned", no_wrap=True)
    for name in ("observed", "ascending", "random masks", "p", "layer-matched", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, (label, scores, _, _) in enumerate(_steps(found)):
        ascending = _number(found.ascending[place].scores[BY_ROW, -1]) if found.ascending else "-"
        nulls = (cell for null in (found.random, found.layer_matched) for cell in _null(null, place))
        table.add_row(label, _number(scores[BY_ROW, -1]), ascending, *nulls)
    return table


def _tasks(order: CurveOrder) -> tuple[str, ...]:
    recipe = record.any_recipe_of(record.read(order.run), order.run)
    return tuple(recipe.tasks) if isinstance(recipe, JointRecipe) else (recipe.task.name,)


def _described(curve: PruneCurve) -> str:
    settings = curve.settings
    steps = ", ".join(settings.label(step, count) for step, count in enumerate(curve.counts))
    examples = ", ".join(f"{task} {len(labels)}" for task, labels in curve.labels.items())
    return f"{settings.order}, pruned {steps}, {settings.split} examples: {examples}"


def _steps(found: CurveDissociation) -> Iterator[tuple[str, Any, Any, Any]]:
    """The label, scores [V,T+1] and bounds of every step, and of their mean."""
    curve, scores, mean = found.curve, found.intervals.scores, found.intervals.mean_scores
    for step, each in enumerate(found.steps):
        label = curve.settings.label(step, curve.counts[step])
        yield label, each.scores, scores.low[step], scores.high[step]
    yield "mean", found.mean.scores, mean.low, mean.high


def _null(null: NullDissociation | None, place: int) -> tuple[str, str]:
    if null is None:
        return "-", "-"
    part = (*null.percentages, null.mean)[place]
    at = (BY_ROW, -1)
    return _with_interval(part.mean[at], part.low[at], part.high[at]), _number(
        numpy.nan if part.p is None else part.p[at], 3
    )


def _remarks(found: CurveDissociation) -> Iterator[str]:
    pairs = combinations(found.curve.tasks, 2)
    for pair, share in zip(pairs, found.intervals.mean_double, strict=True):
        labels = [
            label
            for (label, *_), each in zip(_steps(found), (*found.steps, found.mean), strict=True)
            if each.double[pair]
        ]
        told = f"at {', '.join(labels)}" if labels else "no"
        if found.mean.double[pair] is None:
            told = "n/a"
        resampled = "" if numpy.isnan(share) else f" (on average over steps in {share:.0%} of the draws)"
        yield f"double dissociation of {pair[0]} and {pair[1]}: {told}{resampled}"
    for task, reason in found.undefined.items():
        yield f"n/a for {task}: {reason}"
    for control, reason in found.missing.items():
        yield f"no {control.replace('_', '-')} null: {reason}"
    if found.intervals.dropped:
        yield f"{found.intervals.dropped} draws were left out, in which a task fell to 0 or below"


def _with_interval(score: float, low: float, high: float) -> str:
    return "n/a" if numpy.isnan(score) else f"{score:.1f} [{low:.1f}, {high:.1f}]"


def _number(value: float, digits: int = 1) -> str:
    return "n/a" if numpy.isnan(value) else f"{value:.{digits}f}"


# `headwise heads patterns`: which patterns the heads of a run follow.


def show_patterns(
    folder: Path,
    split: str,
    source: Source,
    *,
    task: str | None = None,
    names: Sequence[str],
    limit: int,
    top: int,
    batch: int | None,
    as_json: bool,
) -> None:
    """Score the heads of a run against patterns and print the strongest; all fixed patterns if none is named."""
    patterns = [build_pattern(name) for name in dict.fromkeys(names) if _is_fixed(name)]
    quiet_libraries()
    run = load_run(folder, task)
    chosen = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
    chosen = chosen.subset(range(min(limit, len(chosen))))
    with progress() as shown:
        if not patterns:
            patterns, left_out = _known(run)
            for pattern in left_out:
                shown.tell(f"left out {pattern.name}: the tokenizer has no {' or '.join(pattern.marks)}")
        shown.start(run.recipe.name, len(chosen))
        length = run.recipe.data.max_length
        found = pattern_scores(
            run.model, run.tokenizer, chosen, patterns, max_length=length, batch=batch, after_batch=shown.advance
        )
    if as_json:
        typer.echo(json.dumps({"run": str(folder), "split": split, **_as_data(found, top)}, indent=2))
    else:
        Console().print(_table(found, top))


def _fixed() -> list[str]:
    return [name for name, kind in PATTERNS.items() if not issubclass(kind, Knowledge)]


def _is_fixed(name: str) -> bool:
    """True, or a refusal."""
    if issubclass(PATTERNS[name], Knowledge):
        raise InputError(
            f"--pattern {name} is made of knowledge: only fixed patterns can be detected from the command line for "
            f"now; choose from {', '.join(sorted(_fixed()))}."
        )
    return True


def _known(run: Loaded) -> tuple[list[Pattern], list[Pattern]]:
    """The fixed patterns that the run's tokenizer allows, and those that it does not."""
    known = mark_ids(run.tokenizer)
    patterns = [build_pattern(name) for name in _fixed()]
    return (
        [pattern for pattern in patterns if not missing_marks(pattern, known)],
        [pattern for pattern in patterns if missing_marks(pattern, known)],
    )


def _as_data(found: PatternSummary, top: int) -> dict[str, Any]:
    data = found.as_dict()
    for name, score in data["patterns"].items():
        score["strongest"] = [head._asdict() for head in found.strongest(name, top)]
    return data


def _table(found: PatternSummary, top: int) -> Table:
    """Patterns in rows; the share of even attention, of the mean head, and of the strongest heads."""
    table = Table("pattern", "examples", "even", "mean", "strongest heads", box=None)
    for name, score in found.patterns.items():
        heads = [f"layer {head.layer} head {head.head}: {head.share:.2f}" for head in found.strongest(name, top)]
        table.add_row(name, str(score.examples), *_numbers(score), "\n".join(heads) or "-")
    return table


def _numbers(score: PatternScore) -> list[str]:
    return ["-" if value is None else f"{value:.2f}" for value in (score.even, score.share)]
