"""How alike the tasks of a run are: by the heads they need, and by where their losses pull the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy

from headwise.errors import InputError
from headwise.experiments.apply import RunTasks, Source
from headwise.experiments.head_studies.head_dissociation import NAME as DISSOCIATION
from headwise.experiments.head_studies.head_files import (
    Examples,
    damaged,
    identity,
    labelled_examples,
    read_answers,
    several,
)
from headwise.experiments.head_studies.head_importance import ImportanceSettings, task_importance
from headwise.experiments.head_studies.head_schemas import DissociationFile
from headwise.heads.dissociation import dissociation
from headwise.heads.task_similarity import (
    GradientCosines,
    ImportanceSimilarity,
    gradient_cosines,
    importance_similarity,
)
from headwise.training import Listener
from headwise.training.iat_training import sorted_batches

NAME = "similarity"
# The share of heads whose overlap is shown.
SHOWN = 0.3


@dataclass(frozen=True, eq=False)
class TaskSimilarity:
    """Two ways in which tasks are alike, and the D-scores beside them."""

    run: Mapping[str, Any]
    settings: ImportanceSettings
    importance: ImportanceSimilarity
    gradients: GradientCosines
    pair_scores: dict[tuple[str, str], float | None] | None
    """The mean D-score of two tasks alone, over the steps of the curve; None if there is no dissociation.json."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Their names."""
        return self.importance.tasks

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "run": dict(self.run),
            "settings": asdict(self.settings),
            "tasks": list(self.tasks),
            "pairs": list(self.pairs()),
            "importance": self.importance.as_dict(),
            "gradients": self.gradients.as_dict(),
        }

    def pairs(self) -> Iterator[dict[str, Any]]:
        """Each two tasks with the numbers that one compares first."""
        for (first, one), (second, other) in combinations(enumerate(self.tasks), 2):
            overlap = self.importance.overlap.get(SHOWN)
            yield {
                "tasks": [one, other],
                "spearman": float(self.importance.spearman[first, second]),
                "pearson": float(self.importance.pearson[first, second]),
                f"overlap_{SHOWN}": None if overlap is None else float(overlap[first, second]),
                "gradient_cosine": float(self.gradients.total[first, second]),
                "d_score": None if self.pair_scores is None else self.pair_scores[one, other],
            }


def measure_similarity(
    tasks: RunTasks, settings: ImportanceSettings, source: Source, *, answers: Path, listener: Listener
) -> TaskSimilarity:
    """Compare the tasks of a run on the same choice of examples.

    Args:
        tasks: the run with all its tasks.
        settings: how importance is estimated, and on how many examples.
        source: where the data are.
        answers: the folder where dissociation.json may lie.
        listener: shows progress.
    """
    several(tuple(tasks.runs), "similarity")
    found = labelled_examples(tasks.runs, settings.split, source)
    scores = {
        task: task_importance(task, tasks.runs[task], examples, settings, listener).scores
        for task, examples in found.items()
    }
    return TaskSimilarity(
        identity(tasks.folder),
        settings,
        importance_similarity(scores),
        _gradients(tasks, found, settings, listener),
        _pair_scores(answers, tasks, listener),
    )


def _gradients(
    tasks: RunTasks, found: Mapping[str, Examples], settings: ImportanceSettings, listener: Listener
) -> GradientCosines:
    at = ""

    def after_batch(task: str, done: int) -> None:
        nonlocal at
        if task != at:
            at = task
            listener.start(f"gradient of {task}", min(len(found[task]), settings.examples))
        listener.advance(done)

    cosines = gradient_cosines(
        {task: run.model for task, run in tasks.runs.items()},
        {
            task: sorted_batches(each.encoded, each.collate, limit=settings.examples, seed=settings.seed)
            for task, each in found.items()
        },
        after_batch=after_batch,
    )
    listener.end()
    return cosines


def _pair_scores(folder: Path, tasks: RunTasks, listener: Listener) -> dict[tuple[str, str], float | None] | None:
    """From dissociation.json, if it is there and of this run."""
    try:
        found = read_answers(folder, DISSOCIATION, tasks.folder, DissociationFile)
        return None if found is None else _of_pairs(found[0], tuple(tasks.runs))
    except InputError as error:
        listener.tell(f"without D-scores: {error}")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        listener.tell(f"without D-scores: {damaged(DISSOCIATION, tasks.folder, folder, error)}")
    return None


def _of_pairs(content: Mapping[str, Any], tasks: tuple[str, ...]) -> dict[tuple[str, str], float | None]:
    retained = numpy.array(content["mean"]["retained"], dtype=numpy.float64)  # [S,T], null becomes NaN
    names: list[str] = content["tasks"]
    return {
        (one, other): _alone(retained, [names.index(one), names.index(other)]) for one, other in combinations(tasks, 2)
    }


def _alone(retained: Any, places: list[int]) -> float | None:
    """The mean D-score of two tasks, as if there were no others."""
    own = retained[numpy.ix_(places, places)]  # [2,2]
    if not numpy.isfinite(own).all():
        return None
    return dissociation(own, numpy.ones(2)).means["row"]
