"""Fusion: one score from those of several stages, with weights that are fixed or fitted on judged claims.

Shapes: N candidates of a claim, G weights that are tried, H gold documents among the candidates, C claims.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError, choices
from headwise.metrics.ranking import MEASURES

STAGES = ("bm25", "dense", "hybrid")
FUSIONS = ("convex", "rrf")
# The share of the cosine, where nothing is fitted; chosen on the training claims of SciFact.
ALPHA = 0.6
# The share of a re-ranker, where nothing is fitted.
RERANKER_SHARE = 1 / 3
# Candidates of each first stage, and how many of them a re-ranker reads.
DEPTH = 100
READS = 20
# Of reciprocal rank fusion: 1 / (60 + rank), as in its paper (Cormack et al., 2009).
RANK_OFFSET = 60
# Weights are fitted in twentieths, on at least so many claims.
STEPS = 20
FEWEST_CLAIMS = 20
Array = NDArray[np.float64]


@dataclass(frozen=True)
class StageScores:
    """The scores of a claim's candidates in each stage."""

    documents: tuple[str, ...]
    """Their ids, N of them."""
    bm25: Array
    """[N], 0 where no word is shared."""
    cosine: Array | None = None
    """[N]; None without a dense stage."""
    reranker: Array | None = None
    """[N], nan for candidates that it did not read; None without a re-ranker."""

    def run(self, scores: Array) -> dict[str, float]:
        """The candidates by final score, the best first; of equal ones the earlier first."""
        order = np.argsort(-scores, kind="stable").tolist()
        return {self.documents[position]: float(scores[position]) for position in order}


@dataclass(frozen=True)
class Weights:
    """How much each stage counts; only their ratios matter for the order."""

    bm25: float = 1 - ALPHA
    cosine: float = ALPHA
    reranker: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what orders nothing, or orders it upside down."""
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"the weight of {name} is {value!r}: expected a number of 0 or more.")
        if not sum(asdict(self).values()):
            raise InputError("all weights are 0, which orders nothing: give one of them a number above 0.")

    def __str__(self) -> str:
        """As it is printed."""
        names = {"bm25": "BM25", "cosine": "cosine", "reranker": "re-ranker"}
        parts = {label: getattr(self, name) for name, label in names.items()}
        return " + ".join(f"{value:.3g} {label}" for label, value in parts.items() if value)

    @classmethod
    def of_stage(cls, stage: str = "hybrid", alpha: float | None = None) -> Weights:
        """The weights of a first stage; `alpha` is the share of the cosine in hybrid."""
        check_stage(stage)
        if alpha is not None and stage != "hybrid":
            raise InputError(f"alpha={alpha} is for the stage hybrid, and the stage is {stage}: leave one of them out.")
        alpha = ALPHA if alpha is None else alpha
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
            raise InputError(
                f"alpha {alpha!r}: expected a number from 0 (BM25 alone) to 1 (cosine alone); {ALPHA} is usual."
            )
        share = {"bm25": 0.0, "dense": 1.0, "hybrid": float(alpha)}[stage]
        return cls(round(1 - share, 12), share)

    @classmethod
    def read(cls, text: str) -> Weights:
        """Weights written as three numbers: BM25, cosine, re-ranker."""
        try:
            bm25, cosine, reranker = (float(part) for part in re.split(r"[,\s]+", text.strip()))
        except ValueError:
            raise InputError(
                f"weights {text!r}: expected three numbers, of BM25, cosine and re-ranker, such as 0.3,0.5,0.2."
            ) from None
        return cls(bm25, cosine, reranker)

    @classmethod
    def from_data(cls, data: Any) -> Weights:
        """What `dataclasses.asdict` made of it."""
        known = [each.name for each in fields(cls)]
        if not isinstance(data, Mapping) or not {*data} <= {*known}:
            raise InputError(f"weights {data!r:.80}: expected numbers for {', '.join(known)}.")
        return cls(**data)

    def with_reranker(self, share: float = RERANKER_SHARE) -> Weights:
        """The same first stage with a re-ranker that has this share of the sum."""
        rest = (1 - share) / (self.bm25 + self.cosine)
        return Weights(self.bm25 * rest, self.cosine * rest, share)


def check_stage(stage: str) -> None:
    """Refuse a stage that does not exist."""
    if stage not in STAGES:
        raise InputError(f"unknown stage {stage!r}: {choices(str(stage), STAGES)}.")


def check_fusion(fusion: str) -> None:
    """Refuse a fusion that does not exist."""
    if fusion not in FUSIONS:
        raise InputError(f"unknown fusion {fusion!r}: {choices(str(fusion), FUSIONS)}.")


# -- scores ------------------------------------------------------------------------------------------------------------


def min_max(scores: Array) -> Array:
    """[N] from 0 (the lowest) to 1 (the highest); all 0 if they are equal; nan stays nan."""
    known = scores[~np.isnan(scores)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    scaled: Array = (scores - low) / (high - low) if high > low else scores * 0.0
    return scaled


def scaled_scores(scores: StageScores) -> Array:
    """[3,N] BM25, cosine and re-ranker, each from 0 to 1; 0 where a stage is missing, nan for papers not read."""
    stages = (scores.bm25, scores.cosine, scores.reranker)
    return np.stack([np.zeros(len(scores.documents)) if each is None else min_max(each) for each in stages])


def fuse(scores: StageScores, weights: Weights, fusion: str = "convex") -> Array:
    """[N] the final score of each candidate, the higher the better.

    convex: the weighted sum of the scores, each scaled to 0..1 over the claim's candidates. rrf: the sum of
    1 / (60 + rank) over the stages with a weight above 0, whatever the weight is. Candidates that the re-ranker did not
    read come after those that it read, in the order of the first stage.
    """
    factors = np.array([weights.bm25, weights.cosine, weights.reranker])
    parts = scaled_scores(scores) if fusion == "convex" else reciprocal_ranks(scores)
    if fusion == "rrf":
        factors = (factors > 0).astype(float)
    (final,) = _sums(parts, factors[None], scores.reranker)
    return final  # type: ignore[no-any-return]


def _sums(parts: Array, factors: Array, reranker: Array | None) -> Array:
    """[G,N] the weighted sums of [3,N] parts by [G,3] factors; where a re-ranker counts, papers not read come last."""
    sums: Array = factors @ np.nan_to_num(parts)
    if reranker is not None:
        unread = np.isnan(reranker)[None] & (factors[:, 2:] > 0)  # [G,N]
        sums -= np.where(unread, factors[:, :2].sum(1, keepdims=True) + 1, 0.0)
    return sums.round(12)  # scores that differ by rounding only are equal


def reciprocal_ranks(scores: StageScores) -> Array:
    """[3,N] of each stage 1 / (60 + rank); 0 for candidates without a word of the claim, or not read."""
    rows = np.zeros((3, len(scores.documents)))
    for row, stage in zip(rows, (scores.bm25, scores.cosine, scores.reranker), strict=True):
        if stage is None:
            continue
        order = np.argsort(-np.nan_to_num(stage, nan=-np.inf), kind="stable")
        row[order] = 1 / (RANK_OFFSET + 1 + np.arange(len(order)))
        row[np.isnan(stage) if stage is scores.reranker else (stage == 0) & (stage is scores.bm25)] = 0
    return rows


@dataclass(frozen=True)
class FinalScore:
    """How the scores of all stages become one."""

    first: Weights
    """Of the first stage, whose best papers the re-ranker reads."""
    weights: Weights
    fusion: str = "convex"
    reads: int = READS
    """How many papers of each claim the re-ranker reads."""
    offset: float = 0.0
    """What the first stage's score is multiplied by before it is added to the re-ranker's, if it was trained so."""
    note: str = ""
    """What fitting decided, in a sentence."""

    def __post_init__(self) -> None:
        """Refuse an unknown fusion, and a re-ranker that reads nothing."""
        check_fusion(self.fusion)
        if self.reads < 1:
            raise InputError(f"reads {self.reads}: expected at least 1 paper for the re-ranker; {READS} is usual.")

    def __str__(self) -> str:
        """As it is printed."""
        names = {"bm25": "BM25", "cosine": "cosine", "reranker": "re-ranker"}
        used = [label for name, label in names.items() if getattr(self.weights, name)]
        if len(used) == 1:
            return used[0]
        return f"reciprocal rank fusion of {', '.join(used)}" if self.fusion == "rrf" else str(self.weights)

    @property
    def uses_reranker(self) -> bool:
        """Whether the re-ranker counts."""
        return self.weights.reranker > 0

    def to_read(self, scores: StageScores) -> list[int]:
        """The candidates that the re-ranker reads: the best of the first stage, by their number."""
        order: list[int] = np.argsort(-fuse(scores, self.first, self.fusion), kind="stable").tolist()
        return order[: self.reads]

    def with_reranker(self, scores: StageScores, read: Mapping[str, float]) -> StageScores:
        """The scores with those of the re-ranker, by document."""
        model = np.array([read.get(document, math.nan) for document in scores.documents])
        if self.offset:
            model = model + self.offset * fuse(replace(scores, reranker=None), self.first)
        return replace(scores, reranker=model)

    def scores(self, scores: StageScores) -> Array:
        """[N] the final score: of one stage as it is, of several as `fuse` says."""
        counts = [value > 0 for value in (self.weights.bm25, self.weights.cosine, self.weights.reranker)]
        stages = (scores.bm25, scores.cosine)
        if sum(counts) == 1 and not counts[2]:
            (alone,) = (stage for stage, used in zip(stages, counts[:2], strict=True) if used)
            return np.zeros(len(scores.documents)) if alone is None else alone
        return fuse(scores, self.weights, self.fusion)

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        more = {"reads": self.reads, "first": asdict(self.first)} if self.uses_reranker else {}
        return {"fusion": self.fusion, "weights": asdict(self.weights), **more, "note": self.note}


# -- fitting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Weights, and on what they were fitted."""

    weights: Weights
    first: Weights
    """Of the first stage, whose best papers the re-ranker reads."""
    measure: str
    claims: int
    """How many judged claims."""
    values: Mapping[str, float]
    """The measure on these claims: bm25, cosine, reranker (each alone), first (its stage) and final."""
    note: str
    """What was decided, in a sentence."""
    split: str | None = None
    """The split of the claims."""
    reads: int | None = None
    """How many papers of each claim the re-ranker read."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(replace(self, values=dict(self.values)))

    @classmethod
    def from_data(cls, data: Any) -> Fit:
        """What `as_data` returned."""
        try:
            parts = {name: Weights.from_data(data[name]) for name in ("weights", "first")}
            return cls(**{**data, **parts})
        except (KeyError, TypeError) as error:
            raise InputError(f"stored weights {data!r:.80} are damaged ({error}): fit them again.") from None


def fit_weights(
    scores: Mapping[str, StageScores],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    first: Weights | None = None,
    measure: str = "ndcg@10",
    split: str | None = None,
) -> Fit:
    """The weights with the best mean of a measure over judged claims, tried in twentieths.

    BM25, cosine and `first` alone are among those that are tried, so that on 20 claims or more the result is never
    worse there than any of them. Of equally good weights those nearest to `first` are taken. A re-ranker counts only if
    it improves the measure by more than one standard error of the paired differences, which keeps chance out; of
    equally good weights the one with the smallest share of the re-ranker is taken.

    Args:
        scores: of the candidates of each claim, by its id.
        qrels: claim -> document -> grade.
        first: weights of the first stage, kept if there are fewer than 20 judged claims; None: the fixed ones.
        measure: mrr, ndcg@10, or a recall such as recall@20.
        split: the name of the split, for the report.
    """
    if measure not in MEASURES:
        raise InputError(f"unknown measure {measure!r}: {choices(str(measure), MEASURES)}.")
    first = first or Weights()
    judged = [claim for claim in scores if any(grade > 0 for grade in qrels.get(claim, {}).values())]
    if not judged:
        raise InputError(f"none of the {len(scores)} claims is judged: fitting weights needs claims with answers.")
    dense = any(scores[claim].cosine is not None for claim in judged)
    reads = max((_read(scores[claim]) for claim in judged), default=0)
    grid = _grid(first, dense=dense, reranker=reads > 0)  # [G,3]
    values = np.stack([claim_values(scores[claim], qrels[claim], grid, measure) for claim in judged], 1)  # [G,C]
    means = values.mean(1).round(9)  # [G]
    default = np.array([first.bm25, first.cosine, first.reranker])
    distance = np.abs(grid / grid.sum(1, keepdims=True) - default / default.sum()).sum(1).round(9)

    def best(allowed: NDArray[np.bool_]) -> int:
        """The best of the grid; ties: the smallest share of the re-ranker, then nearest to `first`, then more BM25."""
        order = np.lexsort((-grid[:, 0], distance, grid[:, 2], -means))
        return int(order[allowed[order]][0])

    plain = grid[:, 2] == 0
    alone = best(plain)
    enough, chosen = len(judged) >= FEWEST_CLAIMS, alone
    if not enough:
        chosen = alone = len(grid) - 1  # `first`, which is the last of the grid
    note = _first_note(len(judged), enough=enough)
    if reads:
        helped = best(~plain)
        differences = values[helped] - values[alone]
        gain, error = float(differences.mean()), float(differences.std(ddof=1) / len(judged) ** 0.5) if enough else 0.0
        if enough and gain > error:
            chosen = helped
        note = _reranker_note(gain, error, measure, len(judged), helps=chosen == helped)
    corners = {"bm25": [1, 0, 0], "cosine": [0, 1, 0], "reranker": [0, 0, 1]}
    there = {"bm25": True, "cosine": dense, "reranker": reads > 0}
    rows = {name: int(np.flatnonzero((grid == corner).all(1))[0]) for name, corner in corners.items() if there[name]}
    rows |= {"first": len(grid) - 1, "final": chosen}
    about = {name: float(values[row].mean()) for name, row in rows.items()}
    weights = Weights(*(float(each) for each in grid[chosen]))
    return Fit(weights, first, measure, len(judged), about, note, split, reads or None)


def _read(scores: StageScores) -> int:
    return 0 if scores.reranker is None else int((~np.isnan(scores.reranker)).sum())


def _grid(first: Weights, *, dense: bool, reranker: bool) -> Array:
    """[G,3] all weights that sum to 1, in twentieths, without the stages that are missing, and at last `first`."""
    points = [
        (STEPS - cosine - model, cosine, model)
        for model in range(STEPS + 1 if reranker else 1)
        for cosine in range(STEPS + 1 - model if dense else 1)
    ]
    return np.array([*(np.array(points) / STEPS), (first.bm25, first.cosine, 0.0)])


def _first_note(claims: int, *, enough: bool) -> str:
    if enough:
        return f"the weights of BM25 and cosine are fitted on {claims} claims."
    return f"{claims} judged claims are fewer than {FEWEST_CLAIMS}: the weights are not fitted."


def _reranker_note(gain: float, error: float, measure: str, claims: int, *, helps: bool) -> str:
    if helps:
        return f"the re-ranker improves {measure} by {gain:.4f} over the first stage on {claims} claims."
    if claims < FEWEST_CLAIMS:
        return (
            f"the re-ranker is not used: whether it helps cannot be seen on {claims} judged claims; give at least "
            f"{FEWEST_CLAIMS}."
        )
    return (
        f"the re-ranker is not used: with it {measure} changes by {gain:+.4f} on {claims} claims, and more than its "
        f"standard error of {error:.4f} is needed."
    )


def claim_values(scores: StageScores, grades: Mapping[str, int], grid: Array, measure: str) -> Array:
    """[G] a measure of one claim under each of the weights; of equal scores the wrong candidate ranks first."""
    finals = _sums(scaled_scores(scores), grid, scores.reranker)  # [G,N]
    gains = np.array([max(0, grades.get(document, 0)) for document in scores.documents])  # [N]
    every = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    gold = np.flatnonzero(gains)  # [H]
    own = finals[:, gold]  # [G,H]
    ahead = (finals[:, None] > own[:, :, None]).sum(-1)
    ahead += ((finals[:, None] == own[:, :, None]) & (gains == 0)).sum(-1)
    ahead += np.tril(own[:, None] == own[:, :, None], -1).sum(-1)
    return _from_ranks(ahead + 1, gains[gold], every, measure)


def _from_ranks(ranks: NDArray[Any], gains: NDArray[Any], every: Sequence[int], measure: str) -> Array:
    """[G] a measure from the ranks [G,H] of the gold candidates and their grades [H]; `every`: all grades, sorted."""
    if not ranks.shape[1]:
        return np.zeros(len(ranks))
    if measure == "mrr":
        return np.asarray(1 / ranks.min(1))
    name, depth = measure.split("@")
    near = ranks <= int(depth)
    if name == "recall":
        return np.asarray(near.sum(1) / len(every))
    best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(every[: int(depth)], 1))
    return np.asarray((near * gains / np.log2(ranks + 1)).sum(1) / best)
