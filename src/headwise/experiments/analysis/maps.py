"""The maps of one example in little room: one byte for each weight, and of long texts the largest of each row only.

The byte b stands for the attention (b / 255)^2. On this root scale small weights keep their digits: one of 0.001 is
known to within 0.00013, one of 0.5 to within 0.003, and the largest possible error is 0.004.

Shapes: N layers, H heads, T tokens, k kept keys of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def to_bytes(weights: NDArray[Any]) -> Bytes:
    """Attention on the root scale."""
    found: Bytes = np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * 255).astype(np.uint8)
    return found


def from_bytes(values: Bytes) -> Floats:
    """The attention that the bytes stand for."""
    found: Floats = np.square(values.astype(np.float32) / 255)
    return found


@dataclass(frozen=True)
class ExampleMaps:
    """All maps of an example, whole or the largest weights of each row."""

    values: Bytes
    """[N,H,T,T], or [N,H,T,k] beside `keys`."""
    keys: NDArray[np.uint16] | None = None
    """[N,H,T,k] where the kept weights stand, largest weight first; None if all are there."""

    @property
    def exact(self) -> bool:
        """Whether nothing was left out."""
        return self.keys is None

    @property
    def heads(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        return self.values.shape[0], self.values.shape[1]

    def head(self, layer: int, head: int) -> Floats:
        """[T,T]; zero where a weight was left out."""
        values = from_bytes(self.values[layer, head])
        if self.keys is None:
            return values
        tokens = len(values)
        found = np.zeros((tokens, tokens), dtype=np.float32)
        np.put_along_axis(found, self.keys[layer, head].astype(np.int64), values, 1)
        return found

    def largest(self, count: int) -> ExampleMaps:
        """With at most so many weights of each row; those that are whole stay so if they are no larger."""
        if self.values.shape[3] <= count:
            return self
        if self.keys is not None:
            return ExampleMaps(self.values[..., :count], self.keys[..., :count])
        # The first of equal weights comes first, whatever the machine.
        order = np.argsort(-self.values.astype(np.int16), axis=3, kind="stable")[..., :count]
        return ExampleMaps(np.take_along_axis(self.values, order, 3), order.astype(np.uint16))
