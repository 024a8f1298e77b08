"""What all kinds of figures have in common: what comes out, and what runs are called in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwise.experiments.story.names import names_apart

# A figure of matplotlib, which only reports know by name, and what must be told about it.
Drawn = tuple[Any, list[str]]


def names_of(folders: Sequence[Path], own: Sequence[str] = ()) -> list[str]:
    """Different names: their own if all differ, else as much of the ends of their paths as tells them apart."""
    if own and len(set(own)) == len(own):
        return list(own)
    return names_apart(folders)
