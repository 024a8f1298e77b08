"""One layer's attention with somebody watching: each head goes the cheapest way that shows what is wanted of it.

Heads whose maps are wanted get explicit maps; heads whose received attention is wanted are counted by the fused
operation; all others run plain SDPA.

Shapes: B batch, H heads, Q queries, K keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.attention.maps import attention_with_maps
from headwise.attention.passes import LayerPlan, Pass, Seen
from headwise.attention.received import attention_with_received
from headwise.attention.selection import without
from headwise.attention.visibility import narrow, valid_positions


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
            return _plain(others)
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


def _plain(call: Call) -> Tensor:
    out = torch.nn.functional.scaled_dot_product_attention(
        call.query, call.key, call.value, attn_mask=call.mask, dropout_p=call.dropout, scale=call.scale
    )
    return out.transpose(1, 2)
