"""All tasks of a finished run, ready to predict: several that share an encoder, or the one that there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.attention import pruned_heads
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.apply import Loaded, finished_record, load_run, loaded
from headwise.experiments.joint_recipe import JointRecipe
from headwise.training.multitask_saving import load_multitask
from headwise.training.saving import load_tokenizer


@dataclass(frozen=True)
class RunTasks:
    """The tasks of a run by name; the models of a joint run share one encoder object."""

    folder: Path
    joint: bool
    runs: dict[str, Loaded]

    @property
    def first(self) -> Loaded:
        """Any of them, for what they have in common."""
        return next(iter(self.runs.values()))

    def refuse_pruned(self, what: str) -> None:
        """For what makes no sense, or is not there, without all heads."""
        gone = pruned_heads(self.first.model)
        if gone:
            layer, heads = next(iter(gone.items()))
            raise InputError(
                f"heads were pruned from the model of {self.folder} (layer {layer}: {', '.join(map(str, heads))}): "
                f"{what} needs a model with all its heads."
            )


def load_tasks(folder: Path, wanted: Sequence[str] = ()) -> RunTasks:
    """Load a finished run of either kind; `wanted` are the tasks to keep, all if none is named."""
    content = finished_record(folder)
    recipe = record.any_recipe_of(content, folder)
    if isinstance(recipe, JointRecipe):
        model, tokenizer = load_multitask(folder), load_tokenizer(folder)
        runs = {
            task: loaded(recipe.single(task), content, model.classifier(task), tokenizer, task) for task in recipe.tasks
        }
    else:
        runs = {recipe.task.name: load_run(folder)}
    return RunTasks(folder, isinstance(recipe, JointRecipe), _kept(runs, wanted))


def _kept(runs: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    for task in wanted:
        if task not in runs:
            raise InputError(f"--task {task}: {choices(task, runs)}.")
    return {task: run for task, run in runs.items() if not wanted or task in wanted}
