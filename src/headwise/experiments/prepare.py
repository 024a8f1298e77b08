"""Read and check everything that a recipe names, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from torch import Tensor, nn

from headwise.attention.pretrained import check_tokens
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError
from headwise.experiments.gather_knowledge import Sources, count_targets, gather_knowledge
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits, read_splits
from headwise.guides import guide
from headwise.patterns.vectors import InputEmbeddings
from headwise.ssa import self_supervise
from headwise.training import (
    Encoder,
    KnowledgeCollator,
    Listener,
    MultiTask,
    Silence,
    WithKnowledge,
    check_length,
    find_encoder,
    freeze,
    load_classifier,
    needs_of,
)
from headwise.training.fit import start_from, start_tasks_from


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes."""

    output: Path
    data: Path | None = None
    network: bool = False
    cache: Path | None = None
    """For knowledge worked out from texts; None: HEADWISE_CACHE or the user's cache folder."""


@dataclass(frozen=True)
class Prepared:
    """Everything read and checked; nothing written yet."""

    recipe: Recipe
    splits: Splits
    encoder: Encoder
    model: nn.Module
    encoded: dict[str, Encoded]
    collate: Collator | KnowledgeCollator
    train: Encoded | WithKnowledge
    """The encoded training examples, with knowledge if a guide needs any."""
    knowledge: dict[str, dict[str, Any]]
    """For each guide that needs knowledge, what tells it from other knowledge: plain data."""
    targets: dict[str, int]
    """For each guide that looks for tokens of a kind, in how many training examples there are any."""


def prepare(recipe: Recipe, place: Place, listener: Listener | None = None) -> Prepared:
    """Read and check everything that a recipe names, so that mistakes come to light before anything is written."""
    listener = listener or Silence()
    encoder = find_encoder(recipe.model, network=place.network)
    check_length(encoder, recipe.data.max_length)
    splits = read_splits(recipe, place.data, network=place.network, cache=place.cache, listener=listener)
    kind, labels = splits.task.kind, tuple(splits.task.labels)
    model = load_classifier(encoder, labels=labels, head=recipe.head, seed=recipe.seed, kind=kind)
    _supervise(model, recipe, encoder)
    freeze(model, recipe.training.freeze)
    if recipe.guides:
        _check_reach(model)
        guide(model, recipe.guides, tokenizer=encoder.tokenizer, share_every=recipe.share_every)
    needs = needs_of(recipe.guides)
    whole_words = recipe.supervision is not None and recipe.supervision.whole_words
    encoded = {
        name: encode(
            split,
            encoder.tokenizer,
            recipe.data.max_length,
            offsets=bool(needs) and name == "train",
            words=whole_words and name == "train",
        )
        for name, split in named_splits(splits).items()
    }
    for each in encoded.values():
        check_tokens(each.ids, encoder.tokenizer, model)
    collate = Collator.of(encoder.tokenizer, kind, padding=recipe.data.padding, max_length=recipe.data.max_length)
    targets = count_targets(recipe.guides, encoded["train"], encoder.tokenizer, listener)
    if not needs:
        return Prepared(recipe, splits, encoder, model, encoded, collate, encoded["train"], {}, targets)
    sources = Sources(lambda: InputEmbeddings(encoder.tokenizer, _input_matrix(model)), place.data, place.cache)
    found = gather_knowledge(needs, splits, sources, listener=listener)
    train = WithKnowledge(encoded["train"], {each.need.pattern.key: each.matrices for each in found}, needs)
    known = {each.need.guide: each.as_data() for each in found}
    return Prepared(recipe, splits, encoder, model, encoded, KnowledgeCollator(collate), train, known, targets)


def _supervise(model: nn.Module, recipe: Recipe, encoder: Encoder) -> None:
    """Give the classifier what SSA needs, and the weights that it starts from."""
    options = recipe.supervision
    if options is None:
        return
    self_supervise(model, options, tokenizer=encoder.tokenizer, max_length=recipe.data.max_length)
    if options.use_saved is not None:
        start_from(model, options.use_saved)


def named_splits(splits: Splits) -> dict[str, Split]:
    """The splits that there are, by name."""
    named = {"train": splits.train, "validation": splits.validation}
    return named if splits.test is None else named | {"test": splits.test}


def _input_matrix(model: Any) -> Tensor:
    matrix: Tensor = model.get_input_embeddings().weight
    return matrix


def _check_reach(model: Any) -> None:
    """Guides need something to change: a parameter below the attention that they look at."""
    names = [name for name, parameter in model.base_model.named_parameters() if parameter.requires_grad]
    if all(name.startswith("pooler.") for name in names):
        raise InputError(
            "training.freeze leaves the guides nothing to change, as the whole encoder is frozen: leave a part of it "
            "out, or set guides to {}."
        )


def fingerprint(encoded: dict[str, Encoded]) -> str:
    """A short hash of all examples, so that a run goes on with those that it began with."""
    total = hashlib.sha256()
    for name, part in encoded.items():
        total.update(f"{name} {len(part)}".encode())
        for array in (part.ids, part.starts, numpy.asarray(part.labels or (), dtype=numpy.float64)):
            total.update(array.tobytes())
    return total.hexdigest()[:16]


# Read and check everything that a recipe for several tasks names, before anything is written.


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
