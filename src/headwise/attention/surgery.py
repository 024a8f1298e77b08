"""Change heads: multiply their outputs (`gate`), silence them for a while (`mask`), or remove them (`prune`)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.backend import SITE, WITHOUT_HEADS, register
from headwise.attention.eager import HeadlessSelfAttention
from headwise.attention.families import LEFT, AttentionParts, attention_parts, encoder_of, family_of, module_of
from headwise.attention.passes import Customer, Gates, Inputs
from headwise.attention.seam import Seam
from headwise.errors import InputError, StateError, UnsupportedModelError

# {layer: heads} or (layer, head) pairs, or a mask [N,H] that is True at the heads that are meant.
Heads = Mapping[int, Iterable[int]] | Iterable[tuple[int, int]] | numpy.ndarray | Tensor

CONFIG = "headwise_pruned"
"""Where a model's config, and so its config.json, names its pruned heads: {"layer": [heads]}."""
# On an encoder: configs of models that share it, which name its pruned heads too.
_SHARERS = "_headwise_configs"
# What attention modules call their number of heads, and the width of all of them.
_COUNTS = ("num_attention_heads", "n_heads", "num_heads")
_WIDTHS = ("all_head_size", "dim")
_EXPECTED = "expected {layer: [heads]}, (layer, head) pairs, or a bool mask [layers, heads]"


@contextmanager
def gate(model: nn.Module, gates: Tensor | Mapping[int, Tensor]) -> Iterator[None]:
    """Multiply each head's output by its gate in every forward pass inside the with block.

        gates = torch.ones(12, 12, requires_grad=True)   # [N,H]
        with hw.gate(model, gates):
            model(**batch).loss.backward()
        gates.grad                                       # what each head contributes

    Args:
        model: a transformers encoder, bare or wrapped.
        gates: a tensor [N,H], [N,B,H] or [N,B,S,H], or a mapping from layer to (H), (B,H) or (B,S,H). A gate of 0
            silences a head, 1 leaves it alone; gradients flow into the gates.
    """
    seam = Seam.of(model)
    layers, heads = seam.family.shape
    if isinstance(gates, Tensor):
        if gates.dim() not in (2, 3, 4) or gates.shape[0] != layers:
            raise InputError(
                f"gates of shape {tuple(gates.shape)}: expected [{layers},{heads}], [{layers},B,{heads}] or "
                f"[{layers},B,S,{heads}] (one row per layer), or a mapping from layer to gates."
            )
        gates = dict(enumerate(gates))
    for layer, each in gates.items():
        if not isinstance(layer, int) or not 0 <= layer < layers:
            raise InputError(f"gates for layer {layer!r}: the model has layers 0 to {layers - 1}.")
        if not isinstance(each, Tensor) or not torch.is_floating_point(each):
            raise InputError(f"gates of layer {layer}: expected a floating-point tensor, got {each!r}.")
        if each.dim() not in (1, 2, 3) or each.shape[-1] != heads:
            raise InputError(
                f"gates of layer {layer} have shape {tuple(each.shape)}: "
                f"expected ({heads},), (B,{heads}) or (B,S,{heads})."
            )
    customer = _Gates(dict(gates))
    seam.enter(customer)
    try:
        yield
    finally:
        seam.leave(customer)


class _Gates(Customer):
    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def gates(self, inputs: Inputs, seed: Tensor | None) -> Gates:
        return self._gates


@contextmanager
def mask(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Silence heads in every forward pass inside the with block: their outputs are multiplied by 0.

        with hw.mask(model, {0: [3, 7], 5: [1]}):
            model(**batch)

    The model computes as if the columns of these heads in the output projection were 0; its bias stays. `hw.prune`
    removes heads permanently and gives the same outputs. Numbers are those before any pruning.

    Args:
        model: a transformers encoder, bare or wrapped.
        heads: the heads to silence: {layer: heads}, (layer, head) pairs, or a bool mask [N,H], True = silent.
    """
    encoder = encoder_of(model)
    count, device = family_of(encoder).heads, next(encoder.parameters()).device
    gates = {}
    for layer, numbers in heads_of(model, heads).items():
        gates[layer] = torch.ones(count, device=device)
        gates[layer][list(numbers)] = 0
    with gate(model, gates):
        yield


def heads_of(model: nn.Module, heads: Heads) -> dict[int, tuple[int, ...]]:
    """The heads that are meant, by layer, both in ascending order; all of them exist.

    Args:
        model: a transformers encoder, bare or wrapped.
        heads: {layer: heads}, (layer, head) pairs, or a bool mask [N,H]; naming a head twice does no harm.
    """
    family = family_of(encoder_of(model))
    chosen: dict[int, set[int]] = {}
    for pair in _pairs(heads, family.shape):
        for kind, number in zip(("layer", "head"), pair, strict=True):
            if numpy.ndim(number) or numpy.asarray(number).dtype.kind not in "iu":
                raise InputError(f"{kind} {number!r}: expected a number; {kind}s count from 0.")
        layer, head = map(int, pair)
        if not 0 <= layer < family.layers:
            raise InputError(f"layer {layer}: the model has layers 0 to {family.layers - 1}.")
        if not 0 <= head < family.heads:
            raise InputError(f"head {head} of layer {layer}: the model has heads 0 to {family.heads - 1}.")
        left = family.left[layer]
        if head not in left:
            others = f"its heads {list(left)} are there" if left else "no head of that layer is there"
            raise InputError(f"head {head} of layer {layer} was pruned from this model: {others}.")
        chosen.setdefault(layer, set()).add(head)
    if not chosen:
        raise InputError("no heads chosen: name at least one, as {layer: [heads]} or as (layer, head) pairs.")
    return {layer: tuple(sorted(chosen[layer])) for layer in sorted(chosen)}


def _pairs(heads: Any, shape: tuple[int, int]) -> Iterator[tuple[Any, Any]]:
    """(layer, head) of whatever names heads."""

    def listed(several: Any, what: str) -> list[Any]:
        if isinstance(several, str) or not isinstance(several, Iterable):
            raise InputError(f"{what}: {_EXPECTED}.")
        return list(several)

    if isinstance(heads, Tensor):
        heads = heads.detach().cpu().numpy()
    if isinstance(heads, numpy.ndarray) and heads.dtype == bool:
        if heads.shape != shape:
            raise InputError(f"a mask of shape {heads.shape}: the model has {shape[0]} layers of {shape[1]} heads.")
        yield from zip(*numpy.nonzero(heads), strict=True)
    elif isinstance(heads, Mapping):
        for layer, numbers in heads.items():
            yield from ((layer, head) for head in listed(numbers, f"heads {numbers!r} of layer {layer!r}"))
    else:
        for pair in listed(heads, f"heads {heads!r}"):
            both = listed(pair, f"head {pair!r}")
            if len(both) != 2:
                raise InputError(f"head {pair!r}: {_EXPECTED}.")
            yield both[0], both[1]


def prune(model: nn.Module, heads: Heads) -> nn.Module:
    """Remove heads: the rows of their queries, keys and values, and their columns of the output projection.

        hw.prune(model, {0: [3, 7], 5: range(12)})
        model.save_pretrained("smaller")        # hw.load("smaller") loads it again

    Outputs are those under `hw.mask`; a layer that loses all its heads keeps the bias of its output projection. The
    heads that remain keep their numbers, in every function of headwise, also when more are pruned later. The model is
    changed in place: create an optimiser afterwards, since the matrices are new ones.

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
    family, chosen, modules = family_of(encoder), heads_of(model, heads), attention_parts(encoder)
    owners = [module_of(layer, family.layers, len(modules)) for layer in range(family.layers)]
    after = [
        tuple(head for head in left if head not in chosen.get(layer, ())) for layer, left in enumerate(family.left)
    ]
    firsts = [owners.index(number) for number in range(len(modules))]  # the first layer of each module
    if any(kept != after[firsts[owner]] for kept, owner in zip(after, owners, strict=True)):
        raise InputError(
            f"{family.name} shares its weights between layers, so heads can be pruned only from all of these layers "
            "alike: name the same heads in each, or silence them with hw.mask."
        )
    for attention, first in zip(modules, firsts, strict=True):
        attention.module.__dict__[LEFT] = after[first]
        if after[first] != family.left[first]:
            _slice(encoder, attention, [family.left[first].index(head) for head in after[first]])
    # Name the pruned heads in all configs, as text and lists: they are saved as JSON.
    pruned = {str(layer): list(numbers) for layer, numbers in pruned_heads(model).items()}
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            for config in (module.config, *module.__dict__.get(_SHARERS, ())):
                setattr(config, CONFIG, pruned)
    return model


def pruned_heads(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """The heads that were pruned from a model, by layer."""
    return family_of(encoder_of(model)).pruned


def prune_structure(model: nn.Module, pruned: Any) -> nn.Module:
    """Give a newly built model the shapes of a pruned one, so that its weights can be loaded.

    Args:
        model: what the config builds, with all its heads; it may be on the meta device.
        pruned: the pruned heads as in a config or from `pruned_heads`: {layer: heads}, layers also as text.
    """
    try:
        heads = {int(layer): [int(head) for head in numbers] for layer, numbers in pruned.items()}
        return prune(model, heads) if heads else model
    except UnsupportedModelError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise _damaged(pruned) from error


def pruned_in(config: Any) -> Mapping[str, Any]:
    """The pruned heads in the config of a saved model; empty for one that has them all."""
    pruned = getattr(config, CONFIG, None) or {}
    if not isinstance(pruned, Mapping):
        raise _damaged(pruned)
    return pruned


def _damaged(pruned: Any) -> InputError:
    return InputError(f"the model's config has a damaged {CONFIG} ({f'{pruned!r}':.60}): save the model again.")


def share_note(encoder: Any, configs: Iterable[Any]) -> None:
    """Let configs of models that share an encoder name its pruned heads, the present and the future ones."""
    pruned = pruned_in(encoder.config)
    sharers = encoder.__dict__.setdefault(_SHARERS, [])
    for config in configs:
        if pruned:
            setattr(config, CONFIG, pruned)
        else:
            config.__dict__.pop(CONFIG, None)
        if not any(config is each for each in sharers):
            sharers.append(config)


def _slice(encoder: nn.Module, attention: AttentionParts, kept: list[int]) -> None:
    """Keep these heads, which are indices among those that are left."""
    module: Any = attention.module
    output = attention.output
    indices: dict[nn.Parameter, tuple[int, list[Tensor]]] = {}
    for part in attention.parts:
        indices.setdefault(part.parameter, (part.dim, []))[1].append(part.places[kept].flatten())
    for owner in dict.fromkeys((*module.modules(), output)):
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if parameter in indices:
                dim, rows = indices[parameter]
                # A new parameter, not new data in the old one: graphs that are still alive remember its shape.
                chosen = parameter.detach().index_select(dim, torch.cat(rows).sort().values)
                setattr(owner, name, nn.Parameter(chosen, requires_grad=parameter.requires_grad))
                if isinstance(owner, nn.Linear):
                    owner.out_features, owner.in_features = owner.weight.shape
    size = attention.parts[-1].places.shape[1]
    for name, number in [*((name, len(kept)) for name in _COUNTS), *((name, len(kept) * size) for name in _WIDTHS)]:
        if name in module.__dict__:
            setattr(module, name, number)
    if "position_bias" in inspect.signature(module.forward).parameters:
        # MPNet computes one bias for all heads and layers: each module takes its part.
        if _own_position_bias not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_own_position_bias, with_kwargs=True)
    if kept:
        return
    # Without heads the code of a module, or a kernel, cannot handle empty tensors.
    if type(module).__name__ == "DisentangledSelfAttention":
        headless = HeadlessSelfAttention().train(module.training)
        headless.__dict__[LEFT] = ()
        encoder.set_submodule(attention.name, headless)
    elif hasattr(getattr(module, "config", None), "_attn_implementation_internal"):
        register()
        module.config = copy.copy(module.config)
        module.config._attn_implementation_internal = WITHOUT_HEADS


def _own_position_bias(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bias = bound.arguments.get("position_bias")
    if bias is not None:
        bound.arguments["position_bias"] = bias[:, list(module.__dict__[LEFT])]
    return bound.args, bound.kwargs


def pruned_class(kind: Any, pruned: Mapping[str, Any], ignored: str | None = None) -> Any:
    """A class like `kind`, of the same name, whose models are built without some heads, for loading their weights.

    Give the loaded model its original class back (`model.__class__ = kind`).

    Args:
        kind: a class of transformers.
        pruned: the pruned heads, by layer; none for `kind` as it is.
        ignored: a pattern of weights that the model does not have, about which transformers should not warn.
    """

    def build(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **options)
        prune_structure(self, pruned)

    known = [*(kind._keys_to_ignore_on_load_unexpected or ()), *([] if ignored is None else [ignored])]
    # By name and module transformers knows which weights have other names on disk (those of ViT have).
    own = {"__init__": build, "__module__": kind.__module__, "_keys_to_ignore_on_load_unexpected": known}
    return type(kind.__name__, (kind,), own)
