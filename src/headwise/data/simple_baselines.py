"""How far one gets without reading: what every result on the data should be compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.data.checked_files import TEST, TRAIN, VALIDATION, DataFile
from headwise.data.near_duplicates import words_and_signs
from headwise.metrics.baselines import (
    PENALTIES,
    bag_of_words,
    held_out_fifth,
    length_only,
    logistic_regression,
    usual,
)
from headwise.metrics.resampling import Estimate, estimated_classes, estimated_numbers

MAJORITY, MEAN, BAG, FIRST, SECOND, LENGTH = "majority", "mean", "bag_of_words", "first_text", "second_text", "length"
FROZEN = "frozen_features"
FOLDS = 5
# More would hardly change a baseline, only its time.
MOST = 20_000
FEWEST = 10
# Every class has separate weights: with many, the time goes where nobody looks.
MOST_CLASSES = 200

Array = NDArray[Any]
Features = Callable[[Sequence[Sequence[str]]], Array]
"""The texts of examples -> [N,F], such as those of an encoder."""


@dataclass(frozen=True)
class Baseline:
    """The scores of one baseline."""

    name: str
    scores: dict[str, Estimate]


@dataclass(frozen=True)
class Baselines:
    """All baselines, and what they learned from."""

    learned_from: str
    scored_on: str
    cross_validated: bool
    train: int
    """Examples to learn from; in cross-validation, all there are."""
    test: int
    capped: bool
    """Whether these are a seeded choice of more."""
    chance: float | None
    """The share of the most frequent class among what is scored; None for numbers."""
    results: tuple[Baseline, ...]

    def summary(self) -> str:
        """How many examples, in a sentence."""
        choice = " (a seeded choice)" if self.capped else ""
        if self.cross_validated:
            return f"the baselines are cross-validated on {self.test} examples of {self.scored_on}{choice}"
        learned = f"the baselines learn from {self.train} examples of {self.learned_from}{choice}"
        return f"{learned} and are scored on {self.test} of {self.scored_on}"

    def scores_of(self, name: str) -> dict[str, Estimate] | None:
        """The scores of the baseline of this name."""
        return next((each.scores for each in self.results if each.name == name), None)


class _Labelled:
    """The examples of some files that have a label, or a seeded choice of them, and what a baseline may look at."""

    def __init__(self, files: Sequence[DataFile], seed: int) -> None:
        self.files = ", ".join(file.name for file in files)
        known = [(file, index) for file in files for index, label in enumerate(file.labels) if label is not None]
        self.capped = len(known) > MOST  # or else these are all
        if self.capped:
            kept = np.sort(np.random.default_rng(seed).choice(len(known), MOST, replace=False))
            known = [known[index] for index in kept]
        self.first_texts = [file.keys[index][0] for file, index in known]  # without case and white space
        self.labels: Array = np.array([file.labels[index] for file, index in known])
        self.texts = [file.examples.texts[index] for file, index in known]
        words = [[words_and_signs(text) for text in file.examples.texts[index]] for file, index in known]
        self.words = [[" ".join(each) for each in texts] for texts in words]
        self.counts: Array = np.array([[len(each) for each in texts] for texts in words], dtype=np.int64)  # [N,T]


def run_baselines(
    files: Sequence[DataFile],
    *,
    numbers: bool,
    seed: int,
    features: Features | None = None,
    log: Callable[[str], None] = lambda message: None,
) -> Baselines | str:
    """Train and score all baselines, or say why there are none.

    They learn from train and are scored on test, or else on validation; a single file with labels is cross-validated.
    With `features` there is one more, of classes only: logistic regression on them.
    """
    labelled = [file for file in files if any(label is not None for label in file.labels)]
    if not labelled:
        return "no file has labels"
    train_files = [file for file in labelled if file.role == TRAIN]
    rest = [file for role in (TEST, VALIDATION) for file in labelled if file.role == role]
    if train_files and rest:
        train, test = _Labelled(train_files, seed), _Labelled(rest[:1], seed)
    else:
        train = test = _Labelled((train_files or labelled)[:1], seed)
    different = len(np.unique(train.labels))
    if different < 2:
        return f"all labels of {train.files} are the same"
    if min(len(train.labels), len(test.labels)) < FEWEST:
        also = "" if train is test else f" and {test.files} {len(test.labels)}"
        return f"they need {FEWEST} labelled examples, but {train.files} has {len(train.labels)}{also}"
    if not numbers and different > MOST_CLASSES:
        return f"{train.files} has {different} classes, and they are made for up to {MOST_CLASSES}"
    if train is test and len(set(train.first_texts)) < 2:
        return f"all examples of {train.files} begin with the same text"
    if train is test:  # each example is predicted once, by what learned from other folds
        folds = fold_numbers(train.first_texts, seed)
        parts = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in np.unique(folds)]
    else:
        parts = [(np.arange(len(train.labels)), np.arange(len(test.labels)))]
    names = [MEAN if numbers else MAJORITY, BAG, FIRST, SECOND, LENGTH]
    if train.counts.shape[1] == 1:
        names = [name for name in names if name not in (FIRST, SECOND)]
    vectors: tuple[Array, Array] | None = None
    if features is not None:
        names.append(FROZEN)
        log("features of the encoder")
        of_train = features(train.texts)
        vectors = of_train, of_train if train is test else features(test.texts)
    results = []
    for name in names:
        log(f"baseline: {name.replace('_', ' ')}")
        predictions = np.empty(len(test.labels), dtype=train.labels.dtype)
        for learned, scored in parts:
            if vectors is not None and name == FROZEN:
                known, new = vectors[0][learned], vectors[1][scored]
                predictions[scored] = _predict_from_features(known, train.labels[learned], new, seed)
            else:
                predictions[scored] = _predict(name, (train, learned), (test, scored), numbers=numbers, seed=seed)
        scores = (
            estimated_numbers(predictions, test.labels)
            if numbers
            else estimated_classes(predictions, test.labels, seed=seed)
        )
        results.append(Baseline(name, scores))
    return Baselines(
        learned_from=train.files,
        scored_on=test.files,
        cross_validated=train is test,
        train=len(train.labels),
        test=len(test.labels),
        capped=train.capped or test.capped,
        chance=None if numbers else float(np.bincount(test.labels).max() / len(test.labels)),
        results=tuple(results),
    )


def fold_numbers(first_texts: Sequence[str], seed: int) -> NDArray[np.int64]:
    """[N] the fold of each example; examples with the same first text are in the same one.

    Otherwise the label of a pair could be read off another pair with its premise.
    """
    sizes = Counter(first_texts)
    texts, filled, fold_of = list(sizes), [0] * FOLDS, {}
    for number in np.random.default_rng(seed).permutation(len(texts)):
        text = texts[number]
        fold_of[text] = filled.index(min(filled))
        filled[fold_of[text]] += sizes[text]
    return np.array([fold_of[text] for text in first_texts], dtype=np.int64)


def _predict_from_features(known: Array, labels: Array, new: Array, seed: int) -> Array:
    """Logistic regression; its penalty is chosen by training on four fifths and predicting the fifth that is left."""
    learned, held_out = held_out_fifth(len(labels), seed)

    def accuracy(predictions: Array) -> float:
        return float((predictions == labels[held_out]).mean())

    part = logistic_regression(known[learned], labels[learned], known[held_out], accuracy)
    penalties = PENALTIES[:1] if part.penalty is None else (part.penalty,)
    return logistic_regression(known, labels, known[held_out], accuracy, penalties).predict(new)


def _predict(
    name: str, learned: tuple[_Labelled, Array], scored: tuple[_Labelled, Array], *, numbers: bool, seed: int
) -> Array:
    """What a baseline that learned from some rows predicts for others."""
    (train, rows), (test, new_rows) = learned, scored
    labels = train.labels[rows]
    if name in (MAJORITY, MEAN):
        return usual(labels, len(new_rows), numbers=numbers)
    if name == LENGTH:
        return length_only(train.counts[rows], labels, test.counts[new_rows], seed=seed, numbers=numbers)
    columns = {FIRST: [0], SECOND: [1]}.get(name, range(train.counts.shape[1]))
    known = [[train.words[row][column] for column in columns] for row in rows]
    new = [[test.words[row][column] for column in columns] for row in new_rows]
    return bag_of_words(known, labels, new, seed=seed, numbers=numbers)
