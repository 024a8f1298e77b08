"""Short hands for the rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.tasks.file_task import FileTask
from headwise.tasks.labels import Unlabelled
from headwise.tasks.layout import Layout, Text
from headwise.tasks.places import Places
from headwise.tasks.task import REGRESSION_METRICS

NLI_LABELS = ("entailment", "neutral", "contradiction")
# As the papers on natural language inference report them
PAPER_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1")


def row(name: str, description: str, source: str, **parts: Any) -> FileTask:
    """A task of the table; by default it is scored as its kind suggests, by the first of its metrics."""
    regression = parts.get("kind") == "regression"
    metrics = parts.setdefault("metrics", REGRESSION_METRICS if regression else PAPER_METRICS)
    return FileTask(name=name, description=description, source=source, **{"primary": metrics[0], **parts})


def named(*texts: Text, label: str) -> Layout:
    """A layout with a header."""
    return Layout(texts, label)


def places(folders: tuple[str, ...], names: Mapping[str, str], *, guessed: bool = False) -> Places:
    """Folders below the root, and for each split its file names, separated by blanks."""
    return Places({split: tuple(text.split()) for split, text in names.items()}, folders, guessed=guessed)


def numbered(*labels: str, start: int = 0) -> dict[str, Any]:
    """Classes that the files write as 0, 1 and so on, or from another start."""
    return {"known_labels": labels, "aliases": {str(place): label for place, label in enumerate(labels, start)}}


# Pairs on which the annotators did not agree have no label.
DISAGREED = Unlabelled(("-",), "drop")
