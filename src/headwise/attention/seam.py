"""The one place where headwise touches a model, and undoes it.

A seam lives in the model that it watches, never in a module of ours: two models, threads and copies do not meet.
Customers (a capture, gates, a guidance) come and go; with the last of them the model is as it was.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import PreTrainedModel

from headwise.attention.backend import NAME, SITE, register
from headwise.attention.eager import EAGER_MODULES, EagerHooks, warn, warn_of_no_maps
from headwise.attention.families import Family, attention_modules, encoder_of, family_of
from headwise.attention.passes import Customer, Inputs, Order, Pass, Seen
from headwise.errors import InputError, StateError

# Name our attention in the config of one model without touching other models made from the same config object.


Configs = list[tuple[Any, Any]]


def switch(model: PreTrainedModel, implementation: str) -> Configs:
    """Give a model configs of its own that name this attention; returns pairs of a shared and its private config.

    A model has one config object as a rule; a classifier put on another model's encoder has two.
    """
    pairs: dict[int, tuple[Any, Any]] = {}
    for module in model.modules():
        shared = getattr(module, "config", None)
        if shared is None or not hasattr(shared, "_attn_implementation_internal"):
            continue
        if id(shared) not in pairs:
            private = copy.copy(shared)
            private._attn_implementation_internal = implementation
            pairs[id(shared)] = (shared, private)
        module.__dict__["config"] = pairs[id(shared)][1]
    return list(pairs.values())


def switch_back(model: nn.Module, configs: Configs) -> None:
    """Give the shared configs back, with whatever the model noted in its own meanwhile (such as the problem type)."""
    back = {}
    for shared, private in configs:
        implementation = shared._attn_implementation_internal
        shared.__dict__.update(private.__dict__)
        shared._attn_implementation_internal = implementation
        back[id(private)] = shared
    for module in model.modules():
        config = module.__dict__.get("config")
        if id(config) in back:
            module.__dict__["config"] = back[id(config)]


# torch.compile is to trace the model, not our bookkeeping around it.


Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Keep torch.compile out of a function and of all that it calls."""
    return cast(Function, torch.compiler.disable(function))


def skipped(function: Function) -> Function:
    """Keep torch.compile out of a function, but not out of what it calls: the model."""
    return cast(Function, torch.compiler.disable(function, recursive=False))


# What a model is called with, read and checked before it runs.


# What a batch may carry for headwise alone.
NOT_FOR_THE_MODEL = ("special_tokens_mask", "knowledge")


@untraced
def read(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Find the tensors that matter among the arguments of a forward pass."""
    special = kwargs.get("special_tokens_mask")
    knowledge = kwargs.get("knowledge")
    if knowledge is not None and not isinstance(knowledge, Mapping):
        raise InputError(
            f"knowledge={type(knowledge).__name__}: expected tensors by name, as KnowledgeCollator puts into a batch."
        )
    knowledge = {} if knowledge is None else knowledge
    given = {name: value for name, value in kwargs.items() if name not in NOT_FOR_THE_MODEL}
    try:
        arguments = inspect.signature(type(model).forward).bind_partial(model, *args, **given).arguments
    except TypeError:  # a wrong call: let the model itself say so
        return Inputs(None, None, special, knowledge)
    return Inputs(arguments.get("input_ids"), arguments.get("attention_mask"), special, knowledge)


def keep_from_model(model: nn.Module, kwargs: dict[str, Any]) -> None:
    """Take out what the batch carries for headwise alone, unless the model asks for it by name (one with SSA does)."""
    carried = [name for name in NOT_FOR_THE_MODEL if name in kwargs]
    known = inspect.signature(type(model).forward).parameters if carried else {}
    for name in carried:
        if name not in known:
            del kwargs[name]


def check(inputs: Inputs, family: Family) -> None:
    """Refuse what would give wrong attention, or an error that nobody understands."""
    ids, mask, longest = inputs.input_ids, inputs.attention_mask, family.longest
    if ids is not None and longest is not None and ids.shape[-1] > longest:
        raise InputError(
            f"the batch is {ids.shape[-1]} tokens long; {family.name} here takes at most {longest}: "
            f"tokenize with truncation=True, max_length={longest}."
        )
    if mask is not None and mask.dim() == 2:
        empty = (mask != 0).sum(1) == 0
        if bool(empty.any()):
            raise InputError(
                f"example {int(empty.nonzero()[0])} of the batch is fully masked (its attention_mask is all 0): "
                "leave empty texts out of the batch."
            )


_ATTRIBUTE = "_headwise_seam"
_LOCK = threading.RLock()  # customers come and go one at a time


class Site:
    """A seam's foothold in one attention module."""

    def __init__(self, seam: Seam) -> None:
        """Belong to a seam."""
        self.seam = seam
        self._layer: int | None = None
        self._shared = False

    def begin(self) -> tuple[Pass, int] | None:
        """The pass that this call of the module belongs to, and the number of its layer; None if nobody watches."""
        current = self.seam.current()
        if current is None:
            return None
        if current.open:
            layer = current.next_layer(self.seam.family.name)
            self._shared = self._layer is not None and self._layer != layer
            self._layer = layer
            return current, layer
        # The forward pass is over: gradient checkpointing computes this layer once more. Same plan, nothing recorded.
        if self._shared or self._layer is None:
            raise StateError(
                f"{self.seam.family.name} shares one layer: its recomputation under gradient checkpointing cannot be "
                "told apart; switch gradient checkpointing off."
            )
        return current, self._layer


class Seam:
    """What headwise holds on to in one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Study a model without touching it."""
        self.model = model
        self.family = family_of(model)
        self.customers: list[Customer] = []
        self._passes: dict[int, Pass] = {}
        self._latest: Pass | None = None
        self._valid_by_mask = WeakTensorKeyDictionary()
        self._undo: list[Callable[[], None]] = []
        self._forward: Callable[..., Any] | None = None
        self._warned_of_no_maps = False

    # -- customers ---------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, model: nn.Module) -> Seam:
        """The seam of a model; a new one, not yet installed, if it has none."""
        encoder = encoder_of(model)
        seam = encoder.__dict__.get(_ATTRIBUTE)
        return seam if isinstance(seam, Seam) else cls(encoder)

    def enter(self, customer: Customer) -> None:
        """Let a customer in; the first one installs the seam."""
        with _LOCK:
            home = self._home()
            if not home.customers:
                home._install()
            home.customers = [*home.customers, customer]

    def leave(self, customer: Customer) -> None:
        """Let a customer out; the last one takes the seam away."""
        with _LOCK:
            home = self._home()
            home.customers = [other for other in home.customers if other is not customer]
            if not home.customers:
                home._remove()

    def _home(self) -> Seam:
        """The installed seam of the model: another thread may have installed one since ours was made."""
        installed = self.model.__dict__.get(_ATTRIBUTE)
        return installed if isinstance(installed, Seam) else self

    def __deepcopy__(self, memo: dict[int, Any]) -> Seam:
        """A copied model keeps its customers but not the passes in flight, whose tensors cannot be copied."""
        twin = object.__new__(Seam)
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            if name not in ("_passes", "_latest", "_valid_by_mask"):
                setattr(twin, name, copy.deepcopy(value, memo))
        twin._passes, twin._latest, twin._valid_by_mask = {}, None, WeakTensorKeyDictionary()
        return twin

    # -- a forward pass ----------------------------------------------------------------------------------------------

    def current(self) -> Pass | None:
        """The pass of this thread; for a backward pass, which may run in a thread of its own, the latest one."""
        if torch.compiler.is_compiling():
            return self._latest
        mine = self._passes.get(threading.get_ident())
        if mine is None and self._latest is not None and not self._latest.open:
            return self._latest
        return mine

    @skipped
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the model, seeing and touching what the customers ask for."""
        inputs = read(self.model, args, kwargs)
        keep_from_model(self.model, kwargs)
        self._check_maps(kwargs)
        asked, idle = self._ask()
        thread = threading.get_ident()
        outer = self._passes.pop(thread, None), self._latest
        if not asked:
            self._latest = None
            try:
                output = self._call(args, kwargs)
            finally:
                self._restore(thread, outer)
            return self._serve([], idle, None, inputs, output)
        current = self._begin(asked, inputs)
        self._passes[thread] = self._latest = current
        try:
            output = self._call(args, kwargs)
            return self._serve(asked, idle, current, inputs, output)
        except BaseException:
            self._restore(thread, outer)
            raise
        finally:
            current.open = False
            current.results = []  # customers have what is theirs; nothing else may keep the graph alive

    @untraced
    def _ask(self) -> tuple[list[Order], list[Customer]]:
        """Who wants something of the coming pass, and who does not."""
        orders = [(customer, customer.requests(), customer.gates()) for customer in self.customers]
        asked = [order for order in orders if order[1] or order[2]]
        return asked, [order[0] for order in orders if not (order[1] or order[2])]

    @untraced
    def _check_maps(self, kwargs: dict[str, Any]) -> None:
        """Warn, once, whoever expects maps among the outputs: our attention function returns none."""
        wanted = kwargs.get("output_attentions")
        if wanted is None:
            wanted = getattr(self.model.config, "output_attentions", False)
        if wanted and self.family.route == "fused" and not self._warned_of_no_maps:
            self._warned_of_no_maps = True
            warn_of_no_maps(self.family.name)

    @untraced
    def _begin(self, asked: list[Order], inputs: Inputs) -> Pass:
        check(inputs, self.family)
        for customer, _, _ in asked:
            customer.before(inputs)
        requests = tuple(request for _, wanted, _ in asked for request in wanted)
        current = Pass(requests, tuple(gates for _, _, gates in asked), self.family.left, self.family.heads)
        if inputs.attention_mask is not None and inputs.attention_mask.dim() == 2:
            current.valid = inputs.attention_mask != 0
        return current

    @untraced
    def _serve(
        self, asked: list[Order], idle: list[Customer], current: Pass | None, inputs: Inputs, output: Any
    ) -> Any:
        if current is not None:
            current.close(self.family.name, self.family.route)
            valid = self._valid(current)
            start = 0
            for customer, wanted, _ in asked:
                seen = current.results[start : start + len(wanted)]
                start += len(wanted)
                output = customer.after(seen, valid, inputs, output)
        for customer in idle:
            customer.idle(output)
        return output

    def _restore(self, thread: int, outer: tuple[Pass | None, Pass | None]) -> None:
        mine, self._latest = outer
        if mine is None:
            self._passes.pop(thread, None)
        else:
            self._passes[thread] = mine

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._forward is not None:
            return self._forward(*args, **kwargs)
        return type(self.model).forward(self.model, *args, **kwargs)

    def _valid(self, current: Pass) -> Tensor:
        """[B,S] which positions are tokens."""
        if current.valid is not None:
            return current.valid
        like = next(iter(tensor for result in current.results for tensor in result.values()), None)
        if like is None:
            return torch.ones(0, 0, dtype=torch.bool)
        return torch.ones(current.positions(), dtype=torch.bool, device=like.device)

    # -- installing and removing -------------------------------------------------------------------------------------

    def _install(self) -> None:
        model = self.model
        if any(SITE in module.__dict__ for module in model.modules()):
            raise StateError(
                f"{type(model).__name__} is a part or the whole of a model that headwise is already attached to: "
                "use the same object for both."
            )
        if self.family.route == "fused":
            self._install_sites()
        else:
            self._install_hooks()
        model.__dict__[_ATTRIBUTE] = self
        self._forward = model.__dict__.get("forward")
        model.__dict__["forward"] = types.MethodType(_watched(type(model).forward), model)

    def _install_sites(self) -> None:
        register()
        configs = switch(self.model, NAME)
        for module in attention_modules(self.model):
            module.__dict__[SITE] = Site(self)
        self._undo.append(functools.partial(switch_back, self.model, configs))

    def _install_hooks(self) -> None:
        warn(self.family.name)
        for module in self.model.modules():
            if type(module).__name__ in EAGER_MODULES:
                site = module.__dict__[SITE] = Site(self)
                hooks = EagerHooks(module, functools.partial(_begin, site), self._see, self._gate, self._see_values)
                self._undo.append(hooks.remove)

    def _see(self, layer: int, maps: Tensor, mask: Tensor | None) -> None:
        current = self.current()
        if current is None:
            return
        current.check_heads(layer, maps.shape[1])
        # A layer that is computed once more may belong to an earlier pass; its mask is the same object as then.
        if current.open and mask is not None and current.valid is not None:
            self._valid_by_mask[mask] = current.valid
        valid = None if mask is None else self._valid_by_mask.get(mask)
        current.take(layer, Seen(valid, tuple(range(maps.shape[1])), maps, maps))

    def _gate(self, layer: int, out: Tensor) -> Tensor:
        current = self.current()
        if current is None:
            return out
        heads = len(self.family.left[layer])
        if heads == 0:
            return out
        split = out.unflatten(-1, (heads, -1))
        current.take_parts(layer, "output", split.transpose(1, 2))
        return current.apply_gates(layer, split).flatten(-2) if current.plans[layer].gates else out

    def _see_values(self, layer: int, values: Tensor) -> None:
        current, heads = self.current(), len(self.family.left[layer])
        if current is not None and heads > 0:
            current.take_parts(layer, "value", values.unflatten(-1, (heads, -1)).transpose(1, 2))

    def _remove(self) -> None:
        model = self.model
        while self._undo:
            self._undo.pop()()
        for module in model.modules():
            module.__dict__.pop(SITE, None)
        if getattr(model.__dict__.get("forward"), "__func__", None) is _watched(type(model).forward):
            del model.__dict__["forward"]
            if self._forward is not None:
                model.__dict__["forward"] = self._forward
        # else somebody wrapped our forward in theirs: ours stays inside and passes everything through
        model.__dict__.pop(_ATTRIBUTE, None)
        self._passes, self._latest = {}, None


@functools.lru_cache(maxsize=64)
def _watched(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for a model class's forward; it keeps the signature, which trainers read to choose columns."""

    @functools.wraps(forward)
    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seam = self.__dict__.get(_ATTRIBUTE)
        if not isinstance(seam, Seam):
            return forward(self, *args, **kwargs)
        return seam.run(args, kwargs)

    return skipped(watched)


def _begin(site: Site, module: nn.Module) -> tuple[int, bool]:
    """For a hooked module: its layer, and whether its map is wanted."""
    step = site.begin()
    if step is None:
        return 0, False
    current, layer = step
    return layer, current.plans[layer].seen
