"""A BERT-like layer in two halves: up to the heads' outputs, which masks share, and what follows, which they do not.

Heads that nobody wants are not computed: their rows and columns of the projections are left out, as in a pruned model.

Shapes: H heads that are there, n of them, D head size, B examples, S positions, Q queries, E size of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class LayerHalves:
    """A layer with `attention.self` (query, key, value), `attention.output` (dense, LayerNorm), a `feed_forward_chunk`.

    Weights, not modules, are used up to the heads' outputs and in `dense`, so that parts of them can be left out.
    """

    module: Any
    heads: tuple[int, ...]
    """The numbers of the heads that are there."""

    def attend(self, states: Tensor, mask: Tensor | None, heads: Sequence[int]) -> Tensor:
        """[B,S,E] -> [B,Q,n,D] the outputs of these heads."""
        attention = self.module.attention.self
        query, key, value = (
            functional.linear(states, *self.rows(linear, heads)).unflatten(-1, (len(heads), -1)).transpose(1, 2)
            for linear in (attention.query, attention.key, attention.value)
        )
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=attention.scaling)
        return out.transpose(1, 2)

    def asking(self, states: Tensor) -> Tensor:
        """[B,S,E] -> [B,Q,E] the states that ask, and go on."""
        return states

    def finish(self, out: Tensor | None, states: Tensor, heads: Sequence[int], kept: Sequence[int]) -> Tensor:
        """[B,Q,n,D] the outputs of `heads`, of which some are kept, and [B,S,E] -> [B,Q,E]."""
        output, asking = self.module.attention.output, self.asking(states)
        projected = output.dense.bias  # all that a layer without heads says
        if out is not None and kept:
            if len(kept) < len(heads):
                out = out.index_select(2, _places(kept, heads, out.device))
            projected = functional.linear(out.flatten(2), self.columns(output.dense, kept), output.dense.bias)
        ended: Tensor = self.module.feed_forward_chunk(output.LayerNorm(projected + asking))
        return ended

    def rows(self, linear: nn.Linear, heads: Sequence[int]) -> tuple[Tensor, Tensor]:
        """[n*D,E], [n*D] the part of a query, key or value projection that belongs to these heads."""
        weight, bias = linear.weight, linear.bias
        if len(heads) == len(self.heads):
            return weight, bias
        places, by_head = _places(heads, self.heads, weight.device), (len(self.heads), -1)
        # By whole heads: several times quicker than row by row.
        weight_rows = weight.reshape(by_head).index_select(0, places).view(-1, weight.shape[1])
        return weight_rows, bias.reshape(by_head).index_select(0, places).flatten()

    def columns(self, linear: nn.Linear, heads: Sequence[int]) -> Tensor:
        """[E,n*D] the part of the output projection that belongs to these heads."""
        if len(heads) == len(self.heads):
            return linear.weight
        by_head = linear.weight.reshape(linear.weight.shape[0], len(self.heads), -1)
        return by_head.index_select(1, _places(heads, self.heads, by_head.device)).flatten(1)


class FirstTokenHalves(LayerHalves):
    """The last layer of a classifier that reads the first token alone: only this one asks, and goes on.

    With one query per head neither keys nor values are needed. For the query q and the states x_j,

        q . (W_k x_j + b_k) = (W_k^T q) . x_j + q . b_k        the last term is the same for all j: softmax drops it
        sum_j a_j (W_v x_j + b_v) = W_v (sum_j a_j x_j) + b_v  since the a_j sum to 1

    so heads ask the states themselves, and two projections of all states fall away.
    """

    def attend(self, states: Tensor, mask: Tensor | None, heads: Sequence[int]) -> Tensor:
        """[B,S,E] -> [B,1,n,D] the outputs of these heads."""
        attention = self.module.attention.self
        query = functional.linear(states[:, 0], *self.rows(attention.query, heads))
        key, _ = self.rows(attention.key, heads)
        value, bias = self.rows(attention.value, heads)
        each = (len(heads), -1)
        asked = torch.einsum("bnd,nde->bne", query.unflatten(-1, each), key.unflatten(0, each))
        # The heads are the queries of one attention over the states.
        seen, first = states.unsqueeze(1), mask if mask is None else mask[:, :, :1]
        mixed = functional.scaled_dot_product_attention(
            asked.unsqueeze(1), seen, seen, attn_mask=first, scale=attention.scaling
        )
        out = torch.einsum("bqne,nde->bqnd", mixed, value.unflatten(0, each))
        return out + bias.view(each)

    def asking(self, states: Tensor) -> Tensor:
        """[B,S,E] -> [B,1,E]."""
        return states[:, :1]


def _places(heads: Sequence[int], among: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([among.index(head) for head in heads], device=device)
