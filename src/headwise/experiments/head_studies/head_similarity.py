"""`heads similarity`: how alike the tasks of a run are, by the heads they need and by the gradients of their losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy

from headwise.errors import InputError
from headwise.experiments.apply import RunTasks, Source, load_tasks
from headwise.experiments.head_studies.head_files import (
    DISSOCIATION,
    SIMILARITY,
    identity,
    new_results,
    read_result,
    result_folder,
    write_result,
)
from headwise.experiments.head_studies.head_importance import (
    ImportanceSettings,
    labelled_examples,
    several,
    task_importance,
)
from headwise.heads.dissociation import dissociation
from headwise.heads.similarity import GradientCosines, ImportanceSimilarity, gradient_cosines, importance_similarity
from headwise.training import Listener, Silence
from headwise.training.predict import sorted_batches

# The share of heads whose overlap is shown.
SHOWN = 0.3


@dataclass(frozen=True, eq=False)
class TaskSimilarity:
    """Two measures of how alike tasks are, with their D-scores."""

    run: Mapping[str, Any]
    settings: ImportanceSettings
    importance: ImportanceSimilarity
    gradients: GradientCosines
    pair_scores: dict[tuple[str, str], float | None]
    """The mean D-score of two tasks alone, over the steps of the curve; empty without a dissociation.json."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
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
        """The main numbers of each pair of tasks."""
        overlap = self.importance.overlap.get(SHOWN)
        for at in combinations(range(len(self.tasks)), 2):
            pair = self.tasks[at[0]], self.tasks[at[1]]
            yield {
                "tasks": list(pair),
                "spearman": float(self.importance.spearman[at]),
                "pearson": float(self.importance.pearson[at]),
                f"overlap_{SHOWN}": None if overlap is None else float(overlap[at]),
                "gradient_cosine": float(self.gradients.total[at]),
                "d_score": self.pair_scores.get(pair),
            }


def measure_similarity(
    tasks: RunTasks, settings: ImportanceSettings, source: Source, *, folder: Path, listener: Listener
) -> TaskSimilarity:
    """Compare the tasks of a run on the same sample of examples.

    Args:
        tasks: the run with all its tasks.
        settings: how importance is estimated, and on how many examples.
        source: the location of the data.
        folder: the folder that may hold dissociation.json.
        listener: receives progress.
    """
    several(tuple(tasks.runs), "similarity")
    examples = labelled_examples(tasks.runs, settings.split, source)
    scores = {
        task: task_importance(task, tasks.runs[task], each, settings, listener).scores
        for task, each in examples.items()
    }
    current = ""

    def after_batch(task: str, done: int) -> None:
        nonlocal current
        if task != current:
            current = task
            listener.start(f"gradient of {task}", min(len(examples[task]), settings.examples))
        listener.advance(done)

    gradients = gradient_cosines(
        {task: run.model for task, run in tasks.runs.items()},
        {
            task: sorted_batches(each.encoded, each.collate, limit=settings.examples, seed=settings.seed)
            for task, each in examples.items()
        },
        after_batch=after_batch,
    )
    listener.end()
    pair_scores = {}
    try:
        result = read_result(folder, DISSOCIATION, tasks.folder)
        pair_scores = {} if result is None else _pair_scores(result[0], tuple(tasks.runs))
    except InputError as error:
        listener.log(f"without D-scores: {error}")
    return TaskSimilarity(identity(tasks.folder), settings, importance_similarity(scores), gradients, pair_scores)


def _pair_scores(content: Mapping[str, Any], tasks: tuple[str, ...]) -> dict[tuple[str, str], float | None]:
    """The mean D-score of each two tasks, as if there were no others."""
    if not set(tasks) <= set(content["tasks"]):
        raise InputError(f"{DISSOCIATION}.json is about other tasks ({', '.join(content['tasks'])}).")
    retained = numpy.array(content["mean"]["retained"], dtype=numpy.float64)  # [S,T], null becomes NaN
    scores: dict[tuple[str, str], float | None] = {}
    for pair in combinations(tasks, 2):
        at = [content["tasks"].index(task) for task in pair]
        own = retained[numpy.ix_(at, at)]  # [2,2]
        scores[pair] = dissociation(own, numpy.ones(2)).means["row"] if numpy.isfinite(own).all() else None
    return scores


def study_similarity(
    run: Path,
    settings: ImportanceSettings,
    source: Source,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> tuple[TaskSimilarity, list[Path]]:
    """Measure the similarity of a run's tasks and write similarity.json to `output`, or to RUN/heads."""
    folder = result_folder(run, output)
    with new_results(run, folder, [folder / f"{SIMILARITY}.json"], overwrite=overwrite):
        result = measure_similarity(load_tasks(run), settings, source, folder=folder, listener=listener or Silence())
        return result, write_result(folder, SIMILARITY, result.as_dict())
