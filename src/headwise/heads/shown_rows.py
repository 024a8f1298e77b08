"""Show an optimiser the rows of a parameter that may change, and nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.errors import InputError

Choice = NDArray[np.bool_]
Run = tuple[int, int]  # start and length of neighbours along a dimension


class SharedParameter:
    """A parameter of which each head has a part."""

    def __init__(self, parameter: nn.Parameter, dim: int) -> None:
        """Of no head yet."""
        self.parameter, self.dim = parameter, dim
        # Along `dim`: whose each entry is; those of no head keep -1.
        self.layers = np.full(parameter.shape[dim], -1)
        self.heads = self.layers.copy()
        self._runs: dict[tuple[str, bool], list[Run]] = {}

    def runs(self, allowed: Mapping[str, Choice], task: str, *, learning: bool) -> list[Run]:
        """The neighbours that an update of this task may change (`learning`), or may not."""
        if (task, learning) not in self._runs:
            may = (self.layers < 0) | allowed[task][self.layers, self.heads]
            edges = np.flatnonzero(np.diff(may == learning, prepend=False, append=False))
            starts, ends = edges[::2].tolist(), edges[1::2].tolist()
            self._runs[task, learning] = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
        return self._runs[task, learning]


class Shown:
    """A run of a parameter's entries that the optimiser is shown as a parameter of its own."""

    def __init__(self, parameter: nn.Parameter, place: tuple[int, int, int], state: Any) -> None:
        """Cut it out, with its gradient and the optimiser's state of it; `place` is dimension, start, length."""
        self.parameter, self.state = parameter, state
        self._place = place
        self.piece = self._cut(parameter.detach())
        self.piece.grad = None if parameter.grad is None else self._cut(parameter.grad)
        if parameter in state:
            state[self.piece] = {name: self._part(name, value) for name, value in state[parameter].items()}

    def paste(self) -> None:
        """Write back what is not there already, and take the piece out of the optimiser's state."""
        self._write(self.parameter.detach(), self.piece)
        for name, value in self.state.pop(self.piece, {}).items():
            whole = self.state[self.parameter]
            if not _by_entry(name, value, self.piece):
                whole[name] = value
                continue
            if whole.get(name) is None:
                whole[name] = torch.zeros_like(self.parameter, dtype=value.dtype, requires_grad=False)
            self._write(whole[name], value)

    def _part(self, name: str, value: Any) -> Any:
        if _by_entry(name, value, self.parameter):
            return self._cut(value)
        # Counters: each piece counts its own step.
        return value.clone() if isinstance(value, Tensor) else value

    def _cut(self, tensor: Tensor) -> Tensor:
        # Rows are a view of the whole. Columns are not in one piece, which fused optimisers take for granted.
        return tensor.narrow(*self._place).contiguous()

    def _write(self, whole: Tensor, piece: Tensor) -> None:
        target = whole.narrow(*self._place)
        if target.data_ptr() != piece.data_ptr():
            target.copy_(piece)


def _by_entry(name: str, value: Any, parameter: Tensor) -> bool:
    """Whether an optimiser's state has a number for each entry of a parameter, and not one for all."""
    if not isinstance(value, Tensor) or value.numel() == 1 and value.shape != parameter.shape:
        return False
    if value.shape != parameter.shape:
        raise InputError(
            f"iat.mode is 'skip', but the optimiser keeps {name} of shape {tuple(value.shape)} for a parameter of "
            f"shape {tuple(parameter.shape)}, so it is not clear what belongs to which head: train with AdamW or SGD, "
            "or set mode: grad_mask."
        )
    return True
