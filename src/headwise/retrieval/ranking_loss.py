"""What a re-ranker is trained by: the loss of single pairs, or of all candidates of a claim, and data sets for them.

Labels are [B], [B,1] or [B,2]: 1 for an answer and 0 for another paper, and perhaps the offset of the pair, which is
added to its logit. With the score of the first stage as the offset, the model learns what that score misses.

Shapes: B pairs of a batch, N pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

Item = dict[str, Any]
# The largest factor of the first stage's score that is tried.
LARGEST_SCALE = 64.0


def pairwise_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Binary cross-entropy of every pair alone (Eq. 2), as the mean over pairs; arguments as of `listwise_loss`."""
    scores, answers = _scores_and_answers(outputs, labels)
    mean = binary_cross_entropy_with_logits(scores, answers.float())
    return mean if num_items_in_batch is None else mean * labels.numel() / num_items_in_batch


def listwise_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Softmax over a claim's candidates, for all claims of a batch.

    The mean over claims, and over the positives p of each, of -log e^{s_p} / (e^{s_p} + sum_n e^{s_n}). n runs over the
    claim's negatives, so positives do not compete with each other. The pairs of a claim stand together, positives
    first, and every claim has both kinds: so a claim begins where a positive follows a negative.

    Args:
        outputs: of the model: one logit for each pair, [B,1].
        labels: 1 for positives and 0 for negatives, [B] or [B,1]; with offsets in a second column, [B,2].
        num_items_in_batch: labels in the whole accumulated batch, if this is a part of it: its mean then counts by its
            share of the pairs.
    """
    scores, positive = _scores_and_answers(outputs, labels)
    before = torch.cat([positive.new_zeros(1), positive[:-1]])
    starts = (positive & ~before).nonzero().flatten().tolist()
    sizes = [end - start for start, end in zip(starts, [*starts[1:], len(positive)], strict=True)]
    losses = [
        softplus(part[~mine].logsumexp(0) - part[mine]).mean()
        for part, mine in zip(scores.split(sizes), positive.split(sizes), strict=True)
    ]
    mean = torch.stack(losses).mean()
    return mean if num_items_in_batch is None else mean * labels.numel() / num_items_in_batch


def _scores_and_answers(outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """[B] logits with their offsets, [B] bool whether the paper answers the claim."""
    scores, numbers = outputs.logits.float().flatten(), labels.reshape(len(labels), -1)
    return (scores if numbers.shape[1] == 1 else scores + numbers[:, 1]), numbers[:, 0] > 0.5


def offset_scale(scores: numpy.ndarray, labels: Sequence[float]) -> float:
    """The factor, up to LARGEST_SCALE, with which scores alone have the least `listwise_loss`.

    Args:
        scores: [N] of the first stage, for the pairs of claims as `listwise_loss` expects them.
        labels: [N] 1 for positives, 0 for negatives.
    """
    answers, numbers = torch.tensor(labels, dtype=torch.float32), torch.from_numpy(scores).float()

    def loss(scale: float) -> float:
        return float(listwise_loss(SimpleNamespace(logits=scale * numbers[:, None]), answers))

    low, high = 0.0, LARGEST_SCALE
    for _ in range(20):  # the loss is convex in the factor
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return round((low + high) / 2, 2)


@dataclass(frozen=True, eq=False)
class WithOffsets:
    """A data set of pairs whose labels have the offset of the pair beside them."""

    data: Any
    offsets: numpy.ndarray
    """[N]"""

    @property
    def lengths(self) -> numpy.ndarray:
        """Tokens of each pair."""
        return numpy.asarray(self.data.lengths)

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        """A pair."""
        item = self.data[index]
        return {**item, "labels": (item["labels"], self.offsets[index])}


@dataclass(frozen=True, eq=False)
class Groups:
    """A data set whose items are the claims of another one: each is the list of its pairs."""

    data: Any
    groups: Sequence[str]

    @cached_property
    def _parts(self) -> list[range]:
        ends = numpy.cumsum([sum(1 for _ in each) for _, each in groupby(self.groups)]).tolist()
        return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    @cached_property
    def lengths(self) -> numpy.ndarray:
        """Tokens of the longest pair of each claim."""
        lengths = numpy.asarray(self.data.lengths)
        return numpy.array([lengths[part.start : part.stop].max() for part in self._parts])

    def __len__(self) -> int:
        """How many claims there are."""
        return len(self._parts)

    def __getitem__(self, index: int) -> list[Item]:
        """The pairs of a claim."""
        return [self.data[position] for position in self._parts[index]]


def collate_groups(collate: Callable[[list[Item]], dict[str, Tensor]], groups: list[list[Item]]) -> dict[str, Tensor]:
    """One batch of the pairs of several claims, claim after claim."""
    return collate(list(chain.from_iterable(groups)))
