"""How much a task needs each head: the slope of its loss when the head's output is turned down.

Shapes: N layers, H heads, B batch, S positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from headwise.errors import InputError, StateError, choices
from headwise.heads.no_trace import no_trace
from headwise.heads.pruning import Head, ranked_heads, top_heads
from headwise.heads.slopes import Gates, prepared_batches, token_counts
from headwise.heads.stability import RunningSums, Stability
from headwise.notebook import grid_html

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
