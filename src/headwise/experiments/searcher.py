"""One claim through both stages of retrieval: BM25 finds candidates, a re-ranker orders them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.splits import options_of
from headwise.retrieval.bm25 import Index, IndexOptions
from headwise.retrieval.collections import Document
from headwise.retrieval.explain import Explanation, explain
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.retrieval.retrieve import CollectionChoice, Searching, index_of
from headwise.training import Listener, Silence
from headwise.training.predict import PRECISIONS
from headwise.training.reranking import Reranker

# What the record of a re-ranker says: which papers it was trained on, and how they were searched.


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
    recipe = record.task_recipe(content, run)
    task, root = recipe.build_task(), content["data"]
    return (task, None if root is None else Path(root)) if isinstance(task, RetrievalTask) else None


@dataclass(frozen=True)
class Paper:
    """A paper that was found; ranks count from 1."""

    id: str
    title: str
    rank: int
    score: float
    """The logit of the re-ranker."""
    bm25_rank: int
    bm25_score: float


@dataclass(frozen=True)
class Found:
    """What was found for a claim."""

    claim: str
    candidates: int
    """How many papers the model read."""
    papers: tuple[Paper, ...]
    """The best of them, the best first."""
    explanation: Explanation | None = None
    """Of the best paper, if asked for."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        data = asdict(self)
        explanation = data.pop("explanation")
        return data if explanation is None else {**data, "explain": {"id": self.papers[0].id, **explanation}}


@dataclass(frozen=True)
class Reading:
    """How many papers are read and shown, and how the model reads them."""

    top: int = 5
    depth: int = 100
    """Candidates that the model reads."""
    explain: bool = False
    batch: int | None = None
    """Pairs at a time; None as in `Reranker.predict`."""
    precision: str = "fp32"
    """Of the scores; attention is always looked at in fp32."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning, before any work."""
        if not 1 <= self.top <= self.depth:
            raise InputError(
                f"top {self.top} of depth {self.depth}: expected at least 1 paper and no more than the model reads; "
                "raise depth or lower top."
            )
        if self.precision not in PRECISIONS:
            raise InputError(f"unknown precision {self.precision!r}: {choices(self.precision, PRECISIONS)}.")


@dataclass(frozen=True)
class Searcher:
    """A re-ranker and the index of a collection, open for as many claims as one has."""

    reranker: Reranker
    index: Index
    folder: Path
    """Of the collection, for messages."""

    def search(self, claim: str, reading: Reading | None = None, listener: Listener | None = None) -> Found:
        """Find the papers behind one claim; those with equal scores stand in the order of BM25."""
        reading, listener = reading or Reading(), listener or Silence()
        claim = check_claim(claim)
        (found,) = self.index.search([claim], reading.depth)
        if not found:
            raise InputError(
                f"no document of {self.folder} has a word of the claim {shorten(claim, 80)!r}, stop words left out: "
                "put it in other words."
            )
        documents = [self.index.corpus.document(place) for place, _ in found]
        order = self._ranked(claim, documents, reading, listener)
        papers = [
            Paper(documents[place].id, documents[place].title, rank, score, place + 1, found[place][1])
            for rank, (place, score) in enumerate(order[: reading.top], 1)
        ]
        best = documents[order[0][0]].whole
        return Found(claim, len(found), tuple(papers), self._explained(claim, best) if reading.explain else None)

    def _ranked(
        self, claim: str, documents: list[Document], reading: Reading, listener: Listener
    ) -> list[tuple[int, float]]:
        listener.start("papers", len(documents))
        try:
            return self.reranker.rank(
                claim,
                [document.whole for document in documents],
                batch=reading.batch,
                precision=reading.precision,
                after_batch=listener.advance,
            )
        finally:
            listener.end()

    def _explained(self, claim: str, text: str) -> Explanation:
        reranker = self.reranker
        return explain(reranker.model, reranker.tokenizer, claim, text, max_length=reranker.max_length)


def open_searcher(
    run: Path, named: Named | None = None, *, cache: Path | None = None, listener: Listener | None = None
) -> Searcher:
    """Load a re-ranker and open the index of a collection, which is made if it is not there.

    Args:
        run: the folder of the re-ranker.
        named: the collection, if not that of training.
        cache: where indexes are kept; None as in `open_index`.
        listener: is told what happens.
    """
    run = run.expanduser()
    options = index_options_of(run)
    reranker = Reranker.load(run)  # before the index, which may take long to make
    choice = collection_of(run, named or Named())
    index = index_of(choice.read(), Searching(options, cache), listener or Silence())
    return Searcher(reranker, index, choice.folder)


def check_claim(claim: str) -> str:
    """The claim without spaces around it; refused if nothing is left, or if it is no text."""
    try:
        claim.encode()
    except UnicodeEncodeError:  # bytes of a command line that are no characters
        raise InputError(
            "the claim holds bytes that are no UTF-8: type it again, or mend the terminal's encoding."
        ) from None
    if not claim.strip():
        raise InputError("the claim is empty: write it in quotation marks, as one argument.")
    return claim.strip()
