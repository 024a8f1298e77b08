"""Rankings against the definition of each measure, and the measures of validation against trec_eval."""

import math
import random
import re
import subprocess
import sys

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.metrics.ranking import MEASURES, RankingScores, parse_measures, ranking_scores_of, score_ranking

# Claim c1 has its answers at ranks 2 and 5, a third was not found; c2 is not in the run; of c3 nothing was found.
QRELS = {"c1": {"d2": 1, "d5": 2, "lost": 1, "d1": 0, "d3": -1}, "c2": {"x": 1}, "c3": {"y": 1}}
RUN = {"c1": {"d1": 9.0, "d2": 8.0, "d3": 7.5, "d4": 2.0, "d5": -1.0}, "c3": {"z": 1.0}, "other": {"d1": 1.0}}


def slow(grades, scores):
    """Every measure of one claim, by the definition; equal scores by the name of the document, the last one first."""
    gold = {document: grade for document, grade in grades.items() if grade > 0}
    ranking = sorted(scores, reverse=True)
    ranking.sort(key=lambda document: scores[document], reverse=True)  # stable
    ranks = [rank for rank, document in enumerate(ranking, 1) if document in gold]
    gain = sum(gold.get(document, 0) / math.log2(rank + 1) for rank, document in enumerate(ranking[:10], 1))
    best = sum(
        grade / math.log2(rank + 1) for rank, grade in enumerate(sorted(gold.values(), reverse=True)[:10], start=1)
    )
    recalls = {f"recall@{k}": sum(rank <= k for rank in ranks) / len(gold) for k in (1, 3, 5, 20)}
    return {"mrr": 1 / ranks[0] if ranks else 0.0, **recalls, "ndcg@10": gain / best}


def made_up(seed, ties=False):
    """Judgements and a run of 40 claims: few and many candidates, answers among them, outside, both or neither."""
    chance = random.Random(seed)
    qrels, run = {}, {}
    for claim in (f"q{number}" for number in range(40)):
        documents = [f"d{chance.randint(0, 99)}é{place}" for place in range(chance.randint(1, 60))]
        answers = chance.sample(documents, min(len(documents), chance.choice([0, 0, 1, 1, 2, 15])))
        qrels[claim] = {name: chance.choice([0, -1]) for name in chance.sample(documents, len(documents) // 5)}
        qrels[claim] |= {name: chance.choice([1, 1, 2, 3]) for name in answers}
        qrels[claim] |= {f"lost{place}": 1 for place in range(chance.randint(0, 2))}
        run[claim] = {name: chance.randint(0, 4) * 1.0 if ties else chance.gauss(0, 1) for name in documents}
    return qrels, run


# -- score_ranking -----------------------------------------------------------------------------------------------------


def test_three_claims_by_hand():
    scores = score_ranking(QRELS, RUN)
    gain = 1 / math.log2(3) + 2 / math.log2(6)
    best = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    first = {"mrr": 1 / 2, "recall@1": 0, "recall@3": 1 / 3, "recall@5": 2 / 3, "recall@20": 2 / 3}
    assert scores.per_query["c1"] == pytest.approx({**first, "ndcg@10": gain / best})
    assert scores.per_query["c2"] == scores.per_query["c3"] == dict.fromkeys(MEASURES, 0.0)
    assert list(scores.per_query) == ["c1", "c2", "c3"]
    assert scores.reachable == ("c1",)
    assert scores.found == pytest.approx(scores.per_query["c1"])
    assert scores.strict == pytest.approx({name: value / 3 for name, value in scores.per_query["c1"].items()})
    data = scores.as_data()
    assert RankingScores(data["per_query"], tuple(data["reachable"]), data["found"], data["strict"]) == scores
    assert scores.summary() == {"claims": 3, "claims_reachable": 1, "found": scores.found, "strict": scores.strict}


@pytest.mark.parametrize("ties", [False, True])
def test_every_claim_is_scored_by_the_definition(ties):
    qrels, run = made_up(1, ties)
    scores = score_ranking(qrels, run)
    judged = [claim for claim, grades in qrels.items() if max(grades.values(), default=0) > 0]
    assert 30 < len(judged) < 40
    assert list(scores.per_query) == judged
    for claim in judged:
        assert scores.per_query[claim] == pytest.approx(slow(qrels[claim], run[claim]))
    reachable = [claim for claim in judged if any(qrels[claim].get(document, 0) > 0 for document in run[claim])]
    assert 10 < len(reachable) < len(judged)
    assert scores.reachable == tuple(reachable)
    for name in MEASURES:
        values = {claim: row[name] for claim, row in scores.per_query.items()}
        assert scores.strict[name] == pytest.approx(np.mean(list(values.values())))
        assert scores.found[name] == pytest.approx(np.mean([values[claim] for claim in reachable]))


def test_scores_that_differ_beyond_single_precision_are_no_tie():
    """And of equal scores the last name ranks first."""
    run = {"q": {"a": 1.0, "b": 1.0}}
    assert [score_ranking({"q": {name: 1}}, run).strict["mrr"] for name in "ab"] == [0.5, 1]
    for better, worse in (("a", "b"), ("b", "a")):
        scores = score_ranking({"q": {better: 1}}, {"q": {better: 1 + 1e-12, worse: 1.0}})
        assert scores.strict["mrr"] == 1


def test_nothing_reachable_leaves_only_the_strict_average():
    for run in ({}, {"c1": {}}, {"c3": {"z": 1.0}}):
        scores = score_ranking(QRELS, run)
        assert (scores.reachable, scores.found) == ((), None)
        assert scores.strict == dict.fromkeys(MEASURES, 0.0)


@pytest.mark.parametrize(
    ("qrels", "run", "words"),
    [
        ({"c": {"d": 0, "e": -2}}, RUN, "none of the 1 judged claims .* grade above 0"),
        ({"c": {"d": 2_000_000_000}}, RUN, "claim 'c' has the grade 2000000000: expected at most 10000"),
        (QRELS, {"c1": {"d1": 1.0, "d2": math.nan}}, "claim 'c1' has a score that is not a number"),
    ],
)
def test_what_cannot_be_ranked_is_refused(qrels, run, words):
    with pytest.raises(InputError, match=words):
        score_ranking(qrels, run)


# -- ranking_scores_of -------------------------------------------------------------------------------------------------


def pairs_of(qrels, run, seed=0):
    """The candidates as pairs, shuffled: logits, labels and groups."""
    pairs = [(run[c][d], float(qrels.get(c, {}).get(d, 0) > 0), c) for c in run for d in run[c]]
    random.Random(seed).shuffle(pairs)
    logits, labels, groups = zip(*pairs, strict=True)
    return np.array(logits), np.array(labels), list(groups)


def test_validation_agrees_with_trec_eval():
    qrels, run = made_up(5)
    qrels = {claim: {name: min(grade, 1) for name, grade in grades.items()} for claim, grades in qrels.items()}
    del run["q0"], run["q1"]  # claims without candidates
    qrels["q2"] = {}  # a claim without judgement
    gold = {claim: sum(grade > 0 for grade in grades.values()) for claim, grades in qrels.items()}
    expected = score_ranking(qrels, run).strict
    assert list(expected) == list(MEASURES)
    assert ranking_scores_of(*pairs_of(qrels, run, seed=5), gold=gold) == pytest.approx(expected)
    without_zero = {claim: number for claim, number in gold.items() if number}
    assert ranking_scores_of(*pairs_of(qrels, run), gold=without_zero) == pytest.approx(expected)


def test_a_tie_counts_as_the_worst_order():
    logits, labels = np.zeros(4), np.array([1, 0, 0, 1])
    scores = ranking_scores_of(logits, labels, ["q"] * 4)
    assert scores["mrr"] == pytest.approx(1 / 3)
    assert scores["recall@1"] == 0
    assert scores["recall@3"] == 0.5
    assert scores == ranking_scores_of(logits, labels[::-1], ["q"] * 4)


@pytest.mark.parametrize(
    ("logits", "labels", "gold", "words"),
    [
        ([[0.0], [0.0]], [0, 0], None, "expected one of each for every pair"),
        ([1.0, math.nan], [1, 0], None, "1 of 2 logits are not numbers"),
        ([1.0, 2.0], [1, 1], {"a": 1}, "claim 'a' has 2 gold documents among its candidates but 1"),
        ([1.0, 2.0], [0, 0], {"a": 0}, "none of the 1 claims has a gold document"),
    ],
)
def test_pairs_that_cannot_be_ranked_are_refused(logits, labels, gold, words):
    with pytest.raises(InputError, match=words):
        ranking_scores_of(np.array(logits), np.array(labels), "aa", gold=gold)


def test_validation_needs_neither_ir_measures_nor_scipy():
    code = (
        "import sys; sys.modules['ir_measures'] = sys.modules['scipy'] = None\n"
        "from headwise.metrics.ranking import ranking_scores_of, score_ranking\n"
        "ranking_scores_of([1.0], [1], ['q'])\n"
        "try: score_ranking({'q': {'d': 1}}, {})\n"
        "except ValueError as error: sys.stdout.write(str(error))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'headwise[retrieval]'" in done.stdout


def test_measures_in_the_notation_of_ir_measures():
    qrels = {"a": {"d": 1, "e": 2, "f": 0}, "b": {"d": 1}}
    run = {"a": {"d": 3.0, "f": 2.0, "e": 1.0}, "b": {"x": 1.0}}
    names = parse_measures("nDCG@10 RR, mrr R(rel=2)@1 AP(rel=2)\tJudged@2 RR")
    assert names == ("nDCG@10", "RR", "mrr", "R(rel=2)@1", "AP(rel=2)", "Judged@2")
    scores, usual = score_ranking(qrels, run, names), score_ranking(qrels, run)
    # Of claim a the one document with grade 2 is third, and both of the first two are judged; b has no hit at all.
    expected = {"RR": 0.5, "mrr": 0.5, "R(rel=2)@1": 0.0, "AP(rel=2)": (1 / 3) / 2, "Judged@2": 0.5}
    assert scores.strict == pytest.approx({"nDCG@10": usual.strict["ndcg@10"], **expected})
    assert scores.reachable == usual.reachable
    assert tuple(usual.strict) == MEASURES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RR nDGC@5", "unknown measure 'nDGC@5': did you mean 'nDCG@5'? expected the notation of ir-measures"),
        ("mmr", "did you mean 'mrr'?"),
        ("R", "it needs a depth, as in R@10"),
        ("RBP(p=0.8)", "no installed library computes it"),
        ("RR(", "unknown measure 'RR('"),
        (" , ", "names none"),
    ],
)
def test_unknown_measures_are_refused(text, words):
    with pytest.raises(InputError, match=re.escape(words)):
        parse_measures(text)
