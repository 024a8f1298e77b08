"""Our attention function and mask function, as registered with transformers.

They hold no state: everything they need hangs on the module that calls them. Layers that nobody watches run
transformers' own SDPA function, untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import create_position_bias_mask, repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from headwise.attention.maps import attention_with_maps
from headwise.attention.passes import LayerPlan, Pass, Seen, without
from headwise.attention.received import attention_with_received
from headwise.attention.visibility import narrow, valid_positions
from headwise.errors import UnsupportedModelError

# One layer's attention with somebody watching: each head goes the cheapest way that shows what is wanted of it.


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
        """From what a model passes."""
        mask = narrow(mask)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return cls(query, key, value, mask, valid_positions(mask, query.shape[0]), scale, dropout)

    def of_examples(self, rows: slice) -> Call:
        """The same call for some examples of the batch; what all of them share stays as it is."""
        batch = self.query.shape[0]

        def part(shared: Tensor | None) -> Tensor | None:
            return shared[rows] if shared is not None and shared.shape[0] == batch else shared

        return replace(
            self,
            query=self.query[rows],
            key=self.key[rows],
            value=self.value[rows],
            mask=part(self.mask),
            valid=part(self.valid),
        )

    def with_bias(self, mask: Tensor) -> Call:
        """The same call with a learned bias added to the mask."""
        return replace(self, mask=mask, biased=True)


# Maps of so many bytes at a time are made and digested: they stay in the caches of a processor.
PART_BYTES = 1 << 21


def digest_in_parts(call: Call, plan: LayerPlan, layer: int, current: Pass) -> Tensor:
    """Attention of a layer of which nobody keeps a map, out [B,Q,H,D]: a few examples at a time where that pays."""
    batch, _, queries, _ = call.query.shape
    size = len(plan.mapped) * queries * call.key.shape[2] * call.query.element_size()
    step = batch
    if call.query.device.type == "cpu" and not torch.is_grad_enabled():
        step = max(1, PART_BYTES // size)
    made = []
    for start in range(0, batch, step):
        rows = slice(start, min(start + step, batch))
        out, seen = watch(call if step >= batch else call.of_examples(rows), plan)
        current.take(layer, seen, rows)
        made.append(out)
    return made[0] if len(made) == 1 else torch.cat(made)


def watch(call: Call, plan: LayerPlan) -> tuple[Tensor, Seen]:
    """Attention of one layer, out [B,Q,H,D], and what was seen of it."""
    count = call.query.shape[1]
    mapped = tuple(range(count)) if call.biased else plan.mapped
    if not mapped:
        out, received = _counted(call, plan.after_dropout)
        return out, Seen(call.valid, rest=tuple(range(count)), counted=received)
    counted: list[Tensor] = []

    def rest(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        others = replace(call, query=query, key=key, value=value, mask=mask)
        if not plan.counted:
            return _plain_call(others)
        out, received = _counted(others, plan.after_dropout)
        counted.append(received)
        return out

    out, before, after = attention_with_maps(
        call.query, call.key, call.value, mapped, mask=call.mask, scale=call.scale, dropout=call.dropout, rest=rest
    )
    others = tuple(without(mapped, count))
    return out, Seen(call.valid, mapped, before, after, others, next(iter(counted), None))


def _counted(call: Call, after_dropout: bool) -> tuple[Tensor, Tensor]:
    return attention_with_received(
        call.query,
        call.key,
        call.value,
        mask=call.mask,
        valid=call.valid,
        scale=call.scale,
        dropout=call.dropout,
        after_dropout=after_dropout,
    )


def _plain_call(call: Call) -> Tensor:
    out = torch.nn.functional.scaled_dot_product_attention(
        call.query, call.key, call.value, attn_mask=call.mask, dropout_p=call.dropout, scale=call.scale
    )
    return out.transpose(1, 2)


NAME = "headwise"
WITHOUT_HEADS = "headwise_without_heads"
"""The attention of layers that lost all their heads: no kernel need know what to do with none."""
SITE = "_headwise_site"


def register() -> None:
    """Make the functions known to transformers; calling it again does no harm."""
    AttentionInterface.register(NAME, attend)
    # Without a mask function of the same name transformers would silently pass no mask at all.
    AttentionMaskInterface.register(NAME, mask_of)
    AttentionInterface.register(WITHOUT_HEADS, attend_without_heads)


def mask_of(batch_size: int, q_length: int, kv_length: int, **options: Any) -> Tensor | None:
    """SDPA's mask [B,1,Q,K]; if it is padding alone, one row expanded over the queries, which the kernel can tell."""
    if options.get("mask_function") is not bidirectional_mask_function:
        mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, **options)
        return mask
    row = sdpa_mask(batch_size, 1, kv_length, **options)
    return None if row is None else row.expand(-1, -1, q_length, -1)


def attend_without_heads(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    """Outputs [B,Q,0,D] and maps [B,0,Q,K] of a layer without heads; it counts as a layer all the same."""
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

    No weights are returned, as with SDPA: what was seen goes to those who asked for it.
    """
    if query.shape[1] == 0:
        return attend_without_heads(module, query, key, value)
    site = getattr(module, SITE, None)
    step = None if site is None else site.begin()
    if step is None:
        return _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    current, layer = step
    plan = current.plans[layer]
    if not plan.watched:
        out, _ = _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
        return current.apply_gates(layer, out), None
    _check(module, kwargs)
    current.check_heads(layer, query.shape[1])
    groups = getattr(module, "num_key_value_groups", 1)
    call = Call.of(query, repeat_kv(key, groups), repeat_kv(value, groups), attention_mask, scaling, dropout)
    if current.valid is None and call.valid is not None:
        current.valid = call.valid
    if plan.seen:
        bias = kwargs.get("position_bias")
        if bias is not None:  # learned: it needs a gradient, which only the explicit way gives
            call = call.with_bias(create_position_bias_mask(bias, call.mask, False, query, key))
        if plan.digested:
            out = digest_in_parts(call, plan, layer, current)
        else:
            out, seen = watch(call, plan)
            current.take(layer, seen)
    else:
        out, _ = _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    current.take_parts(layer, "value", call.value)
    current.take_parts(layer, "output", out.transpose(1, 2))
    return current.apply_gates(layer, out), None


def _plain(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    kwargs: dict[str, Any],
) -> tuple[Tensor, None]:
    # Without a mask transformers takes a module that does not say (Splinter's) for causal, and encoders are not.
    kwargs = {"is_causal": getattr(module, "is_causal", False), **kwargs}
    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, **kwargs
    )
    return result


def _check(module: nn.Module, kwargs: dict[str, Any]) -> None:
    if kwargs.get("is_causal") or getattr(module, "is_causal", False):
        raise UnsupportedModelError(
            f"{type(module).__name__} is causal; headwise watches encoders, whose tokens see each other both ways."
        )
