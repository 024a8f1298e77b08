"""The pairs that a recipe of retrieval trains and validates on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy

from headwise.errors import InputError, choices
from headwise.experiments.recipe import Recipe
from headwise.experiments.retrieve import Searching, index_of
from headwise.experiments.splits import Splits
from headwise.tasks import Split
from headwise.tasks.retrieval.collection import Collection
from headwise.tasks.retrieval.holdout import split_claims, without_leaks
from headwise.tasks.retrieval.index import Index, IndexOptions
from headwise.tasks.retrieval.pairs import PairOptions, candidate_pairs, given_pairs, training_pairs
from headwise.tasks.retrieval.read import check_documents, read_collection
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.tasks.retrieval.words import Words
from headwise.training import Listener

Claims = dict[str, str]
# Part of the training claims that is held out if the recipe says nothing about validation.
HELD_OUT = 0.1


@dataclass(frozen=True)
class RankingSource:
    """Where collections lie, where indexes are kept, and who is told how far it is."""

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
    chosen = _first(_shuffled(train, recipe.seed), recipe.data.fraction, recipe.data.limit.get("train"))
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
    return candidate_pairs(claims, found, qrels, _texts(index)), gold


def open_collection(task: RetrievalTask, source: RankingSource) -> tuple[Collection, Index]:
    """The collection of a task and its index, which is made if it is not there."""
    listener = source.listener
    collection = read_collection(task.folder(source.root), task.layout)
    index = index_of(collection, Searching(options_of(task), source.cache), listener)
    collection = check_documents(collection, index.corpus, drop_unknown=task.drop_unknown)
    for note in collection.notes:
        listener.tell(note)
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
    listener.tell(f"{len(held)} of {len(train)} training claims are held out for validation")
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
        listener.tell(
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


def _texts(index: Index) -> Callable[[str], str]:
    corpus = index.corpus
    return lambda document: corpus.text(corpus.place(document))


def _shuffled(claims: Claims, seed: int) -> list[str]:
    order = list(claims)
    return [order[place] for place in numpy.random.default_rng([seed, 7]).permutation(len(order))]


def _first(order: list[str], fraction: float, limit: int | None) -> set[str]:
    """A larger part contains a smaller one."""
    return set(order[: max(1, round(len(order) * fraction))][:limit])


def _training_pairs(train: Claims, collection: Collection, index: Index, task: RetrievalTask, seed: int) -> Split:
    options = PairOptions(negatives=task.negatives, passages=task.passages, depth=task.depth)
    split = task.splits_of["train"]
    if task.given and split in collection.given:
        return given_pairs(collection.given[split](), train, options, seed=seed)
    candidates = index.candidates(train, task.depth)
    qrels = {claim: collection.qrels[split][claim] for claim in train}
    return training_pairs(train, qrels, candidates, _texts(index), options, seed=seed, more=index.corpus.ids)
