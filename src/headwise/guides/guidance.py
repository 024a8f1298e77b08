"""Attach guides to a model: its own loss then includes them while it trains."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Customer, Inputs, Request, Seam, select
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.guides.base import GuidePart, Guides, Losses, loss_of, weight_at, with_loss
from headwise.guides.match import Vocabulary
from headwise.guides.weights import Auto, Balance, StepCounter, anywhere, gradient_norms

# Several forward passes taken as one.


class Gathered:
    """The guides' values in the forward passes that one loss is made of."""

    def __init__(self) -> None:
        """Start empty."""
        self._passes: list[tuple[dict[str, Tensor], int]] = []

    def add(self, raw: Mapping[str, Tensor], examples: int) -> None:
        """Keep what the guides said of one pass, and of how many examples."""
        self._passes.append((dict(raw), examples))

    def mean(self) -> dict[str, Tensor]:
        """Per guide, the mean of its values v over the passes p with n examples each: sum(n_p v_p) / sum(n_p).

        For a guide that is a mean over examples this is its value on all of them in one batch. Passes without
        gradients, of which a loss may make some to choose its examples, teach nothing and do not count.
        """
        counted = [each for each in self._passes if not torch.is_grad_enabled() or _teaches(each[0])]
        if self._passes and not counted:
            raise StateError(
                "this loss calls the model without gradients and once more in the backward pass (a gradient cache), "
                "where no guide can be added: take the same loss without a cache (without Cached in its name) and "
                "smaller batches."
            )
        if len(counted) == 1:
            return counted[0][0]
        examples = sum(count for _, count in counted)
        names = counted[0][0] if counted else {}
        return {name: torch.stack([raw[name] * (count / examples) for raw, count in counted]).sum() for name in names}


def _teaches(raw: Mapping[str, Tensor]) -> bool:
    return any(value.requires_grad for value in raw.values())


# Notice guides that are computed and then forgotten.


class Unused:
    """Warns, once, of an optimiser step whose guides were computed but never added to any loss.

    One addition in a step is enough: a loop may well call the model again for something else.
    """

    def __init__(self) -> None:
        """Start without suspicion."""
        self._names: tuple[str, ...] = ()
        self._added = False
        self._told = False

    def computed(self, names: Iterable[str]) -> None:
        """Guides were computed in a forward pass without a loss to add them to."""
        if torch.is_grad_enabled():
            self._names = tuple(names)

    def added(self) -> None:
        """Guides were added to a loss."""
        self._added = True

    def stepped(self) -> None:
        """The optimiser made a step."""
        forgotten = self._names if not self._added and not self._told else ()
        self._names, self._added = (), False
        if forgotten:
            self._told = True
            warnings.warn(
                f"this step trained without the guides ({', '.join(forgotten)}): the loss is computed outside of the "
                "model, and nobody added them; wrap it, hw.GuidedLoss(loss) (sentence-transformers), use "
                "hw.GuidedTrainer (label smoothing, compute_loss_func), or say loss = hw.guidance(model).total(loss).",
                HeadwiseWarning,
                stacklevel=2,
            )


class Guidance(Customer):
    """The guides of one model, and what they did in the last training step."""

    def __init__(self, seam: Seam, guides: Guides, vocabulary: Vocabulary, share_every: int) -> None:
        """Resolve the guides' choices of layers and heads for this model."""
        self.guides = guides
        self.losses = Losses()
        self._seam = seam
        self._vocabulary = vocabulary
        self._share_every = share_every
        self._named = dict(guides.named())
        self._requests = {
            name: Request.of(
                guide.what,
                select(guide.layers, guide.heads, seam.family.shape),
                after_dropout=guide.dropout == "after",
                padding_rows=guide.what == "map" and guide.padding_rows,
            )
            for name, guide in self._named.items()
        }
        for name, guide in self._named.items():
            vocabulary.check(name, guide.marks)
        self._balances = {
            name: Balance(guide.weight)
            for name, guide in self._named.items()
            if isinstance(guide.weight, Auto) and guide.weight.share > 0
        }
        self._unused = Unused()
        self._steps = StepCounter(seam.model, self._unused.stepped)
        self._shares_at = -1
        self._warned: set[str] = set()
        self._raw: dict[str, Tensor] = {}
        self._task: Tensor | None = None
        self._gathered: Gathered | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Guidance:
        """A copied model is guided too, but the graph of the last step, which cannot be copied, stays behind."""
        twin = object.__new__(Guidance)
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            if name not in ("_raw", "_task", "_gathered"):
                setattr(twin, name, copy.deepcopy(value, memo))
        twin._raw, twin._task, twin._gathered = {}, None, None
        return twin

    # -- what the seam asks ------------------------------------------------------------------------------------------

    def requests(self) -> tuple[Request, ...]:
        """In training, what the guides that count at this step need; in evaluation nothing."""
        self._raw, self._task = {}, None  # the graph of the step before must not outlive it
        if not self.training:
            return ()
        return tuple(dict.fromkeys(self._requests[name] for name in self._active()))

    def after(self, seen: list[dict[int, Tensor]], valid: Tensor, inputs: Inputs, output: Any) -> Any:
        """Add the guides to the model's loss, if it has one."""
        special = self._special(inputs)
        inputs = replace(inputs, marks={**self._marks(inputs), **inputs.marks})
        requests = tuple(dict.fromkeys(self._requests[name] for name in self._active()))
        records = {
            request: AttentionRecord(request).fill(layers, valid, special)
            for request, layers in zip(requests, seen, strict=True)
        }
        self._raw = {name: self._named[name](records[self._requests[name]], inputs) for name in self._active()}
        self._check(self._raw)
        if self._gathered is not None:
            self._gathered.add(self._raw, len(valid))
            return output
        task = loss_of(output)
        if task is None:
            self.losses = Losses()
            self._unused.computed(self._raw)
            return output
        return with_loss(output, self.total(task))

    def idle(self, output: Any) -> None:
        """In training without a guide that counts, there still is a task loss to tell."""
        task = loss_of(output)
        if self.training and task is not None:
            self.total(task)

    # -- what users ask ----------------------------------------------------------------------------------------------

    def total(self, task: Tensor) -> Tensor:
        """The task's loss plus the weighted guides of the last forward pass.

        Called for you where the model computes its own loss. Call it yourself where the loss is computed outside of the
        model (label smoothing, a loss function of your own).

        Args:
            task: the task's loss as a mean over the batch, which is what a guide is.
        """
        self._task = task
        self._unused.added()
        if not self._raw:
            self.losses = Losses(task.detach())
            return task
        self._rebalance(task)
        weights = {name: self._weight(name) for name in self._raw}
        parts = {name: GuidePart(raw.detach(), weights[name]) for name, raw in self._raw.items()}
        self.losses = Losses(task.detach(), parts)
        if self._share_every and self.step % self._share_every == 0 and self.step != self._shares_at:
            self._shares_at = self.step
            self.gradient_share()
        for name, raw in self._raw.items():
            task = task + weights[name] * raw
        return task

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Take the forward passes inside as one; `total`, called behind it, adds their mean over all examples.

        For a loss that calls the model more than once. A loss of the model's own stays without guides inside.
        """
        self._raw, self._task = {}, None
        gathered = self._gathered = Gathered()
        try:
            yield
        finally:
            self._gathered = None
        self._raw = gathered.mean()

    def gradient_share(self) -> dict[str, float]:
        """Each guide's weighted gradient norm on the query/key projections, as a share of the task's.

        To be called between a training forward pass and its backward pass. A share above 1 means that the guide, not
        the task, decides where attention goes: it warns.
        """
        if self._task is None or not self._raw:
            raise StateError(
                "there is no guided training step to measure: call the model in training mode with labels, then ask "
                "for the gradient share before the backward pass."
            )
        names = list(self._raw)
        task, *guides = gradient_norms(self._seam.model, [self._task, *(self._raw[name] for name in names)])
        shares = {name: _ratio(self._weight(name) * norm, task) for name, norm in zip(names, guides, strict=True)}
        for name, share in shares.items():
            self.losses.guides[name].share = share
            self._warn_if_strong(name, share)
        return shares

    @property
    def training(self) -> bool:
        """Whether the model is in training mode, where guides count."""
        return self._seam.model.training

    @property
    def step(self) -> int:
        """Optimiser steps since the guides were attached, or since the state that was loaded."""
        return self._steps.count

    def detach(self) -> None:
        """Leave the model."""
        self._steps.stop()
        self._seam.leave(self)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain numbers, fit for JSON."""
        return {"step": self.step, "auto": {name: balance.state() for name, balance in self._balances.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of the same guides."""
        if set(state.get("auto", {})) != set(self._balances) or "step" not in state:
            raise InputError(
                f"the guidance state is of other guides: expected automatic weights {sorted(self._balances)}, got "
                f"{sorted(state.get('auto', {}))}; attach the guides that were saved."
            )
        self._steps.count = int(state["step"])
        for name, balance in self._balances.items():
            balance.load(state["auto"][name])

    # -- within ------------------------------------------------------------------------------------------------------

    def _active(self) -> list[str]:
        """The guides that count at this step; a weight of 0 leaves the model's own attention untouched."""
        return [name for name, guide in self._named.items() if weight_at(guide, self.step) != 0.0]

    def _weight(self, name: str) -> float:
        fixed = weight_at(self._named[name], self.step)
        return self._balances[name].weight if fixed is None else fixed

    def _rebalance(self, task: Tensor) -> None:
        due = [name for name, balance in self._balances.items() if name in self._raw and balance.due(self.step)]
        if not due or not torch.is_grad_enabled() or not task.requires_grad:
            return
        # A batch without a target has the value 0 and says nothing about the guide's gradient.
        due = [name for name, some in zip(due, anywhere([self._raw[name] for name in due]), strict=True) if some]
        if not due:
            return
        norm, *others = gradient_norms(self._seam.model, [task, *(self._raw[name] for name in due)])
        for name, other in zip(due, others, strict=True):
            # A gradient that is rounding noise is none: it must not be blown up to a share of the task's.
            noise = torch.finfo(self._raw[name].dtype).eps * abs(float(self._raw[name].detach()))
            self._balances[name].note(self.step, norm, other if other > noise else 0.0)

    def _special(self, inputs: Inputs) -> Tensor | None:
        if inputs.special_tokens_mask is not None:
            return inputs.special_tokens_mask != 0
        return self._vocabulary.special(inputs.input_ids)

    def _marks(self, inputs: Inputs) -> dict[str, Tensor]:
        wanted = {mark for name in self._active() for mark in self._named[name].marks}
        return self._vocabulary.marks(inputs.input_ids, sorted(wanted))

    def _check(self, raw: Mapping[str, Tensor]) -> None:
        for name, value in raw.items():
            if not isinstance(value, Tensor) or value.dim() != 0:
                raise InputError(f"guide {name} returned {value!r}: expected a scalar tensor.")
            if torch.is_grad_enabled() and not value.requires_grad:
                raise StateError(
                    f"guide {name} reaches no trainable parameter: either its layers are frozen (unfreeze them or "
                    "guide others), or gradient checkpointing runs with use_reentrant=True "
                    "(pass gradient_checkpointing_kwargs={'use_reentrant': False})."
                )

    def _warn_if_strong(self, name: str, share: float) -> None:
        if share > 1 and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"the gradient of guide {name} is {share:.2g} times the task's on the query/key projections at step "
                f"{self.step}: it will overrule the task; lower its weight, or use weight=auto(0.1).",
                HeadwiseWarning,
                stacklevel=3,
            )


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return 0.0 if part == 0 else float("inf")
