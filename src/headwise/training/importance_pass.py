"""The importance of heads on encoded examples: a seeded choice of them, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.heads.importance import HeadImportance, head_importance
from headwise.training.predict import stretches

Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]
BATCH = 64
# Tokens at a time, padding counted: as a step of training has them, since a backward pass keeps all activations.
TOKENS = 4096


def importance_on(
    model: nn.Module,
    data: Any,
    collate: Collate,
    *,
    granularity: str = "sample",
    normalise: str = "none",
    examples: int | None = 10_000,
    seed: int = 0,
    mask: NDArray[numpy.bool_] | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> HeadImportance:
    """How important each head is to a classifier on a data set; see `hw.head_importance`.

    Args:
        model: the classifier.
        data: an `Encoded` data set with labels.
        collate: makes a batch of examples.
        granularity: sample, token or batch.
        normalise: none or layer.
        examples: at most so many, a seeded choice without replacement.
        seed: decides that choice.
        mask: [N,H] heads that are silenced meanwhile.
        after_batch: told how many examples are done.
    """
    return head_importance(
        model,
        sorted_batches(data, collate, limit=examples, seed=seed),
        granularity=granularity,
        normalise=normalise,
        max_examples=None,
        mask=mask,
        after_batch=after_batch,
    )


def sorted_batches(
    data: Any, collate: Collate, *, limit: int | None = None, seed: int = 0, batch: int = BATCH, tokens: int = TOKENS
) -> Iterator[dict[str, Tensor]]:
    """Batches of a seeded choice of examples, the longest first, so that little is padding."""
    chosen = numpy.arange(len(data))
    if limit is not None and limit < len(data):
        chosen = numpy.sort(numpy.random.default_rng([seed, 13]).choice(len(data), limit, replace=False))
    lengths = numpy.asarray(data.lengths)[chosen]
    order = chosen[numpy.argsort(-lengths, kind="stable")]
    for start, end in stretches(numpy.asarray(data.lengths)[order].tolist(), batch, tokens):
        yield collate([data[int(index)] for index in order[start:end]])
