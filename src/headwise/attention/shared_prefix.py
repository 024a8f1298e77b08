"""One pass through a BERT-like encoder under many head masks at once.

Masks that agree in the first layers share all work there. In the layer where they part they still share queries, keys,
values and attention, since heads are silenced behind these. So the masks form a tree, layer by layer; it is walked
depth first, which keeps one branch in memory at a time. Silenced heads are not computed, and the last layer is computed
for the first token alone.

Outputs change by the rounding of matrix products of another size, and by nothing else.

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

from headwise.attention.backend import NAME
from headwise.attention.families import head_weights
from headwise.attention.seam import Seam
from headwise.errors import UnsupportedModelError

# Their layers are `attention.self` (query, key, value), `attention.output` (dense, LayerNorm), `feed_forward_chunk`.
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie")
# Kinds of attention whose mask torch's attention function takes as it is.
_KERNELS = ("sdpa", "eager", NAME)
_THEIRS = "transformers.models."


@dataclass(frozen=True)
class LayerHalves:
    """A BERT-like layer in two halves: up to the heads' outputs, which masks share, and the rest, which they do not.

    Weights, not modules, are used up to the heads' outputs and in `dense`, so that parts of them can be left out.
    """

    module: Any
    heads: tuple[int, ...]
    """The numbers of the heads that are left."""

    def attend(self, states: Tensor, mask: Tensor | None, heads: Sequence[int]) -> Tensor:
        """[B,S,E] -> [B,Q,n,D] the outputs of these heads."""
        attention = self.module.attention.self
        query, key, value = (
            functional.linear(states, *self.rows(linear, heads)).unflatten(-1, (len(heads), -1)).transpose(1, 2)
            for linear in (attention.query, attention.key, attention.value)
        )
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=attention.scaling)
        return out.transpose(1, 2)

    def queries(self, states: Tensor) -> Tensor:
        """[B,S,E] -> [B,Q,E] the states that have queries, and are passed on."""
        return states

    def finish(self, out: Tensor | None, states: Tensor, heads: Sequence[int], kept: Sequence[int]) -> Tensor:
        """[B,Q,n,D] the outputs of `heads`, of which some are kept, and [B,S,E] -> [B,Q,E]."""
        output = self.module.attention.output
        projected = output.dense.bias  # the whole output of a layer without heads
        if out is not None and kept:
            if len(kept) < len(heads):
                out = out.index_select(2, _indices(kept, heads, out.device))
            weight = output.dense.weight
            if len(kept) < len(self.heads):  # [E,n*D] the columns of these heads
                by_head = weight.reshape(weight.shape[0], len(self.heads), -1)
                weight = by_head.index_select(1, _indices(kept, self.heads, by_head.device)).flatten(1)
            projected = functional.linear(out.flatten(2), weight, output.dense.bias)
        finished: Tensor = self.module.feed_forward_chunk(output.LayerNorm(projected + self.queries(states)))
        return finished

    def rows(self, linear: nn.Linear, heads: Sequence[int]) -> tuple[Tensor, Tensor]:
        """[n*D,E], [n*D] the part of a query, key or value projection that belongs to these heads."""
        weight, bias = linear.weight, linear.bias
        if len(heads) == len(self.heads):
            return weight, bias
        indices, by_head = _indices(heads, self.heads, weight.device), (len(self.heads), -1)
        # By whole heads: several times faster than row by row.
        weight_rows = weight.reshape(by_head).index_select(0, indices).view(-1, weight.shape[1])
        return weight_rows, bias.reshape(by_head).index_select(0, indices).flatten()


class FirstTokenHalves(LayerHalves):
    """The last layer of a classifier that reads the first token alone: only this one has a query, and is passed on.

    With one query per head neither keys nor values are needed. For the query q and the states x_j,

        q . (W_k x_j + b_k) = (W_k^T q) . x_j + q . b_k        the last term is the same for all j: softmax drops it
        sum_j a_j (W_v x_j + b_v) = W_v (sum_j a_j x_j) + b_v  since the a_j sum to 1

    so queries are compared with the states directly, and two projections of all states are not needed.
    """

    def attend(self, states: Tensor, mask: Tensor | None, heads: Sequence[int]) -> Tensor:
        """[B,S,E] -> [B,1,n,D] the outputs of these heads."""
        attention = self.module.attention.self
        query = functional.linear(states[:, 0], *self.rows(attention.query, heads))
        key, _ = self.rows(attention.key, heads)
        value, bias = self.rows(attention.value, heads)
        each = (len(heads), -1)
        projected = torch.einsum("bnd,nde->bne", query.unflatten(-1, each), key.unflatten(0, each))
        # The heads are the queries of one attention over the states.
        seen, first = states.unsqueeze(1), mask if mask is None else mask[:, :, :1]
        mixed = functional.scaled_dot_product_attention(
            projected.unsqueeze(1), seen, seen, attn_mask=first, scale=attention.scaling
        )
        out = torch.einsum("bqne,nde->bqnd", mixed, value.unflatten(0, each))
        return out + bias.view(each)

    def queries(self, states: Tensor) -> Tensor:
        """[B,S,E] -> [B,1,E]."""
        return states[:, :1]


def _indices(heads: Sequence[int], among: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([among.index(head) for head in heads], device=device)


@contextmanager
def first_tokens_under_masks(model: Any, masks: numpy.ndarray) -> Iterator[None]:
    """Within the block every pass ends with first tokens only, and with those under each mask: K*B for B examples.

    For outputs in evaluation mode, of models of which `can_share_layers` is true and whose classifier reads the first
    token alone. The last hidden states are [K*B,1,E], those under the first mask first.

    Args:
        model: the classifier.
        masks: [K,N,H] bool, True = silenced; all of them heads that the model has.
    """
    encoder = model.base_model.encoder
    layers = [
        LayerHalves(module, weights.heads) for module, weights in zip(encoder.layer, head_weights(model), strict=True)
    ]
    layers[-1] = FirstTokenHalves(layers[-1].module, layers[-1].heads)

    def forward(hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Output:
        """[B,S,E] -> [K*B,1,E]."""
        ends: list[Tensor] = [hidden_states] * len(masks)
        _descend(layers, masks, 0, hidden_states, attention_mask, numpy.arange(len(masks)), ends)
        return Output(last_hidden_state=torch.cat(ends))  # type: ignore[arg-type]

    encoder.__dict__["forward"] = forward
    try:
        yield
    finally:
        del encoder.__dict__["forward"]


def can_share_layers(model: Any) -> bool:
    """Whether the layers of a classifier are laid out as BERT's, and the model is neither watched nor changed."""
    encoder = getattr(getattr(model, "base_model", None), "encoder", None)
    if encoder is None or model.config.model_type not in FAMILIES or Seam.of(model).customers:
        return False
    if model.config._attn_implementation not in _KERNELS or model.config.output_hidden_states:
        return False
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
            return False
    for layer in encoder.layer:
        parts = (layer, layer.attention, layer.attention.self, layer.attention.output)
        if not all(type(part).__module__.startswith(_THEIRS) for part in parts):
            return False
    try:
        head_weights(model)
    except UnsupportedModelError:
        return False
    return True


def _descend(
    layers: Sequence[LayerHalves],
    masks: numpy.ndarray,
    start: int,
    states: Tensor,
    mask: Tensor | None,
    members: numpy.ndarray,
    ends: list[Tensor],
) -> None:
    """Continue from a layer with the masks that agree so far; where they differ, one branch after the other.

    `ends` are the last states under each mask, to be written.
    """
    for number, layer in enumerate(layers[start:], start):
        # The different rows [H] of these masks, each with the masks that have it.
        different, which = numpy.unique(masks[members, number], axis=0, return_inverse=True)
        branches = [(row, members[which.reshape(-1) == index]) for index, row in enumerate(different)]
        heads = [head for head in layer.heads if not masks[members, number, head].all()]
        out = layer.attend(states, mask, heads) if heads else None
        for silent, those in branches[1:]:
            kept = [head for head in heads if not silent[head]]
            _descend(layers, masks, number + 1, layer.finish(out, states, heads, kept), mask, those, ends)
        # One branch continues here, where nothing else keeps these states in memory.
        silent, members = branches[0]
        states = layer.finish(out, states, heads, [head for head in heads if not silent[head]])
    for member in members.tolist():
        ends[member] = states
