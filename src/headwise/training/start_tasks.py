"""Start several tasks from a run on several tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.training.loading import load_trained
from headwise.training.multitask import MultiTask


def start_tasks_from(model: MultiTask, folder: Path) -> list[str]:
    """Take the encoder of a saved run, and the heads of tasks that it knows by the same name and labels.

    Returns the tasks whose heads were taken; the others start fresh (the authors' init_model, without its silence
    about what did not fit).
    """
    try:
        saved = load_trained(folder)
    except InputError as error:
        raise InputError(f"start_from: {error}") from error
    if not isinstance(saved, MultiTask):
        raise InputError(
            f"start_from {folder} holds one classifier: name a run on several tasks, or give it as `model` to start "
            "from its encoder."
        )
    mine, theirs = model.encoder.state_dict(), saved.encoder.state_dict()
    odd = sorted(name for name in {*mine, *theirs} if _shape(mine, name) != _shape(theirs, name))
    if odd:
        raise InputError(
            f"start_from {folder}: {len(odd)} weights of its encoder are of another size or missing, {odd[0]} first; "
            "name a run of the same model."
        )
    model.encoder.load_state_dict(theirs)
    taken = [task for task in model.tasks if task in saved.tasks and _same_labels(model, saved, task)]
    for task in taken:
        head, source = (each.heads[each.tasks.index(task)] for each in (model, saved))
        head.load_state_dict(source.state_dict())
    return taken


def _shape(weights: dict[str, Any], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None


def _same_labels(model: MultiTask, saved: MultiTask, task: str) -> bool:
    mine, theirs = model.classifier(task).config, saved.classifier(task).config
    return bool(mine.id2label == theirs.id2label and mine.problem_type == theirs.problem_type)
