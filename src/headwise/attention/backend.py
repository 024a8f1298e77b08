"""Our attention function and mask function, as registered with transformers.

They hold no state: everything they need is on the module that calls them. Layers that are not watched run transformers'
SDPA function unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import create_position_bias_mask, repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from headwise.attention.maps import attention_with_maps, narrow, valid_positions, without
from headwise.attention.passes import LayerPlan, Pass, Seen
from headwise.attention.received import attention_with_received
from headwise.errors import UnsupportedModelError

NAME = "headwise"
WITHOUT_HEADS = "headwise_without_heads"
"""The attention of layers that lost all their heads, which kernels do not support."""
SITE = "_headwise_site"
# Maps of so many bytes at a time are computed and digested: they stay in the caches of a processor.
PART_BYTES = 1 << 21


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
    dropout: float
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

    def rest(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        nonlocal counted
        if plan.counted:
            out, counted = attention_with_received(query, key, value, mask=mask, **options)
            return out
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=call.dropout, scale=call.scale
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
        part = call if step >= batch else replace(call, **{name: each[rows] for name, each in by_example.items()})
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
    site = getattr(module, SITE, None)
    step = None if site is None else site.begin()
    plan = None if step is None else step[0].plans[step[1]]
    if plan is None or not plan.seen:
        # Without a mask transformers takes a module that does not say (Splinter's) for causal, and encoders are not.
        options = {"is_causal": getattr(module, "is_causal", False), **kwargs}
        out: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )[0]
    if step is None or plan is None:
        return out, None
    current, layer = step
    if plan.watched:
        if kwargs.get("is_causal") or getattr(module, "is_causal", False):
            raise UnsupportedModelError(
                f"{type(module).__name__} is causal; headwise watches encoders, whose tokens see each other both ways."
            )
        current.check_heads(layer, query.shape[1])
        groups = getattr(module, "num_key_value_groups", 1)
        mask, scale = narrow(attention_mask), query.shape[-1] ** -0.5 if scaling is None else scaling
        valid = valid_positions(mask, query.shape[0])
        call = Call(query, repeat_kv(key, groups), repeat_kv(value, groups), mask, valid, scale, dropout)
        if current.valid is None and valid is not None:
            current.valid = valid
        seen = None
        if plan.seen:
            bias = kwargs.get("position_bias")
            if bias is not None:  # learned: it needs a gradient, which only explicit maps give
                bias_mask = create_position_bias_mask(bias, mask, False, query, key)
                call = replace(call, mask=bias_mask, biased=True)
            if plan.digested:
                out = digest_in_parts(call, plan, layer, current)
            else:
                out, seen = watch(call, plan)
        current.take(layer, seen, value=call.value, output=out.transpose(1, 2))
    return current.apply_gates(layer, out), None
