"""Plots of single runs from their files: training curves, pruning curves, dissociation and similarity of tasks.

A plot is {title, x, y, categories, series: [{name, x, mean, low, high}], notes}; a matrix {title, rows, columns,
values, notes}. No model is loaded.

Shapes: K steps of a pruning curve, R random masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from headwise import documents
from headwise.errors import InputError
from headwise.experiments import record

if TYPE_CHECKING:
    from headwise.experiments.head_studies.prune_curve import PruneCurve

LOG = "log.jsonl"
EVALUATED, GUIDE, WEIGHT = "eval_", "guide/", "_weight"
# Of a guide: the kind of series, and the end of its name in the log.
KINDS = {"raw": "", "weighted": "_weighted", "share": "_share"}

Entry = Mapping[str, Any]
# The name of a series; mean, low and high at every step; the silenced heads, numbered through all layers, at every
# step. Random masks are too many to name their heads.
Ranked = tuple[str, tuple[Any, Any, Any], list[list[int]] | None]


def names_apart(folders: Sequence[Path]) -> list[str]:
    """The names of folders, with as much of their parents as separates them."""
    parts = [folder.expanduser().absolute().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def training_curves(folder: Path, model: str) -> list[dict[str, Any]]:
    """The series of a run: {model, group, name, kind, x, y}, x in optimiser steps.

    Groups are loss, guide:NAME (kinds raw, weighted and share) and validation (the main metric first). A loss is the
    mean over the steps since the last log. Values that are not finite are left out, and series without any.

    Args:
        folder: a finished run, on one task or several.
        model: stands in every series.
    """
    results = record.finished_record(folder)["results"]
    log = [entry for entry in _read_log(folder / LOG) if "loss" in entry]
    keys = dict.fromkeys(key for entry in log for key in entry)
    # The loss of the task, and all that was trained on; where nothing is added, these are the same.
    task = next((key for key in ("ssa/task_loss", "task_loss") if key in keys), "loss")
    losses = {"task loss": task, "token loss": "ssa/token_loss"} | ({} if task == "loss" else {"whole loss": "loss"})
    series = [(log, "loss", name, "raw", key) for name, key in losses.items()]
    guides = [key.removeprefix(GUIDE) for key in keys if key.startswith(GUIDE) and f"{key}{WEIGHT}" in keys]
    for name in guides:
        series += [(log, f"guide:{name}", name, kind, f"{GUIDE}{name}{end}") for kind, end in KINDS.items()]
    evaluations: list[Entry] = results.get("evaluations") or []
    tasks = (results.get("tasks") or {}).items()
    main = [results["primary"], *(f"{task}/{each['primary']}" for task, each in tasks)]
    scores = {key.removeprefix(EVALUATED): key for entry in evaluations for key in entry if key.startswith(EVALUATED)}
    for name in sorted(scores, key=lambda name: main.index(name) if name in main else len(main)):
        series.append((evaluations, "validation", name, "raw", scores[name]))
    curves = []
    for entries, group, label, kind, key in series:
        points = [(int(entry["step"]), float(entry[key])) for entry in entries if _are_numbers(entry, "step", key)]
        x, y = ([point[axis] for point in points] for axis in (0, 1))
        curves.append({"model": model, "group": group, "name": label, "kind": kind, "x": x, "y": y})
    return [each for each in curves if each["x"]]


def _read_log(path: Path) -> list[Entry]:
    if not path.is_file():
        raise InputError(f"{path} is not there, so nothing is known of the steps: train again.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read ({error}): train again.") from error
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = documents.parse(line, finite=False)
            if not isinstance(entry, dict) or not _are_numbers(entry, "step"):
                raise ValueError("expected an object with a step")
        except ValueError as error:
            raise InputError(f"{path}, line {number}, is damaged ({error}): train again.") from error
        entries.append(entry)
    return entries


def _are_numbers(entry: Entry, *keys: str) -> bool:
    return all(type(entry.get(key)) in (int, float) and math.isfinite(entry[key]) for key in keys)


# -- heads -------------------------------------------------------------------------------------------------------------


def _from_heads(folder: Path, name: str, build: Callable[[Any, Any], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Read RUN/heads/NAME.json and its arrays and build plots of them; nothing if it was not measured."""
    from headwise.experiments.head_studies.head_files import BROKEN, FOLDER, damaged, read_result

    measured = read_result(folder / FOLDER, name, folder)
    try:
        return [] if measured is None else build(*measured)
    except BROKEN as error:
        raise damaged(folder / FOLDER, name, error) from error


def pruning_plots(folder: Path) -> list[dict[str, Any]]:
    """For every task its main metric while more and more heads are silenced: those it needs most, and the controls.

    Args:
        folder: a run with RUN/heads/prune-curve.json.

    Returns:
        A plot for each task, whose ranked series also list the heads that they silence; none if the curve was not
        measured.
    """
    from headwise.experiments.head_studies.head_files import CURVE

    def plots(*measured: Any) -> list[dict[str, Any]]:
        from headwise.experiments.head_studies.prune_curve import PruneCurve  # loads torch, so only for a curve

        curve = PruneCurve.from_files(*measured)
        return [_pruning_plot(curve, task) for task in curve.tasks]

    return _from_heads(folder, CURVE, plots)


def _pruning_plot(curve: PruneCurve, task: str) -> dict[str, Any]:
    settings = curve.settings
    masks = f"; random heads: means over {settings.repeats} masks" if settings.repeats else ""
    spread = ", with 95 % t intervals over masks" if settings.repeats > 1 else ""
    x = [0.0, *settings.steps]
    order = numpy.argsort(x, kind="stable")  # the steps stand in the order of the settings
    series: list[dict[str, Any]] = []
    for name, values, off in [*_ranked_heads(curve, task), *_random_heads(curve, task)]:
        columns = numpy.array([x, *values], dtype=float)[:, order]
        plain = [[value if math.isfinite(value) else None for value in column] for column in columns.tolist()]
        each = {"name": name, **dict(zip(("x", "mean", "low", "high"), plain, strict=True))}
        series.append(each if off is None else each | {"off": [off[index] for index in order]})
    return {
        "title": f"{task} without some of its heads",
        "x": "percent of all heads silenced" if settings.percent else "heads silenced",
        "y": f"{curve.metrics[task]} on {settings.split}",
        "categories": None,
        "shape": list(curve.shape),
        "series": series,
        "notes": [
            f"{task}, {len(curve.labels[task])} examples; ranked heads: 95 % bootstrap intervals over examples{masks}"
            f"{spread}."
        ],
    }


def _ranked_heads(curve: PruneCurve, task: str) -> Iterator[Ranked]:
    """For each order and task whose heads were pruned: the task's heads, or those of the others."""
    from headwise.experiments.head_studies.curve_masks import ASCENDING, DESCENDING
    from headwise.heads.dissociation import RESAMPLES
    from headwise.metrics.resampling import Interval, bootstrap_scores

    names = {DESCENDING: "most important", ASCENDING: "least important"}
    masks = {(each.order, each.pruned_for, each.step): index for index, each in reversed(list(enumerate(curve.masks)))}
    rows = {
        f"{names[order]} for {source}": [0, *(masks[order, source, step] for step in range(len(curve.counts)))]
        for order in curve.settings.orders
        for source in ([task] if task in curve.pruned_for else curve.pruned_for)
    }
    # One draw for all of them, so that all heads have one interval in every series.
    predictions = curve.predictions[task][[index for indices in rows.values() for index in indices]]
    ends = Interval.of(bootstrap_scores(curve.metrics[task], predictions, curve.labels[task], resamples=RESAMPLES))
    lows, highs = (each.reshape(len(rows), -1) for each in (ends.low, ends.high))
    for (name, indices), low, high in zip(rows.items(), lows, highs, strict=True):
        mean = curve.values[indices, curve.tasks.index(task)]
        yield name, (mean, low, high), [numpy.flatnonzero(curve.masks[index].mask).tolist() for index in indices]


def _random_heads(curve: PruneCurve, task: str) -> Iterator[Ranked]:
    """Random heads, and random heads in the layers of those that the task needs most."""
    from headwise.metrics.significance import SeedScores

    if not curve.settings.repeats:
        return
    at = curve.tasks.index(task)
    drawn = {"random": curve.random[:, :, at]}  # [K,R]
    if task in curve.pruned_for:
        drawn["random, same layers"] = curve.layer_matched[:, at, :, at]
    for name, values in drawn.items():
        scores = [SeedScores.of(row.tolist()) for row in values]
        low, high = ([None, *(getattr(each, end) for each in scores)] for end in ("low", "high"))
        yield name, ([curve.base[at], *(each.mean for each in scores)], low, high), None


def dissociation_matrices(folder: Path) -> list[dict[str, Any]]:
    """What is left of every task (columns) without the heads of one (rows), in percent of its metric with all heads.

    Args:
        folder: a run with RUN/heads/dissociation.json.

    Returns:
        {title, rows, columns, values, notes}: the mean over all steps, then every step; None where there is no value.
        Nothing if the D-scores were not computed.
    """

    def matrices(content: Mapping[str, Any], _: Any) -> list[dict[str, Any]]:
        parts = {}
        for step in content["steps"]:
            heads = f"{step['heads']} {'head' if step['heads'] == 1 else 'heads'}"
            title = heads if step["percent"] is None else f"{step['percent']:g} % of heads ({step['heads']})"
            parts[title] = step
        if len(parts) > 1:
            parts = {"mean over all steps": content["mean"]} | parts
        tasks, rows = content["tasks"], content["pruned_for"]
        return [
            _matrix(
                f"{title}: percent of each task that is left",
                [f"without the heads of {task}" for task in rows],
                tasks,
                [part["retained"][tasks.index(task)] for task in rows],
                _dissociation_notes(content, part),
                factor=100,
            )
            for title, part in parts.items()
        ]

    return _from_heads(folder, "dissociation", matrices)


def _dissociation_notes(content: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    """The mean D-score beside its interval and what chance gives; pairs that dissociate; tasks without a score."""
    score, low, high = part["row"]["mean"], *(part["interval"][end]["row"]["mean"] for end in ("low", "high"))
    if score is None:
        notes = ["There is no mean D-score."]
    else:
        within = "" if low is None or high is None else f" (95 % over examples {low:.1f} to {high:.1f})"
        notes = [f"Mean D-score {score:.1f} points{within}: how much more a task is hurt by losing its own heads."]
        for name, null in part["null"].items():
            p = null["p"]["row"]["mean"] if null and null["p"] else None
            if p is not None:
                masks = "random masks" if name == "random" else "random masks in the same layers"
                drawn = content["null_draws"][name]["masks"]
                notes.append(f"Against {masks} p = {p:.3g} ({drawn} masks for each step).")
    pairs = [" and ".join(pair["tasks"]) for pair in part["double_dissociation"] if pair["holds"]]
    notes.append(f"Double dissociation: {', '.join(pairs)}." if pairs else "No pair of tasks dissociates doubly.")
    return [*notes, *(f"No score for {task}: {reason}." for task, reason in part["undefined"].items())]


def similarity_matrices(folder: Path) -> list[dict[str, Any]]:
    """Overlap of the tasks' most important heads beside what chance gives, and the cosines of their gradients.

    Args:
        folder: a run with RUN/heads/similarity.json.

    Returns:
        {title, rows, columns, values, notes}; nothing if the similarity was not measured.
    """

    def matrices(content: Mapping[str, Any], _: Any) -> list[dict[str, Any]]:
        importance, tasks = content["importance"], content["tasks"]
        overlaps = [
            _matrix(
                f"overlap of the {100 * float(share):g} % most important heads",
                tasks,
                tasks,
                values,
                [
                    "Heads that both tasks need most, over those that either does (Jaccard); two choices at random "
                    f"have {float(importance['chance'][share]):.2f}."
                ],
            )
            for share, values in importance["overlap"].items()
        ]
        note = "1: both tasks pull the encoder the same way; 0: neither helps nor hinders the other."
        gradients = content["gradients"]["total"]
        return [*overlaps, _matrix("cosine between the gradients of the encoder", tasks, tasks, gradients, [note])]

    return _from_heads(folder, "similarity", matrices)


def _matrix(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Any, notes: list[str], *, factor: float = 1
) -> dict[str, Any]:
    numbers = [[None if value is None else factor * float(value) for value in row] for row in values]
    return {"title": title, "rows": list(rows), "columns": list(columns), "values": numbers, "notes": notes}
