"""Logits for every example of a data set, in its order; attention is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import nn

from headwise.errors import StateError
from headwise.metrics import score


def predict_logits(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]],
    *,
    batch: int,
    after_batch: Callable[[int], None] | None = None,
) -> numpy.ndarray:
    """[N,C] in the order of the data; examples of similar length are computed together, so that little is padding.

    Args:
        model: the classifier; its mode is restored afterwards.
        data: an `Encoded` data set.
        collate: makes a batch of examples.
        batch: examples at a time.
        after_batch: told how many examples are done.
    """
    order = numpy.argsort(-numpy.asarray(data.lengths), kind="stable")
    device = next(model.parameters()).device
    parts = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(order), batch):
            inputs = collate([data[int(index)] for index in order[start : start + batch]])
            inputs.pop("labels", None)
            outputs = model(**{name: tensor.to(device) for name, tensor in inputs.items()})
            parts.append(outputs.logits.float().cpu().numpy())
            if after_batch is not None:
                after_batch(min(start + batch, len(order)))
    logits = numpy.concatenate(parts)
    if not numpy.isfinite(logits).all():
        raise StateError(
            "the model's outputs are not finite: training has diverged; lower the learning rate or weights."
        )
    restored: numpy.ndarray = numpy.empty_like(logits)
    restored[order] = logits
    return restored


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def predictions_of(logits: numpy.ndarray) -> numpy.ndarray:
    """Class numbers, or the numbers themselves for a regression."""
    chosen: numpy.ndarray = logits[:, 0] if logits.shape[1] == 1 else logits.argmax(1)
    return chosen


def score_logits(logits: numpy.ndarray, labels: Sequence[float], metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of these outputs."""
    return score(list(metrics), predictions_of(logits), numpy.asarray(labels))
