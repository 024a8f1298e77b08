"""What simple classifiers predict: the most frequent class, from bags of words, numbers of words, or given features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Texts = Sequence[Sequence[str]]
"""For each example its texts, every one as words with blanks between them."""

# Columns for the words and pairs of words of one text; two that share one count as the same.
BUCKETS = 2**18
# Of ridge regression; of 0.3, 1, 3, 10 and 30 the best compromise between SICK and STS-B.
SHRINKAGE = 3.0
# Of logistic regression on standardised features. On SICK with MiniLM 0.001 and 0.003 do best; few features want more.
PENALTIES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)
# For a tree on lengths only: enough leaves to find a threshold or two, too few to memorise the data.
LEAVES, IN_A_LEAF = 16, 10


def usual(labels: Array, count: int, *, numbers: bool = False) -> Array:
    """Predict the most frequent class (of equals, the first) for everything, or the mean of numbers."""
    if numbers:
        return np.full(count, np.mean(labels))
    classes, counts = np.unique(labels, return_counts=True)
    return np.full(count, classes[np.argmax(counts)])


def bag_of_words(train: Texts, labels: Array, test: Texts, *, seed: int, numbers: bool = False) -> Array:
    """Predict from words and pairs of neighbouring words, each weighted by how rare it is (tf-idf).

    Every text of an example has separate columns. Classes by logistic regression, numbers by ridge regression.
    """
    from scipy.sparse import hstack  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]

    if len(np.unique(labels)) < 2:  # as may happen in a fold
        return usual(labels, len(test), numbers=numbers)
    sides = [
        _tf_idf([texts[side] for texts in train], [texts[side] for texts in test]) for side in range(len(train[0]))
    ]
    train_features, test_features = (hstack(each, format="csr") for each in zip(*sides, strict=True))  # [N,F]
    if numbers:
        model = Ridge(SHRINKAGE, solver="sparse_cg")
    else:
        model = LogisticRegression(solver="saga", tol=1e-2, random_state=seed)
    with warnings.catch_warnings():
        # A baseline need not be exact to the last digit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train_features, labels)
    return np.asarray(model.predict(test_features))


def length_only(train: Array, labels: Array, test: Array, *, seed: int, numbers: bool = False) -> Array:
    """Predict from [N,T] numbers of words by a small decision tree, since a range of lengths may reveal a label."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor  # type: ignore[import-untyped]

    kind = DecisionTreeRegressor if numbers else DecisionTreeClassifier
    model = kind(max_leaf_nodes=LEAVES, min_samples_leaf=IN_A_LEAF, random_state=seed)
    return np.asarray(model.fit(train, labels).predict(test))


@dataclass(frozen=True)
class FeatureClassifier:
    """Logistic regression on standardised features."""

    penalty: float | None
    """The inverse strength of the penalty (scikit-learn's C); None if there was one class only."""
    predict: Callable[[Array], Array]
    """[N,F] features -> [N] classes."""


def logistic_regression(
    train: Array,
    labels: Array,
    validation: Array,
    score: Callable[[Array], float],
    penalties: Sequence[float] = PENALTIES,
) -> FeatureClassifier:
    """Fit logistic regression with several penalties and keep the one with the best score; of equals, the strongest.

    Args:
        train: [N,F] features.
        labels: [N] their classes.
        validation: [M,F] features on which the penalty is chosen.
        score: rates the predictions for them; higher is better.
        penalties: to choose from, the strongest first.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    if len(np.unique(labels)) < 2:
        return FeatureClassifier(None, lambda features: usual(labels, len(features)))
    scaler = StandardScaler().fit(train)
    known, new = scaler.transform(train), scaler.transform(validation)
    best: tuple[float, float, Any, Any] | None = None
    model = LogisticRegression(tol=1e-3, max_iter=300, warm_start=True)  # lbfgs draws no random numbers
    for penalty in penalties:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(C=penalty).fit(known, labels)
        value = score(model.predict(new))
        if best is None or value > best[0]:
            best = value, penalty, model.coef_.copy(), model.intercept_.copy()
    _, penalty, model.coef_, model.intercept_ = best or (0.0, 0.0, model.coef_, model.intercept_)
    return FeatureClassifier(penalty, lambda features: np.asarray(model.predict(scaler.transform(features))))


def held_out_fifth(count: int, seed: int) -> tuple[Array, Array]:
    """The numbers of four fifths and of one fifth of so many examples, where nothing else is there to choose by."""
    order = np.random.default_rng([seed, 5]).permutation(count)
    return np.sort(order[count // 5 :]), np.sort(order[: count // 5])


def _tf_idf(train: Sequence[str], test: Sequence[str]) -> tuple[Any, Any]:
    """Sparse features of one text of every example, of both splits."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        HashingVectorizer,
        TfidfTransformer,
    )

    # Hashed, because a vocabulary of pairs of words could outgrow the data many times over.
    vectorizer = HashingVectorizer(
        n_features=BUCKETS,
        ngram_range=(1, 2),
        tokenizer=str.split,
        token_pattern=None,
        lowercase=False,
        norm=None,
        alternate_sign=False,
    )
    train_counts, test_counts = vectorizer.transform(train), vectorizer.transform(test)
    used = np.unique(train_counts.indices)  # a column that is empty in train can teach nothing
    used = used if len(used) else np.zeros(1, dtype=np.intp)
    tf_idf = TfidfTransformer(sublinear_tf=True).fit(train_counts[:, used])
    return tf_idf.transform(train_counts[:, used]), tf_idf.transform(test_counts[:, used])
