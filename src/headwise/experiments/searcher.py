"""Searching with a run: its collection, its stages and the weights of its final score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.ranking_splits import index_options
from headwise.retrieval.bm25 import IndexOptions
from headwise.retrieval.collections import Collection
from headwise.retrieval.formats import read_collection
from headwise.retrieval.papers import Columns
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.retrieval.search import Searcher
from headwise.training import Listener


def open_searcher(
    run: Path | None,
    collection: Path | None = None,
    *,
    layout: str | None = None,
    columns: Columns | None = None,
    download: bool = False,
    template: str | None = None,
    progress: Listener | None = None,
    **options: Any,
) -> Searcher:
    """Open the indexes of a collection, with the re-ranker of a run if one is given.

    Args:
        run: the folder of the re-ranker; None: no re-ranker.
        collection: the folder of the collection; None: that of training.
        layout: of the collection; None decides by its files.
        columns: of a table of papers; None decides by their names.
        download: let ir_datasets download the collection.
        template: of the re-ranker; see `Reranker.load`.
        progress: shows how far it is.
        options: more of `Searcher`.
    """
    form: dict[str, Any] = {"layout": layout, "columns": columns, "download": download}
    if run is None:
        if collection is None:
            raise InputError("nothing says which papers to search: give collection=FOLDER.")
        return Searcher(read_collection(collection, **form), progress=progress, **options)
    folder = reranker_folder(run)
    trained = _trained_task(folder)
    words = IndexOptions() if trained is None else index_options(trained[0])
    reranker = Reranker.load(folder, template=template)  # before the collection, which may take long to read
    papers = collection_of(folder, collection, **form)
    return Searcher(papers, reranker=reranker, options=words, progress=progress, **options)


def collection_of(
    run: Path,
    folder: Path | None = None,
    *,
    layout: str | None = None,
    gold: str = "evidence",
    drop_unknown: bool = False,
    columns: Columns | None = None,
    download: bool = False,
) -> Collection:
    """Read the collection in a folder, or else the one that a run was trained on; options as in `read_collection`."""
    if folder is None:
        trained = _trained_task(reranker_folder(run))
        if trained is None:
            raise InputError(
                f"{run} is not a run of the task retrieval, so nothing says which collection it is for: give it as "
                "collection=FOLDER."
            )
        task, root = trained
        folder, layout, drop_unknown = task.folder(root), layout or task.layout, drop_unknown or task.drop_unknown
        if not folder.exists():
            raise InputError(
                f"{folder}, the collection of training, is no longer there: give its new folder as collection=FOLDER."
            )
    options: dict[str, Any] = {"drop_unknown": drop_unknown, "columns": columns, "download": download}
    return read_collection(folder, layout, gold=gold, **options)


def reranker_folder(run: Path) -> Path:
    """The folder of a re-ranker with its ~ expanded; a missing one is refused."""
    folder = run.expanduser()
    if not folder.is_dir():
        raise InputError(f"{run}: there is no such folder; name that of a trained re-ranker.")
    return folder


def _trained_task(run: Path) -> tuple[RetrievalTask, Path | None] | None:
    """The task and the data folder of a finished run; None if it is no run, or one of another task."""
    if not (run / record.NAME).is_file():
        return None
    content = record.finished_record(run)
    task, root = record.task_recipe(content, run).build_task(), content["data"]
    return (task, None if root is None else Path(root)) if isinstance(task, RetrievalTask) else None
