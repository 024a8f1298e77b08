"""Collections of papers in runs: the pairs that a re-ranker is trained, validated and tested on."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy

from headwise.errors import InputError, choices
from headwise.experiments.final_score import FirstStage
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits
from headwise.guides import as_guides
from headwise.retrieval.bm25 import IndexOptions, Words
from headwise.retrieval.collections import Collection, Document, Qrels, Run, check_documents
from headwise.retrieval.formats import read_collection
from headwise.retrieval.fusion import FinalScore, StageScores, Weights, fit_weights, fuse
from headwise.retrieval.holdout import split_claims, without_leaks
from headwise.retrieval.pairs import Pairs, candidate_pairs, given_pairs, title_pairs, training_pairs
from headwise.retrieval.ranking_loss import offset_scale
from headwise.retrieval.retrieval_task import RetrievalTask, retrieval_task
from headwise.retrieval.stages import Stages
from headwise.training import Listener

Claims = dict[str, str]
# Part of the training claims that is held out if the recipe says nothing about validation.
HELD_OUT = 0.1


def read_ranking_splits(recipe: Recipe, root: Path | None, cache: Path | None, progress: Listener) -> Splits:
    """Read a collection, find candidates, and draw pairs; claims that are alike never stand in two splits.

    Fractions and limits count claims. The weights of the first stage are fitted on the training claims alone.

    Args:
        recipe: of a re-ranker.
        root: the folder below which the collection lies.
        cache: where indexes are kept; an index that is not there is built.
        progress: shows how far it is.
    """
    task = retrieval_task(recipe.only.options)
    collection = _read(task, root)
    stages = Stages.open(
        collection,
        stage=task.stage,
        encoder=task.encoder,
        options=index_options(task),
        cache=cache,
        progress=progress,
    )
    corpus = stages.index.corpus
    collection = check_documents(collection, corpus)
    for note in collection.notes:
        progress.log(note)
    names = _split_names(recipe, task, collection)
    train, uses = _claims_of(recipe, names, collection, progress)
    qrels = {use: _judged(collection, names.get(use, names["train"]), each) for use, each in uses.items()}
    of_train, learned = _judged(collection, names["train"], train), stages.scores(train)
    weights = Weights.of_stage(task.stage)
    if task.stage == "hybrid":
        weights = fit_weights(learned, of_train, first=weights, measure=task.primary, split="train").weights
        progress.log(f"first stage: {weights}, fitted on {len(train)} training claims")
    if task.given and names["train"] in collection.given:
        given = collection.given[names["train"]]()
        pairs = given_pairs(given, train, negatives=task.negatives, seed=recipe.seed)
    else:
        pairs = training_pairs(
            train,
            of_train,
            _best(learned, weights, task.depth),
            corpus.text_of,
            seed=recipe.seed,
            negatives=task.negatives,
            passages=task.passages,
            depth=task.depth,
            more=corpus.ids,
        )
        if recipe.guides and any(guide.reads_marks for guide in as_guides(recipe.guides)):
            pairs = _with_evidence(pairs, collection, corpus.text_of)
    score = FinalScore(weights, weights, reads=task.validation_candidates)
    first = FirstStage(score, {use: stages.scores(each) for use, each in uses.items()}, qrels)
    if task.residual:
        first = _with_offsets(first, pairs, learned, progress)
    if task.warm_up:
        answers = {paper for judged in qrels.values() for grades in judged.values() for paper in grades}
        first = replace(first, warm_up=_warm_up(task, stages, weights, recipe.seed, without=answers))
    parts = {
        use: candidate_pairs(
            each, _best(first.scores[use], weights, task.validation_candidates), qrels[use], corpus.text_of
        )
        for use, each in uses.items()
    }
    chosen, limited = tuple(range(len(pairs))), "train" in recipe.data.limit
    return Splits(task, pairs, parts["validation"], parts.get("test"), pairs, chosen, limited, first)


def _read(task: RetrievalTask, root: Path | None) -> Collection:
    """The collection of a task; `gold` is for SciFact, other layouts have one kind."""
    options: dict[str, Any] = {"drop_unknown": task.drop_unknown}
    collection = read_collection(task.folder(root), task.layout, **options)
    if collection.layout != "scifact" or task.gold == "evidence":
        return collection
    return read_collection(task.folder(root), task.layout, gold=task.gold, **options)


def index_options(task: RetrievalTask) -> IndexOptions:
    """How the task wants its papers to be searched."""
    return IndexOptions(Words(task.stem, task.stop_words), k1=task.k1, b=task.b)


# -- which claims ------------------------------------------------------------------------------------------------------


def _claims_of(
    recipe: Recipe, names: Mapping[str, str], collection: Collection, progress: Listener
) -> tuple[Claims, dict[str, Claims]]:
    """The training claims, and those of validation and, if there is one, test."""
    data = recipe.data
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
    uses = {"validation": held}
    if "test" in names:
        uses["test"] = {claim: collection.claims[claim] for claim in collection.qrels[names["test"]]}
    limits = {str(use): most for use, most in data.limit.items()}
    uses = {use: dict(list(each.items())[: limits.get(use)]) for use, each in uses.items()}
    return {claim: train[claim] for claim in train if claim in chosen}, uses


def _judged(collection: Collection, split: str, claims: Claims) -> Qrels:
    return {claim: collection.qrels[split][claim] for claim in claims}


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


def _without_twins(use: str, names: Mapping[str, str], collection: Collection, progress: Listener) -> Claims:
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


def _with_evidence(pairs: Pairs, collection: Collection, text_of: Callable[[str], str]) -> Pairs:
    """The pairs with the sentences that are evidence as marks, where the collection knows them: for `rationale`."""
    if collection.evidence is None:
        return pairs
    evidence, rows = collection.evidence(), zip(pairs.groups or (), pairs.papers, pairs.texts, strict=True)
    return replace(
        pairs,
        spans=tuple(
            tuple((1, *span) for span in evidence.get((claim, paper), ()) if text == text_of(paper))  # not of passages
            for claim, paper, (_, text) in rows
        ),
    )


# -- the first stage ---------------------------------------------------------------------------------------------------


def _best(scores: Mapping[str, StageScores], weights: Weights, top: int) -> Run:
    """The best candidates of each claim, in the order of the first stage."""
    return {claim: dict(islice(each.run(fuse(each, weights)).items(), top)) for claim, each in scores.items()}


def _with_offsets(first: FirstStage, pairs: Pairs, scores: Mapping[str, StageScores], progress: Listener) -> FirstStage:
    """The first stage as the offset of the loss, with the factor that fits the training pairs best.

    A paper that is not among the candidates has the score 0, as the last of them.
    """
    if not pairs.papers:
        raise InputError(
            "task.residual needs the first stage's score of every pair, and the labelled pairs of the data have none: "
            "set given: false, or residual: false."
        )
    fused = {claim: each.run(fuse(each, first.score.first)) for claim, each in scores.items()}
    rows = zip(pairs.groups or (), pairs.papers, strict=True)
    offsets = numpy.array([max(0.0, fused[claim].get(paper, 0.0)) for claim, paper in rows])
    scale = offset_scale(offsets, pairs.labels)  # type: ignore[arg-type]
    progress.log(f"residual: the loss adds {scale} times the score of the first stage to each logit")
    return replace(first, score=replace(first.score, offset=scale), offsets=scale * offsets)


def _warm_up(task: RetrievalTask, stages: Stages, weights: Weights, seed: int, *, without: Container[str]) -> Pairs:
    """Titles with their abstracts, of papers drawn by the seed.

    A title is no label. Papers that are judged for a claim of validation or test are left out all the same, as titles
    and as negatives.
    """
    corpus, chosen = stages.index.corpus, dict[str, Document]()
    for position in numpy.random.default_rng([seed, 11]).permutation(len(corpus)).tolist():
        document = corpus.document(position)
        if document.title.strip() and document.text.strip() and document.id not in without:
            chosen[document.id] = document
        if len(chosen) == task.warm_up:
            break
    scores = stages.scores({name: each.title for name, each in chosen.items()})
    run = {
        name: {paper: score for paper, score in papers.items() if paper != name and paper not in without}
        for name, papers in _best(scores, weights, task.depth).items()
    }
    return title_pairs(
        chosen.values(),
        run,
        lambda name: corpus.document(corpus.position(name)).text,
        seed=seed,
        negatives=task.negatives,
        depth=task.depth,
    )
