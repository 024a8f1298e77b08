"""The task of finding the paper behind a claim: what a recipe may say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from headwise.errors import InputError, choices
from headwise.tasks.checks import mapping, one_of, text
from headwise.tasks.retrieval.read import LAYOUTS
from headwise.tasks.split import Split
from headwise.tasks.task import described

LOSSES = ("pairs", "list")
METRICS = ("mrr", "recall@1", "recall@3", "recall@5", "recall@20", "ndcg@10")
COUNTS = {"negatives": 1, "passages": 0, "depth": 1, "validation_candidates": 1}
"""Options that are whole numbers, and the least that each may be."""


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """A re-ranker for the candidates that BM25 finds (Cross-genre-IR, SciFact and BEIR collections).

    With `loss: pairs` every pair of a claim and a paper is judged by itself, by binary cross-entropy on one logit
    (Eq. 2); with `loss: list` the candidates of a claim compete in a softmax.
    """

    collection: str = ""
    """Folder of the collection, below the data root."""
    layout: str | None = None
    drop_unknown: bool = False
    splits_of: Mapping[str, str] = field(default_factory=lambda: {"train": "train"})
    """Which claims of the collection are for what: train, validation, test. Written `splits` in a recipe."""
    loss: str = "pairs"
    negatives: int = 10
    """Papers that are not the answer, for each claim: drawn from the best `depth` that BM25 finds."""
    passages: int = 0
    """Extra positives: passages of each gold paper."""
    depth: int = 100
    given: bool = True
    """Whether pairs that come with the data are used, if there are any, instead of drawn ones."""
    validation_candidates: int = 20
    """Papers that are re-ranked for each claim of validation and test."""
    stem: str = "english"
    stop_words: str = "english"
    k1: float = 1.5
    b: float = 0.75

    name = "retrieval"
    description = "Which of these papers is behind the claim?"
    source = "a collection of papers, claims and judgements (BEIR, SciFact, Cross-genre-IR)"
    kind = "ranking"
    labels: tuple[str, ...] = field(default=(), init=False)
    sentences = 2
    metrics = METRICS
    primary = "mrr"
    splits = ("train", "validation")

    def available(self, root: Path | None) -> tuple[str, ...]:
        """Train, if the collection is there."""
        return ("train",) if self.collection and self.folder(root).is_dir() else ()

    def folder(self, root: Path | None) -> Path:
        """Where the collection lies."""
        if not self.collection:
            raise InputError("task retrieval needs a collection: name its folder with task.collection.")
        named = Path(self.collection).expanduser()
        return named if root is None else Path(root).expanduser() / named

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """Refused: pairs are drawn by a run's seed, from the candidates that BM25 finds."""
        self._refuse(f"the split {split!r}")

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """Refused: candidates are a TREC run."""
        self._refuse(str(path))

    def describe(self) -> dict[str, Any]:
        """All there is to know, as plain data."""
        return described(self)

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"task retrieval cannot read {what} by itself: train with `headwise train`, find candidates with `headwise "
            "retrieve`, and score a trained model with `headwise rerank`."
        )


def retrieval_task(options: Mapping[str, Any]) -> RetrievalTask:
    """The task with a user's options."""
    known = {"splits" if each.name == "splits_of" else each.name for each in fields(RetrievalTask) if each.init}
    given = dict(mapping(options, "options of task 'retrieval'"))
    for name in given:
        if name not in known:
            raise InputError(f"task 'retrieval' has no option {name!r}: {choices(str(name), known)}.")
    if "splits" in given:
        given["splits_of"] = _splits(given.pop("splits"))
    for name, least in COUNTS.items():
        if name in given:
            given[name] = _count(given[name], least, name)
    for name, most in {"k1": None, "b": 1.0}.items():
        if name in given:
            given[name] = _number(given[name], most, name)
    for name in ("drop_unknown", "given"):
        if not isinstance(given.get(name, True), bool):
            raise InputError(f"{name}: expected true or false, got {given[name]!r}.")
    one_of(given.get("loss", "pairs"), LOSSES, "loss")
    if given.get("layout") is not None:
        one_of(given["layout"], LAYOUTS, "layout")
    for name in ("collection", "stem", "stop_words"):
        if name in given:
            text(given[name], name)
    return RetrievalTask(**given)


def _splits(value: Any) -> dict[str, str]:
    found = {
        one_of(use, ("train", "validation", "test"), "splits"): text(name, f"splits.{use}")
        for use, name in mapping(value, "splits").items()
    }
    return {"train": "train", **found}


def _count(value: Any, least: int, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{option}: expected a whole number of {least} or more, got {value!r}.")
    return value


def _number(value: Any, most: float | None, option: str) -> float:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= (most or float("inf")):
        raise InputError(
            f"{option}: expected a number of 0 or more{f', at most {most:g}' if most else ''}, got {value!r}."
        )
    return float(value)
