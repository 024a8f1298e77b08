"""How high the gold documents of claims rank.

For a claim whose gold documents (grade above 0) have the ranks r among its candidates, counted from 1:

    mrr        1 / the smallest r, 0 if there is none
    recall@k   how many r are at most k / all gold documents of the claim, retrieved or not
    ndcg@10    sum of grade / log2(r + 1) over r up to 10 / the same sum in the best possible order

Gold documents that are not among the candidates count in the denominators. Other measures are those of ir-measures, in
its notation, such as nDCG@5 or AP(rel=2).

Shapes: N pairs of a claim and a candidate, G groups (claims), H gold documents among the candidates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from subprocess import SubprocessError
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
    """The scores of a ranking, claim by claim and in two averages.

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
        """Average values that are known claim by claim, such as means over seeds."""
        if not per_query:
            raise InputError("the values of no claim have no mean: expected at least one claim.")
        values, reachable = {claim: dict(row) for claim, row in per_query.items()}, tuple(reachable)

        def means(claims: Sequence[str]) -> dict[str, float]:
            names = next(iter(values.values()))
            return {name: math.fsum(values[claim][name] for claim in claims) / len(claims) for name in names}

        return cls(values, reachable, means(reachable) if reachable else None, means(list(values)))

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        averages = {"found": self.found, "strict": self.strict}
        return {**averages, "reachable": list(self.reachable), "per_query": self.per_query}

    def summary(self) -> dict[str, Any]:
        """The averages and over how many claims they go, ready for JSON."""
        counts = {"claims": len(self.per_query), "claims_reachable": len(self.reachable)}
        return {**counts, "found": self.found, "strict": self.strict}


def parse_measures(text: str) -> tuple[str, ...]:
    """The measures in a text such as "nDCG@10 RR AP(rel=2)": ours by their names, others in ir-measures notation."""
    names = tuple(dict.fromkeys(each for each in re.split(r"[\s,]+(?![^()]*\))", text) if each))
    if not names:
        raise InputError(f"measures={text!r} names none: expected some, such as 'nDCG@10 RR R@20 AP(rel=2)'.")
    for name in names:
        _measure(name)
    return names


def _measure(name: str) -> Any:
    """The measure of ir-measures with this name."""
    try:
        import ir_measures
    except ImportError:
        raise InputError(
            "measures of rankings need ir-measures: install it by pip install 'headwise[retrieval]'."
        ) from None
    own = {"mrr": ir_measures.RR, f"ndcg@{DEEPEST_GAIN}": ir_measures.nDCG @ DEEPEST_GAIN}
    own |= {f"recall@{depth}": ir_measures.R @ depth for depth in DEPTHS}
    if name in own:
        return own[name]
    try:
        measure: Any = ir_measures.parse_measure(name)
        pipeline: Any = ir_measures.DefaultPipeline
        measure.validate_params()
        if not pipeline.supports(measure):
            raise ValueError("no installed library computes it")
    except (NameError, ValueError, AssertionError, TypeError) as error:
        # The nearest name, with the numbers that were asked for.
        base, rest = re.fullmatch(r"(\w*)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
        known = [each for each, value in vars(ir_measures).items() if isinstance(value, ir_measures.Measure)]
        near = [] if base in known else get_close_matches(base, [*known, "mrr"], n=1)
        hint = f"did you mean {near[0] + rest!r}? " if near else ""
        missing = "<object" in str(error)  # stands for a parameter without a default
        reason = f"it needs a depth, as in {base}@10" if missing else " ".join(str(error).split())
        reason = "" if near else f" ({reason})"
        raise InputError(
            f"unknown measure {name!r}{reason}: {hint}expected the notation of ir-measures, such as nDCG@10, RR, R@20 "
            f"or AP(rel=2), or {', '.join(MEASURES)}."
        ) from None
    return measure


def score_ranking(qrels: Grades, run: Scores, measures: Sequence[str] = MEASURES) -> RankingScores:
    """Score a ranking with trec_eval, through ir-measures.

    Only the scores decide the order. Of documents with equal scores, the one whose name comes later in the alphabet
    ranks first, as in trec_eval. Unlike trec_eval we compare scores in double precision; it rounds them to about seven
    digits first, which creates further ties.

    Args:
        qrels: claim -> document -> grade; 0 and below are no answers, and claims without an answer are left out.
        run: claim -> candidate -> score, the higher the better. Claims that are not judged are ignored; judged
            claims that are missing here count 0 in every measure.
        measures: their names; see `parse_measures`.

    Returns:
        The scores; claims in the order of `qrels`.
    """
    gold, judged = {}, {}
    for claim, grades in qrels.items():
        answers = {document: grade for document, grade in grades.items() if grade > 0}
        largest = max(answers.values(), default=0)
        if largest > LARGEST_GRADE:
            raise InputError(
                f"a document of claim {claim!r} has the grade {largest}: expected at most {LARGEST_GRADE}; 1 for an "
                "answer and 0 for none is usual."
            )
        if answers:
            gold[claim] = answers
            judged[claim] = {document: max(grade, 0) for document, grade in grades.items()}
    if not gold:
        raise InputError(
            f"none of the {len(qrels)} judged claims has a document with a grade above 0: expected at least one, else "
            "there is nothing to find; check that these are the judgements you mean."
        )
    ranked = {}
    for claim in gold:
        scores = run.get(claim) or {}
        if any(math.isnan(score) for score in scores.values()):
            raise InputError(
                f"a candidate of claim {claim!r} has a score that is not a number, so it has no rank: score it again."
            )
        order = sorted(scores, key=lambda document: (scores[document], document), reverse=True)
        # Minus their ranks for scores: numbers that differ in single precision too.
        ranked[claim] = {document: -float(rank) for rank, document in enumerate(order, start=1)}
    parsed = {name: _measure(name) for name in measures}
    import ir_measures

    per_query = {claim: dict.fromkeys(measures, 0.0) for claim in gold}
    runs = {claim: each for claim, each in ranked.items() if each}
    try:
        for metric in ir_measures.iter_calc(list({*parsed.values()}), judged, runs):
            names = [name for name, measure in parsed.items() if measure == metric.measure]  # mrr and RR are the same
            per_query[metric.query_id].update(dict.fromkeys(names, float(metric.value)))
    except (ValueError, OSError, RuntimeError, AssertionError, SubprocessError) as error:
        raise InputError(
            f"ir-measures cannot compute {', '.join(measures)} ({' '.join(str(error).split())[:200]}): choose other "
            "measures."
        ) from None
    return RankingScores.of(per_query, [claim for claim in gold if not gold[claim].keys().isdisjoint(ranked[claim])])


def ranking_scores_of(
    logits: Array, labels: Array, groups: Sequence[str], *, gold: Mapping[str, int] | None = None
) -> dict[str, float]:
    """The measures by name over all groups (strict), without ir-measures, for validation while training.

    Where scores are equal the ranking is the worst possible one, so that a model that gives every pair the same score
    does not look good. Otherwise this is `strict` of `score_ranking` for grades of 0 and 1.

    Args:
        logits: [N] scores of the pairs, the higher the better.
        labels: [N] above 0 where the candidate answers its claim; all answers count alike.
        groups: [N] the claim of each pair, in any order.
        gold: how many gold documents each claim has, candidates or not. Claims that it lacks, or to which it gives 0,
            are left out; claims without candidates count 0. By default, the gold documents are those among the
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
    """The measures of every claim that has a gold document; `ranking_scores_of` gives their means.

    Args:
        logits: [N] scores of the pairs.
        labels: [N] above 0 where the candidate answers its claim.
        groups: [N] the claim of each pair.
        gold: how many gold documents each claim has; the order of the claims.
    """
    names, values = _by_group(logits, labels, groups, gold)
    rows = {name: {measure: float(each[at]) for measure, each in values.items()} for at, name in enumerate(names)}
    return {claim: rows.get(claim) or dict.fromkeys(MEASURES, 0.0) for claim, number in gold.items() if number > 0}


def _by_group(
    logits: Array, labels: Array, groups: Sequence[str], gold: Mapping[str, int] | None
) -> tuple[Array, dict[str, Array]]:
    """[G] the claims with candidates, and of each measure [G] their values."""
    logits, labels = np.asarray(logits), np.asarray(labels)
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
    names, codes = np.unique(np.array(list(groups), dtype=object), return_inverse=True)  # [G], [N]
    count, answers = len(names), labels > 0
    order = np.lexsort((answers, -logits, codes))  # by group, then the best first, then the wrong ones first
    is_answer, sorted_codes = answers[order], codes[order]
    starts = np.searchsorted(sorted_codes, np.arange(count))
    ranks = (np.arange(len(order)) - starts[sorted_codes] + 1)[is_answer]  # [H] of the answers in their groups
    owners = sorted_codes[is_answer]  # [H] and these groups
    totals = np.bincount(owners, minlength=count)  # [G] gold documents
    if gold is not None:
        if not any(number > 0 for number in gold.values()):
            raise InputError(
                f"none of the {len(gold)} claims has a gold document: expected at least one, else there is nothing to "
                "find; check the counts."
            )
        inside, totals = totals, np.array([gold.get(name, 0) for name in names])
        if (totals < inside).any():
            first = int((totals < inside).argmax())
            raise InputError(
                f"claim {names[first]!r} has {inside[first]} gold documents among its candidates but {totals[first]} "
                "altogether: expected as many or more; count the gold of every claim."
            )
    totals = np.maximum(totals, 1)  # a claim without gold has 0 of it, not 0/0
    gains = 1 / np.log2(np.arange(1, DEEPEST_GAIN + 1) + 1)  # of ranks 1 to 10
    best = np.cumsum(gains)[np.minimum(totals, DEEPEST_GAIN) - 1]  # [G]
    reciprocal = np.zeros(count)
    np.maximum.at(reciprocal, owners, 1 / ranks)
    recalls = [np.bincount(owners[ranks <= depth], minlength=count) / totals for depth in DEPTHS]
    high = ranks <= DEEPEST_GAIN
    gained = np.bincount(owners[high], weights=gains[ranks[high] - 1], minlength=count)
    return names, dict(zip(MEASURES, [reciprocal, *recalls, gained / best], strict=True))
