"""Data sets of ir_datasets (https://ir-datasets.com), named by their id: irds:beir/scifact/test.

The documents, the claims ("queries" there) and the judgements of the id are read; its last part is the name of the
split. Title and text of a document are its fields of that name, or its title and all other text that it has. Nothing is
downloaded unless this is requested: without, ir_datasets reads what it has in its own cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from headwise.errors import InputError, choices
from headwise.retrieval.collections import Collection, Document, checked_id, report_empty

PREFIXES = ("irds:", "ir_datasets:")


def dataset_id(folder: Path) -> str | None:
    """The id of a data set that stands in place of a folder."""
    name = folder.as_posix()
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), None)


def read(id: str, *, download: bool = False) -> Collection:
    """The collection with this id."""
    with _network(id, download) as library:
        try:
            dataset = library.load(id)
        except KeyError:
            raise InputError(f"ir_datasets has no data set {id!r}: {choices(id, _similar(library, id))}.") from None
        if not dataset.has_docs():
            raise InputError(f"{id} of ir_datasets has no documents to search: name a data set that has them.")
        collection = Collection(id, "irds", (), partial(_documents, id, dataset, download), folder=Path(f"irds:{id}"))
        for query in dataset.queries_iter() if dataset.has_queries() else ():
            claim = " ".join(_text(query).split())
            if not claim:
                raise InputError(f"{id}: claim {query.query_id!r} is empty; choose another data set, or export it.")
            collection.claims[checked_id(query.query_id, id)] = claim
        judged: dict[str, dict[str, int]] = {}
        for row in dataset.qrels_iter() if dataset.has_qrels() else ():
            if row.query_id in collection.claims:  # some data sets judge more claims than they have
                judged.setdefault(row.query_id, {})[row.doc_id] = int(row.relevance)
        if judged:
            collection.add_split(id.rpartition("/")[2], Path(f"irds:{id}"), judged)
            collection.qrels_files.clear()  # there is no file with a line to point at
    return collection


def _documents(id: str, dataset: Any, download: bool) -> Iterator[Document]:
    count = 0
    empty: list[str] = []
    with _network(id, download):
        for each in dataset.docs_iter():
            count += 1
            name = checked_id(each.doc_id, id)
            title = str(getattr(each, "title", None) or "").strip()
            text = _text(each).strip()
            if title and text.startswith(title):  # `default_text` puts the title first
                text = text[len(title) :].strip()
            if text or title:
                yield Document(name, title, text) if text else Document(name, "", title)
            else:
                empty.append(name)
    report_empty(empty, count, id)


def _text(record: Any) -> str:
    text = getattr(record, "text", None)
    return str(text if text is not None else record.default_text())


def _similar(library: Any, id: str) -> list[str]:
    """The data sets of the same family, for a message; there are hundreds."""
    names = list(library.registry)
    family = [name for name in names if name.partition("/")[0] == id.partition("/")[0]]
    return (family or sorted({name.partition("/")[0] for name in names}))[:60]


@contextmanager
def _network(id: str, allowed: bool) -> Iterator[Any]:
    """The library, which refuses to download unless this is allowed."""
    library: Any
    loading: Any
    try:
        library, loading = (import_module(name) for name in ("ir_datasets", "ir_datasets.lazy_libs"))
    except ImportError:
        raise InputError(
            f"{PREFIXES[0]}{id} needs the library ir_datasets: install it by pip install 'headwise[irds]'."
        ) from None

    def refuse() -> NoReturn:
        raise InputError(
            f"{id} is not in the cache of ir_datasets, and no network was allowed: pass download=True, or give a "
            "folder with the collection."
        )

    before = loading.requests
    loading.requests = before if allowed else refuse
    try:
        yield library
    finally:
        loading.requests = before
