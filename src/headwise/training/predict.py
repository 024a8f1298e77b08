"""Logits for every example of a data set, in its order; attention is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.errors import InputError, StateError, choices

if TYPE_CHECKING:
    from headwise.heads.importance import HeadImportance

PRECISIONS = ("fp32", "bf16")
# Tokens at a time, where nobody says how many examples: few enough for the caches of a processor, and many for other
# devices, which we have not measured.
TOKENS = 2048
TOKENS_ELSEWHERE = 32768
# On a processor under masks: half of those of a plain pass, since weights without silenced heads take room too.
MASKED_TOKENS = 1024
# Examples and tokens, padding counted, of a pass with gradients: as a step of training has them, since a backward pass
# keeps all activations.
IMPORTANCE_BATCH = 64
IMPORTANCE_TOKENS = 4096
# A logit next to zeros whose probability rounds to 1.
CERTAIN = 30.0
Inputs = dict[str, Tensor]
Collate = Callable[[list[dict[str, Any]]], Inputs]


def predict_logits(
    model: nn.Module,
    data: Any,
    collate: Collate,
    *,
    batch: int,
    tokens: int | None = None,
    precision: str = "fp32",
    after_batch: Callable[[int], None] | None = None,
) -> numpy.ndarray:
    """[N,C] in the order of the data; examples of similar length are computed together, so that little is padding.

    Of data with `firsts` these are the logits of all words, one example after the other.

    Args:
        model: the classifier; its mode is restored afterwards.
        data: an `Encoded` data set.
        collate: makes a batch of examples.
        batch: examples at a time.
        tokens: at most so many tokens at a time, padding counted, where that is fewer; one example at least.
        precision: fp32 or bf16, in which matrix products are computed; weights stay as they are.
        after_batch: called with how many examples are done.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}: {choices(precision, PRECISIONS)}.")
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
        if getattr(data, "firsts", None) is not None:
            logits = _predict_words(model, data, collate, batch, tokens, after_batch)
        else:
            logits = _predict(model, data, collate, lambda inputs: model(**inputs).logits, batch, tokens, after_batch)
    if not numpy.isfinite(logits).all():
        raise StateError(
            "the model's outputs are not finite: training has diverged; lower the learning rate or weights."
        )
    return logits


def predict_under_masks(
    model: nn.Module,
    data: Any,
    collate: Collate,
    masks: Any,
    *,
    batch: int,
    tokens: int | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> numpy.ndarray:
    """[K,n,C] what `predict_logits` gives under each mask, in the order of the masks and of the data, in one pass.

    `masks` are [K,N,H] bool, True = this head is silenced; a mask may silence none. Tokens count once per mask where
    masks are stacked; by default as many as suit the device.
    """
    from headwise.attention import encoder_of, family_of, gate, heads_of
    from headwise.attention.shared_prefix import can_share_layers, first_tokens_under_masks

    family, masks = family_of(encoder_of(model)), numpy.asarray(masks)
    if masks.size == 0:
        raise InputError("no masks to predict under: pass at least one; one that silences no head is a mask too.")
    if masks.dtype != bool or masks.shape[1:] != family.shape:
        raise InputError(
            f"masks of shape {list(masks.shape)} and type {masks.dtype}: expected bool [masks, {family.layers}, "
            f"{family.heads}], True at the heads to silence."
        )
    for layer, heads in family.pruned.items():
        if masks[:, layer, list(heads)].any():
            heads_of(model, numpy.logical_or.reduce(masks))  # says which head is not there
    if not len(data):
        raise InputError("no examples to predict under masks: pass a data set that has some.")
    different, which = numpy.unique(masks, axis=0, return_inverse=True)
    tokens = tokens_at_a_time(model, MASKED_TOKENS) if tokens is None else tokens
    device = next(model.parameters()).device
    gates = torch.from_numpy(~different).float().to(device)  # [K,N,H]

    share_layers = _end_of_attention(model) is not None and can_share_layers(model)

    def predict(inputs: Inputs) -> Tensor:
        """B examples -> [K,B,C]."""
        if share_layers:
            every: Tensor = model(**inputs).logits.unflatten(0, (len(different), -1))
            return every
        # Each example once per mask in one batch, as many masks at a time as the tokens allow.
        examples, longest = inputs["input_ids"].shape
        parts = []
        for kept in gates.split(max(1, tokens // (examples * longest))):
            with gate(model, kept.repeat_interleave(examples, 0).transpose(0, 1)):  # [N,k*B,H]
                logits = model(**{name: torch.cat([tensor] * len(kept)) for name, tensor in inputs.items()}).logits
            parts.append(logits.unflatten(0, (len(kept), -1)))
        return torch.cat(parts)

    with first_tokens_under_masks(model, different) if share_layers else gate(model, {}):  # installs the seam once
        logits = _predict(model, data, collate, predict, batch, tokens, after_batch)[which.reshape(-1)]
    wrong = numpy.flatnonzero(~numpy.isfinite(logits).all((1, 2)))
    if len(wrong):
        raise StateError(
            f"the model's outputs are not finite under mask {wrong[0]} of {len(logits)}: training has diverged; lower "
            "the learning rate or weights."
        )
    return logits


def _predict(
    model: nn.Module,
    data: Any,
    collate: Collate,
    compute: Callable[[Inputs], Tensor],
    batch: int,
    tokens: int | None,
    after_batch: Callable[[int], None] | None,
) -> numpy.ndarray:
    """[...,N,C] the outputs [...,B,C] of all batches, in the order of the data."""
    lengths = numpy.asarray(data.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device, parts = next(model.parameters()).device, []
    with evaluating(model), torch.inference_mode():
        for start, end in stretches(lengths[order].tolist(), batch, tokens):
            inputs = collate([data[int(index)] for index in order[start:end]])
            inputs.pop("labels", None)
            parts.append(compute({name: tensor.to(device) for name, tensor in inputs.items()}).float().cpu().numpy())
            if after_batch is not None:
                after_batch(end)
    outputs = numpy.concatenate(parts, axis=-2)
    restored: numpy.ndarray = numpy.empty_like(outputs)
    restored[..., order, :] = outputs
    return restored


def _predict_words(
    model: nn.Module,
    data: Any,
    collate: Collate,
    batch: int,
    tokens: int | None,
    after_batch: Callable[[int], None] | None,
) -> numpy.ndarray:
    """[words,C] the logits at the first token of each word, in the order of the data.

    A word that was cut off gets the class O for certain, or equal logits if there is none.
    """
    lengths = numpy.asarray(data.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device, config = next(model.parameters()).device, cast(Any, model.config)
    cut = numpy.zeros(config.num_labels, numpy.float32)
    if "O" in config.label2id:
        cut[config.label2id["O"]] = CERTAIN
    words: list[numpy.ndarray] = [cut] * len(lengths)
    with evaluating(model), torch.inference_mode():
        for start, end in stretches(lengths[order].tolist(), batch, tokens):
            inputs = collate([data[int(index)] for index in order[start:end]])
            inputs.pop("labels", None)
            logits = model(**{name: each.to(device) for name, each in inputs.items()}).logits.float().cpu().numpy()
            for index, row, real in zip(order[start:end], logits, inputs["attention_mask"].numpy(), strict=True):
                firsts = data.firsts[index]
                words[index] = numpy.where(firsts[:, None] >= 0, row[real != 0][firsts], cut)
            if after_batch is not None:
                after_batch(end)
    return numpy.concatenate(words)


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
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def predictions_of(logits: numpy.ndarray, kind: str = "classification") -> numpy.ndarray:
    """Class numbers, the numbers themselves for a regression, or 0 and 1 for every class [N,C] of multi_label."""
    if kind == "multi_label":
        return (logits > 0).astype(numpy.int64)
    chosen: numpy.ndarray = logits[:, 0] if logits.shape[1] == 1 else logits.argmax(1)
    return chosen


def probabilities_of(logits: numpy.ndarray, kind: str = "classification") -> numpy.ndarray:
    """[N,C] softmax over the classes; of multi_label the sigmoid of each."""
    if kind == "multi_label":
        chances: numpy.ndarray = (1 + numpy.tanh(logits / 2)) / 2
        return chances
    powers = numpy.exp(logits - logits.max(1, keepdims=True))
    probabilities: numpy.ndarray = powers / powers.sum(1, keepdims=True)
    return probabilities


def score_logits(logits: numpy.ndarray, labels: Sequence[float], metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of these outputs."""
    from headwise.metrics import score

    return score(list(metrics), predictions_of(logits), numpy.asarray(labels))


# -- classifiers that read the first token only need not finish the last layer for the others --------------------------

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
    end = _end_of_attention(model)
    if end is None:
        yield False
        return
    # [B,L,D] -> [B,1,D], of the attention's output and of the residual.
    handle = end.register_forward_pre_hook(lambda _, states: tuple(each[:, :1] for each in states))
    try:
        yield True
    finally:
        handle.remove()


def _end_of_attention(model: Any) -> nn.Module | None:
    """The module behind the last attention, if all that follows it is known to need the first token alone."""
    base = getattr(model, "base_model", None)
    if base is None or getattr(model.config, "model_type", None) not in FAMILIES:
        return None
    head = getattr(base, "pooler", None) or getattr(model, "classifier", None)
    layers = getattr(getattr(base, "encoder", None), "layer", None)
    if not layers or not all(type(each).__module__.startswith(KNOWN) for each in (model, base, head, layers[-1])):
        return None
    last = layers[-1]
    shorter = [base, base.encoder, last, last.attention]  # modules whose inputs or outputs become shorter
    for part in (last.attention.output, last.intermediate, last.output):
        shorter += part.modules()
    if any(each._forward_hooks or each._forward_pre_hooks for each in shorter):
        return None  # somebody looks, and should see all tokens
    end: nn.Module = last.attention.output
    return end


# -- head importance on encoded examples -------------------------------------------------------------------------------


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
    """`hw.head_importance` of a classifier on an `Encoded` data set: of a seeded choice of at most so many examples."""
    from headwise.heads.importance import head_importance

    return head_importance(
        model,
        sorted_batches(data, collate, limit=examples, seed=seed),
        granularity=granularity,
        normalise=normalise,
        max_examples=None,
        mask=mask,
        after_batch=after_batch,
    )


def sorted_batches(data: Any, collate: Collate, *, limit: int | None = None, seed: int = 0) -> Iterator[Inputs]:
    """Batches of a seeded choice of examples, the longest first, so that little is padding."""
    chosen = numpy.arange(len(data))
    if limit is not None and limit < len(data):
        chosen = numpy.sort(numpy.random.default_rng([seed, 13]).choice(len(data), limit, replace=False))
    lengths = numpy.asarray(data.lengths)
    order = chosen[numpy.argsort(-lengths[chosen], kind="stable")]
    for start, end in stretches(lengths[order].tolist(), IMPORTANCE_BATCH, IMPORTANCE_TOKENS):
        yield collate([data[int(index)] for index in order[start:end]])


# -- faster products on processors -------------------------------------------------------------------------------------


@contextmanager
def packed_linears(model: nn.Module) -> Iterator[None]:
    """Within the block linear layers in float32 multiply by oneDNN, with weights that are packed once; for outputs.

    PyTorch multiplies float32 by MKL, which on AMD processors does not use AVX-512. Weights stay as they are, so hooks,
    gates and `state_dict` work; a layer whose `forward` somebody has replaced stays as it is.
    """
    rows, changed = tokens_at_a_time(model), []
    if next(model.parameters()).device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.dtype == torch.float32 and "forward" not in vars(module):
                packed = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), rows)
                changed.append(module)
                module.forward = partial(_packed_product, packed, module.bias)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _packed_product(packed: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    """[...,I] -> [...,O]."""
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(states, packed, bias, "none", [], "")
    return outputs
