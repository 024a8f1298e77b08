"""`headwise heads dissociation`: does losing one task's heads hurt that task, and that task more than the others?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy
import typer
from rich.table import Table

from headwise.cli.prune_curve import CurveOrder
from headwise.cli.score import print_tables
from headwise.cli.stopping import keeping
from headwise.experiments import record
from headwise.experiments.head_dissociation import NAME, CurveDissociation, dissociate
from headwise.experiments.head_files import json_text, several, write_answers
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.measure_curve import find_curve, write_curve
from headwise.experiments.prune_curve import PruneCurve
from headwise.heads.dissociation import VARIANTS
from headwise.heads.dissociation_tests import NullDissociation

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
            paths = write_answers(folder, NAME, found.as_dict(), rows=found.rows())
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
