"""What a recipe trains, validates and tests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy

from headwise.data import Split, Task
from headwise.errors import InputError, choices
from headwise.experiments.recipe import Recipe
from headwise.retrieval.bm25 import Index, IndexOptions, Words, open_index
from headwise.retrieval.collections import Collection, check_documents
from headwise.retrieval.formats import read_collection
from headwise.retrieval.holdout import split_claims, without_leaks
from headwise.retrieval.pairs import candidate_pairs, given_pairs, training_pairs
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.training import Listener, Silence


@dataclass(frozen=True)
class Splits:
    """A task and its examples. `test` is None where the task has none."""

    task: Task
    train: Split
    validation: Split
    test: Split | None
    whole: Split
    """All of the training file, of which `train` is a part."""
    chosen: tuple[int, ...]
    """The places of `train` in it."""
    limited: bool
    """Whether the recipe asks for so many training examples and no more."""
    gold: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of ranking, by split: how many papers answer each claim, be they among its candidates or not."""


# The pairs that a recipe of retrieval trains and validates on.


Claims = dict[str, str]
# Part of the training claims that is held out if the recipe says nothing about validation.
HELD_OUT = 0.1


@dataclass(frozen=True)
class RankingSource:
    """Where collections lie, where indexes are kept, and what shows progress."""

    root: Path | None
    cache: Path | None
    listener: Listener


def read_ranking_splits(recipe: Recipe, task: RetrievalTask, source: RankingSource) -> Splits:
    """Read a collection, find candidates, and draw pairs; claims that are alike never stand in two splits.

    Fractions and limits count claims.
    """
    collection, index = open_collection(task, source)
    names = _split_names(recipe, task, collection)
    train, held = _claims(recipe, names, collection, source.listener)
    chosen = _first_claims(_shuffled(train, recipe.seed), recipe.data.fraction, recipe.data.limit.get("train"))
    train = {claim: train[claim] for claim in train if claim in chosen}
    pairs = _training_pairs(train, collection, index, task, recipe.seed)
    validation, gold = _candidates(
        _cut(held, recipe, "validation"), names.get("validation", names["train"]), collection, index, task
    )
    golds, test = {"validation": gold}, None
    if "test" in names:
        claims = {claim: collection.claims[claim] for claim in collection.qrels[names["test"]]}
        test, golds["test"] = _candidates(_cut(claims, recipe, "test"), names["test"], collection, index, task)
    limited = "train" in recipe.data.limit
    return Splits(task, pairs, validation, test, pairs, tuple(range(len(pairs))), limited, golds)


def _cut(claims: Claims, recipe: Recipe, use: Literal["validation", "test"]) -> Claims:
    return dict(list(claims.items())[: recipe.data.limit.get(use)])


def _candidates(
    claims: Claims, split: str, collection: Collection, index: Index, task: RetrievalTask
) -> tuple[Split, dict[str, int]]:
    """The pairs of claims with the candidates that BM25 finds, and how many papers answer each claim."""
    qrels = collection.qrels[split]
    found = index.candidates(claims, task.validation_candidates)
    gold = {claim: sum(grade > 0 for grade in qrels[claim].values()) for claim in claims}
    return candidate_pairs(claims, found, qrels, index.corpus.text_of), gold


def open_collection(task: RetrievalTask, source: RankingSource) -> tuple[Collection, Index]:
    """The collection of a task and its index, which is made if it is not there."""
    listener = source.listener
    collection = read_collection(task.folder(source.root), task.layout)
    index = open_index(collection, options_of(task), cache=source.cache, listener=listener)
    collection = check_documents(collection, index.corpus, drop_unknown=task.drop_unknown)
    for note in collection.notes:
        listener.log(note)
    return collection, index


def options_of(task: RetrievalTask) -> IndexOptions:
    """How the task wants its papers to be searched."""
    return IndexOptions(Words(task.stem, task.stop_words), k1=task.k1, b=task.b)


def _claims(recipe: Recipe, names: dict[str, str], collection: Collection, listener: Listener) -> tuple[Claims, Claims]:
    """The claims to train on and those to validate on; neither has a twin in a split of another use."""
    train = _without_twins("train", names, collection, listener)
    if "validation" in names:
        return train, _without_twins("validation", names, collection, listener)
    kept, held = split_claims(train, recipe.data.validation_fraction or HELD_OUT, recipe.seed)
    listener.log(f"{len(held)} of {len(train)} training claims are held out for validation")
    return {claim: train[claim] for claim in kept}, {claim: train[claim] for claim in held}


def _without_twins(use: str, names: dict[str, str], collection: Collection, listener: Listener) -> Claims:
    """The claims of a split that are like none of another; validation claims may be like those of train, which go."""
    split = names[use]
    passed = {split} | ({names["train"]} if use == "validation" else set())
    others = {
        claim: collection.claims[claim]
        for other in {*collection.qrels, *collection.members} - passed
        for claim in (*collection.qrels.get(other, ()), *collection.members.get(other, ()))
    }
    claims = {claim: collection.claims[claim] for claim in collection.qrels[split]}
    leaks = without_leaks(claims, others)
    if leaks.removed:
        listener.log(
            f"{len(leaks.removed)} of {len(claims)} {'training' if use == 'train' else use} claims are left out: they "
            "are like claims of another split"
        )
    if not leaks.kept:
        raise InputError(
            f"no claim of {split} of {collection.name} is left for {use}: all are like claims of another split; check "
            "the splits."
        )
    return {claim: claims[claim] for claim in leaks.kept}


def _split_names(recipe: Recipe, task: RetrievalTask, collection: Collection) -> dict[str, str]:
    """Which splits of the collection are for what; without a validation split a part of train is held out."""
    named = dict(task.splits_of)
    for use, name in named.items():
        if name not in collection.qrels:
            raise InputError(
                f"task.splits.{use} is {name}, which {collection.name} has no judgements for: "
                f"{choices(name, collection.qrels)}."
            )
    if "validation" in named and recipe.data.validation_fraction is not None:
        raise InputError(
            "both task.splits.validation and data.validation_fraction are set: take one of them away, to say where the "
            "validation set comes from."
        )
    for use, name in named.items():
        other = next((each for each in named if each != use and named[each] == name), None)
        if other is not None:
            raise InputError(f"task.splits names {name} twice: {use} and {other} must be different splits.")
    return named


def _shuffled(claims: Claims, seed: int) -> list[str]:
    order = list(claims)
    return [order[place] for place in numpy.random.default_rng([seed, 7]).permutation(len(order))]


def _first_claims(order: list[str], fraction: float, limit: int | None) -> set[str]:
    """A larger part contains a smaller one."""
    return set(order[: max(1, round(len(order) * fraction))][:limit])


def _training_pairs(train: Claims, collection: Collection, index: Index, task: RetrievalTask, seed: int) -> Split:
    split = task.splits_of["train"]
    if task.given and split in collection.given:
        return given_pairs(collection.given[split](), train, negatives=task.negatives, seed=seed)
    candidates = index.candidates(train, task.depth)
    qrels = {claim: collection.qrels[split][claim] for claim in train}
    return training_pairs(
        train,
        qrels,
        candidates,
        index.corpus.text_of,
        seed=seed,
        negatives=task.negatives,
        passages=task.passages,
        depth=task.depth,
        more=index.corpus.ids,
    )


# The splits that a recipe asks for.


def read_splits(
    recipe: Recipe,
    root: Path | None,
    *,
    network: bool = False,
    cache: Path | None = None,
    listener: Listener | None = None,
) -> Splits:
    """Read the data of a recipe; parts are held out and left out by the recipe's seed."""
    task = recipe.build_task()
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
    if test is None and ("test" in recipe.only.options.get("files", {}) or "test" in task.available(root)):
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
    files = recipe.only.options.get("files") or {}
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
