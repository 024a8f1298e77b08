"""Read and check everything that a recipe for several tasks names, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments.data import read_splits
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.prepare import Place, fingerprint, named_splits
from headwise.experiments.splits import Splits
from headwise.tasks import Collator, Encoded, encode
from headwise.training import Encoder, Listener, MultiTask, check_length, find_encoder, freeze, load_classifier
from headwise.training.start_tasks import start_tasks_from
from headwise.training.token_numbers import check_tokens


@dataclass(frozen=True)
class JointPart:
    """One task, read."""

    splits: Splits
    encoded: dict[str, Encoded]
    collate: Collator


@dataclass(frozen=True)
class JointPrepared:
    """Everything read and checked; nothing written yet."""

    recipe: JointRecipe
    encoder: Encoder
    model: MultiTask
    parts: dict[str, JointPart]
    taken: tuple[str, ...] = ()
    """The tasks whose heads are those of `start_from`."""

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples of all tasks."""
        return fingerprint(
            {f"{task}/{name}": encoded for task, part in self.parts.items() for name, encoded in part.encoded.items()}
        )


def prepare_joint(recipe: JointRecipe, place: Place, listener: Listener) -> JointPrepared:
    """Read and check everything that the recipe names."""
    encoder = find_encoder(recipe.model, network=place.network)
    check_length(encoder, recipe.data.max_length)
    parts = {}
    for task in recipe.tasks:
        with _about(task):
            parts[task] = _part(recipe, task, encoder, place, listener)
    # Heads of the same size would start alike if the seed were the same.
    classifiers = {
        task: load_classifier(
            encoder,
            labels=tuple(part.splits.task.labels),
            head="pooler",
            seed=(recipe.seed + 7919 * number) % 2**32,
            kind=part.splits.task.kind,
        )
        for number, (task, part) in enumerate(parts.items())
    }
    for task, part in parts.items():
        for each in part.encoded.values():
            check_tokens(each.ids, encoder.tokenizer, classifiers[task])
    model = MultiTask(classifiers)
    taken = () if recipe.start_from is None else _start_from(model, recipe.start_from, listener)
    freeze(model.classifier(model.tasks[0]), recipe.training.freeze)
    return JointPrepared(recipe, encoder, model, parts, taken)


def _start_from(model: MultiTask, folder: str, listener: Listener) -> tuple[str, ...]:
    """Take what fits, and say what that was."""
    taken = tuple(start_tasks_from(model, Path(folder)))
    fresh = [task for task in model.tasks if task not in taken]
    listener.tell(
        f"the encoder is that of {folder}; heads taken: {', '.join(taken) or 'none'}; heads that start fresh: "
        f"{', '.join(fresh) or 'none'}"
    )
    return taken


def _part(recipe: JointRecipe, task: str, encoder: Encoder, place: Place, listener: Listener) -> JointPart:
    single = recipe.single(task)
    splits = read_splits(single, place.data, network=place.network, cache=place.cache, listener=listener)
    data: Any = recipe.data
    encoded = {name: encode(split, encoder.tokenizer, data.max_length) for name, split in named_splits(splits).items()}
    kind = splits.task.kind
    collate = Collator.of(encoder.tokenizer, kind, padding=data.padding, max_length=data.max_length)
    return JointPart(splits, encoded, collate)


@contextmanager
def _about(task: str) -> Iterator[None]:
    """Say which of the tasks a mistake belongs to."""
    try:
        yield
    except InputError as error:
        raise InputError(f"tasks.{task}: {error}") from error
