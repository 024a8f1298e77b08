"""`heads importance`: how much each task of a run needs each head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.data import Collator, Encoded, encode
from headwise.errors import InputError
from headwise.experiments.apply import Loaded, Source, load_tasks
from headwise.experiments.head_studies.head_files import (
    IMPORTANCE,
    identity,
    new_results,
    result_folder,
    write_result,
)
from headwise.experiments.splits import read_split
from headwise.heads.importance import HeadImportance, check_options
from headwise.heads.pruning import ranked_heads
from headwise.heads.similarity import ImportanceSimilarity, importance_similarity
from headwise.training import Listener, Silence
from headwise.training.predict import importance_on


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
    listener: Listener,
    mask: NDArray[numpy.bool_] | None = None,
) -> HeadImportance:
    """The importance of all heads to one task; `mask` silences heads meanwhile."""
    without = "" if mask is None else f" without {int(mask.sum())} heads"
    listener.start(f"importance for {task}{without}", min(len(examples), settings.examples))
    importance = importance_on(
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
    return importance


@dataclass(frozen=True)
class ImportanceStudy:
    """The importance of the heads of a run."""

    content: dict[str, Any]
    """As in importance.json."""
    tasks: dict[str, HeadImportance]
    similarity: ImportanceSimilarity | None
    """How far tasks need the same heads; None for one task."""
    paths: list[Path]


def study_importance(
    run: Path,
    settings: ImportanceSettings,
    source: Source,
    *,
    task: Sequence[str] = (),
    output: Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> ImportanceStudy:
    """Measure the importance of every head to each task of a run; writes importance.json and importance.csv.

    Args:
        run: a finished run.
        settings: how importance is estimated.
        source: the location of the data.
        task: names of tasks; all tasks if empty.
        output: the folder of the results; RUN/heads if None.
        overwrite: replace earlier results.
        listener: receives progress.
    """
    folder = result_folder(run, output)
    with new_results(run, folder, [folder / f"{IMPORTANCE}.json"], overwrite=overwrite):
        runs = load_tasks(run, task).runs
        tasks = {
            name: task_importance(name, runs[name], examples, settings, listener or Silence())
            for name, examples in labelled_examples(runs, settings.split, source).items()
        }
        similarity = (
            importance_similarity({name: each.scores for name, each in tasks.items()}) if len(tasks) > 1 else None
        )
        content = {
            "run": identity(run),
            "settings": asdict(settings),
            "tasks": {name: each.as_dict() for name, each in tasks.items()},
            **({} if similarity is None else {"similarity": similarity.as_dict()}),
        }
        paths = write_result(folder, IMPORTANCE, content, rows=_rows(tasks))
    return ImportanceStudy(content, tasks, similarity, paths)


def _rows(tasks: Mapping[str, HeadImportance]) -> Iterator[dict[str, Any]]:
    """One row per task and head; rank 1 is the most important."""
    for task, each in tasks.items():
        ranks = {head: rank for rank, head in enumerate(ranked_heads(each.scores), start=1)}
        for layer, head in numpy.ndindex(*each.scores.shape):
            yield {
                "task": task,
                "layer": layer,
                "head": head,
                "score": float(each.scores[layer, head]),
                "half_width": None if each.half_width is None else float(each.half_width[layer, head]),
                "rank": ranks[layer, head],
            }
