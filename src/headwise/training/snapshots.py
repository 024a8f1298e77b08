"""Look at the heads while a model trains: how alike they are at each evaluation, and what each looks at.

A snapshot is a file of its own, step-N.safetensors, written before the checkpoint of the same step: a run that is
killed and resumed writes the same files again. Looking draws no random number and changes no weight.

Shapes: M heads of all layers, T tokens of the first example.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import TrainerCallback

from headwise.attention import capture
from headwise.disk import write_atomically
from headwise.heads import HeadStatistics, head_vectors
from headwise.training.predict import evaluating

BATCH = 16


class Snapshots(TrainerCallback):
    """Takes a snapshot before the first step, and at every evaluation."""

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        collate: Callable[[list[dict[str, Any]]], dict[str, Tensor]],
        count: int,
        folder: Path,
    ) -> None:
        """Look at the first `count` examples of `data`, and write into `folder`."""
        self._model, self._data, self._collate = model, data, collate
        self._count, self._folder = min(count, len(data)), folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As the heads were before training."""
        if state.global_step == 0:
            self._take(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As they are now."""
        self._take(state)

    def _take(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"step-{state.global_step:08d}.safetensors"
        write_atomically(path, save(self._look()))

    def _look(self) -> dict[str, Tensor]:
        statistics, vectors = HeadStatistics(), None
        device = next(self._model.parameters()).device
        with evaluating(self._model), torch.inference_mode(), capture(self._model) as record:
            for start in range(0, self._count, BATCH):
                indices = range(start, min(start + BATCH, self._count))
                inputs = self._collate([self._data[index] for index in indices])
                inputs.pop("labels", None)
                self._model(**{name: tensor.to(device) for name, tensor in inputs.items()})
                statistics.add(record)
                vectors = head_vectors(record, 0) if vectors is None else vectors
        found = statistics.result()
        return {
            "similarity": torch.tensor([value for row in found.similarity_by_head for value in row]),
            "entropy": torch.tensor([value for row in found.entropy_by_head for value in row]),
            "vectors": (torch.zeros(0, 0) if vectors is None else vectors).float().contiguous(),
        }
