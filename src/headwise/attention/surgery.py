"""Take heads away for good: what transformers' own prune_heads did, for every family."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.backend import SITE, WITHOUT_HEADS, register
from headwise.attention.eager import HeadlessSelfAttention
from headwise.attention.families import LEFT, AttentionParts, Family, attention_parts, encoder_of, family_of, module_of
from headwise.attention.gates import Heads, heads_of
from headwise.errors import InputError, StateError, UnsupportedModelError

CONFIG = "headwise_pruned"
"""Where a model's config, and so its config.json, names its pruned heads: {"layer": [heads]}."""
# On an encoder: configs of models that share it, which name its pruned heads too.
_SHARERS = "_headwise_configs"
# What attention modules call their number of heads, and the width of all of them.
_COUNTS = ("num_attention_heads", "n_heads", "num_heads")
_WIDTHS = ("all_head_size", "dim")


def prune(model: nn.Module, heads: Heads) -> nn.Module:
    """Remove heads: the rows of their queries, keys and values, and their columns of the output projection.

        hw.prune(model, {0: [3, 7], 5: range(12)})
        model.save_pretrained("smaller")        # hw.load("smaller") loads it again

    Outputs are those under `hw.mask`; a layer that loses all its heads keeps the bias of its output projection. The
    heads that remain keep their numbers, in every function of headwise, also when more are pruned later. The model is
    changed in place: make an optimiser afterwards, since the matrices are new ones.

    Plain transformers refuses to load such a model (its matrices do not fit the config); `hw.load` does.

    Args:
        model: a transformers encoder, bare or wrapped; adapters merged, no guide or capture attached.
        heads: the heads to remove: {layer: heads}, (layer, head) pairs, or a bool mask [N,H], True = remove.

    Returns:
        The same model.
    """
    encoder = encoder_of(model)
    if any(SITE in module.__dict__ for module in model.modules()):
        raise StateError("heads cannot be pruned while headwise watches the model: leave the with block or hw.unguide.")
    family, chosen, found = family_of(encoder), heads_of(model, heads), attention_parts(encoder)
    keeping = _keeping(family, chosen, len(found))
    for attention, kept, before in zip(found, keeping, _by_module(family.left, len(found)), strict=True):
        attention.module.__dict__[LEFT] = kept
        if kept != before:
            _slice(encoder, attention, [before.index(head) for head in kept])
    _note(model)
    return model


def pruned_heads(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """The heads that were pruned from a model, by layer; none of an ordinary one."""
    return family_of(encoder_of(model)).pruned


def prune_structure(model: nn.Module, pruned: Any) -> nn.Module:
    """Give a freshly built model the shapes of a pruned one, so that its weights can be loaded.

    Args:
        model: what the config builds, with all its heads; it may be on the meta device.
        pruned: the pruned heads as a config or `pruned_heads` tells them: {layer: heads}, layers also as text.
    """
    try:
        heads = {int(layer): [int(head) for head in numbers] for layer, numbers in pruned.items()}
        return prune(model, heads) if heads else model
    except UnsupportedModelError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(_damaged(pruned)) from error


def pruned_in(config: Any) -> Mapping[str, Any]:
    """What a saved model's config says of pruned heads; empty for one that has them all."""
    found = getattr(config, CONFIG, None) or {}
    if not isinstance(found, Mapping):
        raise InputError(_damaged(found))
    return found


def share_note(encoder: Any, configs: Iterable[Any]) -> None:
    """Let configs of models that share an encoder name its pruned heads, those of now and those to come."""
    pruned = pruned_in(encoder.config)
    sharers = encoder.__dict__.setdefault(_SHARERS, [])
    for config in configs:
        if pruned:
            setattr(config, CONFIG, pruned)
        else:
            config.__dict__.pop(CONFIG, None)
        if not any(config is each for each in sharers):
            sharers.append(config)


def _damaged(found: Any) -> str:
    return f"the model's config has a damaged {CONFIG} ({f'{found!r}':.60}): save the model again."


def _keeping(family: Family, chosen: Mapping[int, tuple[int, ...]], modules: int) -> list[tuple[int, ...]]:
    """The heads that each attention module keeps."""
    after = [
        tuple(head for head in left if head not in chosen.get(layer, ())) for layer, left in enumerate(family.left)
    ]
    keeping = _by_module(after, modules)
    if any(heads != keeping[module_of(layer, family.layers, modules)] for layer, heads in enumerate(after)):
        raise InputError(
            f"{family.name} shares its weights between layers, so heads can be pruned only from all of these layers "
            "alike: name the same heads in each, or silence them with hw.mask."
        )
    return keeping


def _by_module(by_layer: Sequence[tuple[int, ...]], modules: int) -> list[tuple[int, ...]]:
    """What the first layer of each attention module has."""
    layers = len(by_layer)
    owners = [module_of(layer, layers, modules) for layer in range(layers)]
    return [by_layer[owners.index(module)] for module in range(modules)]


def _slice(encoder: nn.Module, attention: AttentionParts, kept: list[int]) -> None:
    """Keep these of the heads that are there, by their places."""
    module, output = attention.module, attention.output
    places: dict[nn.Parameter, tuple[int, list[Tensor]]] = {}
    for part in attention.parts:
        _, those = places.setdefault(part.parameter, (part.dim, []))
        those.append(part.places[kept].flatten())
    for owner in dict.fromkeys((*module.modules(), output)):
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if parameter in places:
                dim, those = places[parameter]
                _replace(owner, name, parameter, dim, torch.cat(those).sort().values)
    size = attention.parts[-1].places.shape[1]
    for name, number in [*((name, len(kept)) for name in _COUNTS), *((name, len(kept) * size) for name in _WIDTHS)]:
        if name in module.__dict__:
            setattr(module, name, number)
    if "position_bias" in inspect.signature(module.forward).parameters:
        _slice_position_bias(module)
    if not kept:
        _leave_without_heads(encoder, attention)


def _replace(owner: nn.Module, name: str, parameter: nn.Parameter, dim: int, kept: Tensor) -> None:
    """A new parameter, not new data in the old one: graphs that are still alive remember its shape."""
    chosen = parameter.detach().index_select(dim, kept)
    setattr(owner, name, nn.Parameter(chosen, requires_grad=parameter.requires_grad))
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = owner.weight.shape


def _slice_position_bias(module: nn.Module) -> None:
    """MPNet makes one bias for all heads and layers: each module takes what is its own."""
    if _own_position_bias not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_own_position_bias, with_kwargs=True)


def _own_position_bias(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bias = bound.arguments.get("position_bias")
    if bias is not None:
        bound.arguments["position_bias"] = bias[:, list(module.__dict__[LEFT])]
    return bound.args, bound.kwargs


def _leave_without_heads(encoder: nn.Module, attention: AttentionParts) -> None:
    """Let an attention module do without heads, whatever its code and the kernels of a device make of empty tensors."""
    module: Any = attention.module
    if type(module).__name__ == "DisentangledSelfAttention":
        headless = HeadlessSelfAttention().train(module.training)
        headless.__dict__[LEFT] = ()
        encoder.set_submodule(attention.name, headless)
    elif hasattr(getattr(module, "config", None), "_attn_implementation_internal"):
        register()
        module.config = copy.copy(module.config)
        module.config._attn_implementation_internal = WITHOUT_HEADS


def _note(model: nn.Module) -> None:
    """Name the pruned heads in all configs, as text and lists: they are saved as JSON."""
    pruned = {str(layer): list(heads) for layer, heads in pruned_heads(model).items()}
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            for config in (module.config, *module.__dict__.get(_SHARERS, ())):
                setattr(config, CONFIG, pruned)


# Classes of transformers that lose heads as soon as they are built, for loading weights of pruned models.


def pruned_class(kind: Any, pruned: Mapping[str, Any], ignored: str | None = None) -> Any:
    """A class like `kind`, of the same name, whose models are built without some heads.

    Give the loaded model its own class back (`model.__class__ = kind`).

    Args:
        kind: a class of transformers.
        pruned: the heads that are gone, by layer; none for `kind` as it is.
        ignored: a pattern of weights for which transformers has no place, and of which it shall say nothing.
    """

    def build(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **options)
        prune_structure(self, pruned)

    known = [*(kind._keys_to_ignore_on_load_unexpected or ()), *([] if ignored is None else [ignored])]
    # By name and module transformers knows which weights have other names on disk (those of ViT have).
    own = {"__init__": build, "__module__": kind.__module__, "_keys_to_ignore_on_load_unexpected": known}
    return type(kind.__name__, (kind,), own)
