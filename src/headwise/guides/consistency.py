"""Consistency of two forward passes of the same batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from headwise.errors import InputError
from headwise.guides.base import Regulariser, check_choice, register_guide
from headwise.guides.weights import Auto, Weight, checked_weight

NO_LOSS = (
    "consistency needs the loss of the model itself, and the model returned none: pass labels with the batch, to a "
    "classifier of transformers, and leave out losses outside of the model (label smoothing, compute_loss_func, those "
    "of sentence-transformers)."
)


@register_guide("consistency")
class Consistency(Regulariser):
    """R-Drop: two passes with different dropout should predict the same (Liang et al. 2021, arXiv 2106.14448).

    Each training step runs the whole classifier twice on the batch, with the logits z1 and z2 and the losses L1 and L2
    of the task, and minimises

        (L1 + L2) / 2 + weight * D

        classes       D = (KL(p1 || p2) + KL(p2 || p1)) / 2, p = softmax(z), as a mean over examples
        many labels   the same with p = sigmoid(z), summed over the labels of an example
        numbers       D = (z1 - z2)^2, as a mean over examples

    `by="dropout"`: the passes differ in all dropout of the model, and in the silent heads if `head_dropout` is attached
    too. `by="heads"`: they differ in the silent heads alone, and all other dropout is the same in both; the heads
    are those of the `head_dropout` beside it, or one with its defaults.

    The paper writes L1 + L2 + alpha * D, which is twice this for alpha = 2 * weight.

    A step takes about twice as long as a plain one: 1.9 times with MiniLM's shape, 128 tokens, one thread and attention
    dropout (benchmarks/guides.py). One of the passes has the same dropout as plain training with the same seed, and it
    is the one whose logits the model returns. Guides on attention that are attached too count as the mean over both
    passes. In evaluation nothing changes.

    The weight is a number or a schedule. `auto` is refused: it is a share of the gradient on queries and keys, and this
    is a loss on predictions. The model must compute its own loss, so label smoothing, `compute_loss_func`, the losses
    of sentence-transformers, SSA and runs on several tasks are refused.
    """

    positional: ClassVar[tuple[str, ...]] = ("weight",)
    kind: ClassVar[str] = "two passes"

    weight: Weight = 1.0
    """Factor in the loss: a number or a schedule (warm_up, decay, piecewise). 0 is plain training, with one pass."""
    by: Literal["dropout", "heads"] = "dropout"
    """What differs between the passes: dropout, or only the silent heads."""

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "weight", checked_weight(self.weight, self.name))
        if isinstance(self.weight, Auto):
            raise InputError(
                "consistency has no automatic weight, which is a share of the gradient on attention: give a number, "
                "such as weight=1.0, or a schedule."
            )
        check_choice(self, "by", ("dropout", "heads"))


@contextmanager
def other_dropout(model: nn.Module, *, different: bool) -> Iterator[None]:
    """Leave torch's generators as they were before the block; inside they start from there, or somewhere else."""
    devices = {each.device for each in model.parameters() if each.device.type != "cpu"}
    kind = next((device.type for device in devices), "cuda")
    with torch.random.fork_rng([device.index for device in devices], device_type=kind):
        if different:
            torch.manual_seed(int(torch.randint(2**62, ())))
        yield


def divergence(first: Any, second: Any, problem: str | None) -> Tensor:
    """D of two outputs of a classifier with a loss; `problem` is the problem type in its config."""
    one, other = _logits(first), _logits(second)
    one, other = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in (one, other))
    if problem == "regression" or (problem is None and one.shape[-1] == 1):
        return (one - other).square().mean()
    if problem == "multi_label_classification":
        # KL(p || q) + KL(q || p) of two coins is (p - q)(z_p - z_q).
        both = (one.sigmoid() - other.sigmoid()) * (one - other)
    else:
        logs = one.log_softmax(-1), other.log_softmax(-1)
        both = (logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])
    return both.sum(-1).mean() / 2


def _logits(output: Any) -> Tensor:
    """[B,C] of an output with a loss."""
    logits = output[1] if isinstance(output, tuple) and len(output) > 1 else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else None
        raise InputError(
            f"consistency compares predictions for whole texts, logits of shape (batch, classes), and the model gives "
            f"{shape}: use it with a sequence classifier."
        )
    return logits
