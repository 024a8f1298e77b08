"""What the record of a re-ranker says: which papers it was trained on, and how they were searched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.collections import CollectionChoice
from headwise.experiments.ranking_splits import options_of
from headwise.tasks import build_task
from headwise.tasks.retrieval.index import IndexOptions
from headwise.tasks.retrieval.task import RetrievalTask


@dataclass(frozen=True)
class Named:
    """What the caller says of the collection; the rest is as in training."""

    folder: Path | None = None
    layout: str | None = None
    gold: str = "evidence"
    drop_unknown: bool = False


def run_folder(run: Path) -> Path:
    """The folder of a re-ranker with its ~ spelled out; what is not there is refused."""
    folder = run.expanduser()
    if not folder.is_dir():
        raise InputError(f"{run}: there is no such folder; name that of a trained re-ranker.")
    return folder


def collection_of(run: Path, named: Named) -> CollectionChoice:
    """The collection that is named, or else the one that a run was trained on."""
    if named.folder is not None:
        return CollectionChoice(named.folder, named.layout, named.gold, named.drop_unknown)
    found = _task(run_folder(run))
    if found is None:
        raise InputError(
            f"{run} is not a run of the task retrieval, so nothing says which collection it is for: name it with "
            "--collection."
        )
    task, root = found
    folder = task.folder(root)
    if not folder.exists():
        raise InputError(f"{folder}, the collection of training, is no longer there: name it with --collection.")
    return CollectionChoice(folder, named.layout or task.layout, named.gold, named.drop_unknown or task.drop_unknown)


def index_options_of(run: Path) -> IndexOptions:
    """How a re-ranker's candidates were found in training; the defaults for a model that headwise did not train."""
    found = _task(run_folder(run))
    return IndexOptions() if found is None else options_of(found[0])


def _task(run: Path) -> tuple[RetrievalTask, Path | None] | None:
    """The task and the data folder of a finished run; None if it is no run, or one of another task."""
    if not (run / record.NAME).is_file():
        return None
    content = record.read(run)
    if not record.finished(content):
        raise InputError(f"{run} holds a run that is not finished: go on with `headwise train ... --resume` first.")
    recipe = record.recipe_of(content, run)
    task, root = build_task(recipe.task.name, recipe.task.options), content["asked"]["data"]
    return (task, None if root is None else Path(root)) if isinstance(task, RetrievalTask) else None
