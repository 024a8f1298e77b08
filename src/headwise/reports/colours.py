"""Which colours stand for which values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from headwise.reports.panels import Array

if TYPE_CHECKING:
    from matplotlib.colors import Normalize

Scale = Literal["root", "linear"]
SCALES = ("root", "linear")


@dataclass(frozen=True)
class Colours:
    """A row of colours between two values; on the root scale it follows their square root, with their sign."""

    name: str
    lowest: float
    highest: float
    scale: Scale

    def norm(self) -> Normalize:
        """The same, as matplotlib wants it."""
        from matplotlib.colors import FuncNorm, Normalize

        if self.scale == "linear":
            return Normalize(self.lowest, self.highest)
        return FuncNorm((_root, _square), self.lowest, self.highest)

    def ticks(self) -> dict[float, str] | None:
        """Values to mark on a root scale, which stand closer near zero; None where even steps do well."""
        if self.scale == "linear":
            return None
        end = max(abs(self.lowest), abs(self.highest))
        power = math.floor(math.log10(end))
        sizes = [digit * 10.0**exponent for exponent in (power - 1, power) for digit in (1, 2, 5)]
        marked = [sign * size for size in sizes if size >= end / 10 for sign in (-1, 1)]
        values = [value for value in (0.0, *marked) if self.lowest <= value <= self.highest]
        return {value: f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in sorted(values)}


def _root(values: Array) -> Array:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Array) -> Array:
    return np.sign(values) * np.square(values)
