"""Read and check everything that a recipe names, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from torch import nn

from headwise.attention.pretrained import check_tokens
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError
from headwise.experiments.gather_knowledge import Sources, count_targets, gather_knowledge
from headwise.experiments.outputs import scorer
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits, read_splits
from headwise.guides import guide
from headwise.patterns.vectors import InputEmbeddings
from headwise.retrieval.reranker import Groups, collate_groups, listwise_loss
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.ssa import self_supervise
from headwise.training import (
    Encoder,
    KnowledgeCollator,
    Listener,
    Material,
    MultiTask,
    RunArguments,
    Silence,
    TaskData,
    WithKnowledge,
    check_length,
    find_encoder,
    freeze,
    load_classifier,
    needs_of,
    run_arguments,
)
from headwise.training.fit import start_from, start_tasks_from
from headwise.training.relabelling import Probing


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes."""

    output: Path
    data: Path | None = None
    network: bool = False
    cache: Path | None = None
    """For knowledge computed from texts; None: HEADWISE_CACHE or the user's cache folder."""


@dataclass(frozen=True)
class PreparedTask:
    """One task, read and encoded."""

    splits: Splits
    encoded: dict[str, Encoded]
    collate: Collator

    @property
    def named_splits(self) -> dict[str, Split]:
        """The splits that there are, by name."""
        splits = self.splits
        named = {"train": splits.train, "validation": splits.validation}
        return named if splits.test is None else named | {"test": splits.test}


@dataclass(frozen=True)
class Prepared:
    """Everything read and checked; nothing written yet."""

    recipe: Recipe
    encoder: Encoder
    model: Any
    """A classifier, or a `MultiTask` if the recipe has `tasks`."""
    tasks: dict[str, PreparedTask]
    train: Encoded | WithKnowledge
    """The training examples of the first task, with knowledge if a guide needs any."""
    knowledge: dict[str, dict[str, Any]]
    """For each guide that needs knowledge, what identifies it: plain data."""
    targets: dict[str, int]
    """For each guide that looks for tokens of a kind, in how many training examples there are any."""
    heads_taken: tuple[str, ...] = ()
    """The tasks whose heads are those of `start_from`."""

    @property
    def only(self) -> PreparedTask:
        """The first task, which is the only one unless the recipe has `tasks`."""
        return next(iter(self.tasks.values()))

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples, so that a run is resumed with those that it began with."""
        total = hashlib.sha256()
        for task, prepared in self.tasks.items():
            for split, part in prepared.encoded.items():
                name = f"{task}/{split}" if self.recipe.several else split
                total.update(f"{name} {len(part)}".encode())
                for array in (part.ids, part.starts, numpy.asarray(part.labels or (), dtype=numpy.float64)):
                    total.update(array.tobytes())
        return total.hexdigest()[:16]

    def material(self, report: Any) -> Material:
        """Model and data in the form that training needs; `report` shows how far the labelling of tokens is."""
        tasks = {}
        for name, prepared in self.tasks.items():
            splits, task = prepared.splits, prepared.splits.task
            tasks[name] = TaskData(
                train=prepared.encoded["train"],
                validation=prepared.encoded["validation"],
                collate=prepared.collate,
                score=scorer(task, splits.validation, splits.gold.get("validation", {})),
                primary=task.primary,
            )
        if self.recipe.several:
            return Material(self.model, tasks, sampling=self.recipe.sampling)
        ((name, data),) = tasks.items()
        task, loss, probing = self.only.splits.task, None, None
        if self.knowledge:
            data = replace(data, train=self.train, collate_train=KnowledgeCollator(self.only.collate))
        if isinstance(task, RetrievalTask) and task.loss == "list":  # batches of whole claims, so `batch` counts claims
            groups, collate = self.only.splits.train.groups or (), data.collate_train or data.collate
            data = replace(data, train=Groups(data.train, groups), collate_train=partial(collate_groups, collate))
            loss = listwise_loss
        supervision = self.recipe.supervision
        if supervision is not None and supervision.learns_labels:
            probing = Probing(self.only.encoded["train"], self.only.collate, task.kind, report.probing)
        return Material(self.model, {name: data}, loss=loss, probing=probing)

    def arguments(self, material: Material, folder: Path) -> RunArguments:
        """The training arguments of the recipe, for a folder."""
        recipe = self.recipe
        return run_arguments(
            recipe.training.model_dump(exclude={"freeze", "snapshots"}),
            material,
            folder,
            seed=recipe.seed,
            by_length=recipe.data.buckets and recipe.data.padding == "dynamic",
            report_to=recipe.report_to,
        )


def prepare(recipe: Recipe, place: Place, listener: Listener | None = None) -> Prepared:
    """Read and check everything that a recipe names, so that mistakes are found before anything is written."""
    listener = listener or Silence()
    encoder = find_encoder(recipe.model, network=place.network)
    check_length(encoder, recipe.data.max_length)
    needs = needs_of(recipe.guides)
    tasks = {}
    for name, part in recipe.parts.items():
        with _errors_of(name if recipe.several else None):
            tasks[name] = _prepare_task(part, encoder, place, listener, offsets=bool(needs))
    # Heads of the same size would start with equal weights if the seed were the same.
    classifiers = {
        name: load_classifier(
            encoder,
            labels=tuple(task.splits.task.labels),
            head=recipe.head,
            seed=(recipe.seed + 7919 * number) % 2**32,
            kind=task.splits.task.kind,
        )
        for number, (name, task) in enumerate(tasks.items())
    }
    for name, task in tasks.items():
        for encoded in task.encoded.values():
            check_tokens(encoded.ids, encoder.tokenizer, classifiers[name])
    first = next(iter(classifiers.values()))
    model: Any = MultiTask(classifiers) if recipe.several else first
    taken = () if recipe.start_from is None else _start_from(model, recipe.start_from, listener)
    supervision = recipe.supervision
    if supervision is not None:
        self_supervise(model, supervision, tokenizer=encoder.tokenizer, max_length=recipe.data.max_length)
        if supervision.use_saved is not None:
            start_from(model, supervision.use_saved)
    freeze(first, recipe.training.freeze)
    if recipe.guides:
        _check_reach(model)
        guide(model, recipe.guides, tokenizer=encoder.tokenizer, share_every=recipe.share_every)
    train: Encoded | WithKnowledge
    train = encoded = next(iter(tasks.values())).encoded["train"]
    targets = count_targets(recipe.guides, encoded, encoder.tokenizer, listener)
    knowledge = {}
    if needs:
        vectors = model.get_input_embeddings().weight
        sources = Sources(lambda: InputEmbeddings(encoder.tokenizer, vectors), place.data, place.cache)
        found = gather_knowledge(needs, next(iter(tasks.values())).splits, sources, listener=listener)
        train = WithKnowledge(encoded, {each.need.pattern.key: each.matrices for each in found}, needs)
        knowledge = {each.need.guide: each.as_data() for each in found}
    return Prepared(recipe, encoder, model, tasks, train, knowledge, targets, taken)


def _prepare_task(recipe: Recipe, encoder: Encoder, place: Place, listener: Listener, *, offsets: bool) -> PreparedTask:
    splits = read_splits(recipe, place.data, network=place.network, cache=place.cache, listener=listener)
    data, tokenizer, supervision = recipe.data, encoder.tokenizer, recipe.supervision
    collate = Collator.of(tokenizer, splits.task.kind, padding=data.padding, max_length=data.max_length)
    prepared = PreparedTask(splits, {}, collate)
    for name, split in prepared.named_splits.items():
        words = supervision is not None and supervision.whole_words and name == "train"
        prepared.encoded[name] = encode(
            split, tokenizer, data.max_length, offsets=offsets and name == "train", words=words
        )
    return prepared


def _start_from(model: MultiTask, folder: str, listener: Listener) -> tuple[str, ...]:
    """Take the weights that fit, and log which ones those are."""
    taken = tuple(start_tasks_from(model, Path(folder)))
    fresh = [task for task in model.tasks if task not in taken]
    listener.log(
        f"the encoder is that of {folder}; heads taken: {', '.join(taken) or 'none'}; heads that start fresh: "
        f"{', '.join(fresh) or 'none'}"
    )
    return taken


def _check_reach(model: nn.Module) -> None:
    """Guides need something to change: a parameter below the attention that they look at."""
    base: Any = model.base_model
    names = [name for name, parameter in base.named_parameters() if parameter.requires_grad]
    if all(name.startswith("pooler.") for name in names):
        raise InputError(
            "training.freeze leaves the guides nothing to change, as the whole encoder is frozen: leave a part of it "
            "out, or set guides to {}."
        )


@contextmanager
def _errors_of(task: str | None) -> Iterator[None]:
    """Say which of several tasks a mistake belongs to."""
    try:
        yield
    except InputError as error:
        raise (error if task is None else InputError(f"tasks.{task}: {error}")) from error
