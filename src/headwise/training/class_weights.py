"""Cross-entropy with a weight for each class, so that rare classes count as much as frequent ones.

    L = 1/n sum_i w(y_i) * -log p(y_i | x_i)

The mean is over the n labels of the (accumulated) batch, not over their weights: so the parts of a batch add up to the
whole, whether it is accumulated or shared by several processes, and the gradient is an unbiased estimate of that of all
training examples. `torch.nn.CrossEntropyLoss(weight=...)` divides by the weights of the batch instead.

`balanced` gives a class w_c = n / (C n_c), as in scikit-learn, with n_c of the n training labels and C classes that
occur. All classes then have the same total weight, and the mean weight of a training label is 1, so that the learning
rate and the weights of guides keep their meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from headwise.errors import InputError, choices

BALANCED = "balanced"
IGNORED = -100


def class_weights(asked: str | Mapping[str, float], labels: Iterable[Any], classes: Sequence[str]) -> dict[str, float]:
    """The weight of each class.

    Args:
        asked: `balanced`, or weights by class; a class that is left out has the weight 1.
        labels: of the training examples: the index of a class, or one for each word; others are not counted.
        classes: all of them, in order.
    """
    if isinstance(asked, str):
        if asked != BALANCED:
            raise InputError(
                f"class_weights is {asked!r}: expected balanced or a weight for each class, such as {{yes: 2}}."
            )
        each = (word for label in labels for word in (label if isinstance(label, Sequence) else (label,)))
        counts = Counter(label for label in each if isinstance(label, int) and label >= 0)
        share = counts.total() / max(len(counts), 1)
        return {name: share / counts[number] if counts[number] else 1.0 for number, name in enumerate(classes)}
    for name, weight in asked.items():
        if name not in classes:
            raise InputError(f"class_weights: {name!r} is not a class; {choices(name, classes)}.")
        if not 0 < weight < float("inf"):
            raise InputError(f"class_weights.{name}: expected a finite number above 0, got {weight!r}.")
    return {name: float(asked.get(name, 1.0)) for name in classes}


@dataclass(frozen=True)
class WeightedCrossEntropy:
    """The loss, as a `compute_loss_func` of transformers' Trainer; for classes of texts or of words.

    GuidedTrainer(..., compute_loss_func=WeightedCrossEntropy((1.0, 4.0)))
    """

    weights: tuple[float, ...]
    """Of each class, in order."""

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """[...,C] logits and [...] labels -> a scalar; `num_items_in_batch` counts the whole accumulated batch."""
        logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs.logits
        flat = logits.reshape(-1, logits.shape[-1])  # [...,C] -> [N,C]
        flat = flat if flat.dtype.itemsize > 4 else flat.float()
        total = cross_entropy(
            flat, labels.reshape(-1), weight=flat.new_tensor(self.weights), ignore_index=IGNORED, reduction="sum"
        )
        return total / (labels.ne(IGNORED).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)
