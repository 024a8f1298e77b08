"""How much each task of a run needs each head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.experiments.apply import Loaded, Source
from headwise.experiments.head_files import Examples, identity, labelled_examples
from headwise.experiments.run_tasks import RunTasks
from headwise.heads.importance import GRANULARITIES, NORMALISATIONS, HeadImportance
from headwise.heads.pruning import ranked_heads
from headwise.heads.task_similarity import importance_similarity
from headwise.training import Listener
from headwise.training.importance_pass import importance_on

NAME = "importance"


@dataclass(frozen=True)
class ImportanceSettings:
    """How importance is estimated."""

    granularity: str = "sample"
    normalise: str = "none"
    examples: int = 10_000
    """At most so many, a seeded choice."""
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown names before any work."""
        for option, value, known in (
            ("--granularity", self.granularity, GRANULARITIES),
            ("--normalise", self.normalise, NORMALISATIONS),
        ):
            if value not in known:
                raise InputError(f"{option} {value}: {choices(value, known)}.")


def run_importance(
    runs: Mapping[str, Loaded], settings: ImportanceSettings, source: Source, listener: Listener
) -> dict[str, HeadImportance]:
    """The importance of all heads for each task; all data are read before the first is measured."""
    found = labelled_examples(runs, settings.split, source)
    return {task: task_importance(task, runs[task], examples, settings, listener) for task, examples in found.items()}


def task_importance(
    task: str,
    run: Loaded,
    examples: Examples,
    settings: ImportanceSettings,
    listener: Listener,
    mask: NDArray[numpy.bool_] | None = None,
) -> HeadImportance:
    """The importance of all heads for one task, with the heads of a mask silenced."""
    without = "" if mask is None else f" without {int(mask.sum())} heads"
    listener.start(f"importance for {task}{without}", min(len(examples), settings.examples))
    found = importance_on(
        run.model,
        examples.encoded,
        examples.collate,
        granularity=settings.granularity,
        normalise=settings.normalise,
        examples=settings.examples,
        seed=settings.seed,
        mask=mask,
        after_batch=listener.advance,
    )
    listener.end()
    return found


def importance_content(
    tasks: RunTasks, settings: ImportanceSettings, found: Mapping[str, HeadImportance]
) -> dict[str, Any]:
    """Plain data, ready for JSON; of several tasks also how far they need the same heads."""
    scores = {task: each.scores for task, each in found.items()}
    between = {"similarity": importance_similarity(scores).as_dict()} if len(found) > 1 else {}
    return {
        "run": identity(tasks.folder),
        "settings": asdict(settings),
        "tasks": {task: each.as_dict() for task, each in found.items()},
        **between,
    }


def importance_rows(found: Mapping[str, HeadImportance]) -> Iterator[dict[str, Any]]:
    """One row for each task and head, in the order of the heads; rank 1 is the most important."""
    for task, each in found.items():
        ranks = {head: rank for rank, head in enumerate(ranked_heads(each.scores), start=1)}
        for layer, head in numpy.ndindex(*each.scores.shape):
            width = None if each.half_width is None else float(each.half_width[layer, head])
            yield {
                "task": task,
                "layer": layer,
                "head": head,
                "score": float(each.scores[layer, head]),
                "half_width": width,
                "rank": ranks[layer, head],
            }
