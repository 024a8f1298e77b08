"""Collections of papers in runs: the pairs that a re-ranker is trained on, and searching with a trained one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy

from headwise.data import Split
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits
from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.collections import Collection, check_documents
from headwise.retrieval.formats import read_collection
from headwise.retrieval.holdout import split_claims, without_leaks
from headwise.retrieval.pairs import candidate_pairs, given_pairs, training_pairs
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.retrieval_task import RetrievalTask, retrieval_task
from headwise.retrieval.search import Searcher
from headwise.training import Listener, Silence

Claims = dict[str, str]
# Part of the training claims that is held out if the recipe says nothing about validation.
HELD_OUT = 0.1


def read_ranking_splits(recipe: Recipe, root: Path | None, cache: Path | None, progress: Listener) -> Splits:
    """Read a collection, find candidates, and draw pairs; claims that are alike never stand in two splits.

    Fractions and limits count claims.

    Args:
        recipe: of a re-ranker.
        root: the folder below which the collection lies.
        cache: where indexes are kept; an index that is not there is built.
        progress: shows how far it is.
    """
    data, task = recipe.data, retrieval_task(recipe.only.options)
    collection = read_collection(task.folder(root), task.layout, drop_unknown=task.drop_unknown)
    index = open_index(collection, index_options(task), cache=cache, progress=progress)
    collection = check_documents(collection, index.corpus)
    for note in collection.notes:
        progress.log(note)
    names = _split_names(recipe, task, collection)
    train = _without_twins("train", names, collection, progress)
    if "validation" in names:
        held = _without_twins("validation", names, collection, progress)
    else:
        kept, left = split_claims(train, data.validation_fraction or HELD_OUT, recipe.seed)
        progress.log(f"{len(left)} of {len(train)} training claims are held out for validation")
        train, held = {claim: train[claim] for claim in kept}, {claim: train[claim] for claim in left}
    # A larger part contains a smaller one.
    claims = list(train)
    order = [claims[each] for each in numpy.random.default_rng([recipe.seed, 7]).permutation(len(claims))]
    chosen = set(order[: max(1, round(len(order) * data.fraction))][: data.limit.get("train")])
    train = {claim: train[claim] for claim in train if claim in chosen}
    if task.given and names["train"] in collection.given:
        given = collection.given[names["train"]]()
        pairs = given_pairs(given, train, negatives=task.negatives, seed=recipe.seed)
    else:
        pairs = training_pairs(
            train,
            {claim: collection.qrels[names["train"]][claim] for claim in train},
            index.candidates(train, task.depth),
            index.corpus.text_of,
            seed=recipe.seed,
            negatives=task.negatives,
            passages=task.passages,
            depth=task.depth,
            more=index.corpus.ids,
        )
    gold: dict[str, dict[str, int]] = {}

    def candidates(claims: Claims, use: Literal["validation", "test"]) -> Split:
        """The pairs of claims with the candidates that BM25 finds; `gold` gets how many papers answer each claim."""
        claims = dict(list(claims.items())[: data.limit.get(use)])
        qrels = collection.qrels[names.get(use, names["train"])]
        gold[use] = {claim: sum(grade > 0 for grade in qrels[claim].values()) for claim in claims}
        found = index.candidates(claims, task.validation_candidates)
        return candidate_pairs(claims, found, qrels, index.corpus.text_of)

    validation, test = candidates(held, "validation"), None
    if "test" in names:
        test = candidates({claim: collection.claims[claim] for claim in collection.qrels[names["test"]]}, "test")
    return Splits(task, pairs, validation, test, pairs, tuple(range(len(pairs))), "train" in data.limit, gold)


def index_options(task: RetrievalTask) -> IndexOptions:
    """How the task wants its papers to be searched."""
    return IndexOptions(Words(task.stem, task.stop_words), k1=task.k1, b=task.b)


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


def _without_twins(use: str, names: dict[str, str], collection: Collection, progress: Listener) -> Claims:
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
        progress.log(
            f"{len(leaks.removed)} of {len(claims)} {'training' if use == 'train' else use} claims are left out: they "
            "are like claims of another split"
        )
    if not leaks.kept:
        raise InputError(
            f"no claim of {split} of {collection.name} is left for {use}: all are like claims of another split; check "
            "the splits."
        )
    return {claim: claims[claim] for claim in leaks.kept}


# -- searching with a trained re-ranker --------------------------------------------------------------------------------


def open_searcher(
    run: Path,
    collection: Path | None = None,
    *,
    layout: str | None = None,
    cache: Path | None = None,
    progress: Listener | None = None,
) -> Searcher:
    """Load a re-ranker and open the index of a collection, which is built if it is not there.

    Args:
        run: the folder of the re-ranker.
        collection: the folder of the collection; None: that of training.
        layout: of the collection; None decides by its files.
        cache: the folder of caches; None as in `open_index`.
        progress: shows how far it is.
    """
    folder = reranker_folder(run)
    trained = _trained_task(folder)
    options = IndexOptions() if trained is None else index_options(trained[0])
    reranker = Reranker.load(folder)  # before the index, which may take long to build
    papers = collection_of(folder, collection, layout=layout)
    index = open_index(papers, options, cache=cache, progress=progress or Silence())
    return Searcher(index, reranker, papers.folder)


def collection_of(
    run: Path,
    folder: Path | None = None,
    *,
    layout: str | None = None,
    gold: str = "evidence",
    drop_unknown: bool = False,
) -> Collection:
    """Read the collection in a folder, or else the one that a run was trained on; options as in `read_collection`."""
    if folder is None:
        trained = _trained_task(reranker_folder(run))
        if trained is None:
            raise InputError(
                f"{run} is not a run of the task retrieval, so nothing says which collection it is for: give it as "
                "collection=FOLDER."
            )
        task, root = trained
        folder, layout, drop_unknown = task.folder(root), layout or task.layout, drop_unknown or task.drop_unknown
        if not folder.exists():
            raise InputError(
                f"{folder}, the collection of training, is no longer there: give its new folder as collection=FOLDER."
            )
    return read_collection(folder, layout, gold=gold, drop_unknown=drop_unknown)


def reranker_folder(run: Path) -> Path:
    """The folder of a re-ranker with its ~ expanded; a missing one is refused."""
    folder = run.expanduser()
    if not folder.is_dir():
        raise InputError(f"{run}: there is no such folder; name that of a trained re-ranker.")
    return folder


def _trained_task(run: Path) -> tuple[RetrievalTask, Path | None] | None:
    """The task and the data folder of a finished run; None if it is no run, or one of another task."""
    if not (run / record.NAME).is_file():
        return None
    content = record.finished_record(run)
    task, root = record.task_recipe(content, run).build_task(), content["data"]
    return (task, None if root is None else Path(root)) if isinstance(task, RetrievalTask) else None
