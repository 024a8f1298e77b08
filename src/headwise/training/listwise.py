"""Candidates that compete: all papers of a claim go through the model together, and their scores into one softmax.

Shapes: B pairs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import softplus

from headwise.training.material import Material

Item = dict[str, Any]


def listwise_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Softmax over a claim's candidates, for all claims of a batch.

    The mean over claims, and over the positives p of each, of -log e^{s_p} / (e^{s_p} + sum_n e^{s_n}). n runs over the
    claim's negatives, so positives do not compete with each other. The pairs of a claim stand together, positives
    first, and every claim has both kinds: so a claim begins where a positive follows a negative.

    Args:
        outputs: of the model: one logit for each pair, [B,1].
        labels: 1 for positives, 0 for negatives, [B] or [B,1].
        num_items_in_batch: labels in the whole accumulated batch, if this is a part of it: its mean then counts by its
            share of the pairs.
    """
    scores, positive = outputs.logits.float().flatten(), labels.flatten() > 0.5  # [B]
    before = torch.cat([positive.new_zeros(1), positive[:-1]])
    starts = (positive & ~before).nonzero().flatten().tolist()
    sizes = [end - start for start, end in zip(starts, [*starts[1:], len(positive)], strict=True)]
    losses = [
        softplus(part[~mine].logsumexp(0) - part[mine]).mean()
        for part, mine in zip(scores.split(sizes), positive.split(sizes), strict=True)
    ]
    mean = torch.stack(losses).mean()
    return mean if num_items_in_batch is None else mean * labels.numel() / num_items_in_batch


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
    def sizes(self) -> list[int]:
        """Pairs of each claim."""
        return [len(part) for part in self._parts]

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
        return [self.data[place] for place in self._parts[index]]


def by_claim(material: Material, groups: Sequence[str]) -> Material:
    """The same training, but in batches of whole claims (`batch` then counts claims) and with `listwise_loss`."""
    return replace(
        material,
        train=Groups(material.train, groups),
        collate_train=GroupCollator(material.collate),
        loss=listwise_loss,
    )


@dataclass(frozen=True)
class GroupCollator:
    """Makes one batch of the pairs of several claims."""

    collate: Callable[[list[Item]], dict[str, Tensor]]

    def __call__(self, groups: list[list[Item]]) -> dict[str, Tensor]:
        """All pairs, claim after claim."""
        return self.collate(list(chain.from_iterable(groups)))
