"""The task of finding the paper behind a claim: the options of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from headwise.data.examples import Split
from headwise.data.options import mapping, one_of, text
from headwise.data.task import described
from headwise.errors import InputError, choices

LOSSES = ("pairs", "list")
METRICS = ("mrr", "recall@1", "recall@3", "recall@5", "recall@20", "ndcg@10")
# Options that are whole numbers, and the least value of each.
COUNTS = {"negatives": 1, "passages": 0, "depth": 1, "validation_candidates": 1, "warm_up": 0}


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """A re-ranker for the candidates of a first stage (Cross-genre-IR, SciFact and BEIR collections).

    With `loss: pairs` every pair of a claim and a paper is judged alone, by binary cross-entropy on one logit (Eq. 2);
    with `loss: list` the candidates of a claim compete in a softmax.
    """

    collection: str = ""
    """Folder of the collection, below the data root."""
    layout: str | None = None
    drop_unknown: bool = False
    splits_of: Mapping[str, str] = field(default_factory=lambda: {"train": "train"})
    """Which claims of the collection are for what: train, validation, test. Written `splits` in a recipe."""
    gold: str = "evidence"
    """What answers a claim of SciFact: evidence, or every paper that it cites (cited)."""
    stage: str = "hybrid"
    """What finds candidates, in training and later: bm25, dense (the cosine of an encoder), or hybrid (both)."""
    encoder: str = "builtin:minilm-l6"
    """Whose cosine; for the stages dense and hybrid."""
    loss: str = "pairs"
    residual: bool = False
    """Whether the score of the first stage is added to the logit in the loss: the model learns what is missing."""
    warm_up: int = 0
    """So many titles, each with the abstract that it belongs to, are trained on before the claims."""
    negatives: int = 10
    """Papers that are not the answer, for each claim: drawn from the best `depth` of the first stage."""
    passages: int = 0
    """Extra positives: passages of each gold paper."""
    depth: int = 100
    given: bool = True
    """Whether labelled pairs of the data are used, if there are any, instead of drawn ones."""
    validation_candidates: int = 20
    """Papers that are re-ranked for each claim of validation and test, and later in a search."""
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
    primary = "ndcg@10"
    splits = ("train", "validation")

    def available(self, root: Path | None) -> tuple[str, ...]:
        """Train, if the collection is there."""
        return ("train",) if self.collection and self.folder(root).is_dir() else ()

    def folder(self, root: Path | None) -> Path:
        """The folder of the collection."""
        if not self.collection:
            raise InputError("task retrieval needs a collection: name its folder with task.collection.")
        named = Path(self.collection).expanduser()
        return named if root is None else Path(root).expanduser() / named

    def read(self, split: str, root: Path | None, *, network: bool = False) -> Split:
        """Refused: pairs are drawn by a run's seed, from the candidates of the first stage."""
        self._refuse(f"the split {split!r}")

    def read_file(self, path: Path, *, labelled: bool, columns: Sequence[str] = ()) -> Split:
        """Refused: candidates are a TREC run."""
        self._refuse(str(path))

    def describe(self) -> dict[str, Any]:
        """All options and properties as plain data."""
        return described(self)

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"task retrieval cannot read {what} as examples: its pairs are drawn in training; find candidates for "
            "claims, and score a trained model by re-ranking them."
        )


def retrieval_task(options: Mapping[str, Any]) -> RetrievalTask:
    """The task with a user's options."""
    from headwise.retrieval.formats import GOLDS, LAYOUTS
    from headwise.retrieval.fusion import STAGES

    listed = {"loss": LOSSES, "stage": STAGES, "gold": GOLDS, "layout": LAYOUTS}
    known = {"splits" if each.name == "splits_of" else each.name for each in fields(RetrievalTask) if each.init}
    values = dict(mapping(options, "options of task 'retrieval'"))
    for name, value in values.items():
        if name not in known:
            raise InputError(f"task 'retrieval' has no option {name!r}: {choices(str(name), known)}.")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in COUNTS and not (number and isinstance(value, int) and value >= COUNTS[name]):
            raise InputError(f"{name}: expected a whole number of {COUNTS[name]} or more, got {value!r}.")
        if name in ("k1", "b"):
            if not number or not 0 <= value <= (1 if name == "b" else float("inf")):
                most = ", at most 1" if name == "b" else ""
                raise InputError(f"{name}: expected a number of 0 or more{most}, got {value!r}.")
            values[name] = float(value)
        if name in ("drop_unknown", "given", "residual") and not isinstance(value, bool):
            raise InputError(f"{name}: expected true or false, got {value!r}.")
        if name in ("collection", "stem", "stop_words", "encoder"):
            text(value, name)
        if name in listed and not (name == "layout" and value is None):
            one_of(value, listed[name], name)
    if "splits" in values:
        uses = ("train", "validation", "test")
        named = {
            one_of(use, uses, "splits"): text(split, f"splits.{use}")
            for use, split in mapping(values.pop("splits"), "splits").items()
        }
        values["splits_of"] = {"train": "train", **named}
    return RetrievalTask(**values)
