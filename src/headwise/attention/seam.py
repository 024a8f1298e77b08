"""The only module that touches a model, and undoes it.

A seam lives in the model that it watches, never in a module of ours, so models, threads and copies do not interfere.
Customers (a capture, gates, a guidance) come and go; with the last of them the model is as it was.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import PreTrainedModel

from headwise.attention.backend import NAME, SITE
from headwise.attention.dropout import mix, step_seed
from headwise.attention.eager import EAGER_MODULES, EagerHooks, warn_user
from headwise.attention.families import attention_modules, encoder_of, family_of
from headwise.attention.passes import Customer, Function, Inputs, Order, Pass, skipped
from headwise.errors import InputError, StateError, UnsupportedModelError

# What a batch may carry for headwise alone.
NOT_FOR_THE_MODEL = ("special_tokens_mask", "knowledge", "rationale_mask")
_ATTRIBUTE = "_headwise_seam"
_LOCK = threading.RLock()  # customers come and go one at a time


# Keep torch.compile out of a function and of all that it calls: it should trace the model, not us.
untraced = cast("Callable[[Function], Function]", torch.compiler.disable)


def keep_from_model(model: nn.Module, kwargs: dict[str, Any]) -> None:
    """Remove what the batch carries for headwise alone, unless the model has such an argument (one with SSA does)."""
    carried = [name for name in NOT_FOR_THE_MODEL if name in kwargs]
    known = inspect.signature(type(model).forward).parameters if carried else {}
    for name in carried:
        if name not in known:
            del kwargs[name]


class Site:
    """A seam's hold on one attention module."""

    def __init__(self, seam: Seam) -> None:
        """Belong to a seam."""
        self.seam = seam
        self._layer: int | None = None
        self._shared = False

    def begin(self) -> tuple[Pass, int] | None:
        """The pass that this call of the module belongs to, and the number of its layer; None if nothing is watched."""
        seam, compiling = self.seam, torch.compiler.is_compiling()
        # Of this thread; for a backward pass, which may run in another thread, the latest one.
        current = seam.latest if compiling else seam.passes.get(threading.get_ident())
        if not compiling and current is None and seam.latest is not None and not seam.latest.open:
            current = seam.latest
        if current is None:
            return None
        if current.open:
            # Attention calls are numbered in their order: a shared layer is called once per layer.
            layer, layers = current.calls, len(current.plans)
            if layer >= layers:
                raise UnsupportedModelError(
                    f"{self.seam.family.name} calls attention more often than its {layers} layers: headwise does "
                    "not know which call is which layer."
                )
            current.calls += 1
            self._shared = self._layer is not None and self._layer != layer
            self._layer = layer
            return current, layer
        # The forward pass is over: gradient checkpointing computes this layer once more. Same plan, nothing recorded.
        if self._shared or self._layer is None:
            raise StateError(
                f"{self.seam.family.name} shares one layer: its recomputation under gradient checkpointing cannot be "
                "assigned to a layer; switch gradient checkpointing off."
            )
        return current, self._layer


class Seam:
    """The connection of headwise to one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Study a model without touching it."""
        self.model = model
        self.family = family_of(model)
        self.customers: list[Customer] = []
        self.passes: dict[int, Pass] = {}
        self.latest: Pass | None = None
        self.draw = 0
        """Where one call makes several passes: the number of the draw of attention dropout that the next one uses."""
        self.valid_by_mask = WeakTensorKeyDictionary()
        self._hooks: list[EagerHooks] = []
        self._configs: list[tuple[Any, Any]] = []  # shared and private ones
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
        """Add a customer; the first one installs the seam."""
        with _LOCK:
            # Another thread may have installed one since this one was created.
            installed: Seam = self.model.__dict__.get(_ATTRIBUTE, self)
            if not installed.customers:
                installed._install()
            installed.customers = [*installed.customers, customer]

    def leave(self, customer: Customer) -> None:
        """Remove a customer; with the last one the seam is removed."""
        with _LOCK:
            installed: Seam = self.model.__dict__.get(_ATTRIBUTE, self)
            installed.customers = [other for other in installed.customers if other is not customer]
            if not installed.customers:
                installed._remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> Seam:
        """A copied model keeps its customers but not the passes in progress, whose tensors cannot be copied."""
        twin = object.__new__(Seam)
        memo[id(self)] = twin
        fresh: dict[str, Any] = {"passes": {}, "latest": None, "valid_by_mask": WeakTensorKeyDictionary()}
        for name, value in self.__dict__.items():
            setattr(twin, name, fresh[name] if name in fresh else copy.deepcopy(value, memo))
        return twin

    # -- a forward pass ----------------------------------------------------------------------------------------------

    @skipped
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the model, and see and change what the customers ask for."""
        call = functools.partial(self._run_once, args, kwargs)
        for customer in self.customers:
            call = functools.partial(customer.around, call)
        return call()

    @skipped
    def _run_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One forward pass."""
        kwargs = dict(kwargs)  # a second pass needs what is removed from them
        inputs, seed, asked, idle = self._read(args, kwargs)
        current = self._plan(asked, inputs, seed) if asked else None
        forward = self._forward or functools.partial(type(self.model).forward, self.model)
        thread = threading.get_ident()
        outer = self.passes.pop(thread, None), self.latest
        self.latest = current
        if current is not None:
            self.passes[thread] = current
        kept = False
        try:
            output = self._serve(asked, idle, current, inputs, forward(*args, **kwargs))
            kept = current is not None  # a backward pass may compute its layers once more
            return output
        finally:
            if not kept:
                mine, self.latest = outer
                if mine is None:
                    self.passes.pop(thread, None)
                else:
                    self.passes[thread] = mine
            if current is not None:
                current.open = False
                current.results = []  # customers have their results; nothing else may keep the graph alive

    @untraced
    def _read(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Inputs, Tensor | None, list[Order], list[Customer]]:
        """The tensors that matter among the arguments, the seed of attention dropout, who asks for what, and who not.

        What is not for the model is removed from `kwargs`. Warns once if the caller expects maps among the outputs: our
        attention function returns none.
        """
        special, knowledge, rationale = (kwargs.get(name) for name in NOT_FOR_THE_MODEL)
        if knowledge is not None and not isinstance(knowledge, Mapping):
            raise InputError(
                f"knowledge={type(knowledge).__name__}: expected tensors by name, as KnowledgeCollator puts into a "
                "batch."
            )
        passed = {name: value for name, value in kwargs.items() if name not in NOT_FOR_THE_MODEL}
        try:
            bound = inspect.signature(type(self.model).forward).bind_partial(self.model, *args, **passed)
            arguments = bound.arguments
        except TypeError:  # a wrong call: let the model itself say so
            arguments = {}
        keep_from_model(self.model, kwargs)
        maps = kwargs.get("output_attentions")
        if maps is None:
            maps = getattr(self.model.config, "output_attentions", False)
        if maps and self.family.route == "fused" and not self._warned_of_no_maps:
            self._warned_of_no_maps = True
            warn_user(
                "output_attentions=True: the attention implementation of headwise returns no maps, so "
                f"{self.family.name} gives none while headwise is attached: use "
                "`with hw.capture(model, what='map') as record:`, or call hw.unguide(model) first."
            )
        ids, mask = arguments.get("input_ids"), arguments.get("attention_mask")
        known = {} if knowledge is None else knowledge
        inputs = Inputs(ids, mask, special, known, rationale_mask=rationale)
        seeds = [customer.seed() if self.model.training else None for customer in self.customers]
        seed = next((each for each in reversed(seeds) if each is not None), None)
        asked: list[Order] = []
        idle: list[Customer] = []
        for customer, own in zip(self.customers, seeds, strict=True):
            requests, gates = customer.requests(), customer.gates(inputs, seed)
            if requests or gates or own is not None:
                asked.append((customer, requests, gates))
            else:
                idle.append(customer)
        return inputs, seed, asked, idle

    @untraced
    def _plan(self, asked: list[Order], inputs: Inputs, seed: Tensor | None) -> Pass:
        """Plan a pass; refuses inputs that would give wrong attention, or an error that is hard to understand."""
        ids, mask, longest = inputs.input_ids, inputs.attention_mask, self.family.longest
        if ids is not None and longest is not None and ids.shape[-1] > longest:
            raise InputError(
                f"the batch is {ids.shape[-1]} tokens long; {self.family.name} here takes at most {longest}: "
                f"tokenize with truncation=True, max_length={longest}."
            )
        valid = None if mask is None or mask.dim() != 2 else mask != 0
        if valid is not None and not bool(valid.any(1).all()):
            raise InputError(
                f"example {int((~valid.any(1)).nonzero()[0])} of the batch is fully masked (its attention_mask is all "
                "0): leave empty texts out of the batch."
            )
        requests = [request for _, requests, _ in asked for request in requests]
        current = Pass(requests, [gates for _, _, gates in asked], self.family.left, self.family.heads)
        current.valid = valid
        if seed is not None:
            current.seed_dropout(seed, inputs)
        return current

    @untraced
    def _serve(
        self, asked: list[Order], idle: list[Customer], current: Pass | None, inputs: Inputs, output: Any
    ) -> Any:
        """Give each customer what was seen for it, once every layer was."""
        if current is not None:
            current.open = False
            if current.calls != len(current.plans):
                raise StateError(
                    f"{self.family.name}: expected attention from {len(current.plans)} layers, got {current.calls} by "
                    f"the {self.family.route} route; was the attention implementation changed, or a layer skipped, "
                    "while headwise was attached? Detach (unguide, or leave the with block) before changing the model."
                )
            if torch.is_grad_enabled() and getattr(self.model, "is_gradient_checkpointing", False):
                self._resume_in_backward(current, output)
            valid = current.valid  # [B,S] which positions are tokens
            if valid is None:
                seen = next((tensor for result in current.results for tensor in result.values()), torch.ones(0))
                valid = torch.ones(current.shape, dtype=torch.bool, device=seen.device)
            start = 0
            for customer, requests, _ in asked:
                output = customer.after(current.results[start : start + len(requests)], valid, inputs, output)
                start += len(requests)
        for customer in idle:
            customer.idle(output)
        return output

    def _resume_in_backward(self, current: Pass, output: Any) -> None:
        """Let a backward pass that reaches this forward pass repeat its layers with its plan.

        There may be several forward passes before one backward pass. Autograd takes what was computed last first, so
        it has left the layers of a later pass when it reaches the outputs of an earlier one.
        """

        def resume(_: Tensor) -> None:
            self.latest = self.passes[threading.get_ident()] = current

        entries = [*(output if isinstance(output, tuple) else getattr(output, "values", tuple)())]
        entries += [tensor for entry in entries if isinstance(entry, tuple) for tensor in entry]
        entries += [tensor for result in current.results for tensor in result.values()]
        for entry in entries:
            if isinstance(entry, Tensor) and entry.requires_grad:
                entry.register_hook(resume)

    # -- installing and removing -------------------------------------------------------------------------------------

    def _install(self) -> None:
        model = self.model
        if any(SITE in module.__dict__ for module in model.modules()):
            raise StateError(
                f"{type(model).__name__} is a part or the whole of a model that headwise is already attached to: "
                "use the same object for both."
            )
        if self.family.route == "fused":
            # Private configs that name our attention: other models may share the config object. A model has one as a
            # rule; a classifier put on another model's encoder has two.
            private: dict[int, Any] = {}
            for module in model.modules():
                shared = getattr(module, "config", None)
                if shared is None or not hasattr(shared, "_attn_implementation_internal"):
                    continue
                if id(shared) not in private:
                    twin = private[id(shared)] = copy.copy(shared)
                    twin._attn_implementation_internal = NAME
                    self._configs.append((shared, twin))
                module.__dict__["config"] = private[id(shared)]
            for module in attention_modules(model):
                module.__dict__[SITE] = Site(self)
        else:
            warn_user(
                f"{self.family.name} does not call custom attention: headwise watches the maps that the model makes "
                "itself (slower, more memory), and these are after dropout in training."
            )
            for module in model.modules():
                if type(module).__name__ in EAGER_MODULES:
                    site = module.__dict__[SITE] = Site(self)
                    self._hooks.append(EagerHooks(module, site))
        model.__dict__[_ATTRIBUTE] = self
        self._forward = model.__dict__.get("forward")
        model.__dict__["forward"] = types.MethodType(_watched(type(model).forward), model)

    def _remove(self) -> None:
        model = self.model
        for hooks in self._hooks:
            hooks.remove()
        for shared, private in self._configs:
            # With whatever the model noted in its private config meanwhile, such as the problem type.
            implementation = shared._attn_implementation_internal
            shared.__dict__.update(private.__dict__)
            shared._attn_implementation_internal = implementation
            for module in model.modules():
                if module.__dict__.get("config") is private:
                    module.__dict__["config"] = shared
        self._hooks, self._configs = [], []
        for module in model.modules():
            module.__dict__.pop(SITE, None)
        if getattr(model.__dict__.get("forward"), "__func__", None) is _watched(type(model).forward):
            del model.__dict__["forward"]
            if self._forward is not None:
                model.__dict__["forward"] = self._forward
        # else another library wrapped our forward: ours stays inside and passes everything through
        model.__dict__.pop(_ATTRIBUTE, None)
        self.passes, self.latest = {}, None


class SeededDropout(Customer):
    """Decides the attention dropout of a model by a seed, the step and the tokens of each example.

    So an example loses the same weights in every run with this seed, guided or not, however batches are split among
    accumulation steps and processes. Without it torch's generator decides, once per layer and batch. Only while a model
    trains, and only on the fused route: other models drop weights themselves.
    """

    def __init__(self, model: nn.Module, seed: int) -> None:
        """Attach to a model. The owner counts `step` up."""
        self.step = 0
        self._seed, self._seam = seed, Seam.of(model)
        self._seam.enter(self)

    def seed(self) -> Tensor:
        """Of this step."""
        seed = step_seed(self._seed, self.step)
        return mix(seed + self._seam.draw) if self._seam.draw else seed

    def remove(self) -> None:
        """Detach."""
        self._seam.leave(self)


@functools.lru_cache(maxsize=64)
def _watched(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A substitute for a model class's forward; it keeps the signature, which trainers read to choose columns."""

    @functools.wraps(forward)
    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seam = self.__dict__.get(_ATTRIBUTE)
        if not isinstance(seam, Seam):
            return forward(self, *args, **kwargs)
        return seam.run(args, kwargs)

    return skipped(watched)
