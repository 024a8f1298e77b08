"""Our attention function and mask function, as registered with transformers.

They hold no state: everything they need is on the module that calls them. Layers that are not watched run transformers'
SDPA function unchanged, unless there is dropout on a CPU: our kernel is faster and smaller there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import create_position_bias_mask, repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from headwise.attention.dropout import Dropout, drop
from headwise.attention.maps import attention_of_first, attention_with_maps, narrow, valid_positions, without
from headwise.attention.passes import LayerPlan, Pass, Seen
from headwise.attention.received import attention_with_received
from headwise.errors import UnsupportedModelError

NAME = "headwise"
WITHOUT_HEADS = "headwise_without_heads"
"""The attention of layers that lost all their heads, which kernels do not support."""
SITE = "_headwise_site"
# Maps of so many bytes at a time are computed and digested: they stay in the caches of a processor.
PART_BYTES = 1 << 21
_UNWATCHED = LayerPlan(0, (), ())


@dataclass(frozen=True)
class Call:
    """One call of attention."""

    query: Tensor
    """[B,H,Q,D]"""
    key: Tensor
    """[B,H,K,D]"""
    value: Tensor
    """[B,H,K,D]"""
    mask: Tensor | None
    valid: Tensor | None
    """[B,Q] which positions are tokens; None if all are."""
    scale: float
    dropout: Dropout | None
    biased: bool = False
    """Whether the mask holds a learned bias."""


def watch(call: Call, plan: LayerPlan) -> tuple[Tensor, Seen]:
    """Attention of one layer, out [B,Q,H,D], and what was seen of it: each head by the cheapest way that shows it."""
    count = call.query.shape[1]
    options: dict[str, Any] = {"valid": call.valid, "scale": call.scale, "dropout": call.dropout}
    options["after_dropout"] = plan.after_dropout
    mapped = tuple(range(count)) if call.biased else plan.mapped
    if not mapped:
        out, received = attention_with_received(call.query, call.key, call.value, mask=call.mask, **options)
        return out, Seen(call.valid, rest=tuple(range(count)), counted=received)
    counted: Tensor | None = None

    def rest(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: Dropout | None) -> Tensor:
        nonlocal counted
        if plan.counted or dropout is not None:
            parts = {**options, "dropout": dropout}
            out, received = attention_with_received(query, key, value, mask=mask, **parts)
            counted = received if plan.counted else None
            return out
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=call.scale
        ).transpose(1, 2)

    out, before, after = attention_with_maps(
        call.query, call.key, call.value, mapped, mask=call.mask, scale=call.scale, dropout=call.dropout, rest=rest
    )
    return out, Seen(call.valid, mapped, before, after, tuple(without(mapped, count)), counted)


def digest_in_parts(call: Call, plan: LayerPlan, layer: int, current: Pass) -> Tensor:
    """Attention of a layer of which no map is kept, out [B,Q,H,D]: a few examples at a time where that pays."""
    batch, _, queries, _ = call.query.shape
    size = len(plan.mapped) * queries * call.key.shape[2] * call.query.element_size()
    step = batch
    if call.query.device.type == "cpu" and not torch.is_grad_enabled():
        step = max(1, PART_BYTES // size)
    tensors = {name: getattr(call, name) for name in ("query", "key", "value", "mask", "valid")}
    by_example = {name: each for name, each in tensors.items() if each is not None and each.shape[0] == batch}
    outs = []
    for start in range(0, batch, step):
        rows = slice(start, min(start + step, batch))
        part = call
        if step < batch:
            dropout = None if call.dropout is None else call.dropout.examples(rows)
            part = replace(call, dropout=dropout, **{name: each[rows] for name, each in by_example.items()})
        out, seen = watch(part, plan)
        current.take(layer, seen, rows)
        outs.append(out)
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def register() -> None:
    """Make the functions known to transformers; calling it again does no harm."""
    AttentionInterface.register(NAME, attend)
    # Without a mask function of the same name transformers would silently pass no mask at all.
    AttentionMaskInterface.register(NAME, mask_of)
    AttentionInterface.register(WITHOUT_HEADS, attend_without_heads)
    if PreTrainedModel.get_correct_attn_implementation.__name__ != _check_support.__name__:
        _their_check.append(PreTrainedModel.get_correct_attn_implementation)
        PreTrainedModel.get_correct_attn_implementation = _check_support  # type: ignore[method-assign]


_their_check: list[Callable[..., str]] = []


def _check_support(self: PreTrainedModel, requested_attention: str | None, *args: Any, **kwargs: Any) -> str:
    """Transformers silently ignores our attention in models that compute their own: refuse those instead."""
    classes = [each for each in type(self).__mro__ if issubclass(each, PreTrainedModel)][:-1]
    files = [sys.modules.get(each.__module__) for each in classes]
    custom = any(hasattr(file, "ALL_ATTENTION_FUNCTIONS") for file in files) or bool(self.config.sub_configs)
    if requested_attention == NAME and not custom:
        raise UnsupportedModelError(
            f"attn_implementation={NAME!r}: {type(self).__name__} computes its attention itself and ignores custom "
            "attention: leave attn_implementation out, or use another encoder, such as BERT."
        )
    return _their_check[0](self, requested_attention, *args, **kwargs)


def mask_of(batch_size: int, q_length: int, kv_length: int, **options: Any) -> Tensor | None:
    """SDPA's mask [B,1,Q,K]; if it is padding alone, one row expanded over the queries, which `narrow` recognises."""
    if options.get("mask_function") is not bidirectional_mask_function:
        mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, **options)
        return mask
    row = sdpa_mask(batch_size, 1, kv_length, **options)
    return None if row is None else row.expand(-1, -1, q_length, -1)


def attend_without_heads(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    """Outputs [B,Q,0,D] and maps [B,0,Q,K] of a layer without heads, which still counts as a layer."""
    site = getattr(module, SITE, None)
    if site is not None:
        site.begin()
    return query.transpose(1, 2), query.new_zeros(*query.shape[:3], key.shape[2])


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one layer: query [B,H,Q,D], key and value [B,H,K,D] -> out [B,Q,H,D].

    No weights are returned, as with SDPA: what was seen goes to the customers of the model.
    """
    if query.shape[1] == 0:
        return attend_without_heads(module, query, key, value)
    if kwargs.get("is_causal") or getattr(module, "is_causal", False):
        raise UnsupportedModelError(
            f"{type(module).__name__} is causal; headwise works on encoders, whose tokens see each other both ways: "
            "use attn_implementation='sdpa'."
        )
    site = getattr(module, SITE, None)
    current, layer = (None if site is None else site.begin()) or (None, 0)
    plan = _UNWATCHED if current is None else current.plans[layer]
    dropped = None
    # Elsewhere torch's own kernels are faster; there only runs that share their dropout use ours.
    if dropout > 0 and (query.device.type == "cpu" or plan.seen or (current is not None and current.seed is not None)):
        shape = (*query.shape[:3], key.shape[2])
        known = {} if current is None else current.dropout_of(layer, query.shape[0])
        dropped = drop(dropout, shape, device=query.device, **known)
    ours = plan.seen or dropped is not None
    if not ours:
        # Without a mask transformers takes a module that does not say (Splinter's) for causal, and encoders are not.
        options = {**kwargs, "is_causal": False}
        out: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )[0]
        if current is None or not plan.watched:
            return (out if current is None else current.apply_gates(layer, out)), None
    groups = getattr(module, "num_key_value_groups", 1)
    mask, scale = narrow(attention_mask), query.shape[-1] ** -0.5 if scaling is None else scaling
    valid = valid_positions(mask, query.shape[0])
    call = Call(query, repeat_kv(key, groups), repeat_kv(value, groups), mask, valid, scale, dropped)
    bias = kwargs.get("position_bias")
    if (ours or plan.cls) and bias is not None:  # learned: it needs a gradient, which only explicit maps give
        call = replace(call, mask=create_position_bias_mask(bias, mask, False, query, key), biased=True)
    if current is None:
        return watch(call, plan)[0], None
    if plan.watched:
        current.check_heads(layer, query.shape[1])
        current.valid = valid if current.valid is None else current.valid
    seen = None
    if plan.digested:
        out = digest_in_parts(call, plan, layer, current)
    elif ours:
        out, seen = watch(call, plan)
    if plan.watched:
        parts = {"value": call.value, "output": out.transpose(1, 2)}
        if plan.cls:
            parts["cls"] = attention_of_first(call.query, call.key, call.mask, call.valid, scale)
        current.take(layer, seen, **parts)
    return current.apply_gates(layer, out), None


register()
