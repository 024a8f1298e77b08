"""Classifiers that read the first token only need not finish the last layer for the others.

After the attention of the last layer no token looks at another any more, so what comes behind it (a linear map and the
feed-forward network, about three quarters of the layer) is worked out for the first token alone. Outputs are those of
the whole layer, up to the rounding of matrix products of another size.

Shapes: B examples, L tokens, D size of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

# Families whose layers are `encoder.layer[-1].attention.output(states, residual)`, then a feed-forward network, and
# whose heads begin with states[:, 0].
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie")
# Classes in these modules are known to do so; what a user has put in their place is not.
KNOWN = ("transformers.models.", "headwise.training.heads")


@contextmanager
def first_token_only(model: nn.Module) -> Iterator[bool]:
    """Within the block the last layer ends with the first token; models that are not known for it stay as they are.

    Only for outputs: the last hidden states are [B,1,D] in the block. Attention maps and gates are not touched. Gives
    whether the model is one of those.
    """
    place = _end_of_attention(model)
    if place is None:
        yield False
        return
    handle = place.register_forward_pre_hook(_first)
    try:
        yield True
    finally:
        handle.remove()


def reads_first_token(model: nn.Module) -> bool:
    """Whether a model is known to read the first token alone, and nobody looks at the others behind the attention."""
    return _end_of_attention(model) is not None


def _first(_: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """[B,L,D] -> [B,1,D], of the attention's output and of the residual."""
    return tuple(each[:, :1] for each in states)


def _end_of_attention(model: Any) -> nn.Module | None:
    """The module behind the last attention, if all that follows it is known."""
    base = getattr(model, "base_model", None)
    if base is None or getattr(model.config, "model_type", None) not in FAMILIES:
        return None
    head = getattr(base, "pooler", None) or getattr(model, "classifier", None)
    layers = getattr(getattr(base, "encoder", None), "layer", None)
    if not layers or not all(type(each).__module__.startswith(KNOWN) for each in (model, base, head, layers[-1])):
        return None
    if any(each._forward_hooks or each._forward_pre_hooks for each in _after_attention(base, layers[-1])):
        return None  # somebody looks, and should see all tokens
    place: nn.Module = layers[-1].attention.output
    return place


def _after_attention(base: nn.Module, layer: Any) -> list[nn.Module]:
    """The modules whose inputs or outputs become shorter."""
    parts = (layer.attention.output, layer.intermediate, layer.output)
    return [base, base.encoder, layer, layer.attention, *(module for part in parts for module in part.modules())]
