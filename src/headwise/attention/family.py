"""What kind of model this is, and by which route its attention can be reached."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from headwise.attention.eager import EAGER_MODULES
from headwise.attention.selection import without
from headwise.errors import UnsupportedModelError

Route = Literal["fused", "eager"]
# On every attention module of a pruned model: the numbers of the heads that are left in it.
LEFT = "_headwise_heads_left"


@dataclass(frozen=True)
class Family:
    """What headwise needs to know of a model before it runs."""

    name: str
    """transformers' model type, such as bert."""
    route: Route
    """fused: through transformers' attention interface. eager: maps that the model makes itself, reduced at once."""
    layers: int
    heads: int
    longest: int | None
    """How many tokens the position table holds; None if there is no table."""
    left: tuple[tuple[int, ...], ...]
    """By layer, the numbers of the heads that are there; without those that were pruned. `heads` counts these too."""

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return self.layers, self.heads

    @property
    def pruned(self) -> dict[int, tuple[int, ...]]:
        """The heads that were pruned, by layer."""
        gone = {layer: tuple(without(left, self.heads)) for layer, left in enumerate(self.left)}
        return {layer: heads for layer, heads in gone.items() if heads}


def encoder_of(model: nn.Module) -> PreTrainedModel:
    """The transformers model in whatever wraps it: DDP, PEFT, a CrossEncoder, nothing."""
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(f"expected a torch model, got {type(model).__name__}: load one with transformers.")
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            return module
    raise UnsupportedModelError(
        f"{type(model).__name__} holds no transformers model, so there is no attention that headwise can see: "
        "pass a model loaded with transformers (AutoModel...)."
    )


def family_of(model: PreTrainedModel) -> Family:
    """Recognise an encoder; anything else is refused with the reason."""
    config, name = model.config, model.config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder; headwise works on encoders: pass a BERT-like model instead."
        )
    if getattr(config, "is_decoder", False) or _is_causal(model):
        raise UnsupportedModelError(
            f"{name} is a decoder (each token sees only those before it); headwise works on encoders: "
            "pass a BERT-like model instead."
        )
    layers = getattr(config, "num_hidden_layers", None)
    heads = getattr(config, "num_attention_heads", None)
    sites = attention_modules(model)
    if not isinstance(layers, int) or not isinstance(heads, int) or not sites:
        raise UnsupportedModelError(
            f"{name} ({type(model).__name__}) has no attention that headwise can see: "
            "pass a BERT-like encoder (`headwise doctor MODEL` tells what is supported)."
        )
    left = _left(model, layers, heads)
    if any(type(module).__name__ in EAGER_MODULES for module in sites):
        return Family(name, "eager", layers, heads, _longest(model), left)
    if not any(_uses_interface(module) for module in sites):
        raise UnsupportedModelError(
            f"{name} computes its attention by itself and ignores custom attention, and headwise has no route around "
            "that yet: use another encoder (`headwise doctor MODEL` tells what is supported)."
        )
    return Family(name, "fused", layers, heads, _longest(model), left)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Every module that by its name may be the one that calls the attention function."""
    return [module for module in model.modules() if "attention" in type(module).__name__.lower()]


def _left(model: nn.Module, layers: int, heads: int) -> tuple[tuple[int, ...], ...]:
    """The heads of each layer as their modules tell, in order; a shared module tells for all its layers."""
    told = [module.__dict__[LEFT] for module in model.modules() if LEFT in module.__dict__]
    if not told:
        return (tuple(range(heads)),) * layers
    return tuple(told[module_of(layer, layers, len(told))] for layer in range(layers))


def module_of(layer: int, layers: int, modules: int) -> int:
    """Which of the attention modules a layer uses: its own, or, in ALBERT, that of its group of layers."""
    return layer * modules // layers


def _is_causal(model: PreTrainedModel) -> bool:
    return any(getattr(module, "is_causal", False) is True for module in attention_modules(model))


def _uses_interface(module: nn.Module) -> bool:
    """Whether the file that defines the module asks transformers' table for its attention function."""
    return hasattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS")


def _longest(model: nn.Module) -> int | None:
    """Positions that a learned table holds; RoBERTa's kind starts counting after the padding position."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            start = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - start
    return None
