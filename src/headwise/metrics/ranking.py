"""How high the answers of claims stand in a ranking.

Of a claim whose gold documents (grade above 0) stand at the ranks r of its candidates, counted from 1:

    mrr        1 / the smallest r, 0 if there is none
    recall@k   how many r are at most k / all gold documents of the claim, found or not
    ndcg@10    sum of grade / log2(r + 1) over r up to 10 / the same sum in the best possible order

Gold documents that are not among the candidates count in the denominators.

Shapes: N pairs of a claim and a candidate, G groups (claims), H gold documents among the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError

MEASURES = ("mrr", "recall@1", "recall@3", "recall@5", "recall@20", "ndcg@10")
# trec_eval sets aside memory for every grade up to the largest.
LARGEST_GRADE = 10_000
DEPTHS = (1, 3, 5, 20)
DEEPEST_GAIN = 10

Grades = Mapping[str, Mapping[str, int]]
Scores = Mapping[str, Mapping[str, float]]
Array = NDArray[Any]


@dataclass(frozen=True)
class RankingScores:
    """What a ranking is worth, claim by claim and in two averages.

    The authors of Cross-genre-IR average over the claims that a re-ranker can get right (`found`). That hides what the
    first stage missed, so the average over all claims (`strict`) stands beside it.
    """

    per_query: dict[str, dict[str, float]]
    """Claim -> measure -> value, of every claim that has a gold document; 0 where the ranking lacks the claim."""
    reachable: tuple[str, ...]
    """The claims with a gold document among their candidates."""
    found: dict[str, float] | None
    """Means over the reachable claims; None if there is none."""
    strict: dict[str, float]
    """Means over all claims."""

    @classmethod
    def of(cls, per_query: Mapping[str, Mapping[str, float]], reachable: Iterable[str]) -> RankingScores:
        """Take the two averages of values that are known claim by claim, such as means over seeds."""
        if not per_query:
            raise InputError("the values of no claim have no mean: expected at least one claim.")
        values, reachable = {claim: dict(row) for claim, row in per_query.items()}, tuple(reachable)
        return cls(values, reachable, _means(values, reachable) if reachable else None, _means(values, values))

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        averages = {"found": self.found, "strict": self.strict}
        return {**averages, "reachable": list(self.reachable), "per_query": self.per_query}

    def summary(self) -> dict[str, Any]:
        """The averages and over how many claims they go, ready for JSON."""
        counts = {"claims": len(self.per_query), "claims_reachable": len(self.reachable)}
        return {**counts, "found": self.found, "strict": self.strict}


def score_ranking(qrels: Grades, run: Scores) -> RankingScores:
    """Score a ranking with trec_eval, by way of ir-measures.

    Only scores decide the order, whatever order they are given in. Of documents with equal scores, the one whose name
    comes later in the alphabet stands first: arbitrary, but so does trec_eval. Unlike trec_eval we compare scores in
    double precision; it rounds them to about seven digits first, which makes ties of its own.

    Args:
        qrels: claim -> document -> grade; 0 and below are no answers, and claims without an answer are left out.
        run: claim -> candidate -> score, the higher the better. Claims that are not judged are passed over; judged
            claims that are missing here count 0 in every measure.

    Returns:
        The scores; claims in the order of `qrels`.
    """
    gold = _gold(qrels)
    ranked = {claim: _ranked(claim, run[claim]) for claim in gold if run.get(claim)}
    per_query = _per_query(gold, ranked)
    reachable = tuple(claim for claim in gold if not gold[claim].keys().isdisjoint(ranked.get(claim, {})))
    return RankingScores.of(per_query, reachable)


def ranking_scores_of(
    logits: Array, labels: Array, groups: Sequence[str], *, gold: Mapping[str, int] | None = None
) -> dict[str, float]:
    """The measures by name over all groups (strict), without ir-measures, for validation while training.

    Where scores are equal the ranking is the worst possible one: a model that gives every pair the same score is not
    to look good. Otherwise this is `strict` of `score_ranking` for grades of 0 and 1.

    Args:
        logits: [N] scores of the pairs, the higher the better.
        labels: [N] above 0 where the candidate answers its claim; all answers count alike.
        groups: [N] the claim of each pair, in any order.
        gold: how many gold documents each claim has, candidates or not. Claims that it lacks, or to which it gives 0,
            are left out; claims without candidates count 0. If not given, the gold documents are those among the
            candidates, and a claim without any counts 0.

    Returns:
        Mean over the claims of each of MEASURES.
    """
    names, values = _by_group(logits, labels, groups, gold)
    count = len(names) if gold is None else sum(number > 0 for number in gold.values())
    return {name: float(each.sum() / count) for name, each in values.items()}


def ranking_per_query(
    logits: Array, labels: Array, groups: Sequence[str], *, gold: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """The measures of every claim that has a gold document, whose means `ranking_scores_of` gives.

    Args:
        logits: [N] scores of the pairs.
        labels: [N] above 0 where the candidate answers its claim.
        groups: [N] the claim of each pair.
        gold: how many gold documents each claim has; the order of the claims.
    """
    names, values = _by_group(logits, labels, groups, gold)
    rows = {name: {measure: float(each[place]) for measure, each in values.items()} for place, name in enumerate(names)}
    return {claim: rows.get(claim) or dict.fromkeys(MEASURES, 0.0) for claim, number in gold.items() if number > 0}


def _by_group(
    logits: Array, labels: Array, groups: Sequence[str], gold: Mapping[str, int] | None
) -> tuple[Array, dict[str, Array]]:
    """[G] the claims with candidates, and of each measure [G] their values."""
    logits, labels = np.asarray(logits), np.asarray(labels)
    _check(logits, labels, groups)
    names, codes = np.unique(np.array(list(groups), dtype=object), return_inverse=True)  # [G], [N]
    ranks, owners = _ranks_of_answers(logits, labels > 0, codes)  # [H], [H]
    answers = np.bincount(owners, minlength=len(names))  # [G]
    totals = answers if gold is None else _totals(names, answers, gold)
    return names, _values(ranks, owners, np.maximum(totals, 1))  # 1: a claim without gold has 0 of it, not 0/0


def _means(per_query: Mapping[str, Mapping[str, float]], claims: Iterable[str]) -> dict[str, float]:
    rows = [per_query[claim] for claim in claims]
    return {name: math.fsum(row[name] for row in rows) / len(rows) for name in MEASURES}


def _gold(qrels: Grades) -> dict[str, dict[str, int]]:
    answers = {
        claim: {document: grade for document, grade in grades.items() if grade > 0} for claim, grades in qrels.items()
    }
    gold = {claim: grades for claim, grades in answers.items() if grades}
    if not gold:
        raise InputError(
            f"none of the {len(qrels)} judged claims has a document with a grade above 0: expected at least one, else "
            "there is nothing to find; check that these are the judgements you mean."
        )
    claim, grade = max(((claim, max(grades.values())) for claim, grades in gold.items()), key=lambda each: each[1])
    if grade > LARGEST_GRADE:
        raise InputError(
            f"a document of claim {claim!r} has the grade {grade}: expected at most {LARGEST_GRADE}; 1 for an answer "
            "and 0 for none is usual."
        )
    return gold


def _ranked(claim: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Candidates with minus their ranks for scores, which single precision can tell apart."""
    if any(math.isnan(score) for score in scores.values()):
        raise InputError(
            f"a candidate of claim {claim!r} has a score that is not a number, so it has no rank: score it again."
        )
    order = sorted(scores, key=lambda document: (scores[document], document), reverse=True)
    return {document: -float(rank) for rank, document in enumerate(order, start=1)}


def _per_query(gold: dict[str, dict[str, int]], ranked: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    try:
        import ir_measures
    except ImportError:
        raise InputError(
            "measures of rankings need ir-measures: install it by pip install 'headwise[retrieval]'."
        ) from None
    measures = [ir_measures.RR, *(ir_measures.R @ depth for depth in DEPTHS), ir_measures.nDCG @ DEEPEST_GAIN]
    names = dict(zip(measures, MEASURES, strict=True))
    per_query = {claim: dict.fromkeys(MEASURES, 0.0) for claim in gold}
    for metric in ir_measures.iter_calc(measures, gold, ranked):
        per_query[metric.query_id][names[metric.measure]] = float(metric.value)
    return per_query


def _check(logits: Array, labels: Array, groups: Sequence[str]) -> None:
    if not (logits.ndim == labels.ndim == 1 and len(logits) == len(labels) == len(groups) > 0):
        raise InputError(
            f"logits of shape {logits.shape}, labels of shape {labels.shape} and {len(groups)} groups: expected one of "
            "each for every pair, at least one pair; of logits [N,1] take the only column."
        )
    if np.isnan(logits).any():
        raise InputError(
            f"{int(np.isnan(logits).sum())} of {len(logits)} logits are not numbers, so they cannot be ranked: check "
            "the training, for example with a smaller learning rate."
        )


def _ranks_of_answers(logits: Array, answers: Array, codes: Array) -> tuple[Array, Array]:
    """[H] the rank of every gold document within its group, and [H] its group."""
    order = np.lexsort((answers, -logits, codes))  # by group, then the best first, then the wrong ones first
    owners, starts = codes[order], np.searchsorted(codes[order], np.arange(codes.max() + 1))
    ranks = np.arange(len(order)) - starts[owners] + 1  # [N]
    return ranks[answers[order]], owners[answers[order]]


def _totals(names: Array, answers: Array, gold: Mapping[str, int]) -> Array:
    """[G] how many gold documents each group has."""
    if not any(number > 0 for number in gold.values()):
        raise InputError(
            f"none of the {len(gold)} claims has a gold document: expected at least one, else there is nothing to "
            "find; check the counts."
        )
    totals = np.array([gold.get(name, 0) for name in names])
    if (totals < answers).any():
        place = int((totals < answers).argmax())
        raise InputError(
            f"claim {names[place]!r} has {answers[place]} gold documents among its candidates but {totals[place]} "
            "altogether: expected as many or more; count the gold of every claim."
        )
    return totals


def _values(ranks: Array, owners: Array, totals: Array) -> dict[str, Array]:
    """[G] for every measure, of groups with these numbers of gold documents."""
    groups = len(totals)
    gains = 1 / np.log2(np.arange(1, DEEPEST_GAIN + 1) + 1)  # of ranks 1 to 10
    best = np.cumsum(gains)[np.minimum(totals, DEEPEST_GAIN) - 1]  # [G]
    first = np.zeros(groups)
    np.maximum.at(first, owners, 1 / ranks)
    recalls = [np.bincount(owners[ranks <= depth], minlength=groups) / totals for depth in DEPTHS]
    high = ranks <= DEEPEST_GAIN
    gained = np.bincount(owners[high], weights=gains[ranks[high] - 1], minlength=groups)
    return dict(zip(MEASURES, [first, *recalls, gained / best], strict=True))
