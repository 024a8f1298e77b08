"""Labels of tokens on their way into batches.

Shapes: B examples, T tokens of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from headwise.errors import InputError
from headwise.ssa.dataset import TokenLabels
from headwise.ssa.model import IGNORED

Item = dict[str, Any]


class WithTokenLabels:
    """A data set whose examples carry `ssa_labels`, one number for each token; the labels change between epochs."""

    def __init__(self, data: Any) -> None:
        """Wrap a data set."""
        self.data = data
        self.labels: TokenLabels | None = None

    @property
    def lengths(self) -> Any:
        """Tokens of each example."""
        return self.data.lengths

    def labelled(self, places: Sequence[int]) -> int:
        """How many tokens of these examples have a label."""
        labels = self.labels
        return 0 if labels is None else sum(int((~numpy.isnan(labels.of(place))).sum()) for place in places)

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        """An example with the labels of its tokens; without the words that only the labeller needs."""
        item = dict(self.data[index])
        item.pop("word_ids", None)
        if self.labels is not None:
            item["ssa_labels"] = self.labels.of(index)
        return item


@dataclass(frozen=True)
class TokenLabelCollator:
    """Adds `ssa_labels` [B,T] to what another collator makes, -100 where a token has none."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        """A batch; examples without token labels give one without them."""
        labels = [item["ssa_labels"] for item in items if "ssa_labels" in item]
        rest = [{name: value for name, value in item.items() if name != "ssa_labels"} for item in items]
        batch = dict(self.collate(rest))
        if labels:
            batch["ssa_labels"] = _padded(labels, batch)
        return batch


def _padded(labels: Sequence[Any], batch: dict[str, Any]) -> Tensor:
    shape = batch["input_ids"].shape
    padded = numpy.full(shape, IGNORED, numpy.float32)
    mask = batch.get("attention_mask")
    for row, values in enumerate(labels):
        if len(values) > shape[1]:
            raise InputError(
                f"an example with {len(values)} token labels came into a batch of {shape[1]} tokens: cut texts when "
                "tokenising, not in the collator."
            )
        # On the left only if this row begins with padding; examples may also come padded already.
        left = mask is not None and len(values) < shape[1] and int(mask[row, 0]) == 0
        place = slice(shape[1] - len(values), None) if left else slice(0, len(values))
        padded[row, place] = numpy.nan_to_num(values, nan=IGNORED)
    return torch.from_numpy(padded)
