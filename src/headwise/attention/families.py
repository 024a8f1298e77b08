"""The kind of a model: the route to its attention, and which weights belong to which head."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.eager import EAGER_MODULES, HeadlessSelfAttention
from headwise.attention.maps import without
from headwise.errors import UnsupportedModelError

Route = Literal["fused", "eager"]
Kind = Literal["query", "key", "value", "output"]
# On every attention module of a pruned model: the numbers of the heads that are left in it.
LEFT = "_headwise_heads_left"

_KINDS: tuple[Kind, ...] = ("query", "key", "value")
# Three matrices with rows of [H,D]: bert and most others; distilbert; deberta-v2; newer ones; mpnet.
_SEPARATE = (
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
)
# One matrix for all three: rows of [3,H,D] (modernbert), or of [H,3,D] with separate biases (deberta).
_JOINT, _INTERLEAVED = "Wqkv", "in_proj"
_SEPARATE_BIASES: tuple[tuple[str, Kind], ...] = (("q_bias", "query"), ("v_bias", "value"))
# The projections of relative positions in the DeBERTas: rows of [H,D].
_POSITIONS: tuple[tuple[str, Kind], ...] = (
    ("pos_key_proj", "key"),
    ("pos_query_proj", "query"),
    ("pos_proj", "key"),
    ("pos_q_proj", "query"),
)
# The projection of all heads' outputs: inside the attention module, or beside it as `output.dense`.
_OUTPUTS = ("out_lin", "Wo", "o", "o_proj", "out_proj", "dense")
# DeBERTa's talking heads: each output mixes several heads.
_TALKING = ("head_logits_proj", "head_weights_proj")
# Query and key projections; adapters (LoRA) are one level below the projection and keep its name in theirs.
_QUERY_KEY_NAMES = re.compile(r"(^|\.)(query|key|q_lin|k_lin|query_proj|key_proj|q_proj|k_proj|q|k)\.")
# modernbert and similar ones: one matrix whose first two thirds are query and key.
_TOGETHER = re.compile(r"(^|\.)(Wqkv|qkv_proj|qkv)\.")


@dataclass(frozen=True)
class Family:
    """What headwise needs to know of a model before it runs."""

    name: str
    """transformers' model type, such as bert."""
    route: Route
    """fused: through transformers' attention interface. eager: maps that the model computes, reduced at once."""
    layers: int
    heads: int
    longest: int | None
    """How many tokens the position table holds; None if there is no table."""
    left: tuple[tuple[int, ...], ...]
    """By layer, the numbers of the heads without those that were pruned. `heads` counts these too."""

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
    """The transformers model inside its wrapper, if any: DDP, PEFT, a CrossEncoder."""
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
    config, name, sites = model.config, model.config.model_type, attention_modules(model)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder; headwise works on encoders: pass a BERT-like model instead."
        )
    if getattr(config, "is_decoder", False) or any(getattr(site, "is_causal", False) is True for site in sites):
        raise UnsupportedModelError(
            f"{name} is a decoder (each token sees only those before it); headwise works on encoders: "
            "pass a BERT-like model instead."
        )
    layers = getattr(config, "num_hidden_layers", None)
    heads = getattr(config, "num_attention_heads", None)
    if not isinstance(layers, int) or not isinstance(heads, int) or not sites:
        raise UnsupportedModelError(
            f"{name} ({type(model).__name__}) has no attention that headwise can see: pass a BERT-like encoder."
        )
    route: Route = "eager" if any(type(site).__name__ in EAGER_MODULES for site in sites) else "fused"
    # On the fused route the file that defines a module takes its attention function from transformers' table.
    files = [sys.modules.get(type(site).__module__) for site in sites]
    if route == "fused" and not any(hasattr(file, "ALL_ATTENTION_FUNCTIONS") for file in files):
        raise UnsupportedModelError(
            f"{name} computes its attention by itself and ignores custom attention, and headwise has no route around "
            "that yet: use another encoder."
        )
    left, longest = [], None
    for path, module in model.named_modules():
        if LEFT in module.__dict__:
            left.append(module.__dict__[LEFT])
        if longest is None and path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's kind starts counting after the padding position.
            longest = module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    left = left or [tuple(range(heads))]
    by_layer = tuple(left[module_of(layer, layers, len(left))] for layer in range(layers))
    return Family(name, route, layers, heads, longest, by_layer)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Every module that by its name may be the one that calls the attention function."""
    return [module for module in model.modules() if "attention" in type(module).__name__.lower()]


def module_of(layer: int, layers: int, modules: int) -> int:
    """Which of the attention modules a layer uses: its own, or, in ALBERT, that of its group of layers."""
    return layer * modules // layers


@dataclass(frozen=True)
class HeadPart:
    """A parameter in which each head has a part."""

    kind: Kind
    parameter: nn.Parameter
    dim: int
    """0: rows of a matrix, or entries of a bias; 1: columns."""
    places: Tensor
    """[H,D] the indices along `dim` of the part of each head, on the device of the parameter."""


@dataclass(frozen=True)
class LayerHeads:
    """The weights of one layer's heads."""

    layer: int
    heads: tuple[int, ...]
    """The numbers of the heads that are left, as before any pruning."""
    parts: tuple[HeadPart, ...]
    """Weights and biases are separate parts. The output's bias belongs to no head."""


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
    family, modules = family_of(encoder), attention_parts(encoder)
    if len(modules) != family.layers:
        raise UnsupportedModelError(
            f"{family.name} shares its weights between layers, so that none belongs to a head of one layer: use a "
            "model whose layers do not share weights."
        )
    each = enumerate(zip(family.left, modules, strict=True))
    return [LayerHeads(layer, heads, attention.parts) for layer, (heads, attention) in each]


def attention_parts(model: nn.Module) -> list[AttentionParts]:
    """Every attention module of a model in the order of the layers; one for several layers where they share it."""
    encoder = encoder_of(model)
    family = family_of(encoder)
    parts = []
    for name, module in encoder.named_modules():
        children = {child for child, _ in module.named_children()}
        # The module that projects queries, keys and values, and not one around it.
        known = any({*three} <= children for three in _SEPARATE) or not children.isdisjoint((_JOINT, _INTERLEAVED))
        if known or isinstance(module, HeadlessSelfAttention):
            parts.append(_parts_of(encoder, name, module, family))
    if not parts or len(parts) != family.layers and family.name != "albert":
        raise UnsupportedModelError(
            f"{family.name}: headwise knows the names of the query, key and value projections in {len(parts)} modules, "
            f"and it has {family.layers} layers: use hw.mask, which needs no names."
        )
    return parts


def _parts_of(encoder: nn.Module, name: str, module: nn.Module, family: Family) -> AttentionParts:
    """The parts of a module; refuses what is laid out in another way, and weights that may belong to heads too."""
    if any(getattr(module, mixing, None) is not None for mixing in _TALKING):
        raise UnsupportedModelError(f"{family.name} has talking heads, whose weights work for each other: use hw.mask.")
    heads = len(module.__dict__.get(LEFT, range(family.heads)))
    beside: Any = getattr(encoder.get_submodule(name.rpartition(".")[0]), "output", None)
    inside = next((each for each in _OUTPUTS if isinstance(getattr(module, each, None), nn.Module)), None)
    if inside is None and not isinstance(getattr(beside, "dense", None), nn.Module):
        raise UnsupportedModelError(
            f"{family.name}: the projection of the heads' outputs has no name that headwise knows: use hw.mask."
        )
    output = _linear(beside, "dense", family) if inside is None else _linear(module, inside, family)
    size = output.in_features // max(1, heads)
    rows = torch.arange(heads * size).view(heads, size)
    triples = list(_inputs(module, heads, size, family))
    triples.append(("output", output.weight, rows))
    parts = [
        HeadPart(kind, parameter, int(kind == "output"), indices.to(parameter.device))
        for kind, parameter, indices in triples
    ]
    lengths: dict[nn.Parameter, int] = {}
    for part in parts:
        lengths[part.parameter] = lengths.get(part.parameter, 0) + part.places.numel()
    norms = [each for each in module.modules() if isinstance(each, nn.LayerNorm)]  # ALBERT's, of the whole layer
    known = {id(parameter) for parameter in (*lengths, output.bias)}
    known |= {id(parameter) for norm in norms for parameter in norm.parameters()}
    others = [name for name, parameter in module.named_parameters() if id(parameter) not in known]
    if others or any(part.parameter.shape[part.dim] != lengths[part.parameter] for part in parts):
        what = f"weights of unknown use in its attention ({others[0]})" if others else "heads that share weights"
        raise UnsupportedModelError(f"{family.name} has {what}: use hw.mask, which needs no names.")
    return AttentionParts(name, module, output, tuple(parts))


def _inputs(module: nn.Module, heads: int, size: int, family: Family) -> Iterator[tuple[Kind, Any, Tensor]]:
    """The parameters of queries, keys and values, with the indices of each head's rows."""
    children = {name for name, _ in module.named_children()}
    rows, joint = torch.arange(heads * size).view(heads, size), torch.arange(3 * heads * size)
    names: Sequence[str] = next((three for three in _SEPARATE if {*three} <= children), ())
    places: Sequence[Tensor] = (rows, rows, rows)
    if _JOINT in children:
        names, places = (_JOINT,) * 3, joint.view(3, heads, size).unbind(0)
    elif _INTERLEAVED in children:
        names, places = (_INTERLEAVED,) * 3, joint.view(heads, 3, size).unbind(1)
    linears = list(zip(_KINDS, names, places, strict=False))  # none in a module without heads
    for group in (linears, [(kind, name, rows) for name, kind in _POSITIONS if name in children]):
        for kind, name, indices in group:
            linear = _linear(module, name, family)
            yield kind, linear.weight, indices
            if linear.bias is not None:
                yield kind, linear.bias, indices
        if group is linears and _INTERLEAVED in children:
            yield from ((kind, getattr(module, name), rows) for name, kind in _SEPARATE_BIASES)


def _linear(owner: nn.Module, name: str, family: Family) -> nn.Linear:
    """A projection, which must be a plain matrix: adapters and quantised ones store their weights in another way."""
    linear = getattr(owner, name)
    if (
        isinstance(linear, nn.Linear)
        and type(linear).forward is nn.Linear.forward
        and not hasattr(linear, "parametrizations")
    ):
        return linear
    way_out = "merge the adapter first (merge_and_unload)" if hasattr(linear, "base_layer") else "use hw.mask"
    raise UnsupportedModelError(
        f"{family.name}: the projection {name!r} is a {type(linear).__name__} and not a plain nn.Linear: {way_out}."
    )


@dataclass(frozen=True)
class Projection:
    """A trainable parameter of a query or key projection, which decide where attention goes."""

    parameter: nn.Parameter
    share: float
    """The leading share of its rows that belongs to query and key."""
    module: int
    """Number of the attention module that it is in: the layer, except where layers share weights (ALBERT)."""

    def part(self, gradient: Tensor) -> Tensor:
        """The rows of a gradient that belong to query and key."""
        return gradient[: round(self.share * gradient.shape[0])]


def query_key_projections(model: nn.Module) -> list[Projection]:
    """Every trainable matrix of the query and key projections."""
    projections, modules = [], dict[str, int]()
    for name, parameter in model.named_parameters():
        if parameter.dim() != 2 or "attn" not in name and "attention" not in name:
            continue
        separate, together = _QUERY_KEY_NAMES.search(name), _TOGETHER.search(name)
        if match := separate or together:
            module = modules.setdefault(name[: match.start()], len(modules))  # frozen ones count, too
            if parameter.requires_grad:
                projections.append(Projection(parameter, 1.0 if separate else 2 / 3, module))
    return projections
