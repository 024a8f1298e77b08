"""Important attention-head training (IAT) in a run: a trunk with all heads, then two arms that start from its end.

One arm changes only the heads that are important to a batch's task; the control continues with all heads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from headwise import documents
from headwise.attention import family_of
from headwise.attention.families import head_weights
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments.prepare import Prepared
from headwise.experiments.record_schema import ImportanceFile
from headwise.heads.iat import IAT, build_iat, important_heads
from headwise.heads.pruning import top_heads
from headwise.training import Listener, Material, Outcome, ReportProgress, distributed, fit
from headwise.training.callbacks import TrainImportantHeads, Watch
from headwise.training.checkpoints import branch
from headwise.training.predict import importance_on

TRUNK, ARM, CONTROL = "trunk", "iat", "control"
IMPORTANCE = "importance.json"


@dataclass(frozen=True)
class IATResult:
    """How the arms ended."""

    outcome: Outcome
    """Of the trunk, the arm or the control, whichever was interrupted; of the arm if none was."""
    heads: dict[str, Any] | None = None
    """At which step the arms began, and the important heads of each task with their importance."""
    control: Outcome | None = None


def check_iat(prepared: Prepared, total: int) -> None:
    """Refuse before training what would fail only where the arms begin; `total` counts all steps."""
    options = build_iat(prepared.recipe.iat)
    if not 0 < first_step(options, total) < total:
        raise InputError(
            f"iat.start is {options.start} of {total} steps: expected at least one step before and one after it; "
            "change it, or train longer."
        )
    layers = head_weights(prepared.model)
    if not any(part.parameter.requires_grad for layer in layers for part in layer.parts):
        raise InputError("iat trains heads, and training.freeze keeps them all as they are: leave one of them out.")
    try:
        shape = family_of(prepared.model.encoder).shape
        top_heads(numpy.zeros(shape), options.heads, keep_per_layer=options.keep_per_layer)
    except InputError as error:
        raise InputError(f"iat.heads: {error}") from error
    if distributed.count() > 1:
        raise InputError(
            f"iat trains in one process, and {distributed.count()} were started: leave the launcher out, or take iat "
            "out of the recipe."
        )


def first_step(options: IAT, total: int) -> int:
    """The steps before the arms begin."""
    return int(options.start * total + 1e-9)


def fit_arms(prepared: Prepared, material: Material, work: Path, progress: Listener, watch: Watch | None) -> IATResult:
    """Train the trunk, the arm and, if asked for, the control, each in its folder; resume what is there.

    Both arms begin with the same weights, optimizer, random state and position in the data.
    """
    options = build_iat(prepared.recipe.iat)

    def train(folder: str, what: str, callbacks: Sequence[Any] = (), **more: Any) -> Outcome:
        report = ReportProgress(progress, f"{prepared.recipe.name}, {what}")
        arguments = prepared.arguments(material, work / folder)
        if options.rewarm and folder != TRUNK:
            arguments.rewarm_at = start
        return fit(material, arguments, [*callbacks, report], **more)

    start = first_step(options, prepared.arguments(material, work / TRUNK).max_steps)
    trunk = train(TRUNK, "all heads", until=start, watch=watch)
    if trunk.interrupted:
        return IATResult(trunk)
    branch(work / TRUNK, work / ARM)
    heads = _important_heads(prepared, options, start, work / ARM / IMPORTANCE, progress)
    allowed = {task: numpy.asarray(each["heads"], dtype=bool) for task, each in heads["tasks"].items()}
    callback = TrainImportantHeads(prepared.model, allowed, options)
    try:
        outcome = train(ARM, "important heads", [callback], watch=watch)
    finally:
        callback.remove()  # the Trainer does not call its callbacks after an error
    if outcome.interrupted or not options.control:
        return IATResult(outcome, heads)
    if outcome.asked_to_stop:  # too late for this arm, but not for the control
        return IATResult(replace(outcome, interrupted=True), heads)
    branch(work / TRUNK, work / CONTROL)
    control = train(CONTROL, "control")
    return IATResult(control if control.interrupted else outcome, heads, control)


def _important_heads(prepared: Prepared, options: IAT, step: int, path: Path, progress: Listener) -> dict[str, Any]:
    """The heads of each task by their importance at the end of the trunk; kept in a file for a resumed run."""
    if path.is_file():
        fix = "train again, in another folder"
        kept = documents.read_checked(path, ImportanceFile, fix)
        shapes = {task: numpy.shape(each["heads"]) for task, each in kept["tasks"].items()}
        if shapes != dict.fromkeys(prepared.tasks, tuple(family_of(prepared.model.encoder).shape)):
            raise documents.damaged(path, "it does not name the heads of the tasks of this run", fix)
        return kept
    seed = prepared.recipe.seed
    importance = {}
    for task, each in prepared.tasks.items():
        data = each.encoded[options.split]
        progress.start(f"importance for {task}", min(len(data), options.examples))
        importance[task] = importance_on(
            prepared.model.classifier(task),
            data,
            each.collate,
            granularity=options.granularity,
            normalise=options.normalise,
            examples=options.examples,
            seed=seed,
            after_batch=progress.advance,
        )
        progress.end()
    heads = important_heads({task: each.scores for task, each in importance.items()}, options, seed)
    tasks = {
        task: {"heads": heads[task].astype(int).tolist(), "importance": each.as_dict()}
        for task, each in importance.items()
    }
    content = {"step": step, "tasks": tasks}
    write_atomically(path, json.dumps(documents.finite(content)))
    return content
