"""What kind of model this is, and by which route its attention can be reached."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.eager import EAGER_MODULES, HeadlessSelfAttention
from headwise.attention.passes import without
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


# Which weights belong to which head: the projections of every attention module, by their names in each family.


Kind = Literal["query", "key", "value", "output"]
_KINDS: tuple[Kind, ...] = ("query", "key", "value")

# Three matrices with rows of [H,D]: bert and most others; distilbert; deberta-v2; newer ones; mpnet.
_SEPARATE = (
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
)
# One matrix for all three: rows of [3,H,D] (modernbert), or of [H,3,D] with biases of their own (deberta).
_JOINT, _INTERLEAVED = "Wqkv", "in_proj"
_OWN_BIASES: tuple[tuple[str, Kind], ...] = (("q_bias", "query"), ("v_bias", "value"))
# What the DeBERTas project their relative positions with: rows of [H,D].
_POSITIONS: tuple[tuple[str, Kind], ...] = (
    ("pos_key_proj", "key"),
    ("pos_query_proj", "query"),
    ("pos_proj", "key"),
    ("pos_q_proj", "query"),
)
# The projection of all heads' outputs: inside the attention module, or beside it.
_INSIDE = ("out_lin", "Wo", "o", "o_proj", "out_proj", "dense")
_BESIDE = ("output", "dense")
# DeBERTa's heads that listen to each other: what one computes is not its own.
_TALKING = ("head_logits_proj", "head_weights_proj")


@dataclass(frozen=True)
class HeadPart:
    """A parameter in which each head has a part."""

    kind: Kind
    parameter: nn.Parameter
    dim: int
    """0: rows of a matrix, or entries of a bias; 1: columns."""
    places: Tensor
    """[H,D] where along `dim` the part of each head lies, on the device of the parameter."""


@dataclass(frozen=True)
class LayerHeads:
    """The weights of one layer's heads."""

    layer: int
    heads: tuple[int, ...]
    """The numbers of the heads that are there, as they were before any pruning."""
    parts: tuple[HeadPart, ...]
    """Weights and biases are parts of their own. The output's bias belongs to no head."""


@dataclass(frozen=True)
class AttentionParts:
    """An attention module with the weights of its heads."""

    name: str
    module: nn.Module
    output: nn.Linear
    """The projection of all heads' outputs."""
    parts: tuple[HeadPart, ...]


def head_weights(model: nn.Module) -> list[LayerHeads]:
    """The weights that belong to each head, layer by layer.

        for layer in head_weights(model):
            for part in layer.parts:
                part.parameter.index_select(part.dim, part.places[0])   # those of the layer's first head

    Layers that share their weights (ALBERT) are refused: there no weight belongs to a head of one layer.
    """
    encoder = encoder_of(model)
    family, found = family_of(encoder), attention_parts(encoder)
    if len(found) != family.layers:
        raise UnsupportedModelError(
            f"{family.name} shares its weights between layers, so that none belongs to a head of one layer: use a "
            "model whose layers have weights of their own."
        )
    each = enumerate(zip(family.left, found, strict=True))
    return [LayerHeads(layer, heads, attention.parts) for layer, (heads, attention) in each]


def attention_parts(model: nn.Module) -> list[AttentionParts]:
    """Every attention module of a model in the order of the layers; one for several layers where they share it."""
    encoder = encoder_of(model)
    family = family_of(encoder)
    found = [_parts_of(encoder, name, module, family) for name, module in encoder.named_modules() if _has_heads(module)]
    if not found or len(found) != family.layers and family.name != "albert":
        raise UnsupportedModelError(
            f"{family.name}: headwise knows the names of the query, key and value projections in {len(found)} modules, "
            f"and it has {family.layers} layers: use hw.mask, which needs no names."
        )
    return found


def _has_heads(module: nn.Module) -> bool:
    """Whether this is the module that projects queries, keys and values, and not one around it."""
    names = {name for name, _ in module.named_children()}
    known = any({*three} <= names for three in _SEPARATE) or not names.isdisjoint((_JOINT, _INTERLEAVED))
    return known or isinstance(module, HeadlessSelfAttention)


def _parts_of(encoder: nn.Module, name: str, module: nn.Module, family: Family) -> AttentionParts:
    if any(getattr(module, mixing, None) is not None for mixing in _TALKING):
        raise UnsupportedModelError(f"{family.name} has talking heads, whose weights work for each other: use hw.mask.")
    heads = len(module.__dict__.get(LEFT, range(family.heads)))
    output = _output(encoder.get_submodule(name.rpartition(".")[0]), module, family)
    size = output.in_features // max(1, heads)
    parts = [*_inputs(module, heads, size, family), _part("output", output.weight, 1, _rows(heads, size))]
    _check(module, parts, output, heads * size, family)
    return AttentionParts(name, module, output, tuple(parts))


def _inputs(module: nn.Module, heads: int, size: int, family: Family) -> Iterator[HeadPart]:
    """The parts of queries, keys and values."""
    children, rows = {name for name, _ in module.named_children()}, _rows(heads, size)
    joint = torch.arange(3 * heads * size)
    if _JOINT in children:
        for kind, places in zip(_KINDS, joint.view(3, heads, size), strict=True):
            yield from _linear_parts(kind, _linear(module, _JOINT, family), places)
    elif _INTERLEAVED in children:
        for kind, places in zip(_KINDS, joint.view(heads, 3, size).unbind(1), strict=True):
            yield from _linear_parts(kind, _linear(module, _INTERLEAVED, family), places)
        for name, kind in _OWN_BIASES:
            yield _part(kind, getattr(module, name), 0, rows)
    else:
        three = next((names for names in _SEPARATE if {*names} <= children), ())
        for kind, name in zip(_KINDS, three, strict=False):  # none in a module without heads
            yield from _linear_parts(kind, _linear(module, name, family), rows)
    for name, kind in _POSITIONS:
        if name in children:
            yield from _linear_parts(kind, _linear(module, name, family), rows)


def _output(parent: nn.Module, module: nn.Module, family: Family) -> nn.Linear:
    for name in _INSIDE:
        if isinstance(getattr(module, name, None), nn.Module):
            return _linear(module, name, family)
    beside = getattr(parent, _BESIDE[0], None)
    if not isinstance(getattr(beside, _BESIDE[1], None), nn.Module) or not isinstance(beside, nn.Module):
        raise UnsupportedModelError(
            f"{family.name}: the projection of the heads' outputs has no name that headwise knows: use hw.mask."
        )
    return _linear(beside, _BESIDE[1], family)


def _linear(owner: nn.Module, name: str, family: Family) -> nn.Linear:
    """A projection, which must be a plain matrix: adapters and quantised ones hold their weights otherwise."""
    found = getattr(owner, name)
    if (
        isinstance(found, nn.Linear)
        and type(found).forward is nn.Linear.forward
        and not hasattr(found, "parametrizations")
    ):
        return found
    way_out = "merge the adapter first (merge_and_unload)" if hasattr(found, "base_layer") else "use hw.mask"
    raise UnsupportedModelError(
        f"{family.name}: the projection {name!r} is a {type(found).__name__} and not a plain nn.Linear: {way_out}."
    )


def _rows(heads: int, size: int) -> Tensor:
    return torch.arange(heads * size).view(heads, size)


def _linear_parts(kind: Kind, linear: nn.Linear, places: Tensor) -> Iterator[HeadPart]:
    yield _part(kind, linear.weight, 0, places)
    if linear.bias is not None:
        yield _part(kind, linear.bias, 0, places)


def _part(kind: Kind, parameter: Any, dim: int, places: Tensor) -> HeadPart:
    return HeadPart(kind, parameter, dim, places.to(parameter.device))


def _check(module: nn.Module, parts: list[HeadPart], output: nn.Linear, width: int, family: Family) -> None:
    """Refuse what is laid out in another way, and weights in the module that may be the heads' too."""
    lengths: dict[nn.Parameter, int] = {}
    for part in parts:
        lengths[part.parameter] = lengths.get(part.parameter, 0) + part.places.numel()
    odd = any(part.parameter.shape[part.dim] != lengths[part.parameter] for part in parts)
    known = {id(parameter) for parameter in (*lengths, output.bias)}
    norms = [each for each in module.modules() if isinstance(each, nn.LayerNorm)]  # ALBERT's, of the whole layer
    known |= {id(parameter) for norm in norms for parameter in norm.parameters()}
    others = [name for name, parameter in module.named_parameters() if id(parameter) not in known]
    if odd or others:
        what = f"weights of unknown use in its attention ({others[0]})" if others else "heads that share weights"
        raise UnsupportedModelError(f"{family.name} has {what}: use hw.mask, which needs no names.")


# The parameters that decide where attention goes: the query and key projections, by their names in each family.


# bert, roberta, albert, electra, ernie, mobilebert: query, key; distilbert: q_lin, k_lin; deberta-v2: query_proj,
# key_proj; mpnet: q, k. Adapters (LoRA) sit one level below the projection and keep its name in theirs.
_QUERY_KEY_NAMES = re.compile(r"(^|\.)(query|key|q_lin|k_lin|query_proj|key_proj|q_proj|k_proj|q|k)\.")
# modernbert and its kin: one matrix whose first two thirds are query and key.
_TOGETHER = re.compile(r"(^|\.)(Wqkv|qkv_proj|qkv)\.")


@dataclass(frozen=True)
class Projection:
    """A trainable parameter of a query or key projection."""

    parameter: nn.Parameter
    share: float
    """The leading share of its rows that belongs to query and key."""

    def part(self, gradient: Tensor) -> Tensor:
        """The rows of a gradient that belong to query and key."""
        return gradient[: round(self.share * gradient.shape[0])]


def query_key_projections(model: nn.Module) -> list[Projection]:
    """Every trainable matrix of the query and key projections."""
    found = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or parameter.dim() != 2 or "attn" not in name and "attention" not in name:
            continue
        if _QUERY_KEY_NAMES.search(name):
            found.append(Projection(parameter, 1.0))
        elif _TOGETHER.search(name):
            found.append(Projection(parameter, 2 / 3))
    return found
