import math
import random
import subprocess
import sys

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.metrics import MEASURES, RankingScores, ranking_scores_of, score_ranking

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


def test_a_case_worked_by_hand():
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


@pytest.mark.parametrize(
    "transform", [lambda x: 1e9 + 5 * x, math.atan, lambda x: x / 1e30], ids=["far", "atan", "tiny"]
)
def test_only_the_order_of_scores_counts(transform):
    qrels, run = made_up(2)
    moved = {claim: {name: transform(score) for name, score in found.items()} for claim, found in run.items()}
    assert score_ranking(qrels, moved) == score_ranking(qrels, run)


def test_the_order_in_which_candidates_are_given_counts_for_nothing():
    qrels, run = made_up(3, ties=True)
    turned = {claim: dict(reversed(found.items())) for claim, found in reversed(run.items())}
    assert score_ranking(qrels, turned) == score_ranking(qrels, run)


def test_scores_that_differ_beyond_single_precision_are_no_tie():
    for better, worse in (("a", "b"), ("b", "a")):
        scores = score_ranking({"q": {better: 1}}, {"q": {better: 1 + 1e-12, worse: 1.0}})
        assert scores.strict["mrr"] == 1


def test_of_equal_scores_the_last_name_stands_first():
    run = {"q": {"a": 1.0, "b": 1.0}}
    assert score_ranking({"q": {"a": 1}}, run).strict["mrr"] == 0.5
    assert score_ranking({"q": {"b": 1}}, run).strict["mrr"] == 1


def test_wrong_candidates_below_all_others_change_nothing():
    qrels, run = made_up(4)
    longer = {claim: {**found, **{f"more{n}": -99.0 - n for n in range(30)}} for claim, found in run.items()}
    assert score_ranking(qrels, longer) == score_ranking(qrels, run)


def test_an_answer_that_was_not_found_lowers_recall_but_not_mrr():
    more = {**QRELS, "c1": {**QRELS["c1"], "lost as well": 1}}
    before, after = (score_ranking(qrels, RUN).per_query["c1"] for qrels in (QRELS, more))
    assert after["mrr"] == before["mrr"]
    assert after["recall@5"] == pytest.approx(before["recall@5"] * 3 / 4)
    assert after["ndcg@10"] < before["ndcg@10"]


def test_nothing_reachable_leaves_only_the_strict_average():
    for run in ({}, {"c1": {}}, {"c3": {"z": 1.0}}):
        scores = score_ranking(QRELS, run)
        assert (scores.reachable, scores.found) == ((), None)
        assert scores.strict == dict.fromkeys(MEASURES, 0.0)


@pytest.mark.parametrize("qrels", [{}, {"c": {"d": 0, "e": -2}}])
def test_judgements_without_an_answer_are_refused(qrels):
    with pytest.raises(InputError, match=rf"none of the {len(qrels)} judged claims .* grade above 0"):
        score_ranking(qrels, RUN)


def test_a_grade_that_would_fill_the_memory_is_refused():
    with pytest.raises(InputError, match="claim 'c' has the grade 2000000000: expected at most 10000"):
        score_ranking({"c": {"d": 2_000_000_000}}, {"c": {"d": 1.0}})


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(InputError, match="claim 'c1' has a score that is not a number"):
        score_ranking(QRELS, {"c1": {"d1": 1.0, "d2": math.nan}})


def test_plain_data_holds_everything():
    scores = score_ranking(QRELS, RUN)
    data = scores.as_data()
    assert RankingScores(data["per_query"], tuple(data["reachable"]), data["found"], data["strict"]) == scores
    assert scores.summary() == {
        "claims": 3, "claims_reachable": 1, "found": scores.found, "strict": scores.strict
    }  # fmt: skip
    assert RankingScores.of(scores.per_query, scores.reachable) == scores


def test_no_claims_have_no_mean():
    with pytest.raises(InputError, match="at least one claim"):
        RankingScores.of({}, [])


# -- ranking_scores_of -------------------------------------------------------------------------------------------------


def pairs_of(qrels, run, seed=0):
    """The candidates as pairs, shuffled: logits, labels and groups."""
    pairs = [(run[c][d], float(qrels.get(c, {}).get(d, 0) > 0), c) for c in run for d in run[c]]
    random.Random(seed).shuffle(pairs)
    logits, labels, groups = zip(*pairs, strict=True)
    return np.array(logits), np.array(labels), list(groups)


def binary(seed):
    qrels, run = made_up(seed)
    return {claim: {name: min(grade, 1) for name, grade in grades.items()} for claim, grades in qrels.items()}, run


def test_validation_agrees_with_trec_eval():
    seed = 5
    qrels, run = binary(seed)
    del run["q0"], run["q1"]  # claims without candidates
    qrels["q2"] = {}  # a claim without judgement
    gold = {claim: sum(grade > 0 for grade in grades.values()) for claim, grades in qrels.items()}
    expected = score_ranking(qrels, run).strict
    assert list(expected) == list(MEASURES)
    assert ranking_scores_of(*pairs_of(qrels, run, seed), gold=gold) == pytest.approx(expected)
    without_zero = {claim: number for claim, number in gold.items() if number}
    assert ranking_scores_of(*pairs_of(qrels, run), gold=without_zero) == pytest.approx(expected)


def test_without_gold_the_candidates_are_all_there_is():
    qrels, run = binary(7)
    inside = {c: {d: grade for d, grade in qrels[c].items() if d in run[c]} for c in run}
    scores = score_ranking(inside, run)
    share = len(scores.per_query) / len(run)
    assert share < 1  # claims without an answer among the candidates count 0
    found = ranking_scores_of(*pairs_of(qrels, run))
    assert found == pytest.approx({name: value * share for name, value in scores.strict.items()})


def test_a_tie_counts_as_the_worst_order():
    logits, labels = np.zeros(4), np.array([1, 0, 0, 1])
    scores = ranking_scores_of(logits, labels, ["q"] * 4)
    assert scores["mrr"] == pytest.approx(1 / 3)
    assert scores["recall@1"] == 0
    assert scores["recall@3"] == 0.5
    assert scores == ranking_scores_of(logits, labels[::-1], ["q"] * 4)


def test_whole_numbers_and_many_answers_are_fine():
    scores = ranking_scores_of(np.arange(30), np.ones(30, dtype=int), ["q"] * 30)
    assert scores == pytest.approx(
        {"mrr": 1, "recall@1": 1 / 30, "recall@3": 0.1, "recall@5": 1 / 6, "recall@20": 2 / 3, "ndcg@10": 1}
    )


@pytest.mark.parametrize(
    ("logits", "labels", "groups"),
    [
        (np.zeros((2, 1)), np.zeros(2), "ab"),
        (np.zeros(2), np.zeros(3), "ab"),
        (np.zeros(2), np.zeros(2), "a"),
        ([], [], []),
    ],
)
def test_shapes_that_do_not_fit_are_refused(logits, labels, groups):
    with pytest.raises(InputError, match="expected one of each for every pair"):
        ranking_scores_of(logits, labels, groups)


def test_logits_that_are_not_numbers_are_refused():
    with pytest.raises(InputError, match="1 of 2 logits are not numbers"):
        ranking_scores_of(np.array([1.0, math.nan]), np.array([1, 0]), "aa")


@pytest.mark.parametrize("gold", [{"a": 1, "b": 1}, {"b": 1}])
def test_fewer_gold_documents_than_answers_are_refused(gold):
    with pytest.raises(InputError, match=f"claim 'a' has 2 gold documents among its candidates but {gold.get('a', 0)}"):
        ranking_scores_of(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), "aab", gold=gold)


def test_no_gold_at_all_is_refused():
    with pytest.raises(InputError, match="none of the 1 claims has a gold document"):
        ranking_scores_of(np.array([1.0]), np.array([0]), "a", gold={"a": 0})


def test_validation_needs_neither_ir_measures_nor_scipy():
    code = (
        "import sys; sys.modules['ir_measures'] = sys.modules['scipy'] = None\n"
        "from headwise.metrics import ranking_scores_of, score_ranking\n"
        "ranking_scores_of([1.0], [1], ['q'])\n"
        "try: score_ranking({'q': {'d': 1}}, {})\n"
        "except ValueError as error: sys.stdout.write(str(error))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'headwise[retrieval]'" in done.stdout
