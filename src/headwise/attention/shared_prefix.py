"""One pass through a BERT-like encoder under many head masks at once.

Masks that agree in the first layers share all work there. In the layer where they part they still share queries, keys,
values and attention, since heads are silenced behind these. So the masks form a tree, layer by layer; it is walked
depth first, which keeps one branch in memory at a time. Silenced heads are not computed, and the last layer is worked
out for the first token alone.

All of this changes outputs by the rounding of matrix products of another size, and by nothing else.

Shapes: K masks, N layers, H heads, B examples, S positions, E size of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions as Output

from headwise.attention.head_weights import head_weights
from headwise.attention.layer_halves import FirstTokenHalves, LayerHalves
from headwise.attention.seam import Seam
from headwise.errors import UnsupportedModelError

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
