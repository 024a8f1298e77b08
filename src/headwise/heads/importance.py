"""How much a task needs each head: the slope of its loss when the head's output is turned down.

No value of a single example is kept, so memory does not grow with the data.

Shapes: N layers, H heads, B batch, S positions, M heads of all layers in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import encoder_of, family_of, gate, heads_of
from headwise.documents import plain
from headwise.errors import InputError, StateError, choices
from headwise.heads.gradients import loss_of, no_trace, prepared_batches
from headwise.heads.pruning import Head, check_whole, ranked_heads, top_heads
from headwise.metrics import score
from headwise.text_formats import grid_html

GRANULARITIES = ("token", "sample", "batch")
NORMALISATIONS = ("none", "layer")
# The shares of heads for which overlaps of the most important heads are reported.
SHARES = (0.1, 0.2, 0.3, 0.5)
# Half the width of a 95 % interval, in standard errors.
NORMAL_95 = 1.96
# Keeps a layer without any importance from being divided by 0.
TINY = 1e-20
# Labels that the loss leaves out.
IGNORED = -100

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """How alike the rankings from the even and from the odd examples are."""

    spearman: float
    """Rank correlation of the two halves over all heads."""
    overlap: dict[float, float]
    """Share of heads -> Jaccard overlap of the two halves' most important heads, |both| / |either|."""


def jaccard(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """The overlap of two sets of heads, |both| / |either|."""
    return float((one & other).sum() / (one | other).sum())


@dataclass(frozen=True, eq=False, repr=False)
class HeadImportance:
    """Importance of every head for one task, and how sure it is."""

    scores: Array
    """[N,H]"""
    half_width: Array | None
    """[N,H] half the width of the 95 % interval of each score over examples. With "batch" it is that of the mean before
    its sign is dropped: a smaller score does not differ from 0. None for one example."""
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

    def bottom(self, share: float) -> list[Head]:
        """The least important share of all heads, as (layer, head), the least important first.

        To guide heads that the task hardly needs: `hw.Alignment(heads=importance.bottom(0.1))`.
        """
        count = int(top_heads(self.scores, share, ascending=True).sum())
        return ranked_heads(self.scores, ascending=True)[:count]

    def _repr_html_(self) -> str:
        """For notebooks."""
        return grid_html(f"Importance of each head, over {self.examples} examples", self.scores.tolist())

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HeadImportance:
        """From the output of `as_dict`."""
        try:
            width, halves = data["half_width"], data["stability"]
            if halves is not None:
                overlap = {float(share): float(value) for share, value in halves["overlap"].items()}
                halves = Stability(float(halves["spearman"]), overlap)
            return cls(
                np.asarray(data["scores"], dtype=np.float64),
                None if width is None else np.asarray(width, dtype=np.float64),
                str(data["granularity"]),
                str(data["normalise"]),
                int(data["examples"]),
                int(data["tokens"]),
                halves,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"this is no head importance ({type(error).__name__}: {error}): expected the output of as_dict()."
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
      that are read at many positions, so the last layer, which a classifier reads at one, scores low.
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
        after_batch: called with the number of examples that are done.
    """
    check_options(granularity, normalise)
    if max_examples is not None:
        check_whole("max_examples", max_examples, 1)
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers())):
        raise StateError("the model was created in torch.inference_mode, so it gives no gradients: load it outside.")
    by_token = granularity == "token"
    present, sums = _present_heads(model, mask), RunningSums(by_token=by_token)
    # The outer gate is on no layer: it prepares the model once for the gates of all batches.
    with no_trace(model, freeze=True), gate(model, {}):
        for batch in prepared_batches(data, next(model.parameters()).device, max_examples):
            slopes = _slopes(model, batch, present, by_position=by_token)  # [N,B,H] or [N,B,S,H]
            if by_token:
                slopes = slopes.abs().sum(2)
            elif granularity == "sample":
                slopes = slopes.abs()
            ids, padding = batch["input_ids"], batch.get("attention_mask")
            if not isinstance(padding, Tensor) or padding.dim() != 2:
                padding = torch.ones_like(ids)
            sums.add(slopes, (padding != 0).sum(1))
            if after_batch is not None:
                after_batch(sums.examples)
    if sums.examples == 0:
        raise InputError("the data gave no example: importance needs at least one.")
    mean, error, halves, tokens = sums.results()

    def scaled(means: Array) -> tuple[Array, Array]:
        """Scores [N,H], and what each layer was divided by, [N,1]; only "batch" has signs left to drop."""
        scores, scale = np.abs(means), np.ones((len(means), 1))
        if normalise == "layer":
            scale = np.linalg.norm(scores, axis=1, keepdims=True) + TINY
        return scores / scale, scale

    scores, scale = scaled(mean)
    stability = None
    if halves is not None and present.any():
        one, other = (scaled(half)[0][present] for half in halves)
        overlap = {
            share: jaccard(top_heads(one[None], share), top_heads(other[None], share))
            for share in SHARES
            if share * one.size >= 1
        }
        stability = Stability(score(["spearman"], one, other)["spearman"], overlap)
    return HeadImportance(
        scores=scores,
        half_width=None if error is None else NORMAL_95 * error / scale,
        granularity=granularity,
        normalise=normalise,
        examples=sums.examples,
        tokens=tokens,
        stability=stability,
    )


def check_options(granularity: str, normalise: str) -> None:
    """Refuse unknown names of granularities and normalisations."""
    if granularity not in GRANULARITIES:
        raise InputError(f"granularity={granularity}: {choices(str(granularity), GRANULARITIES)}.")
    if normalise not in NORMALISATIONS:
        raise InputError(f"normalise={normalise}: {choices(str(normalise), NORMALISATIONS)}.")


def _present_heads(model: nn.Module, mask: Any) -> NDArray[np.bool_]:
    """[N,H] the heads that are neither pruned nor silenced by the mask."""
    family = family_of(encoder_of(model))
    present = np.zeros(family.shape, dtype=bool)
    for layer, heads in enumerate(family.left):
        present[layer, list(heads)] = True
    # The first step of exact pruning has a mask of nothing.
    empty = isinstance(mask, np.ndarray | Tensor) and tuple(mask.shape) == family.shape and not mask.any()
    for layer, silenced in {} if mask is None or empty else heads_of(model, mask).items():
        present[layer, list(silenced)] = False
    return present


def _slopes(model: nn.Module, batch: Mapping[str, Any], present: NDArray[np.bool_], *, by_position: bool) -> Tensor:
    """[N,B,H] or, by position, [N,B,S,H]: the slope of the sum of the examples' losses by a gate of 1 on each head."""
    layers, heads = present.shape
    ids, labels = batch["input_ids"], batch.get("labels")
    size = ids.shape[: 2 if by_position else 1]  # B or B,S
    weight = next(model.parameters())
    # A gate of bf16 would round the slopes once more.
    precise = torch.promote_types(weight.dtype, torch.float32)
    leaf = torch.ones(layers, *size, heads, dtype=precise, device=weight.device, requires_grad=True)
    gates: Tensor = leaf
    if not present.all():
        gates = leaf * torch.as_tensor(present, device=leaf.device).view(layers, *(1 for _ in size), heads)
    # The loss is a mean over examples, or over labelled tokens where every token has a label.
    count: Tensor | int = len(ids)
    if isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape in (ids.shape[:1], ids.shape):
        count = (labels != IGNORED).sum()
    with gate(model, gates):
        loss = loss_of(model, batch)
        if not loss.requires_grad:
            name = type(model).__name__
            raise StateError(f"the loss of {name} does not depend on its heads: is it cut off by no_grad?")
        (slopes,) = torch.autograd.grad(loss.to(precise) * count, leaf)
    return slopes


class RunningSums:
    """Sums over examples x of a value a(x) per head, and of a size n(x).

    The size is the number of tokens, or 1. The mean is sum a / sum n; with n = 1 it is the plain mean. Its standard
    error is sqrt(sum (a - mean * n)^2 / (X (X - 1))) / (sum n / X) over X examples: for n = 1 the usual one, else that
    of a ratio by the delta method.
    """

    def __init__(self, *, by_token: bool) -> None:
        """Start with no example."""
        self.examples = 0
        self._by_token = by_token
        self._sums: list[Tensor] = []

    def add(self, values: Tensor, tokens: Tensor) -> None:
        """Count one batch; everything stays on the model's device, so that nothing waits for it.

        Args:
            values: [N,B,H] a of every example.
            tokens: [B] how many tokens every example has.
        """
        precise = torch.float32 if values.device.type == "mps" else torch.float64  # mps knows no float64
        values, tokens = values.to(precise), tokens.to(precise)
        sizes = tokens if self._by_token else torch.ones_like(tokens)
        even = (torch.arange(len(sizes), device=sizes.device) + self.examples) % 2 == 0
        halves = torch.stack([even, ~even]).to(precise)  # [2,B]
        new = [
            torch.einsum("zb,nbh->znh", halves, values),
            halves @ sizes,
            torch.einsum("nbh,nbh->nh", values, values),
            torch.einsum("nbh,b->nh", values, sizes),
            sizes @ sizes,
            tokens.sum(),
        ]
        self._sums = [old + more for old, more in zip(self._sums, new, strict=True)] if self._sums else new
        self.examples += len(sizes)

    def results(self) -> tuple[Array, Array | None, Array | None, int]:
        """Over all examples so far, one or more: mean [N,H], its standard error, means of halves [2,N,H], tokens.

        The halves are the even and the odd examples. One example has neither error nor halves.
        """
        values, sizes, *squares, tokens = (each.double().cpu().numpy() for each in self._sums)
        if not all(np.isfinite(each).all() for each in (values, *squares)):
            raise InputError(
                "the gradients of the gates are not finite: has training diverged, or is the model in fp16? "
                "Use fp32 or bf16."
            )
        mean = values.sum(0) / sizes.sum()
        if self.examples == 1:
            return mean, None, None, int(tokens)
        of_values, of_both, of_sizes = squares
        # Rounding may leave a little less than nothing.
        spread = np.maximum(of_values - 2 * mean * of_both + mean**2 * of_sizes, 0.0)
        error = np.sqrt(spread * self.examples / (self.examples - 1)) / sizes.sum()
        return mean, error, values / sizes[:, None, None], int(tokens)
