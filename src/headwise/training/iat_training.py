"""The importance of heads on encoded examples: a seeded choice of them, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import TrainerCallback

from headwise.errors import InputError
from headwise.heads.iat import IAT, HeadUpdates
from headwise.heads.importance import HeadImportance, head_importance
from headwise.training.predict import stretches

Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]
BATCH = 64
# Tokens at a time, padding counted: as a step of training has them, since a backward pass keeps all activations.
TOKENS = 4096


def importance_on(
    model: nn.Module,
    data: Any,
    collate: Collate,
    *,
    granularity: str = "sample",
    normalise: str = "none",
    examples: int | None = 10_000,
    seed: int = 0,
    mask: NDArray[numpy.bool_] | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> HeadImportance:
    """How important each head is to a classifier on a data set; see `hw.head_importance`.

    Args:
        model: the classifier.
        data: an `Encoded` data set with labels.
        collate: makes a batch of examples.
        granularity: sample, token or batch.
        normalise: none or layer.
        examples: at most so many, a seeded choice without replacement.
        seed: decides that choice.
        mask: [N,H] heads that are silenced meanwhile.
        after_batch: told how many examples are done.
    """
    return head_importance(
        model,
        sorted_batches(data, collate, limit=examples, seed=seed),
        granularity=granularity,
        normalise=normalise,
        max_examples=None,
        mask=mask,
        after_batch=after_batch,
    )


def sorted_batches(
    data: Any, collate: Collate, *, limit: int | None = None, seed: int = 0, batch: int = BATCH, tokens: int = TOKENS
) -> Iterator[dict[str, Tensor]]:
    """Batches of a seeded choice of examples, the longest first, so that little is padding."""
    chosen = numpy.arange(len(data))
    if limit is not None and limit < len(data):
        chosen = numpy.sort(numpy.random.default_rng([seed, 13]).choice(len(data), limit, replace=False))
    lengths = numpy.asarray(data.lengths)[chosen]
    order = chosen[numpy.argsort(-lengths, kind="stable")]
    for start, end in stretches(numpy.asarray(data.lengths)[order].tolist(), batch, tokens):
        yield collate([data[int(index)] for index in order[start:end]])


# IAT in transformers' Trainer: every update changes only the heads that are important to its task.


class TrainImportantHeads(TrainerCallback):
    """From the beginning to the end of training, tasks update their own heads only.

    The model says whose batch it has seen (`last_task`). The Trainer clips before its `on_pre_optimizer_step`, when the
    gradients of other heads are zero already.
    """

    def __init__(self, model: nn.Module, allowed: Mapping[str, Any], options: IAT) -> None:
        """Nothing happens before training begins.

        Args:
            model: a `MultiTask`.
            allowed: [N,H] by the name of the task, True = its updates may change the head.
            options: of these `protect`, `mode` and `others` count.
        """
        self._model: Any = model
        self._allowed, self._options = allowed, options
        self._updates: HeadUpdates | None = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take hold of the gradients."""
        if args.world_size > 1:
            raise InputError(
                f"iat: {args.world_size} processes train together, and their batches belong to different tasks at a "
                "time: train in one process."
            )
        self.remove()
        options = self._options
        self._updates = HeadUpdates(
            self._model,
            self._allowed,
            protect=options.protect,
            mode=options.mode,
            others=options.others,
            own=self._model.own_parameters(),
        )
        self._hook = self._model.register_forward_hook(self._tell)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Show the optimiser what it may change."""
        if self._updates is not None:
            self._updates.before_step(_unwrapped(optimizer))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Give the optimiser the rest back."""
        if self._updates is not None:
            self._updates.after_step(_unwrapped(optimizer))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go."""
        self.remove()

    def remove(self) -> None:
        """Let go, also where training ended with an error, of which the Trainer does not tell."""
        if self._updates is not None:
            self._updates.remove()
            self._hook.remove()
        self._updates = self._hook = None

    def _tell(self, model: Any, inputs: Any, outputs: Any) -> None:
        if self._updates is not None and model.training:
            self._updates.on(model.last_task)


def _unwrapped(optimizer: Any) -> Any:
    """The optimiser of torch inside accelerate's."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
