"""The guides of a model: its own loss includes them while it trains."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Customer, Inputs, Request, Seam, select
from headwise.attention.passes import Gates, skipped
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.guides.base import Guide, Guides
from headwise.guides.consistency import NO_LOSS, Consistency, divergence, other_dropout
from headwise.guides.gradient_share import Balance, gradient_norms
from headwise.guides.head_dropout import HeadDropout, HeadMasks
from headwise.guides.losses import GuidePart, Losses, loss_of, with_loss
from headwise.guides.weights import Auto, StepCounter, weight_at

# The keys of warnings, beside those by the name of a guide.
UNUSED, EQUAL = "unused guides", "equal passes"


class Vocabulary(NamedTuple):
    """Which ids of a tokenizer are special, and which are tokens of a kind; empty without a tokenizer."""

    name: str = ""
    special_ids: tuple[int, ...] = ()
    ids: Mapping[str, tuple[int, ...]] = {}
    """By the kind of token, such as separator."""

    @classmethod
    def of(cls, tokenizer: Any, *, marks: bool = True) -> Vocabulary:
        """Read the ids from a tokenizer; `marks` is whether any guide needs tokens of a kind."""
        if tokenizer is None:
            return cls()
        if getattr(tokenizer, "all_special_ids", None) is None:
            raise InputError(
                f"tokenizer={tokenizer!r:.80}: expected a tokenizer of transformers, such as "
                "AutoTokenizer.from_pretrained(...)."
            )
        from headwise.patterns.fixed import mark_ids, special_ids

        known = mark_ids(tokenizer) if marks and hasattr(tokenizer, "get_vocab") else {}
        return cls(type(tokenizer).__name__, special_ids(tokenizer), known)


class Guidance(Customer):
    """The guides of one model, and their values in the last training step."""

    def __init__(self, seam: Seam, guides: Guides, vocabulary: Vocabulary, share_every: int) -> None:
        """Resolve the guides' choices of layers and heads for this model."""
        self.guides = guides
        self.losses = Losses()
        self._seam = seam
        self._vocabulary = vocabulary
        self._share_every = share_every
        named = dict(guides.named())
        self._named = {name: guide for name, guide in named.items() if isinstance(guide, Guide)}
        pairs = {name: guide for name, guide in named.items() if isinstance(guide, Consistency)}
        if len(pairs) > 1:
            raise InputError("consistency is given twice: the passes can differ in one way, so give one.")
        self._consistency = next(iter(pairs.items()), None)
        if pairs and hasattr(seam.model, "ssa"):  # the token head; its weight follows the gradient of one pass
            raise InputError("consistency does not work with SSA, whose own loss expects one pass: use one of them.")
        by_heads = self._consistency is not None and self._consistency[1].by == "heads"
        silencing = [guide for guide in guides if isinstance(guide, HeadDropout)]
        self._masks = HeadMasks(silencing, seam.family, needed=by_heads)
        # Whether this is the further pass of a step with two.
        self._again = False
        self._requests: dict[str, Request] = {}
        for name, guide in self._named.items():
            for mark in guide.marks:
                if not vocabulary.name:
                    raise InputError(f"guide {name} does not know the {mark} tokens: pass tokenizer=... to guide().")
                if mark not in vocabulary.ids:
                    raise InputError(
                        f"guide {name} needs a {mark} token, and {vocabulary.name} has none: leave the guide out."
                    )
            self._requests[name] = Request.of(
                guide.what,
                select(guide.layers, guide.heads, seam.family.shape),
                after_dropout=guide.dropout == "after",
                padding_rows=guide.what == "map" and guide.padding_rows,
            )
        rules = {name: guide.weight for name, guide in self._named.items() if isinstance(guide.weight, Auto)}
        self._balance = Balance({name: rule for name, rule in rules.items() if rule.share > 0})
        self._steps = StepCounter(seam.model, self._after_step)
        self._shares_at = -1
        self._warned: set[str] = set()
        # Of the current optimiser step: the guides that were computed without a loss, and whether any were added.
        self._unused: tuple[str, ...] = ()
        self._added = False
        # Of the last forward pass: the guides that count, their values, the attention that they are computed from and
        # the task's loss, with their graph.
        self._active: dict[str, Request] = {}
        self._raw: dict[str, Tensor] = {}
        self._attention: dict[str, dict[int, Tensor]] = {}
        self._task: Tensor | None = None
        # Inside of `gathering`: the values of each pass, and its number of examples.
        self._passes: list[tuple[dict[str, Tensor], int]] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Guidance:
        """A copied model is guided too, but without the graph of the last step, which cannot be copied."""
        twin = object.__new__(Guidance)
        memo[id(self)] = twin
        without_graph = {**self.__dict__, "_raw": {}, "_attention": {}, "_task": None, "_passes": None}
        for name, value in without_graph.items():
            setattr(twin, name, copy.deepcopy(value, memo))
        return twin

    # -- called by the seam ------------------------------------------------------------------------------------------

    def requests(self) -> tuple[Request, ...]:
        """In training, what the guides that count at this step need; in evaluation nothing."""
        self._raw, self._attention, self._task = {}, {}, None  # the graph of the step before must not outlive it
        active: dict[str, Request] = {}
        if self.training:
            for name, guide in self._named.items():
                # A weight of 0 leaves the model's own attention untouched.
                if weight_at(guide.weight, self.step) != 0.0:
                    active[name] = self._requests[name]
        self._active = active
        return tuple(dict.fromkeys(active.values()))

    def gates(self, inputs: Inputs, seed: Tensor | None) -> Gates:
        """In training, the heads that are silent in this pass."""
        if not self.training or (self._masks.implied and self._pair is None):
            return {}
        return self._masks.gates(self.step, inputs, seed, again=self._again)

    @skipped
    def around(self, call: Callable[[], Any]) -> Any:
        """In training with consistency, two passes: the last one has the dropout of plain training."""
        if self._pair is None:
            return call()
        name, rule, weight = self._pair
        if self._passes is not None:
            raise InputError(NO_LOSS)
        with self.gathering():
            self._again, self._seam.draw = True, int(rule.by == "dropout")
            try:
                with other_dropout(self._seam.model, different=rule.by == "dropout"):
                    other = call()
            finally:
                self._again, self._seam.draw = False, 0
            output = call()
        first, second = loss_of(output), loss_of(other)
        if first is None or second is None:
            if torch.is_grad_enabled():
                raise InputError(NO_LOSS)
            return output
        value = divergence(output, other, getattr(self._seam.model.config, "problem_type", None))
        if rule.by == "dropout" and EQUAL not in self._warned:
            self._warned.add(EQUAL)
            if float(value.detach()) == 0:
                warnings.warn(
                    f"{name}: both passes predict exactly the same, so they cost time for nothing: give the model "
                    "dropout (hidden_dropout_prob in its config), or use by='heads'.",
                    HeadwiseWarning,
                    stacklevel=2,
                )
        return with_loss(output, self._total((first + second) / 2, name, value, weight))

    def after(self, seen: list[dict[int, Tensor]], valid: Tensor, inputs: Inputs, output: Any) -> Any:
        """Add the guides to the model's loss, if it has one."""
        ids, special = inputs.input_ids, None
        if inputs.special_tokens_mask is not None:
            special = inputs.special_tokens_mask != 0
        elif self._vocabulary.name and ids is not None:
            special = torch.isin(ids, torch.tensor(self._vocabulary.special_ids, device=ids.device))
        active = [self._named[name] for name in self._active]
        kinds = sorted({mark for each in active for mark in (*each.marks, *each.optional_marks)})
        if ids is not None and kinds:
            from headwise.patterns.fixed import find_marks

            inputs = replace(inputs, marks={**find_marks(ids, self._vocabulary.ids, kinds), **inputs.marks})
        records: dict[Request, AttentionRecord] = {}
        # Views: the gradient on them is that of a guide alone, and no backward pass through the layers above.
        views = [{layer: tensor.view_as(tensor) for layer, tensor in layers.items()} for layers in seen]
        observed = dict(zip(dict.fromkeys(self._active.values()), views, strict=True))
        for request, layers in observed.items():
            records[request] = AttentionRecord(request).fill(layers, valid, special)
        for name, request in self._active.items():
            value = self._raw[name] = self._named[name](records[request], inputs)
            if not isinstance(value, Tensor) or value.dim() != 0:
                raise InputError(f"guide {name} returned {value!r}: expected a scalar tensor.")
            if torch.is_grad_enabled() and not value.requires_grad:
                raise StateError(
                    f"guide {name} reaches no trainable parameter: either its layers are frozen (unfreeze them or "
                    "guide others), or gradient checkpointing runs with use_reentrant=True "
                    "(pass gradient_checkpointing_kwargs={'use_reentrant': False})."
                )
        if self._passes is not None:
            if self._raw:
                self._passes.append((self._raw, len(valid)))
            return output
        self._attention = {name: observed[request] for name, request in self._active.items()}
        task = loss_of(output)
        if task is None:
            self.losses = Losses()
            if torch.is_grad_enabled():
                self._unused = tuple(self._raw)
            return output
        return with_loss(output, self.total(task))

    def idle(self, output: Any) -> None:
        """In training without a guide that counts, there still is a task loss to report."""
        task = loss_of(output)
        if self.training and task is not None and self._passes is None:
            self.total(task)

    # -- called by users ---------------------------------------------------------------------------------------------

    def total(self, task: Tensor) -> Tensor:
        """The task's loss plus the weighted guides of the last forward pass.

        Called for you where the model computes its own loss. Call it yourself where the loss is computed outside of the
        model (label smoothing, a custom loss function).

        Args:
            task: the task's loss as a mean over the batch, which is what a guide is.
        """
        return self._total(task)

    def _total(self, task: Tensor, name: str = "", value: Tensor | None = None, weight: float = 0.0) -> Tensor:
        """`total`, after the part of the loss that is not on attention, if there is one, with its name and weight."""
        self._added = True
        self.losses = Losses(task.detach())
        parts = self.losses.guides
        if value is not None:
            parts[name] = GuidePart(value.detach(), weight)
            task = task + weight * value
        self._task = task  # the gradient shares of guides are those of all that is not a guide
        if not self._raw:
            return task
        balanced = self._balance.weights(self._seam.model, task, self._raw, self.step, self._attention)
        for name, raw in self._raw.items():
            fixed = weight_at(self._named[name].weight, self.step)
            parts[name] = GuidePart(raw.detach(), balanced[name] if fixed is None else fixed)
        if self._share_every and self.step % self._share_every == 0 and self.step != self._shares_at:
            self._shares_at = self.step
            if balanced.keys() != self._raw.keys():  # automatic weights are measured anyway, see `_after_step`
                self.gradient_share()
        for name, raw in self._raw.items():
            task = task + parts[name].weight * raw
        if balanced:
            self._balance.follow(self._seam.model, task)
        return task

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Treat the forward passes inside as one; `total`, called afterwards, adds their mean over all examples.

        For a loss that calls the model more than once. The model's own loss stays without guides inside.
        """
        self._raw, self._attention, self._task = {}, {}, None
        passes = self._passes = []
        try:
            yield
        finally:
            self._passes = None
        # Passes without gradients, which a loss may make to choose its examples, teach nothing and do not count.
        counted = [
            each for each in passes if not torch.is_grad_enabled() or any(raw.requires_grad for raw in each[0].values())
        ]
        if passes and not counted:
            raise StateError(
                "this loss calls the model without gradients and once more in the backward pass (a gradient cache), "
                "where no guide can be added: take the same loss without a cache (without Cached in its name) and "
                "smaller batches."
            )
        if len(counted) == 1:
            self._raw = counted[0][0]
        elif counted:
            # With n_p examples in pass p, sum(n_p v_p) / sum(n_p): for a mean over examples, its value in one batch.
            examples = sum(count for _, count in counted)
            self._raw = {
                name: torch.stack([raw[name] * (count / examples) for raw, count in counted]).sum()
                for name in counted[0][0]
            }

    def gradient_share(self) -> dict[str, float]:
        """Each guide's weighted gradient norm on the query/key projections, as a share of the task's.

        Call it between a training forward pass and its backward pass. A share above 1 means that the guide, not the
        task, decides where attention goes: it warns.
        """
        if self._task is None or not self._raw:
            raise StateError(
                "there is no guided training step to measure: call the model in training mode with labels, then ask "
                "for the gradient share before the backward pass."
            )
        task, *norms = gradient_norms(self._seam.model, [self._task, *self._raw.values()])
        shares = {}
        for name, norm in zip(self._raw, norms, strict=True):
            part = self.losses.guides[name].weight * norm
            shares[name] = share = part / task if task > 0 else 0.0 if part == 0 else float("inf")
            self.losses.guides[name].share = share
            if share > 1 and name not in self._warned:
                self._warned.add(name)
                warnings.warn(
                    f"the gradient of guide {name} is {share:.2g} times the task's on the query/key projections at "
                    f"step {self.step}: it will overrule the task; lower its weight, or use weight=auto(0.1).",
                    HeadwiseWarning,
                    stacklevel=2,
                )
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
        """The state for a checkpoint: plain numbers, fit for JSON."""
        return {"step": self.step, **self._balance.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint of the same guides."""
        self._balance.load(state)
        self._steps.count = int(state["step"])

    # -- internal ----------------------------------------------------------------------------------------------------

    @property
    def _pair(self) -> tuple[str, Consistency, float] | None:
        """Consistency with its name and weight, where it counts at this step."""
        if self._consistency is None or not self.training:
            return None
        name, rule = self._consistency
        weight = weight_at(rule.weight, self.step)
        return (name, rule, weight) if weight else None

    def _after_step(self) -> None:
        """After an optimiser step: warn, once, if its guides were computed but never added to any loss.

        One addition in a step is enough: a loop may well call the model again for something else.
        """
        self._balance.collect()
        if self._share_every and self.step % self._share_every == 0:
            self._balance.account()
        for name, share in self._balance.take_shares().items():
            if name in self.losses.guides:
                self.losses.guides[name].share = share
        unused = () if self._added else self._unused
        self._unused, self._added = (), False
        if unused and UNUSED not in self._warned:
            self._warned.add(UNUSED)
            warnings.warn(
                f"this step trained without the guides ({', '.join(unused)}): the loss is computed outside of the "
                "model, and nothing added them; wrap it, hw.guides.GuidedLoss(loss) (sentence-transformers), use "
                "hw.GuidedTrainer (label smoothing, compute_loss_func), or call hw.guides.guidance(model).total(loss).",
                HeadwiseWarning,
                stacklevel=2,
            )
