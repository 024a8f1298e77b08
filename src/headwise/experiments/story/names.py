"""What runs are called where several stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def names_apart(folders: Sequence[Path]) -> list[str]:
    """The names of folders, with as much of their parents as tells them apart."""
    parts = [folder.expanduser().absolute().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]
