"""Which examples a baseline learns from, and which it is scored on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.experiments.data_check.data_file import DataFile
from headwise.experiments.data_check.roles import TEST, TRAIN, VALIDATION

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
