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

    @classmethod
    def of(
        cls, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None, dropout: float
    ) -> Call:
        """From the arguments of a model."""
        mask = narrow(mask)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return cls(query, key, value, mask, valid_positions(mask, query.shape[0]), scale, dropout)

    def of_examples(self, rows: slice) -> Call:
        """The same call for some examples of the batch."""
        batch = self.query.shape[0]
        per_example = {name: getattr(self, name) for name in ("query", "key", "value", "mask", "valid")}
        parts = {
            name: tensor[rows]
            for name, tensor in per_example.items()
            if tensor is not None and tensor.shape[0] == batch
        }
        return replace(self, **parts)

    def counted(self, after_dropout: bool) -> tuple[Tensor, Tensor]:
        """Out [B,Q,H,D] and received [B,H,K]."""
        return attention_with_received(
            self.query,
            self.key,
            self.value,
            mask=self.mask,
            valid=self.valid,
            scale=self.scale,
            dropout=self.dropout,
            after_dropout=after_dropout,
        )


def watch(call: Call, plan: LayerPlan) -> tuple[Tensor, Seen]:
    """Attention of one layer, out [B,Q,H,D], and what was seen of it: each head by the cheapest way that shows it."""
    count = call.query.shape[1]
    mapped = tuple(range(count)) if call.biased else plan.mapped
    if not mapped:
        out, received = call.counted(plan.after_dropout)
        return out, Seen(call.valid, rest=tuple(range(count)), counted=received)
    counted: list[Tensor] = []

    def rest(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if plan.counted:
            others = replace(call, query=query, key=key, value=value, mask=mask)
            out, received = others.counted(plan.after_dropout)
            counted.append(received)
            return out
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=call.dropout, scale=call.scale
        ).transpose(1, 2)

    out, before, after = attention_with_maps(
        call.query, call.key, call.value, mapped, mask=call.mask, scale=call.scale, dropout=call.dropout, rest=rest
    )
    return out, Seen(call.valid, mapped, before, after, tuple(without(mapped, count)), next(iter(counted), None))


def digest_in_parts(call: Call, plan: LayerPlan, layer: int, current: Pass) -> Tensor:
    """Attention of a layer of which no map is kept, out [B,Q,H,D]: a few examples at a time where that pays."""
    batch, _, queries, _ = call.query.shape
    size = len(plan.mapped) * queries * call.key.shape[2] * call.query.element_size()
    step = batch
    if call.query.device.type == "cpu" and not torch.is_grad_enabled():
        step = max(1, PART_BYTES // size)
    outs = []
    for start in range(0, batch, step):
        rows = slice(start, min(start + step, batch))
        out, seen = watch(call if step >= batch else call.of_examples(rows), plan)
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
        call = Call.of(query, repeat_kv(key, groups), repeat_kv(value, groups), attention_mask, scaling, dropout)
        if current.valid is None and call.valid is not None:
            current.valid = call.valid
        if plan.seen:
            bias = kwargs.get("position_bias")
            if bias is not None:  # learned: it needs a gradient, which only explicit maps give
                bias_mask = create_position_bias_mask(bias, call.mask, False, query, key)
                call = replace(call, mask=bias_mask, biased=True)
            if plan.digested:
                out = digest_in_parts(call, plan, layer, current)
            else:
                out, seen = watch(call, plan)
                current.take(layer, seen)
        current.take_parts(layer, "value", call.value)
        current.take_parts(layer, "output", out.transpose(1, 2))
    return current.apply_gates(layer, out), None
