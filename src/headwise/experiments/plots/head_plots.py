"""What a run loses with its heads: pruning curves as plots, and who is hurt by losing whose heads as matrices.

Shapes: K steps of the curve, S tasks whose heads were pruned, T tasks, R random masks, M masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy

from headwise.experiments.head_studies.curve_masks import ASCENDING, DESCENDING
from headwise.experiments.head_studies.head_files import (
    BROKEN,
    CURVE,
    DISSOCIATION,
    FOLDER,
    SIMILARITY,
    damaged,
    read_result,
)
from headwise.experiments.head_studies.prune_curve import PruneCurve, read_curve
from headwise.heads.dissociation import RESAMPLES
from headwise.metrics import SeedScores, bootstrap_scores
from headwise.metrics.resampling import Interval

NAMES = {DESCENDING: "most important", ASCENDING: "least important"}


def pruning_plots(folder: Path) -> list[dict[str, Any]]:
    """For every task its main metric while more and more heads are silenced: those it needs most, and the controls.

    Args:
        folder: a run with RUN/heads/prune-curve.json.

    Returns:
        A plot for each task, whose ranked series also tell which heads they silence; none if the curve was not
        measured.
    """
    curve = read_curve(folder / FOLDER, folder)
    if curve is None:
        return []
    try:
        return [_plot(curve, task) for task in curve.tasks]
    except BROKEN as error:
        raise damaged(folder / FOLDER, CURVE, error) from error


def _plot(curve: PruneCurve, task: str) -> dict[str, Any]:
    settings, metric = curve.settings, curve.metrics[task]
    series = [*_ranked(curve, task), *_random(curve, task)]
    masks = f"; random heads: means over {settings.repeats} masks" if settings.repeats else ""
    spread = ", with 95 % t intervals over masks" if settings.repeats > 1 else ""
    return {
        "title": f"{task} without some of its heads",
        "x": "percent of all heads silenced" if settings.percent else "heads silenced",
        "y": f"{metric} on {settings.split}",
        "categories": None,
        "shape": list(curve.shape),
        "series": series,
        "notes": [
            f"{task}, {len(curve.labels[task])} examples; ranked heads: 95 % bootstrap intervals over examples{masks}"
            f"{spread}."
        ],
    }


def _ranked(curve: PruneCurve, task: str) -> Iterator[dict[str, Any]]:
    """A series for each order and task whose heads were pruned: its own heads, or those of the others."""
    sources = [task] if task in curve.pruned_for else curve.pruned_for
    rows = {
        f"{NAMES[order]} for {source}": [0, *(_place(curve, order, source, step) for step in range(len(curve.counts)))]
        for order in curve.settings.orders
        for source in sources
    }
    # One draw for all of them, so that all heads have one interval in every series.
    predictions = curve.predictions[task][[place for places in rows.values() for place in places]]
    within = Interval.of(bootstrap_scores(curve.metrics[task], predictions, curve.labels[task], resamples=RESAMPLES))
    size = 1 + len(curve.counts)
    for number, (name, places) in enumerate(rows.items()):
        low, high = (ends[number * size : (number + 1) * size] for ends in (within.low, within.high))
        off = [numpy.flatnonzero(curve.masks[place].mask).tolist() for place in places]
        yield _series(curve, name, curve.values[places, curve.tasks.index(task)], low, high, off)


def _random(curve: PruneCurve, task: str) -> Iterator[dict[str, Any]]:
    """Random heads, and random heads in the layers of those that the task needs most."""
    if not curve.settings.repeats:
        return
    at = curve.tasks.index(task)
    found = {"random": curve.random[:, :, at]}  # [K,R]
    if task in curve.pruned_for:
        found["random, same layers"] = curve.layer_matched[:, at, :, at]
    for name, values in found.items():
        scores = [SeedScores.of(row.tolist()) for row in values]
        ends = [[None, *(getattr(each, end) for each in scores)] for end in ("low", "high")]
        yield _series(curve, name, [curve.base[at], *(each.mean for each in scores)], *ends)


def _place(curve: PruneCurve, order: str, task: str, step: int) -> int:
    wanted = (order, task, step)
    places = [at for at, each in enumerate(curve.masks) if (each.order, each.pruned_for, each.step) == wanted]
    return places[0]


def _series(
    curve: PruneCurve, name: str, mean: Any, low: Any, high: Any, off: list[list[int]] | None = None
) -> dict[str, Any]:
    """From left to right, all heads first: steps stand in the order in which they were asked for.

    `off` are the silenced heads of every point, numbered through all layers; random masks are too many to name.
    """
    x = [0.0, *(float(step) for step in curve.settings.steps)]
    order = sorted(range(len(x)), key=lambda place: x[place])
    columns = {"x": x, "mean": mean, "low": low, "high": high}
    numbers = {key: [_number(values[place]) for place in order] for key, values in columns.items()}
    return {"name": name} | numbers | ({} if off is None else {"off": [off[place] for place in order]})


def dissociation_matrices(folder: Path) -> list[dict[str, Any]]:
    """What is left of every task (columns) without the heads of one (rows), in percent of its metric with all heads.

    Args:
        folder: a run with RUN/heads/dissociation.json.

    Returns:
        {title, rows, columns, values, notes}: the mean over all steps, then every step; None where there is no value.
        Nothing if the D-scores were not computed.
    """
    found = read_result(folder / FOLDER, DISSOCIATION, folder)
    if found is None:
        return []
    content = found[0]
    try:
        parts = {_step_title(each): each for each in content["steps"]}
        if len(parts) > 1:
            parts = {"mean over all steps": content["mean"]} | parts
        return [_matrix(content, title, part) for title, part in parts.items()]
    except BROKEN as error:
        raise damaged(folder / FOLDER, DISSOCIATION, error) from error


def _step_title(step: Mapping[str, Any]) -> str:
    heads = f"{step['heads']} {'head' if step['heads'] == 1 else 'heads'}"
    return heads if step["percent"] is None else f"{step['percent']:g} % of heads ({step['heads']})"


def _matrix(content: Mapping[str, Any], title: str, part: Mapping[str, Any]) -> dict[str, Any]:
    tasks, rows = content["tasks"], content["pruned_for"]
    retained = [part["retained"][tasks.index(task)] for task in rows]
    return {
        "title": f"{title}: percent of each task that is left",
        "rows": [f"without the heads of {task}" for task in rows],
        "columns": list(tasks),
        "values": [[None if value is None else 100 * float(value) for value in row] for row in retained],
        "notes": [*_score_notes(content, part), *_double_notes(part), *_undefined_notes(part)],
    }


def _score_notes(content: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    """The mean D-score beside its interval and what chance gives."""
    score, low, high = part["row"]["mean"], *(part["interval"][end]["row"]["mean"] for end in ("low", "high"))
    if score is None:
        return ["There is no mean D-score."]
    within = "" if low is None or high is None else f" (95 % over examples {low:.1f} to {high:.1f})"
    notes = [f"Mean D-score {score:.1f} points{within}: how much more a task is hurt by losing its own heads."]
    for name, null in part["null"].items():
        p = null["p"]["row"]["mean"] if null and null["p"] else None
        if p is not None:
            masks = "random masks" if name == "random" else "random masks in the same layers"
            notes.append(f"Against {masks} p = {p:.3g} ({content['null_draws'][name]['masks']} masks for each step).")
    return notes


def _double_notes(part: Mapping[str, Any]) -> list[str]:
    pairs = [" and ".join(pair["tasks"]) for pair in part["double_dissociation"] if pair["holds"]]
    return [f"Double dissociation: {', '.join(pairs)}." if pairs else "No pair of tasks dissociates doubly."]


def _undefined_notes(part: Mapping[str, Any]) -> list[str]:
    return [f"No score for {task}: {reason}." for task, reason in part["undefined"].items()]


def _number(value: Any) -> float | None:
    return None if value is None or not numpy.isfinite(value) else float(value)


# How alike the tasks of a run are, as matrices: which heads they have in common, and where they pull the encoder.


def similarity_matrices(folder: Path) -> list[dict[str, Any]]:
    """Overlap of the tasks' most important heads beside what chance gives, and the cosines of their gradients.

    Args:
        folder: a run with RUN/heads/similarity.json.

    Returns:
        {title, rows, columns, values, notes}; nothing if the similarity was not measured.
    """
    found = read_result(folder / FOLDER, SIMILARITY, folder)
    if found is None:
        return []
    content = found[0]
    try:
        return [*_overlaps(content), _gradients(content)]
    except BROKEN as error:
        raise damaged(folder / FOLDER, SIMILARITY, error) from error


def _overlaps(content: dict[str, Any]) -> list[dict[str, Any]]:
    importance = content["importance"]
    return [
        _task_matrix(
            content,
            f"overlap of the {100 * float(share):g} % most important heads",
            values,
            [
                f"Heads that both tasks need most, over those that either does (Jaccard); two choices at random have "
                f"{float(importance['chance'][share]):.2f}."
            ],
        )
        for share, values in importance["overlap"].items()
    ]


def _gradients(content: dict[str, Any]) -> dict[str, Any]:
    return _task_matrix(
        content,
        "cosine between the gradients of the encoder",
        content["gradients"]["total"],
        ["1: both tasks pull the encoder the same way; 0: neither helps nor hinders the other."],
    )


def _task_matrix(content: dict[str, Any], title: str, values: list[list[Any]], notes: list[str]) -> dict[str, Any]:
    tasks = list(content["tasks"])
    return {
        "title": title,
        "rows": tasks,
        "columns": tasks,
        "values": [[None if value is None else float(value) for value in row] for row in values],
        "notes": notes,
    }
