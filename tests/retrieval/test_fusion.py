"""Fusion: the scores of stages as one, and weights that are never worse on their claims than a stage alone."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from retrieval.small_collections import refusal

from headwise.metrics.ranking import score_ranking
from headwise.retrieval.fusion import (
    FEWEST_CLAIMS,
    Fit,
    StageScores,
    Weights,
    claim_values,
    fit_weights,
    fuse,
    reciprocal_ranks,
)


def stage_scores(rng, size=12, *, read=7):
    """Random scores: some papers share no word with the claim, and the re-ranker reads only some."""
    bm25 = np.where(rng.random(size) < 0.3, 0.0, rng.gamma(2, 5, size))
    reranker = np.full(size, math.nan)
    reranker[rng.permutation(size)[:read]] = rng.normal(0, 4, read)
    return StageScores(tuple(f"d{number:02}" for number in range(size)), bm25, rng.uniform(-0.1, 0.9, size), reranker)


@pytest.fixture
def claims():
    """60 claims whose answer is high by cosine, less so by BM25, and nowhere by the re-ranker."""
    rng = np.random.default_rng(3)
    scores, qrels = {}, {}
    for number in range(60):
        one, gold = stage_scores(rng), int(rng.integers(1, 12))
        one.cosine[gold] += 0.4
        one.bm25[gold] += 4
        scores[f"c{number}"] = one
        qrels[f"c{number}"] = {one.documents[gold]: 1, "not found": int(number % 2), one.documents[0]: 0}
    return scores, qrels


# -- scores ------------------------------------------------------------------------------------------------------------


def slow_convex(scores, weights):
    def scaled(values):
        known = [each for each in values if not math.isnan(each)]
        return [(each - min(known)) / (max(known) - min(known)) for each in values]

    final = []
    for bm25, cosine, reranker in zip(*map(scaled, (scores.bm25, scores.cosine, scores.reranker)), strict=True):
        value = weights.bm25 * bm25 + weights.cosine * cosine
        read = not math.isnan(reranker)
        final.append(value + weights.reranker * reranker if read else value - weights.bm25 - weights.cosine - 1)
    return final


def test_the_weighted_sum_of_scaled_scores_and_papers_that_were_not_read_come_last():
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = stage_scores(rng)
        weights = Weights(*rng.uniform(0.1, 2, 3))
        final = fuse(scores, weights)
        assert final == pytest.approx(slow_convex(scores, weights), abs=1e-9)
        unread = np.isnan(scores.reranker)
        assert final[unread].max() < final[~unread].min()
        first = fuse(replace(scores, reranker=None), weights)
        assert (np.argsort(-final[unread]) == np.argsort(-first[unread])).all()


def test_scale_and_offset_of_scores_do_not_matter():
    rng = np.random.default_rng(1)
    scores, weights = stage_scores(rng), Weights(0.3, 0.5, 0.2)
    changed = replace(scores, bm25=scores.bm25 * 7, cosine=scores.cosine * 0.1 + 3, reranker=scores.reranker * 9 - 2)
    assert fuse(changed, weights) == pytest.approx(fuse(scores, weights), abs=1e-9)
    assert (fuse(scores, Weights(0.6, 1.0, 0.4)).argsort() == fuse(scores, weights).argsort()).all()


def test_equal_scores_count_nothing_and_stages_may_be_missing():
    flat = StageScores(("a", "b"), np.array([2.0, 2.0]), np.array([0.1, 0.3]))
    assert fuse(flat, Weights()).tolist() == [0.0, 0.6]
    assert fuse(StageScores(("a", "b"), np.array([0.0, 2.0])), Weights.of_stage("bm25")).tolist() == [0.0, 1.0]
    assert flat.run(np.array([1.0, 1.0])) == {"a": 1.0, "b": 1.0}
    assert list(flat.run(np.array([1.0, 2.0]))) == ["b", "a"]


def test_reciprocal_ranks_by_hand():
    scores = StageScores(
        ("a", "b", "c"), np.array([3.0, 0.0, 5.0]), np.array([0.2, 0.9, 0.1]), np.array([math.nan, 1.0, 2.0])
    )
    expected = [[1 / 62, 0, 1 / 61], [1 / 62, 1 / 61, 1 / 63], [0, 1 / 62, 1 / 61]]
    assert reciprocal_ranks(scores) == pytest.approx(np.array(expected))
    two = fuse(replace(scores, reranker=None), Weights(0.1, 0.9), "rrf")
    assert two == pytest.approx([2 / 62, 1 / 61, 1 / 61 + 1 / 63], abs=1e-12)
    assert np.argsort(-fuse(scores, Weights(0.1, 0.8, 0.1), "rrf")).tolist() == [2, 1, 0]


# -- measures and fitting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["mrr", "ndcg@10", "recall@5"])
def test_measures_of_the_grid_are_those_of_trec_eval(claims, measure):
    scores, qrels = claims
    grid = np.array([[1, 0, 0], [0.4, 0.6, 0], [0.2, 0.5, 0.3], [0, 0, 1.0]])
    for claim in list(scores)[:10]:
        graded = qrels[claim] | {scores[claim].documents[5]: 3}
        for row, value in zip(grid, claim_values(scores[claim], graded, grid, measure), strict=True):
            run = {claim: scores[claim].run(fuse(scores[claim], Weights(*row)))}
            if len({*run[claim].values()}) == len(run[claim]):  # trec_eval breaks ties by id
                assert value == pytest.approx(score_ranking({claim: graded}, run).strict[measure])


def test_of_equal_scores_the_wrong_candidate_ranks_first():
    scores = StageScores(("gold", "wrong", "worse"), np.array([2.0, 2.0, 1.0]))
    assert claim_values(scores, {"gold": 1}, np.array([[1.0, 0, 0]]), "mrr").tolist() == [0.5]


@pytest.mark.parametrize("measure", ["mrr", "ndcg@10"])
def test_fitted_weights_are_never_worse_on_their_claims_than_what_they_combine(claims, measure):
    scores, qrels = claims
    for alpha in (0.0, 0.35, 0.6, 1.0):
        fit = fit_weights(scores, qrels, first=Weights.of_stage("hybrid", alpha), measure=measure)
        assert fit.values["final"] >= max(fit.values[name] for name in ("bm25", "cosine", "first"))
        runs = {claim: each.run(fuse(each, fit.weights)) for claim, each in scores.items()}
        assert score_ranking(qrels, runs).strict[measure] == pytest.approx(fit.values["final"])
    assert (fit.claims, fit.reads, fit.measure) == (60, 7, measure)


def test_a_reranker_that_is_chance_gets_0_and_one_that_knows_does_not(claims):
    scores, qrels = claims
    chance = fit_weights(scores, qrels)
    assert chance.weights.reranker == 0
    assert "the re-ranker is not used: with it ndcg@10 changes by" in chance.note
    knows = {}
    for claim, each in scores.items():
        found = [float(qrels[claim].get(document, 0)) for document in each.documents]
        knows[claim] = replace(each, reranker=np.array(found))
    fit = fit_weights(knows, qrels)
    assert fit.weights.reranker > 0
    assert "the re-ranker improves ndcg@10 by" in fit.note
    assert fit.values["final"] > chance.values["final"]
    # The smallest share that does it.
    smaller = replace(fit.weights, reranker=0.0)
    assert fit.values["final"] > np.mean([
        claim_values(each, qrels[claim], np.array([[smaller.bm25, smaller.cosine, 0]]), "ndcg@10")[0]
        for claim, each in knows.items()
    ])  # fmt: skip


def test_few_claims_fit_nothing_and_say_so(claims):
    scores, qrels = claims
    few = {claim: scores[claim] for claim in list(scores)[: FEWEST_CLAIMS - 1]}
    first = Weights(0.5, 0.5)
    fit = fit_weights(few, qrels, first=first)
    assert fit.weights == first
    assert "cannot be seen on 19 judged claims" in fit.note
    fit = fit_weights({claim: replace(each, reranker=None) for claim, each in few.items()}, qrels, first=first)
    assert fit.note == "19 judged claims are fewer than 20: the weights are not fitted."


def test_where_all_are_equal_the_first_stage_stays():
    scores = {f"c{number}": StageScores(("a", "b"), np.array([1.0, 2.0]), np.array([0.1, 0.3])) for number in range(30)}
    fit = fit_weights(scores, {claim: {"b": 1} for claim in scores}, first=Weights(0.45, 0.55))
    assert fit.weights == Weights(0.45, 0.55)
    assert set(fit.values.values()) == {1.0}


def test_a_fit_is_plain_json_and_is_printed_in_words(claims):
    fit = fit_weights(*claims, split="dev")
    assert Fit.from_data(json.loads(json.dumps(fit.as_data()))) == fit
    assert str(Weights(0.31, 0.52, 0.17)) == "0.31 BM25 + 0.52 cosine + 0.17 re-ranker"
    assert str(Weights.of_stage("hybrid")) == "0.4 BM25 + 0.6 cosine"
    assert str(Weights.of_stage("dense")) == "1 cosine"
    third = Weights.of_stage("hybrid").with_reranker()
    assert (third.bm25, third.cosine, third.reranker) == pytest.approx((4 / 15, 6 / 15, 1 / 3))


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_refused_in_one_sentence(claims):
    scores, qrels = claims
    for call, words in (
        (lambda: Weights(-1.0, 1.0), "the weight of bm25 is -1.0: expected a number of 0 or more"),
        (lambda: Weights(0.0, 0.0), "all weights are 0"),
        (lambda: Weights.read("1,2"), "weights '1,2': expected three numbers"),
        (lambda: Weights.of_stage("hybrid", 1.2), "alpha 1.2: expected a number from 0 (BM25 alone) to 1"),
        (lambda: Weights.of_stage("bm25", 0.2), "alpha=0.2 is for the stage hybrid, and the stage is bm25"),
        (lambda: Weights.of_stage("sparse"), "unknown stage 'sparse'"),
        (lambda: fit_weights(scores, qrels, measure="map"), "unknown measure 'map'"),
        (lambda: fit_weights(scores, {}), "none of the 60 claims is judged"),
        (lambda: Fit.from_data({"weights": 3}), "expected numbers for bm25, cosine, reranker"),
        (lambda: Fit.from_data({}), "are damaged"),
    ):
        assert words in refusal(call)
