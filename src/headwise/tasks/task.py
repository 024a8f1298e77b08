"""What a task owes: where its examples come from, what they mean, and how they are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from headwise.tasks.split import Split

CLASSIFICATION_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman")


def described(task: Task) -> dict[str, Any]:
    """What all tasks tell about themselves, as plain data."""
    return {
        "name": task.name,
        "description": task.description,
        "source": task.source,
        "kind": task.kind,
        "labels": list(task.labels),
        "sentences": task.sentences,
        "metrics": list(task.metrics),
        "primary": task.primary,
        "splits": list(task.splits),
    }


class Task(Protocol):
    """A task, be its examples read or made."""

    @property
    def name(self) -> str:
        """Its key in the table."""

    @property
    def description(self) -> str:
        """The question it asks, in a sentence."""

    @property
    def source(self) -> str:
        """Where its examples come from."""

    @property
    def kind(self) -> str:
        """classification, regression or ranking."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes in order; none for regression and ranking."""

    @property
    def sentences(self) -> int:
        """How many texts an example has: 1 or 2."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """How it is scored."""

    @property
    def primary(self) -> str:
        """The metric that counts most."""

    @property
    def splits(self) -> tuple[str, ...]:
        """What `read` knows."""

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits that can be read below a data root right now."""

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """The examples of a split below a data root."""

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """The examples of any file with the task's columns."""

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""
