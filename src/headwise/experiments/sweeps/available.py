"""Which files the runs of a sweep lack, told before any of them is started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.recipe import Recipe
from headwise.experiments.sweeps.plan import Planned
from headwise.tasks import build_task
from headwise.tasks.file_task import FileTask
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.training import find_encoder


class Shelf:
    """What is here: models and data, each looked for once."""

    def __init__(self, data: Path | None, *, network: bool) -> None:
        """`data` is the folder of the user's files."""
        self._data = data
        self._network = network
        self._models: dict[str, bool] = {}
        self._files: dict[str, str | None] = {}

    def lacks(self, recipe: Recipe | JointRecipe) -> list[str]:
        """What a recipe needs and is not here, in a few words each."""
        parts = [recipe.single(task) for task in recipe.tasks] if isinstance(recipe, JointRecipe) else [recipe]
        missing = [] if self._has_model(recipe.model) else [f"model {recipe.model}"]
        return missing + [lack for part in parts for lack in self._lacking_files(part)]

    def _has_model(self, name: str) -> bool:
        if name not in self._models:
            try:
                find_encoder(name, network=self._network)
                self._models[name] = True
            except InputError:
                self._models[name] = False
        return self._models[name]

    def _lacking_files(self, recipe: Recipe) -> list[str]:
        task = build_task(recipe.task.name, recipe.task.options)
        if isinstance(task, RetrievalTask):
            folder = task.folder(self._data)
            here = self._data is not None and folder.exists()
            return [] if here else [f"the collection {task.collection}{self._below()}"]
        if not isinstance(task, FileTask) or task.hub is not None:
            return []
        wanted = ["train"] + ([] if recipe.data.validation_fraction is not None else ["validation"])
        return [lack for split in wanted if (lack := self._lacking(task, split))]

    def _lacking(self, task: FileTask, split: str) -> str | None:
        key = f"{task.name} {split} {task.places}"
        if key not in self._files:
            here = split in task.available(self._data)
            names = [task.places.own[split]] if split in task.places.own else list(task.places.names.get(split, ()))
            said = f"{split} of {task.name} ({' or '.join(names)}{self._below()})"
            self._files[key] = None if here else said
        return self._files[key]

    def _below(self) -> str:
        return ", and no --data was given" if self._data is None else f" below {self._data}"


def refuse_or_leave_out(runs: Iterable[Planned], shelf: Shelf, *, available: bool, name: str) -> tuple[Planned, ...]:
    """The runs whose files are here; if any are not, the sweep is refused unless the others are asked for."""
    runs = tuple(runs)
    lacking = {planned.key: shelf.lacks(planned.recipe) for planned in runs}
    here = tuple(planned for planned in runs if not lacking[planned.key])
    if len(here) == len(runs) or (available and here):
        return here
    missing = list(dict.fromkeys(lack for each in lacking.values() for lack in each))
    models = [each.removeprefix("model ") for each in missing if each.startswith("model ")]
    files = [each for each in missing if not each.startswith("model ")]
    said = ([f"the models {', '.join(models)} (not in the local Hub cache: add --download)"] if models else []) + files
    rest = ", or run the others with --available" if here else ""
    raise InputError(
        f"{name}: {len(runs) - len(here)} of {len(runs)} runs lack files: {'; '.join(said)}. Give the folder of your "
        f"files with --data{rest}."
    )
