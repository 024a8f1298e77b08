"""What can be predicted without understanding: the usual class, bags of words, numbers of words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Texts = Sequence[Sequence[str]]
"""For each example its texts, every one as words with blanks between them."""

# Columns for the words and pairs of words of one text; two that share one are mistaken for each other.
BUCKETS = 2**18
# Of ridge regression; of 0.3, 1, 3, 10 and 30 the best compromise between SICK and STS-B.
SHRINKAGE = 3.0
# For a tree that has nothing to look at but lengths: enough to find a threshold or two, too few to learn by heart.
LEAVES, IN_A_LEAF = 16, 10


def usual(labels: Array, count: int, *, numbers: bool = False) -> Array:
    """The most frequent class (of equals, the first) for everybody, or the mean of numbers."""
    if numbers:
        return np.full(count, np.mean(labels))
    classes, counts = np.unique(labels, return_counts=True)
    return np.full(count, classes[np.argmax(counts)])


def bag_of_words(train: Texts, labels: Array, test: Texts, *, seed: int, numbers: bool = False) -> Array:
    """Predict from words and pairs of words that stand side by side, each weighted by how rare it is (tf-idf).

    Every text has columns of its own. Classes by logistic regression, numbers by ridge regression.
    """
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]

    if len(np.unique(labels)) < 2:  # as may happen in a fold
        return usual(labels, len(test), numbers=numbers)
    seen, asked = _features(train, test)
    model = (
        Ridge(SHRINKAGE, solver="sparse_cg")
        if numbers
        else LogisticRegression(solver="saga", tol=1e-2, random_state=seed)
    )
    with warnings.catch_warnings():
        # A baseline need not be exact to the last digit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(seen, labels)
    return np.asarray(model.predict(asked))


def length_only(train: Array, labels: Array, test: Array, *, seed: int, numbers: bool = False) -> Array:
    """Predict from [N,T] numbers of words by a small decision tree, since what gives a label away may be a band."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor  # type: ignore[import-untyped]

    kind = DecisionTreeRegressor if numbers else DecisionTreeClassifier
    model = kind(max_leaf_nodes=LEAVES, min_samples_leaf=IN_A_LEAF, random_state=seed)
    return np.asarray(model.fit(train, labels).predict(test))


def _features(train: Texts, test: Texts) -> tuple[Any, Any]:
    """Sparse [N,F] of both, the columns of the texts one after the other."""
    from scipy.sparse import hstack  # type: ignore[import-untyped]

    sides = [_weighted([texts[place] for texts in train], [texts[place] for texts in test]) for place in _places(train)]
    return hstack([seen for seen, _ in sides], format="csr"), hstack([asked for _, asked in sides], format="csr")


def _places(train: Texts) -> range:
    return range(len(train[0]))


def _weighted(train: Sequence[str], test: Sequence[str]) -> tuple[Any, Any]:
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        HashingVectorizer,
        TfidfTransformer,
    )

    # Hashed, because a vocabulary of pairs of words could outgrow the data many times over.
    count = HashingVectorizer(
        n_features=BUCKETS,
        ngram_range=(1, 2),
        tokenizer=str.split,
        token_pattern=None,
        lowercase=False,
        norm=None,
        alternate_sign=False,
    )
    seen, asked = count.transform(train), count.transform(test)
    used = np.unique(seen.indices)  # a column that is empty in train can teach nothing
    used = used if len(used) else np.zeros(1, dtype=np.intp)
    weigh = TfidfTransformer(sublinear_tf=True).fit(seen[:, used])
    return weigh.transform(seen[:, used]), weigh.transform(asked[:, used])
