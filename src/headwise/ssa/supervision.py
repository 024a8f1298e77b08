"""What self-supervised attention does inside a classifier.

Shapes: B examples, T tokens, D size of a state.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.ssa.head import TokenHead
from headwise.ssa.options import SSA
from headwise.ssa.pooling import blend, kept_tokens, pooled, pooling_weights
from headwise.ssa.text_tokens import TextTokens
from headwise.ssa.token_loss import token_loss


@dataclass
class Passing:
    """One forward pass: what goes in, and what the token head makes of it."""

    eligible: Tensor
    places: Tensor
    wanted: bool
    """Whether the token head is to run, even where the classifier does not read it."""
    logits: Tensor | None = None
    kept: Tensor | None = None
    context: Tensor | None = None


@dataclass
class TokenLosses:
    """The parts of the last training loss, detached."""

    task: Tensor
    token: Tensor | None
    """None if the batch came without token labels."""


class Supervision(nn.Module):
    """The token head of a classifier, and where it takes part in its forward pass.

    It is a module of the classifier, named `ssa`: its weights are saved, moved and trained with it.
    """

    def __init__(self, options: SSA, text: TextTokens, head: TokenHead, dropout: float) -> None:
        """Of these parts."""
        super().__init__()
        self.options = options
        self.text = text
        self.head = head
        # The authors make a dropout for the hybrid model and never use it; the classifier's own vector has one.
        self.dropout = nn.Dropout(dropout)
        self.losses: TokenLosses | None = None
        self.kept: Tensor | int = 0
        """Tokens that reached the threshold in training, since the last reset; `seen` of them in all."""
        self.seen: Tensor | int = 0
        self._passing: dict[int, Passing] = {}
        self._token: Tensor | None = None
        self._waiting = False
        self._warned: set[str] = set()

    # -- a forward pass ----------------------------------------------------------------------------------------------

    def run(self, call: Callable[[], Any], inputs: dict[str, Any], *, labels: Tensor | None, output_ssa: bool) -> Any:
        """Call the classifier, see its states, and add the token loss to its own."""
        current = self._begin(inputs, wanted=output_ssa or labels is not None)
        with self._passes(current):
            output = call()
        if self.training:
            self._count(current)
        self._token = None if labels is None or current.logits is None else token_loss(current.logits, labels)
        output = self._with_loss(output)
        if output_ssa and current.logits is not None and current.kept is not None:
            output["ssa_logits"] = current.logits
            output["ssa_scores"] = scores_of(current.logits)
            output["ssa_kept"] = current.kept
        return output

    def _begin(self, inputs: dict[str, Any], *, wanted: bool) -> Passing:
        ids, mask, special = (inputs.get(name) for name in ("input_ids", "attention_mask", "special_tokens_mask"))
        if ids is None:
            raise InputError("a model with SSA needs input_ids, to tell text from special tokens; it got none.")
        eligible = self.text.eligible(ids, mask, special)
        real = torch.ones_like(ids) if mask is None or mask.dim() != 2 else mask
        return Passing(eligible, (real.cumsum(1) - 1).clamp(min=0), wanted)

    @contextmanager
    def _passes(self, current: Passing) -> Iterator[None]:
        thread = threading.get_ident()
        self._passing[thread] = current
        try:
            yield
        finally:
            self._passing.pop(thread, None)

    def see_states(self, _: nn.Module, __: Any, output: Any) -> None:
        """Hook behind the encoder: score the tokens, and pool them if the classifier will read that."""
        current = self._passing.get(threading.get_ident())
        if current is None or not (current.wanted or self.pools):
            return
        states = output[0]
        if states.dim() != 3:
            raise StateError(
                f"the encoder gives states of shape {list(states.shape)}, expected [batch, tokens, size]: load it with "
                "attn_implementation='sdpa'."
            )
        current.logits = self.head(states, current.places).float()  # the softmax needs all its digits
        scores = scores_of(current.logits)
        current.kept = kept_tokens(scores, current.eligible, self.options.attention_threshold)
        if self.pools:
            values = {
                "probabilities": scores,
                "logits": current.logits[..., 1] - current.logits[..., 0],
                "uniform": torch.zeros_like(scores),
            }
            weights = pooling_weights(values[self.options.pool_softmax], current.kept)
            current.context = self.dropout(pooled(states, weights))

    def blend_vector(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Hook before the last linear map: what it reads, blended with what was pooled."""
        current = self._passing.get(threading.get_ident())
        if current is None or current.context is None:
            return None
        own, *rest = inputs
        mixed = blend(own, current.context.to(own.dtype), self.options.cls_weight, current.eligible.any(1))
        return (mixed, *rest)

    @property
    def pools(self) -> bool:
        """Whether the classifier reads pooled tokens."""
        return self.options.model == "hybrid" and self.options.cls_weight < 1

    # -- the loss ----------------------------------------------------------------------------------------------------

    def total(self, task: Tensor) -> Tensor:
        """(1 - w) task + w token loss of the last forward pass, w = aug_loss_weight.

        Called for you where the model computes its own loss. Call it yourself where the loss is computed outside of the
        model (label smoothing, a loss function of your own). A batch without token labels keeps the task's loss.
        """
        token, self._token, self._waiting = self._token, None, False  # nothing of the graph is kept
        self.losses = TokenLosses(task.detach(), None if token is None else token.detach())
        if token is None:
            if self.training and self.options.labels_wanted:
                self._warn(
                    "this model learns token labels, and a training batch came without ssa_labels: train with "
                    "hw.relabel(trainer), or pass them."
                )
            return task
        weight = self.options.aug_loss_weight
        return (1 - weight) * task + weight * token

    def _with_loss(self, output: Any) -> Any:
        if self._waiting and self.training:
            self._warn(
                "the token loss of SSA is never added to a loss that is computed outside of the model: use "
                "GuidedTrainer, or call supervision(model).total(loss)."
            )
        task = output[0] if isinstance(output, tuple) else output.get("loss")
        if not isinstance(task, Tensor) or task.dim() != 0:
            self._waiting = self.training and self._token is not None and torch.is_grad_enabled()
            return output
        if isinstance(output, tuple):
            return (self.total(task), *output[1:])
        output.loss = self.total(task)
        return output

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, HeadwiseWarning, stacklevel=3)

    # -- counting ----------------------------------------------------------------------------------------------------

    def _count(self, current: Passing) -> None:
        if current.kept is not None and current.logits is not None:
            reached = scores_of(current.logits.detach()) >= self.options.attention_threshold
            self.kept = self.kept + (reached & current.eligible).sum()
            self.seen = self.seen + current.eligible.sum()

    def kept_fraction(self) -> float | None:
        """Part of the text tokens of training that reached the threshold, since the last reset; None if none came."""
        seen = int(self.seen)
        return int(self.kept) / seen if seen else None

    def reset_counts(self, kept: int = 0, seen: int = 0) -> None:
        """Start counting anew, or go on from these counts."""
        self.kept, self.seen = kept, seen


def scores_of(logits: Tensor) -> Tensor:
    """[B,T] P(token matters), from [B,T,2]."""
    return logits.softmax(-1)[..., 1]
