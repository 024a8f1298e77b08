"""`heads importance` and `heads similarity`: how much each task of a run needs each head, and how alike tasks are.

What is measured is plain data: the content of importance.json and of similarity.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.data import Collator, Encoded, encode
from headwise.documents import plain
from headwise.errors import InputError
from headwise.experiments.apply import Loaded, RunTasks, Source
from headwise.experiments.head_studies.head_files import DISSOCIATION, identity, read_result
from headwise.experiments.splits import read_split
from headwise.heads.dissociation import dissociation
from headwise.heads.importance import HeadImportance, check_options
from headwise.heads.pruning import ranked_heads
from headwise.heads.similarity import gradient_cosines, importance_similarity
from headwise.training import Listener
from headwise.training.predict import importance_on, sorted_batches

# The share of heads whose overlap is shown for each pair of tasks.
SHOWN = 0.3


@dataclass(frozen=True)
class Examples:
    """The labelled examples of one task, encoded."""

    encoded: Encoded
    collate: Collator
    labels: NDArray[Any]
    """[n] class numbers, or the targets of a regression."""

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)


@dataclass(frozen=True)
class ImportanceSettings:
    """How importance is estimated."""

    granularity: str = "sample"
    normalise: str = "none"
    examples: int = 10_000
    """The largest number of examples, a seeded sample."""
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown names before any work."""
        check_options(self.granularity, self.normalise)


def several(tasks: Sequence[str], what: str) -> None:
    """Refuse a run of one task where tasks are compared."""
    if len(tasks) < 2:
        raise InputError(
            f"{what} compares tasks, and this run has one only ({', '.join(tasks)}): train several on one encoder, "
            "with `tasks:` in the recipe."
        )


def labelled_examples(
    runs: Mapping[str, Loaded], split: str, source: Source, limit: int | None = None
) -> dict[str, Examples]:
    """The first examples of a split of every task; re-rankers and examples without labels are refused."""
    examples = {}
    for task, run in runs.items():
        run.refuse_several_labels("a study of heads")
        if run.task.kind == "ranking":
            raise InputError(
                "this run is a re-ranker, whose examples come in groups, so its heads cannot be studied in this way: "
                "give a run of a classifier or a regression."
            )
        data = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
        if limit is not None:
            data = data.subset(range(min(limit, len(data))))
        if not data.labelled:
            raise InputError(
                f"the {split} set of {task} has no labels, which importance and metrics need: give another split, such "
                "as split=validation."
            )
        options = run.recipe.data
        examples[task] = Examples(
            encode(data, run.tokenizer, options.max_length),
            Collator.of(run.tokenizer, run.task.kind, padding=options.padding, max_length=options.max_length),
            numpy.asarray(data.labels, dtype=numpy.float64 if run.task.kind == "regression" else numpy.int64),
        )
    return examples


def task_importance(
    task: str,
    run: Loaded,
    examples: Examples,
    settings: ImportanceSettings,
    progress: Listener,
    mask: NDArray[numpy.bool_] | None = None,
) -> HeadImportance:
    """The importance of all heads to one task; `mask` silences heads meanwhile."""
    without = "" if mask is None else f" without {int(mask.sum())} heads"
    progress.start(f"importance for {task}{without}", min(len(examples), settings.examples))
    importance = importance_on(
        run.model,
        examples.encoded,
        examples.collate,
        granularity=settings.granularity,
        normalise=settings.normalise,
        examples=settings.examples,
        seed=settings.seed,
        mask=mask,
        after_batch=progress.advance,
    )
    progress.end()
    return importance


def measure_importance(
    tasks: RunTasks, settings: ImportanceSettings, source: Source, *, progress: Listener
) -> dict[str, Any]:
    """The importance of every head to each task of a run; with several tasks, also how far they need the same heads."""
    importance = _importance_by_task(tasks, labelled_examples(tasks.runs, settings.split, source), settings, progress)
    content: dict[str, Any] = {"run": identity(tasks.folder), "settings": settings, "tasks": importance}
    if len(importance) > 1:
        content["similarity"] = importance_similarity({task: each.scores for task, each in importance.items()})
    return plain(content)


def _importance_by_task(
    tasks: RunTasks, examples: Mapping[str, Examples], settings: ImportanceSettings, progress: Listener
) -> dict[str, HeadImportance]:
    return {task: task_importance(task, tasks.runs[task], each, settings, progress) for task, each in examples.items()}


def importance_rows(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of importance.csv: one per task and head; rank 1 is the most important."""
    for task, each in content["tasks"].items():
        ranks = {head: rank for rank, head in enumerate(ranked_heads(each["scores"]), start=1)}
        for layer, head in sorted(ranks):
            yield {
                "task": task,
                "layer": layer,
                "head": head,
                "score": each["scores"][layer][head],
                "half_width": None if each["half_width"] is None else each["half_width"][layer][head],
                "rank": ranks[layer, head],
            }


def measure_similarity(
    tasks: RunTasks, settings: ImportanceSettings, source: Source, *, folder: Path, progress: Listener
) -> dict[str, Any]:
    """How alike the tasks of a run are, by the heads they need and by the gradients of their losses.

    Args:
        tasks: the run with all its tasks, which are compared on the same sample of examples.
        settings: how importance is estimated, and on how many examples.
        source: the location of the data.
        folder: the folder that may hold dissociation.json, for the D-scores of each two tasks.
        progress: shows how far it is.
    """
    names = tuple(tasks.runs)
    several(names, "similarity")
    examples = labelled_examples(tasks.runs, settings.split, source)
    scores = {task: each.scores for task, each in _importance_by_task(tasks, examples, settings, progress).items()}
    importance = importance_similarity(scores)

    def batches(task: str) -> Iterator[dict[str, Any]]:
        data = examples[task]
        progress.start(f"gradient of {task}", min(len(data), settings.examples))
        yield from sorted_batches(data.encoded, data.collate, limit=settings.examples, seed=settings.seed)

    gradients = gradient_cosines(
        {task: run.model for task, run in tasks.runs.items()},
        {task: batches(task) for task in names},
        after_batch=lambda task, done: progress.advance(done),
    )
    progress.end()
    d_scores: dict[tuple[str, str], float | None] = {}
    try:
        if (result := read_result(folder, DISSOCIATION, tasks.folder)) is not None:
            d_scores = _pair_scores(result[0], names)
    except InputError as error:
        progress.log(f"without D-scores: {error}")
    overlap = importance.overlap.get(SHOWN)
    pairs = [
        {
            "tasks": [names[index] for index in at],
            "spearman": importance.spearman[at],
            "pearson": importance.pearson[at],
            f"overlap_{SHOWN}": None if overlap is None else overlap[at],
            "gradient_cosine": gradients.total[at],
            "d_score": d_scores.get((names[at[0]], names[at[1]])),
        }
        for at in combinations(range(len(names)), 2)
    ]
    content = {"run": identity(tasks.folder), "settings": settings, "tasks": names, "pairs": pairs}
    return plain({**content, "importance": importance, "gradients": gradients})


def _pair_scores(content: Mapping[str, Any], tasks: tuple[str, ...]) -> dict[tuple[str, str], float | None]:
    """The mean D-score of each two tasks, as if there were no others, over the steps of the curve."""
    if not set(tasks) <= set(content["tasks"]):
        raise InputError(f"{DISSOCIATION}.json is about other tasks ({', '.join(content['tasks'])}).")
    retained = numpy.array(content["mean"]["retained"], dtype=numpy.float64)  # [S,T], null becomes NaN
    scores: dict[tuple[str, str], float | None] = {}
    for pair in combinations(tasks, 2):
        at = [content["tasks"].index(task) for task in pair]
        own = retained[numpy.ix_(at, at)]  # [2,2]
        scores[pair] = dissociation(own, numpy.ones(2)).means["row"] if numpy.isfinite(own).all() else None
    return scores
