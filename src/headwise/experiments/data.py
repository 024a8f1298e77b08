"""The splits that a recipe asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy

from headwise.errors import InputError, choices
from headwise.experiments.ranking_splits import RankingSource, read_ranking_splits
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits
from headwise.tasks import Split, Task, build_task
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.training import Listener, Silence


def read_splits(
    recipe: Recipe,
    root: Path | None,
    *,
    network: bool = False,
    cache: Path | None = None,
    listener: Listener | None = None,
) -> Splits:
    """Read the data of a recipe; parts are held out and left out by the recipe's seed."""
    task = build_task(recipe.task.name, recipe.task.options)
    if isinstance(task, RetrievalTask):
        return read_ranking_splits(recipe, task, RankingSource(root, cache, listener or Silence()))
    data = recipe.data
    _check_sources(recipe)
    train = task.read("train", root, network=network)
    if not train.labelled:
        gaps = sum(label is None for label in train.labels)
        raise InputError(
            f"{gaps} of {len(train)} training examples of {task.name} have no label: fill them in, or set "
            "task.unlabelled={rule: drop}."
        )
    order = numpy.random.default_rng([recipe.seed, 7]).permutation(len(train)).tolist()
    validation, order = _held_out("validation", data.validation_fraction, train, order)
    test, order = _held_out("test", data.test_fraction, train, order)
    if validation is None:
        validation = task.read("validation", root, network=network)
    # A test file that the user names must be there; one that the task merely knows of need not.
    if test is None and ("test" in recipe.task.options.get("files", {}) or "test" in task.available(root)):
        test = task.read("test", root, network=network)
    if not validation.labelled:
        raise InputError(
            f"the validation set of {task.name} has no labels: set data.validation_fraction to hold some out."
        )
    kept = _count(len(order), data.fraction, data.limit.get("train"))
    # In the order of the file, so that the choice of examples is all that the fraction changes.
    places = tuple(sorted(order[:kept]))
    chosen = train.subset(places)
    _check_classes(task, chosen)
    return Splits(
        task,
        chosen,
        _first(validation, data.limit.get("validation")),
        _optional(test, data.limit.get("test")),
        whole=train,
        chosen=places,
        limited="train" in data.limit,
    )


def _check_sources(recipe: Recipe) -> None:
    """A split comes from a file or out of train, not from both."""
    files = recipe.task.options.get("files") or {}
    for name in ("validation", "test"):
        if name in files and getattr(recipe.data, f"{name}_fraction") is not None:
            raise InputError(
                f"both task.files.{name} and data.{name}_fraction are set: take one of them away, to say where the "
                f"{name} set comes from."
            )


def read_split(recipe: Recipe, task: Task, name: str, root: Path | None, *, network: bool = False) -> Split:
    """One split as a run of the recipe has it; other files are read only if it was taken from them."""
    if isinstance(task, RetrievalTask):
        return _of_ranking(read_splits(recipe, root, network=network), name)
    data = recipe.data
    fractions = {"validation": data.validation_fraction, "test": data.test_fraction}
    if name == "train" or fractions.get(name) is not None:
        splits = read_splits(recipe, root, network=network)
        held_out = splits.validation if name == "validation" else splits.test
        return splits.train if name == "train" or held_out is None else held_out
    limits = {str(split): limit for split, limit in data.limit.items()}
    return _first(task.read(name, root, network=network), limits.get(name))


def _of_ranking(splits: Splits, name: str) -> Split:
    named = {"train": splits.train, "validation": splits.validation}
    named |= {} if splits.test is None else {"test": splits.test}
    if name not in named:
        raise InputError(f"a re-ranker has no {name} split: {choices(name, named)}; test it with `headwise rerank`.")
    return named[name]


def _held_out(name: str, fraction: float | None, train: Split, order: list[int]) -> tuple[Split | None, list[int]]:
    if fraction is None:
        return None, order
    count = round(len(train) * fraction)
    if not 0 < count < len(order):
        raise InputError(
            f"data.{name}_fraction is {fraction}: it would hold out {count} of {len(train)} training examples, which "
            "leaves nothing to use; change it or give a file."
        )
    return train.subset(sorted(order[:count])), order[count:]


def _count(available: int, fraction: float, limit: int | None) -> int:
    wanted = max(1, round(available * fraction))
    return wanted if limit is None else min(wanted, limit)


def _first(split: Split, limit: int | None) -> Split:
    return split if limit is None or limit >= len(split) else split.subset(range(limit))


def _optional(split: Split | None, limit: int | None) -> Split | None:
    return None if split is None else _first(split, limit)


def _check_classes(task: Any, train: Split) -> None:
    """A fraction may leave one class only."""
    if task.kind == "classification" and len(set(train.labels)) < 2:
        raise InputError(
            f"the training set of {task.name} has one class only ({len(train)} examples): there is nothing to learn; "
            "use more of it, or check the label column."
        )
