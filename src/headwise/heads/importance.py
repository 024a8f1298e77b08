"""How much a task needs each head: the slope of its loss when the head's output is turned down.

Shapes: N layers, H heads, B batch, S positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import Customer, Family, Seam
from headwise.attention.masks import heads_of
from headwise.errors import InputError, StateError, choices
from headwise.heads.pruning import Head, ranked_heads, top_heads
from headwise.heads.stability import RunningSums, Stability
from headwise.notebook import grid_html

# The slope of a model's loss by a gate on each head's output, example by example.


# Labels that the loss leaves out.
IGNORED = -100


class Gates(Customer):
    """Gates of 1 that get gradients, anew for every batch; attached once for all batches, as attaching takes time."""

    def __init__(self, model: nn.Module, mask: Any, *, by_position: bool) -> None:
        """Gates for each head of a model; those of the mask, and of heads that are pruned, are 0."""
        self._model = model
        self._seam = Seam.of(model)
        self._shape = self._seam.family.shape
        self._by_position = by_position
        self._current: Tensor | None = None
        self.there = _there(model, self._seam.family, mask)
        """[N,H] the heads that are neither pruned nor silenced."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """In the model's attention, for the time of a `with`."""
        self._seam.enter(self)
        try:
            yield
        finally:
            self._seam.leave(self)

    def gates(self) -> Mapping[int, Tensor]:
        """Of each layer, while slopes are taken."""
        return {} if self._current is None else dict(enumerate(self._current))

    def slopes(self, batch: Mapping[str, Any]) -> Tensor:
        """[N,B,H] or, by position, [N,B,S,H]: the slope of the sum of the examples' losses by each gate."""
        layers, heads = self._shape
        size = batch["input_ids"].shape[: 2 if self._by_position else 1]  # B or B,S
        weight = next(self._model.parameters())
        # A gate of bf16 would round the slopes once more.
        precise = torch.promote_types(weight.dtype, torch.float32)
        leaf = torch.ones(layers, *size, heads, dtype=precise, device=weight.device, requires_grad=True)
        there = torch.as_tensor(self.there, device=leaf.device).view(layers, *(1 for _ in size), heads)
        self._current = leaf if self.there.all() else leaf * there
        try:
            total = _loss(self._model, batch).to(precise) * _labels(batch)
            (slopes,) = torch.autograd.grad(total, leaf)
        finally:
            self._current = None
        return slopes


def _there(model: nn.Module, family: Family, mask: Any) -> NDArray[np.bool_]:
    there = np.zeros(family.shape, dtype=bool)
    for layer, heads in enumerate(family.left):
        there[layer, list(heads)] = True
    # The first step of exact pruning has a mask of nothing.
    nothing = isinstance(mask, np.ndarray | Tensor) and tuple(mask.shape) == family.shape and not mask.any()
    if mask is not None and not nothing:
        for layer, heads in heads_of(model, mask).items():
            there[layer, list(heads)] = False
    return there


def _loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    loss = getattr(model(**batch), "loss", None)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError(
            f"{type(model).__name__} gave no loss: every batch needs labels, and the model a head that computes a loss "
            "(AutoModelForSequenceClassification has one)."
        )
    if not loss.requires_grad:
        raise StateError(f"the loss of {type(model).__name__} does not depend on its heads: is it cut off by no_grad?")
    return loss


def _labels(batch: Mapping[str, Any]) -> Tensor | int:
    """By how many labels the loss was divided: examples, or labelled tokens where every token has a label."""
    labels, ids = batch.get("labels"), batch["input_ids"]
    if isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape in (ids.shape[:1], ids.shape):
        return (labels != IGNORED).sum()
    return len(ids)


# -- the data --------------------------------------------------------------------------------------------------------


def prepared_batches(data: Iterable[Any], device: torch.device, most: int | None) -> Iterator[dict[str, Any]]:
    """Batches on the model's device, until there are enough examples; the last one is cut."""
    if not isinstance(data, Iterable):
        raise InputError(f"data is {_kind(data)}: expected batches, such as a DataLoader or a list of them.")
    left = most
    for batch in data:
        if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
            raise InputError(
                f"data gave {_kind(batch)}: expected batches, mappings from names to tensors with input_ids and labels "
                "(a single batch goes into a list)."
            )
        if batch["input_ids"].dim() != 2:
            raise InputError(f"input_ids of shape {tuple(batch['input_ids'].shape)}: expected [examples,positions].")
        size = len(batch["input_ids"])
        take = size if left is None else min(size, left)
        if take:
            yield _prepared(batch, size, take, device)
        if left is not None:
            left -= take
            if left == 0:
                return


def _prepared(batch: Mapping[str, Any], size: int, take: int, device: torch.device) -> dict[str, Any]:
    """The first examples of a batch, on the device; knowledge is a mapping within the batch."""
    prepared: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Mapping):
            value = _prepared(value, size, take, device)
        elif isinstance(value, Tensor):
            if take < size and value.shape[:1] == (size,):
                value = value[:take]
            # Autograd takes no tensor that was made in inference mode.
            value = value.clone().to(device) if value.is_inference() else value.to(device)
        prepared[name] = value
    return prepared


def token_counts(batch: Mapping[str, Any]) -> Tensor:
    """[B] how many tokens each example has."""
    ids, mask = batch["input_ids"], batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return (mask != 0).sum(1)
    return torch.full((len(ids),), ids.shape[1], device=ids.device)


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a batch with {', '.join(map(str, value)) or 'nothing'}"
    return f"something of type {type(value).__name__}"


# Measuring a model by its gradients without leaving a trace on it.


@contextmanager
def no_trace(model: nn.Module, *, freeze: bool = False) -> Iterator[None]:
    """Evaluation mode with gradients; afterwards all is as it was, whatever happened: modes, requires_grad, chance.

    Args:
        model: the model to measure.
        freeze: no gradients for its parameters, only for what the caller adds, such as gates.
    """
    modes = {module: module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad] if freeze else []
    random = torch.get_rng_state()  # a DataLoader draws a number each time it begins
    try:
        model.eval()
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_rng_state(random)
        for parameter in frozen:
            parameter.requires_grad_(True)
        for module, mode in modes.items():
            module.training = mode


GRANULARITIES = ("token", "sample", "batch")
NORMALISATIONS = ("none", "layer")
# Half the width of a 95 % interval, in standard errors.
NORMAL_95 = 1.96
# Keeps a layer without any importance from being divided by 0.
TINY = 1e-20

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class HeadImportance:
    """Importance of every head for one task, and how sure it is."""

    scores: Array
    """[N,H]"""
    half_width: Array | None
    """[N,H] half the width of the 95 % interval of each score, were other examples of this kind drawn. With "batch" it
    is that of the mean before its sign is dropped: a smaller score cannot be told from 0. None for one example."""
    granularity: str
    normalise: str
    examples: int
    tokens: int
    """Padding not counted."""
    stability: Stability | None
    """How alike the ranking is on two halves of the examples; None for one example."""

    def top(self, share: float) -> list[Head]:
        """The most important share of all heads, as (layer, head), the most important first."""
        return ranked_heads(self.scores)[: int(top_heads(self.scores, share).sum())]

    def _repr_html_(self) -> str:
        """For notebooks."""
        return grid_html(f"Importance of each head, over {self.examples} examples", self.scores.tolist())

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "scores": self.scores.tolist(),
            "half_width": None if self.half_width is None else self.half_width.tolist(),
            "granularity": self.granularity,
            "normalise": self.normalise,
            "examples": self.examples,
            "tokens": self.tokens,
            "stability": None if self.stability is None else self.stability.as_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HeadImportance:
        """What `as_dict` gave."""
        try:
            width, stability = data["half_width"], data["stability"]
            return cls(
                np.asarray(data["scores"], dtype=np.float64),
                None if width is None else np.asarray(width, dtype=np.float64),
                str(data["granularity"]),
                str(data["normalise"]),
                int(data["examples"]),
                int(data["tokens"]),
                None if stability is None else Stability.from_dict(stability),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"this is no head importance ({type(error).__name__}: {error}): expected what as_dict() gave."
            ) from error

    def __repr__(self) -> str:
        """One line."""
        layers, heads = self.scores.shape
        layer, head = ranked_heads(self.scores)[0]
        return (
            f"HeadImportance({layers} layers x {heads} heads, {self.granularity}, {self.examples} examples, "
            f"most important: layer {layer}, head {head})"
        )


def head_importance(
    model: nn.Module,
    data: Iterable[Mapping[str, Any]],
    *,
    granularity: str = "sample",
    normalise: str = "none",
    max_examples: int | None = 10_000,
    mask: Any = None,
    after_batch: Callable[[int], None] | None = None,
) -> HeadImportance:
    """Estimate how much the loss on these data depends on each head.

        importance = hw.head_importance(model, loader)
        importance.scores      # [N,H]
        importance.top(0.3)    # [(layer, head), ...]

    Each head's output is multiplied by a gate g = 1. The slope of an example's loss l(x) by that gate,
    dl(x)/dg = sum over positions and features of output * dl(x)/d(output), is to first order what the example would
    gain or lose without the head. With X examples and Z tokens (padding not counted) a head's score is, by granularity:

    - "sample" (default): 1/X sum_x |dl(x)/dg|, the usual definition (Michel et al. 2019).
    - "token": 1/Z sum_x sum_s |dl(x)/dg_s|, with a gate for every position s. The authors' ranking: it favours heads
      that are read at many positions, so the last layer, which a classifier reads at one, comes off badly.
    - "batch": 1/X |sum_x dl(x)/dg|, over all data, whatever the batches. Examples that pull in opposite directions
      cancel, so this is for diagnosis only.

    So batch <= sample <= token * Z / X for every head. A model's loss is a mean over the batch; it is multiplied by the
    number of labels that it is the mean of, so that scores depend neither on batch size nor on padding nor on order.
    (The authors took the mean itself, so that their scores shrink with batch size and a last, smaller batch counts for
    more; and without their option same_div the last layer was not divided by Z.)

    The model is left as it was: modes, requires_grad, gradients, random state. It is measured in evaluation mode, where
    the guides of `hw.guide` add nothing to the loss. Heads that are masked around the call score 0.

    Args:
        model: a transformers model with a head that computes a loss, bare or wrapped.
        data: batches, such as a DataLoader gives: tensors by name, "labels" among them.
        granularity: "sample", "token" or "batch".
        normalise: "layer" divides the scores of each layer (and their intervals) by their l2 norm.
        max_examples: take the first so many; None for all.
        mask: heads to silence meanwhile, as `hw.mask` takes them, or a bool array [N,H]; they score 0, as pruned heads
            do, and have no part in the stability.
        after_batch: told how many examples are done.
    """
    _check(model, granularity, normalise, max_examples)
    by_token = granularity == "token"
    gates = Gates(model, mask, by_position=by_token)
    sums = RunningSums(by_token=by_token)
    with no_trace(model, freeze=True), gates.attached():
        for batch in prepared_batches(data, next(model.parameters()).device, max_examples):
            slopes = gates.slopes(batch)  # [N,B,H] or [N,B,S,H]
            if by_token:
                slopes = slopes.abs().sum(2)
            elif granularity == "sample":
                slopes = slopes.abs()
            sums.add(slopes, token_counts(batch))
            if after_batch is not None:
                after_batch(sums.examples)
    if sums.examples == 0:
        raise InputError("the data gave no example: importance needs at least one.")
    return _result(sums, granularity, normalise, gates.there)


def _result(sums: RunningSums, granularity: str, normalise: str, there: NDArray[np.bool_]) -> HeadImportance:
    means = sums.results()
    scores, scale = _scaled(means.mean, normalise)
    halves = None if means.halves is None else [_scaled(half, normalise)[0][there] for half in means.halves]
    return HeadImportance(
        scores=scores,
        half_width=None if means.error is None else NORMAL_95 * means.error / scale,
        granularity=granularity,
        normalise=normalise,
        examples=sums.examples,
        tokens=means.tokens,
        stability=Stability.between(*halves) if halves is not None and there.any() else None,
    )


def _scaled(means: Array, normalise: str) -> tuple[Array, Array]:
    """Scores [N,H], and what each layer was divided by, [N,1]; only "batch" has signs left to drop."""
    scores = np.abs(means)
    if normalise == "none":
        return scores, np.ones((len(scores), 1))
    scale = np.linalg.norm(scores, axis=1, keepdims=True) + TINY
    return scores / scale, scale


# -- checks ----------------------------------------------------------------------------------------------------------


def _check(model: nn.Module, granularity: str, normalise: str, max_examples: int | None) -> None:
    if granularity not in GRANULARITIES:
        raise InputError(f"granularity={granularity!r}: {choices(str(granularity), GRANULARITIES)}.")
    if normalise not in NORMALISATIONS:
        raise InputError(f"normalise={normalise!r}: {choices(str(normalise), NORMALISATIONS)}.")
    whole = isinstance(max_examples, int) and not isinstance(max_examples, bool)
    if max_examples is not None and not (whole and max_examples > 0):
        raise InputError(f"max_examples={max_examples!r}: expected a whole number of 1 or more, or None for all.")
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers())):
        raise StateError(
            "the model was made in torch.inference_mode, so nothing can be differentiated through it: load it outside."
        )
