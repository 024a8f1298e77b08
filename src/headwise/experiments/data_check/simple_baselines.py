"""How far one gets without reading: what every result on the data should be held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.experiments.data_check.data_files import TEST, TRAIN, VALIDATION, DataFile, words
from headwise.metrics.baselines import bag_of_words, length_only, usual
from headwise.metrics.significance import Estimate, estimated_classes, estimated_numbers
from headwise.training import Listener

# Which examples a baseline learns from, and which it is scored on.


FOLDS = 5
# More would hardly change a baseline, only its time.
MOST = 20_000

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of one or more files that have a label."""

    files: str
    """Their names."""
    texts: tuple[tuple[str, ...], ...]
    first_texts: tuple[str, ...]
    """Without case and white space."""
    labels: NDArray[Any]
    capped: bool
    """Whether there were more."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Plan:
    """Where baselines learn and where they are scored; where that is the same, they are cross-validated."""

    train: Examples
    test: Examples

    @property
    def folds(self) -> bool:
        """Whether they are cross-validated."""
        return self.train is self.test

    def parts(self, seed: int) -> Iterator[tuple[Places, Places]]:
        """Places in train to learn from and places in test to predict; each of test occurs once in all."""
        if not self.folds:
            yield np.arange(len(self.train)), np.arange(len(self.test))
            return
        numbers = fold_numbers(self.train.first_texts, seed)
        for fold in np.unique(numbers):
            yield np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold)


def plan(files: Sequence[DataFile], seed: int) -> Plan | None:
    """Learn from train and score on test, or else on validation; of one file with labels, cross-validate."""
    labelled = [file for file in files if file.labelled]
    train = [file for file in labelled if file.role == TRAIN]
    rest = [file for role in (TEST, VALIDATION) for file in labelled if file.role == role]
    if train and rest:
        return Plan(_joined(train, seed), _joined(rest[:1], seed))
    if not labelled:
        return None
    only = _joined((train or labelled)[:1], seed)
    return Plan(only, only)


def _joined(files: Sequence[DataFile], seed: int) -> Examples:
    """All examples with a label; a seeded choice of them if they are too many."""
    known = [(file, index) for file in files for index, label in enumerate(file.labels) if label is not None]
    total = len(known)
    if total > MOST:
        chosen = np.sort(np.random.default_rng(seed).choice(total, MOST, replace=False))
        known = [known[place] for place in chosen]
    return Examples(
        files=", ".join(file.name for file in files),
        texts=tuple(file.texts[index] for file, index in known),
        first_texts=tuple(file.keys[index][0] for file, index in known),
        labels=np.array([file.labels[index] for file, index in known]),
        capped=total > MOST,
    )


def fold_numbers(first_texts: Sequence[str], seed: int) -> Places:
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


MAJORITY, MEAN, BAG, FIRST, SECOND, LENGTH = "majority", "mean", "bag_of_words", "first_text", "second_text", "length"
FEWEST = 10
# Every class has weights of its own: with many, the time goes where nobody looks.
MOST_CLASSES = 200

Array = NDArray[Any]


@dataclass(frozen=True)
class Baseline:
    """What one of them scored."""

    name: str
    scores: dict[str, Estimate]


@dataclass(frozen=True)
class Baselines:
    """All of them, and what they learned from."""

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

    def told(self) -> str:
        """How many examples, in a sentence."""
        choice = " (a seeded choice)" if self.capped else ""
        if self.cross_validated:
            return f"the baselines are cross-validated on {self.test} examples of {self.scored_on}{choice}"
        learned = f"the baselines learn from {self.train} examples of {self.learned_from}{choice}"
        return f"{learned} and are scored on {self.test} of {self.scored_on}"

    def of(self, name: str) -> Baseline | None:
        """The one of this name."""
        return next((each for each in self.results if each.name == name), None)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a baseline gets to see: texts as words with blanks between them, and [N,T] how many."""

    texts: Sequence[Sequence[str]]
    counts: Array

    def at(self, places: Places) -> _Seen:
        return _Seen([self.texts[place] for place in places], self.counts[places])

    def only(self, number: int) -> _Seen:
        """One text of each example."""
        return _Seen([[texts[number]] for texts in self.texts], self.counts[:, [number]])


Predict = Callable[[_Seen, Array, _Seen], Array]


def run_baselines(files: Sequence[DataFile], *, numbers: bool, seed: int, listener: Listener) -> Baselines | str:
    """Train and score all baselines, or tell why there are none."""
    chosen = plan(files, seed)
    reason = "no file has labels" if chosen is None else _unfit(chosen, numbers=numbers)
    if chosen is None or reason:
        return reason
    train = _seen(chosen.train)
    test = train if chosen.folds else _seen(chosen.test)
    results = []
    for name, predict in _predictors(train.counts.shape[1], numbers=numbers, seed=seed).items():
        listener.tell(f"baseline: {name.replace('_', ' ')}")
        predictions = _predicted(chosen, (train, test), predict, seed)
        results.append(Baseline(name, _scores(predictions, chosen.test.labels, numbers=numbers, seed=seed)))
    return Baselines(
        learned_from=chosen.train.files,
        scored_on=chosen.test.files,
        cross_validated=chosen.folds,
        train=len(chosen.train),
        test=len(chosen.test),
        capped=chosen.train.capped or chosen.test.capped,
        chance=None if numbers else float(np.bincount(chosen.test.labels).max() / len(chosen.test)),
        results=tuple(results),
    )


def _unfit(chosen: Plan, *, numbers: bool) -> str:
    """Why nothing can be learned, or nothing."""
    train, different = chosen.train, len(np.unique(chosen.train.labels))
    if different < 2:
        return f"all labels of {train.files} are the same"
    if min(len(train), len(chosen.test)) < FEWEST:
        return f"they need {FEWEST} labelled examples, but {train.files} has {len(train)}" + (
            "" if chosen.folds else f" and {chosen.test.files} {len(chosen.test)}"
        )
    if not numbers and different > MOST_CLASSES:
        return f"{train.files} has {different} classes, and they are made for up to {MOST_CLASSES}"
    if chosen.folds and len(set(train.first_texts)) < 2:
        return f"all examples of {train.files} begin with the same text"
    return ""


def _seen(examples: Examples) -> _Seen:
    cut = [[words(text) for text in texts] for texts in examples.texts]
    counts = np.array([[len(each) for each in texts] for texts in cut], dtype=np.int64)
    return _Seen([[" ".join(each) for each in texts] for texts in cut], counts)


def _predictors(texts: int, *, numbers: bool, seed: int) -> dict[str, Predict]:
    """Name -> from examples and their labels to predictions for others."""

    def bag(train: _Seen, labels: Array, test: _Seen) -> Array:
        return bag_of_words(train.texts, labels, test.texts, seed=seed, numbers=numbers)

    def length(train: _Seen, labels: Array, test: _Seen) -> Array:
        return length_only(train.counts, labels, test.counts, seed=seed, numbers=numbers)

    predictors: dict[str, Predict] = {
        MEAN if numbers else MAJORITY: lambda train, labels, test: usual(labels, len(test.texts), numbers=numbers),
        BAG: bag,
        FIRST: lambda train, labels, test: bag(train.only(0), labels, test.only(0)),
        SECOND: lambda train, labels, test: bag(train.only(1), labels, test.only(1)),
        LENGTH: length,
    }
    return {name: each for name, each in predictors.items() if texts == 2 or name not in (FIRST, SECOND)}


def _predicted(chosen: Plan, seen: tuple[_Seen, _Seen], predict: Predict, seed: int) -> Array:
    """[N] a prediction for every example of test."""
    (train, test), labels = seen, chosen.train.labels
    predictions = np.empty(len(chosen.test), dtype=labels.dtype)
    for learned, asked in chosen.parts(seed):
        predictions[asked] = predict(train.at(learned), labels[learned], test.at(asked))
    return predictions


def _scores(predictions: Array, labels: Array, *, numbers: bool, seed: int) -> dict[str, Estimate]:
    return estimated_numbers(predictions, labels) if numbers else estimated_classes(predictions, labels, seed=seed)
