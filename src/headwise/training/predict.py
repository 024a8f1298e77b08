"""Logits for every example of a data set, in its order; attention is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy
import torch
from torch import nn

from headwise.errors import InputError, StateError, choices
from headwise.metrics import score

PRECISIONS = ("fp32", "bf16")
# Tokens at a time, where nobody says how many examples: few enough for the caches of a processor, and many for other
# devices, which we have not measured.
TOKENS = 2048
TOKENS_ELSEWHERE = 32768


def predict_logits(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]],
    *,
    batch: int,
    tokens: int | None = None,
    precision: str = "fp32",
    after_batch: Callable[[int], None] | None = None,
) -> numpy.ndarray:
    """[N,C] in the order of the data; examples of similar length are computed together, so that little is padding.

    Args:
        model: the classifier; its mode is restored afterwards.
        data: an `Encoded` data set.
        collate: makes a batch of examples.
        batch: examples at a time.
        tokens: at most so many tokens at a time, padding counted, where that is fewer; one example at least.
        precision: fp32 or bf16.
        after_batch: told how many examples are done.
    """
    lengths = numpy.asarray(data.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device = next(model.parameters()).device
    parts = []
    with evaluating(model), torch.inference_mode(), lower_precision(device, precision):
        for start, end in stretches(lengths[order].tolist(), batch, tokens):
            inputs = collate([data[int(index)] for index in order[start:end]])
            inputs.pop("labels", None)
            outputs = model(**{name: tensor.to(device) for name, tensor in inputs.items()})
            parts.append(outputs.logits.float().cpu().numpy())
            if after_batch is not None:
                after_batch(end)
    logits = numpy.concatenate(parts)
    if not numpy.isfinite(logits).all():
        raise StateError(
            "the model's outputs are not finite: training has diverged; lower the learning rate or weights."
        )
    restored: numpy.ndarray = numpy.empty_like(logits)
    restored[order] = logits
    return restored


def tokens_at_a_time(model: nn.Module, on_processor: int = TOKENS) -> int:
    """How many tokens, padding counted, suit the device of a model."""
    return on_processor if next(model.parameters()).device.type == "cpu" else TOKENS_ELSEWHERE


def stretches(lengths: Sequence[int], batch: int, tokens: int | None = None) -> Iterator[tuple[int, int]]:
    """Where each batch of examples begins and ends; the lengths come longest first, so the first is the width."""
    start = 0
    while start < len(lengths):
        most = batch if tokens is None else min(batch, max(1, tokens // lengths[start]))
        end = min(start + most, len(lengths))
        yield start, end
        start = end


@contextmanager
def lower_precision(device: torch.device, precision: str) -> Iterator[None]:
    """Matrix products in bfloat16 if asked for; weights stay as they are."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}: {choices(precision, PRECISIONS)}.")
    with torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
        yield


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


def probabilities_of(logits: numpy.ndarray) -> numpy.ndarray:
    """[N,C] softmax over the classes."""
    powers = numpy.exp(logits - logits.max(1, keepdims=True))
    probabilities: numpy.ndarray = powers / powers.sum(1, keepdims=True)
    return probabilities


def score_logits(logits: numpy.ndarray, labels: Sequence[float], metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of these outputs."""
    return score(list(metrics), predictions_of(logits), numpy.asarray(labels))
