"""What a check found, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headwise.experiments.data_check.balance import Balance, Numbers
from headwise.experiments.data_check.baselines import Baselines
from headwise.experiments.data_check.duplicates import Duplicates
from headwise.experiments.data_check.leakage import Leak
from headwise.experiments.data_check.lengths import Lengths, Tokens


@dataclass(frozen=True)
class Finding:
    """Something that one should look into."""

    kind: str
    message: str


@dataclass(frozen=True)
class FileReport:
    """One file."""

    name: str
    role: str
    path: str
    rows: int
    """Examples, without those that are empty or broken."""
    empty: tuple[int, ...]
    """Lines that lack a text."""
    broken: tuple[str, ...]
    """What is wrong with lines that cannot be read."""
    labels: Balance | Numbers | None
    """None if it has no labels."""
    duplicates: Duplicates
    words: dict[str, Lengths]
    tokens: Tokens | None


@dataclass(frozen=True)
class DataReport:
    """All files, what they share, and how far one gets without reading."""

    task: str
    texts: tuple[str, ...]
    classes: tuple[str, ...]
    files: tuple[FileReport, ...]
    leaks: tuple[Leak, ...]
    baselines: Baselines | None
    notes: tuple[str, ...]
    """What was guessed or left out."""
    findings: tuple[Finding, ...] = ()
    """What is wrong, in plain sentences."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)
