"""Logits of every example under each of many head masks, in one pass over the data.

BERT-like classifiers share the work of masks that agree in their first layers and leave silenced heads out
(attention/shared_prefix.py). For all others the examples are stacked once per mask, as many masks at a time as tokens
allow, with gates for each example. Either way a batch of examples is made once for all masks.

Measured on processors only (benchmarks/heads.py); stacking is meant for accelerators, on which it was not run.

Shapes: K masks, k of them, N layers, H heads, B examples, n examples of the data, L tokens, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.attention import Customer, Seam, encoder_of, family_of, heads_of
from headwise.attention.passes import Gates
from headwise.attention.shared_prefix import can_share_layers, first_tokens_under_masks
from headwise.errors import InputError, StateError
from headwise.training.first_token import reads_first_token
from headwise.training.predict import evaluating, stretches, tokens_at_a_time

# Tokens at a time on a processor: half of those of a plain pass, since weights without silenced heads take room too.
TOKENS = 1024
Inputs = dict[str, Tensor]
# A batch of B examples to its outputs under every mask, [K,B,C].
Predict = Callable[[Inputs], Tensor]


def predict_under_masks(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[dict[str, Any]]], Inputs],
    masks: numpy.ndarray,
    *,
    batch: int,
    tokens: int | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> numpy.ndarray:
    """[K,n,C] what `predict_logits` gives under each mask, in the order of the masks and of the data.

    Args:
        model: the classifier; its mode is restored afterwards.
        data: an `Encoded` data set.
        collate: makes a batch of examples.
        masks: [K,N,H] bool, True = this head is silenced; a mask may silence none.
        batch: examples at a time.
        tokens: at most so many tokens at a time, padding counted and once per mask where masks are stacked; one example
            at least. By default what suits the device.
        after_batch: told how many examples are done, under all masks.
    """
    masks = _checked(model, masks)
    if not len(data):
        raise InputError("no examples to predict under masks: pass a data set that has some.")
    different, which = numpy.unique(masks, axis=0, return_inverse=True)
    tokens = tokens_at_a_time(model, TOKENS) if tokens is None else tokens
    lengths = numpy.asarray(data.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device = next(model.parameters()).device
    parts = []
    with evaluating(model), torch.inference_mode(), _predicting(model, different, tokens) as predict:
        for start, end in stretches(lengths[order].tolist(), batch, tokens):
            inputs = collate([data[int(index)] for index in order[start:end]])
            inputs.pop("labels", None)
            logits = predict({name: tensor.to(device) for name, tensor in inputs.items()})
            parts.append(logits.float().cpu().numpy())
            if after_batch is not None:
                after_batch(end)
    restored = numpy.empty((len(masks), len(order), parts[0].shape[2]), dtype=parts[0].dtype)
    restored[:, order] = numpy.concatenate(parts, axis=1)[which.reshape(-1)]
    return _finite(restored)


@contextmanager
def _predicting(model: nn.Module, masks: numpy.ndarray, tokens: int) -> Iterator[Predict]:
    """The quickest way that this model allows."""
    if reads_first_token(model) and can_share_layers(model):
        with first_tokens_under_masks(model, masks):
            yield lambda inputs: model(**inputs).logits.unflatten(0, (len(masks), -1))
        return
    seam, stacked = Seam.of(model), _Stacked(model, masks, tokens)
    seam.enter(stacked)
    try:
        yield stacked.predict
    finally:
        seam.leave(stacked)


class _Stacked(Customer):
    """Every example once per mask, in one batch; each row has the gates of its mask."""

    def __init__(self, model: nn.Module, masks: numpy.ndarray, tokens: int) -> None:
        self._model, self._tokens = model, tokens
        self._kept = torch.from_numpy(~masks).float().to(next(model.parameters()).device)  # [K,N,H]
        self._now: Gates = {}

    def gates(self) -> Gates:
        return self._now

    def predict(self, inputs: Inputs) -> Tensor:
        """B examples -> [K,B,C], as many masks at a time as the tokens allow."""
        examples, longest = inputs["input_ids"].shape
        at_a_time = max(1, self._tokens // (examples * longest))
        return torch.cat([self._under(kept, inputs) for kept in self._kept.split(at_a_time)])

    def _under(self, kept: Tensor, inputs: Inputs) -> Tensor:
        """[k,N,H] -> [k,B,C]."""
        repeats = len(kept)
        by_layer = kept.repeat_interleave(len(inputs["input_ids"]), 0).unbind(1)  # N of [k*B,H]
        self._now = dict(enumerate(by_layer))
        try:
            stacked = {name: torch.cat([tensor] * repeats) for name, tensor in inputs.items()}
            logits: Tensor = self._model(**stacked).logits
        finally:
            self._now = {}
        return logits.reshape(repeats, -1, logits.shape[-1])


def _checked(model: nn.Module, masks: Any) -> numpy.ndarray:
    """[K,N,H] of the model's own heads."""
    family = family_of(encoder_of(model))
    found = numpy.asarray(masks)
    if found.size == 0:
        raise InputError("no masks to predict under: pass at least one; one that silences no head is a mask too.")
    if found.dtype != bool or found.shape[1:] != family.shape:
        raise InputError(
            f"masks of shape {list(found.shape)} and type {found.dtype}: expected bool [masks, {family.layers}, "
            f"{family.heads}], True at the heads to silence."
        )
    for layer, heads in family.pruned.items():
        if found[:, layer, list(heads)].any():
            heads_of(model, numpy.logical_or.reduce(found))  # says which head is not there
    return found


def _finite(logits: numpy.ndarray) -> numpy.ndarray:
    """[K,n,C], or the first mask under which they are not numbers."""
    wrong = numpy.flatnonzero(~numpy.isfinite(logits).all((1, 2)))
    if len(wrong):
        raise StateError(
            f"the model's outputs are not finite under mask {wrong[0]} of {len(logits)}: training has diverged; lower "
            "the learning rate or weights."
        )
    return logits
