"""Which parameters stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from headwise.attention import Seam
from headwise.errors import InputError


def freeze(model: nn.Module, parts: Sequence[str | int]) -> int:
    """Freeze parts of an encoder and return how many parameters that are.

    A part is "embeddings", "encoder" (everything but the classifier), or the number of a layer, from 0.
    """
    frozen = 0
    for part in parts:
        for parameter in _parameters(model, part):
            frozen += parameter.numel() if parameter.requires_grad else 0
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("training.freeze leaves nothing to train: leave some part out of it.")
    return frozen


def _parameters(model: nn.Module, part: str | int) -> list[nn.Parameter]:
    base = getattr(model, "base_model", model)
    if part == "encoder":
        return list(base.parameters())
    if part == "embeddings":
        embeddings = getattr(base, "embeddings", None)
        if embeddings is None:
            raise InputError("training.freeze: this model has no part named embeddings.")
        return list(embeddings.parameters())
    count = Seam.of(model).family.shape[0]
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < count:
        raise InputError(
            f"training.freeze names {part!r}: expected embeddings, encoder, or layers from 0 to {count - 1}."
        )
    layers = _layers(base, count)
    return list(layers[part].parameters())


def _layers(base: nn.Module, count: int) -> nn.ModuleList:
    """The list of the encoder's layers: the outermost module list of the right length."""
    for module in base.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise InputError("training.freeze: the layers of this model share weights, so single ones cannot be frozen.")
