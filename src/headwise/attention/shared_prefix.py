"""One pass through a BERT-like encoder under many head masks at once.

Masks that agree in the first layers share all work there. In the layer where they part they still share queries, keys,
values and attention, since heads are silenced behind these. So the masks form a tree, layer by layer; it is walked
depth first, which keeps one branch in memory at a time. Silenced heads are not computed, and the last layer is worked
out for the first token alone.

All of this changes outputs by the rounding of matrix products of another size, and by nothing else.

Shapes: K masks, N layers, H heads, B examples, S positions, E size of a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions as Output

from headwise.attention.families import head_weights
from headwise.attention.seam import Seam
from headwise.errors import UnsupportedModelError

# A BERT-like layer in two halves: up to the heads' outputs, which masks share, and what follows, which they do not.


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


# Their layers are `attention.self` (query, key, value), `attention.output` (dense, LayerNorm), `feed_forward_chunk`.
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie")
# Kinds of attention whose mask torch's own attention function takes as it is.
_KERNELS = ("sdpa", "eager")
_THEIRS = "transformers.models."


@contextmanager
def first_tokens_under_masks(model: Any, masks: numpy.ndarray) -> Iterator[None]:
    """Within the block every pass ends with first tokens only, and with those under each mask: K*B for B examples.

    For outputs in evaluation mode, of models of which `can_share_layers` is true and whose classifier reads the first
    token alone. The last hidden states are [K*B,1,E], those under the first mask first.

    Args:
        model: the classifier.
        masks: [K,N,H] bool, True = silenced; all of them heads that are there.
    """
    encoder = model.base_model.encoder
    encoder.__dict__["forward"] = _Walk(_layers_of(model), masks).run
    try:
        yield
    finally:
        del encoder.__dict__["forward"]


def can_share_layers(model: Any) -> bool:
    """Whether the layers of a classifier are laid out as BERT's, and nobody looks into it or has changed them."""
    encoder = getattr(getattr(model, "base_model", None), "encoder", None)
    if encoder is None or model.config.model_type not in FAMILIES or Seam.of(model).customers:
        return False
    if model.config._attn_implementation not in _KERNELS or model.config.output_hidden_states:
        return False
    if any(_touched(module) for module in model.modules()) or not all(_known(layer) for layer in encoder.layer):
        return False
    try:
        head_weights(model)
    except UnsupportedModelError:
        return False
    return True


def _touched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _known(layer: Any) -> bool:
    parts = (layer, layer.attention, layer.attention.self, layer.attention.output)
    return all(type(part).__module__.startswith(_THEIRS) for part in parts)


def _layers_of(model: Any) -> list[LayerHalves]:
    layers = list(zip(model.base_model.encoder.layer, head_weights(model), strict=True))
    module, last = layers.pop()
    return [*(LayerHalves(each, those.heads) for each, those in layers), FirstTokenHalves(module, last.heads)]


class _Walk:
    """Stands in for the forward function of an encoder."""

    def __init__(self, layers: list[LayerHalves], masks: numpy.ndarray) -> None:
        self._layers, self._masks = layers, masks
        self._ends: dict[int, Tensor] = {}

    def run(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Output:
        """[B,S,E] -> [K*B,1,E]."""
        try:
            self._descend(0, hidden_states, attention_mask, numpy.arange(len(self._masks)))
            ends = torch.cat([self._ends[number] for number in range(len(self._masks))])
        finally:
            self._ends = {}
        return Output(last_hidden_state=ends)  # type: ignore[arg-type]

    def _descend(self, start: int, states: Tensor, mask: Tensor | None, members: numpy.ndarray) -> None:
        """Go on from a layer with the masks that have come so far together; where they part, one after the other."""
        for number, layer in enumerate(self._layers[start:], start):
            branches = _branches(self._masks[members, number], members)
            heads = [head for head in layer.heads if not self._masks[members, number, head].all()]
            out = layer.attend(states, mask, heads) if heads else None
            for silent, those in branches[1:]:
                kept = [head for head in heads if not silent[head]]
                self._descend(number + 1, layer.finish(out, states, heads, kept), mask, those)
            # One branch goes on here, where nothing else keeps these states in memory.
            silent, members = branches[0]
            states = layer.finish(out, states, heads, [head for head in heads if not silent[head]])
        for member in members.tolist():
            self._ends[member] = states


def _branches(rows: numpy.ndarray, members: numpy.ndarray) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """The different rows [H] among those of these masks, each with the masks that have it."""
    different, which = numpy.unique(rows, axis=0, return_inverse=True)
    return [(row, members[which.reshape(-1) == number]) for number, row in enumerate(different)]
