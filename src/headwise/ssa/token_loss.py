"""How far the token head is from the labels.

Shapes: B examples, T tokens.
"""

from __future__ import annotations

from torch import Tensor

IGNORED = -100.0


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over all labelled tokens of -(t log s + (1 - t) log(1 - s)); 0 where none is labelled.

    For labels of 0 and 1 it is the cross-entropy of the two logits. A flat mean over the batch, as the authors': long
    texts weigh more.

    Args:
        logits: [B,T,2].
        labels: [B,T] from 0 to 1, or -100 for tokens that are not labelled.
    """
    counts = labels != IGNORED
    target = labels.masked_fill(~counts, 0.0)
    log = logits.log_softmax(-1)  # [B,T,2]
    losses = -(target * log[..., 1] + (1 - target) * log[..., 0])
    return (losses * counts).sum() / counts.sum().clamp(min=1)
