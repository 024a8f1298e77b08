"""Logits for every example of a data set, in its order; attention is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import Customer, Seam, encoder_of, family_of, heads_of
from headwise.attention.passes import Gates
from headwise.errors import InputError, StateError, choices
from headwise.metrics import score

if TYPE_CHECKING:
    from headwise.heads import HeadImportance

# Classifiers that read the first token only need not finish the last layer for the others.


# Families whose layers are `encoder.layer[-1].attention.output(states, residual)`, then a feed-forward network, and
# whose heads begin with states[:, 0].
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie")
# Classes in these modules are known to do so; what a user has put in their place is not.
KNOWN = ("transformers.models.", "headwise.training.classifier")


@contextmanager
def first_token_only(model: nn.Module) -> Iterator[bool]:
    """Within the block the last layer ends with the first token; models that are not known for it stay as they are.

    Only for outputs: the last hidden states are [B,1,D] in the block. Attention maps and gates are not touched. Gives
    whether the model is one of those.
    """
    place = _end_of_attention(model)
    if place is None:
        yield False
        return
    handle = place.register_forward_pre_hook(_first)
    try:
        yield True
    finally:
        handle.remove()


def reads_first_token(model: nn.Module) -> bool:
    """Whether a model is known to read the first token alone, and nobody looks at the others behind the attention."""
    return _end_of_attention(model) is not None


def _first(_: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """[B,L,D] -> [B,1,D], of the attention's output and of the residual."""
    return tuple(each[:, :1] for each in states)


def _end_of_attention(model: Any) -> nn.Module | None:
    """The module behind the last attention, if all that follows it is known."""
    base = getattr(model, "base_model", None)
    if base is None or getattr(model.config, "model_type", None) not in FAMILIES:
        return None
    head = getattr(base, "pooler", None) or getattr(model, "classifier", None)
    layers = getattr(getattr(base, "encoder", None), "layer", None)
    if not layers or not all(type(each).__module__.startswith(KNOWN) for each in (model, base, head, layers[-1])):
        return None
    if any(each._forward_hooks or each._forward_pre_hooks for each in _after_attention(base, layers[-1])):
        return None  # somebody looks, and should see all tokens
    place: nn.Module = layers[-1].attention.output
    return place


def _after_attention(base: nn.Module, layer: Any) -> list[nn.Module]:
    """The modules whose inputs or outputs become shorter."""
    parts = (layer.attention.output, layer.intermediate, layer.output)
    return [base, base.encoder, layer, layer.attention, *(module for part in parts for module in part.modules())]


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
        after_batch: called with how many examples are done.
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


# Logits of every example under each of many head masks, in one pass over the data.


# Tokens at a time on a processor: half of those of a plain pass, since weights without silenced heads take room too.
MASKED_TOKENS = 1024
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
        after_batch: called with how many examples are done, under all masks.
    """
    masks = _checked(model, masks)
    if not len(data):
        raise InputError("no examples to predict under masks: pass a data set that has some.")
    different, which = numpy.unique(masks, axis=0, return_inverse=True)
    tokens = tokens_at_a_time(model, MASKED_TOKENS) if tokens is None else tokens
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
    from headwise.attention.shared_prefix import can_share_layers, first_tokens_under_masks

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


# -- head importance on encoded examples -------------------------------------------------------------------------------

IMPORTANCE_BATCH = 64
# Tokens at a time, padding counted: as a step of training has them, since a backward pass keeps all activations.
IMPORTANCE_TOKENS = 4096


def importance_on(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[dict[str, Any]]], Inputs],
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
        after_batch: called with how many examples are done.
    """
    from headwise.heads import head_importance

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
    data: Any,
    collate: Callable[[list[dict[str, Any]]], Inputs],
    *,
    limit: int | None = None,
    seed: int = 0,
    batch: int = IMPORTANCE_BATCH,
    tokens: int = IMPORTANCE_TOKENS,
) -> Iterator[dict[str, Tensor]]:
    """Batches of a seeded choice of examples, the longest first, so that little is padding."""
    chosen = numpy.arange(len(data))
    if limit is not None and limit < len(data):
        chosen = numpy.sort(numpy.random.default_rng([seed, 13]).choice(len(data), limit, replace=False))
    lengths = numpy.asarray(data.lengths)[chosen]
    order = chosen[numpy.argsort(-lengths, kind="stable")]
    for start, end in stretches(numpy.asarray(data.lengths)[order].tolist(), batch, tokens):
        yield collate([data[int(index)] for index in order[start:end]])
