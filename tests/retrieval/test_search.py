"""Searching a collection: candidates of both stages with exact scores, and the final score of all stages."""

import json
import warnings

import numpy as np
import pytest
import torch
from retrieval.small_collections import refusal
from small_collection import write_collection
from tiny_runs import LONGEST, build_tokenizer
from transformers import AutoModelForSequenceClassification

import headwise as hw
from headwise.errors import HeadwiseWarning
from headwise.retrieval.bm25 import open_index
from headwise.retrieval.embedder import Embedder
from headwise.retrieval.formats import read_collection
from headwise.retrieval.fusion import FinalScore, Fit, StageScores, Weights, fuse
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.search import retrieve
from headwise.retrieval.stages import Stages, fitting_claims
from headwise.training import Silence
from headwise.training.saving import prepare_reranker, save_classifier


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    write_collection(folder / "papers", train=24, test=4)
    return folder


@pytest.fixture(scope="module")
def collection(home):
    return read_collection(home / "papers")


@pytest.fixture(scope="module")
def options(home, encoder):
    """Of a searcher: a random encoder, few candidates, and a cache that all tests share."""
    return {"encoder": encoder, "depth": 12, "cache": home / "cache"}


@pytest.fixture(scope="module")
def model(home, encoder):
    """A re-ranker that nobody trained, as a folder of transformers."""
    torch.manual_seed(1)
    found = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
    tokenizer = build_tokenizer()
    prepare_reranker(found, tokenizer, LONGEST)
    save_classifier(found, tokenizer, home / "model", "cls")
    return home / "model"


@pytest.fixture
def claim(collection):
    return collection.claims["v1"]


def cosines(collection, encoder, claim):
    """By id, of every paper, in numpy."""
    embedder, documents = Embedder.load(encoder), list(collection.documents())
    papers = embedder.embed([document.whole for document in documents])
    return dict(zip((each.id for each in documents), papers @ embedder.embed([claim], queries=True)[0], strict=True))


# -- stages ------------------------------------------------------------------------------------------------------------


def test_candidates_are_those_of_both_stages_with_the_exact_scores_of_both(collection, options, encoder):
    stages = Stages.open(collection, encoder=encoder, cache=options["cache"])
    index = open_index(collection, cache=options["cache"])
    for name in ("v0", "t3"):
        claim = collection.claims[name]
        near, every = cosines(collection, encoder, claim), dict(index.search([claim], 1000)[0])
        lexical = {index.corpus.ids[position]: score for position, score in every.items()}
        scores = stages.scores({name: claim}, 3)[name]
        nearest = sorted(near, key=lambda paper: -near[paper])[:3]
        assert set(scores.documents) == {*list(lexical)[:3], *nearest}
        assert scores.bm25 == pytest.approx([lexical.get(paper, 0.0) for paper in scores.documents])
        assert scores.cosine == pytest.approx([near[paper] for paper in scores.documents], abs=2e-3)  # fp16
        again = stages.scores_of({name: claim}, {name: reversed(scores.documents)})[name]
        assert again.documents == scores.documents[::-1]
        assert again.bm25.tolist() == scores.bm25[::-1].tolist()


def test_hybrid_papers_come_by_the_fused_score_with_those_of_each_stage(collection, options, claim):
    searcher = hw.Searcher(collection, alpha=0.3, **options)
    result = searcher.search(claim, top=6)
    scores = searcher.stages.scores({"c": claim}, 12)["c"]
    final = dict(zip(scores.documents, fuse(scores, Weights(0.7, 0.3)), strict=True))
    assert [paper.id for paper in result.papers] == sorted(final, key=lambda paper: -final[paper])[:6]
    for rank, paper in enumerate(result.papers, 1):
        at = scores.documents.index(paper.id)
        assert (paper.rank, paper.score) == (rank, pytest.approx(final[paper.id]))
        assert (paper.bm25, paper.cosine) == (scores.bm25[at], scores.cosine[at])
        assert paper.cosine_rank == 1 + int((scores.cosine > scores.cosine[at]).sum())
        better = (scores.bm25 > paper.bm25) | ((scores.bm25 == paper.bm25) & (np.arange(len(final)) < at))
        assert paper.bm25_rank == (None if paper.bm25 == 0 else 1 + int(better.sum()))
        assert (paper.reranker, paper.reranker_rank) == (None, None)
    assert str(result.score) == "0.7 BM25 + 0.3 cosine"
    assert json.loads(json.dumps(result.as_dict()))["score"]["weights"] == {"bm25": 0.7, "cosine": 0.3, "reranker": 0}


def test_one_stage_alone_keeps_its_scores(collection, options, claim):
    index = open_index(collection, cache=options["cache"])
    expected = [(index.corpus.ids[position], score) for position, score in index.search([claim], 8)[0]]
    lexical = hw.Searcher(collection, stage="bm25", **options).search(claim, top=8)
    assert [(paper.id, paper.score) for paper in lexical.papers] == expected
    assert {paper.cosine for paper in lexical.papers} == {None}
    near = cosines(collection, options["encoder"], claim)
    dense = hw.Searcher(str(collection.folder), stage="dense", **options).search(claim, top=8)
    assert [paper.score for paper in dense.papers] == pytest.approx(sorted(near.values(), reverse=True)[:8], abs=2e-3)
    assert str(dense.score) == "cosine"


def test_a_claim_without_shared_words_is_found_by_the_encoder_only(collection, options):
    assert len(hw.Searcher(collection, **options).search("zzzz qqqq", top=3).papers) == 3
    message = refusal(hw.Searcher(collection, stage="bm25", **options).search, "zzzz qqqq", top=3)
    assert "papers has a word of the claim 'zzzz qqqq'" in message


# -- a re-ranker -------------------------------------------------------------------------------------------------------


def test_a_re_ranker_reads_the_best_papers_and_the_others_come_after_them(collection, options, claim, model):
    plain = hw.Searcher(collection, **options).search(claim)
    searcher = hw.Searcher(collection, reranker=model, reads=4, **options)
    result = searcher.search(claim)
    assert (result.read, str(result.score)) == (4, "0.267 BM25 + 0.4 cosine + 0.333 re-ranker")
    assert {paper.id for paper in result.papers[:4]} == {paper.id for paper in plain.papers[:4]}
    assert [paper.id for paper in result.papers[4:]] == [paper.id for paper in plain.papers[4:]]
    texts = [searcher.stages.index.corpus.text_of(paper.id) for paper in result.papers[:4]]
    logits = Reranker.load(model).predict([(claim, text) for text in texts])
    assert [paper.reranker for paper in result.papers[:4]] == pytest.approx(logits.tolist(), abs=1e-5)
    alone = hw.Searcher(collection, reranker=Reranker.load(model), weights=(0, 0, 1), reads=4, **options).search(claim)
    assert [paper.reranker_rank for paper in alone.papers[:4]] == [1, 2, 3, 4]


def stored(home, model, options, **changes):
    """A run as far as a search reads it, with the final score that it keeps."""
    weights = {"weights": Weights(0.2, 0.3, 0.5), "first": Weights(0.5, 0.5)} | changes
    fit = Fit(measure="mrr", claims=30, values={}, note="fitted on 30 claims.", reads=3, **weights)
    final = {"stage": "hybrid", "encoder": options["encoder"], "depth": 3, "offset": 0.0, "fit": fit.as_data()}
    record = {"recipe": {"head": "cls", "data": {"max_length": LONGEST}}, "results": {"final": final}}
    run = home / f"run{len(list(home.iterdir()))}"
    run.mkdir()
    for path in model.iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    (run / "headwise.json").write_text(json.dumps(record), encoding="utf-8")
    return run


def test_a_run_is_searched_with_the_weights_and_the_number_of_papers_of_its_validation(
    home, model, options, collection, claim
):
    searcher = hw.Searcher(collection, reranker=stored(home, model, options), **options)
    assert searcher.score == FinalScore(Weights(0.5, 0.5), Weights(0.2, 0.3, 0.5), reads=3, note="fitted on 30 claims.")
    assert searcher.search(claim).read == 3
    useless = stored(home, model, options, weights=Weights(0.4, 0.6))
    result = hw.Searcher(collection, reranker=useless, **options).search(claim)
    assert (result.read, result.papers[0].reranker) == (0, None)
    other = hw.Searcher(collection, reranker=useless, stage="bm25", **options)  # not what the weights are for
    assert other.score.weights.cosine == 0 < other.score.weights.reranker


# -- fitting -----------------------------------------------------------------------------------------------------------


def test_weights_are_fitted_on_another_split_than_the_one_that_is_ranked(collection, options, home):
    lines = []
    listener = type("Log", (Silence,), {"log": lambda self, message: lines.append(message)})()
    more = {"encoder": options["encoder"], "cache": options["cache"]}
    ranking = retrieve(collection, listener, split="test", **more)
    assert any("fitted on 24 claims. Split: train." in line for line in lines)
    assert ranking.tag == "headwise-hybrid"
    fitted = Weights(**ranking.summary["score"]["weights"])
    alone = Stages.open(collection, encoder=options["encoder"], cache=options["cache"])
    scores = alone.scores({"v0": collection.claims["v0"]})["v0"]
    assert ranking.run["v0"] == dict(list(scores.run(FinalScore(fitted, fitted).scores(scores)).items())[:100])
    fixed = retrieve(collection, Silence(), split="train", **more)
    assert fixed.summary["score"]["weights"] == {"bm25": 0.4, "cosine": 0.6, "reranker": 0.0}
    assert "weights are never fitted on the claims that are scored" in refusal(
        retrieve, collection, Silence(), split="train", fit="train", **more
    )


def test_claims_like_those_that_are_ranked_are_not_fitted_on(collection):
    like = {"x": collection.claims["t5"] + " again"}
    split, claims = fitting_claims(collection, None, scored="test", without=like)
    assert (split, len(claims)) == ("train", 23)
    assert "t5" not in claims
    assert len(fitting_claims(collection, "train", most=10)[1]) == 8
    assert fitting_claims(collection, None, scored="all") is None


def test_a_re_ranker_that_is_chance_gets_no_weight_when_it_is_fitted(collection, options, model):
    searcher = hw.Searcher(collection, reranker=model, reads=4, fit="train", **options)
    note = searcher.score.note
    assert note.endswith("Split: train.")
    assert searcher.score.uses_reranker == ("improves" in note) != ("is not used" in note)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_refused_in_one_sentence(collection, options, claim, home, model):
    def search(words=claim, top=3, **more):
        return hw.Searcher(collection, **{**options, **more}).search(words, top=top)

    for call, words in (
        (lambda: search(""), "the claim is empty"),
        (lambda: search(top=13), "top 13 of depth 12"),
        (lambda: search(stage="sparse"), "unknown stage 'sparse'"),
        (lambda: search(fusion="sum"), "unknown fusion 'sum'"),
        (lambda: search(alpha=1.5), "alpha 1.5: expected a number from 0 (BM25 alone) to 1"),
        (lambda: search(alpha=0.5, fusion="rrf"), "alpha=0.5 is for fusion=convex"),
        (lambda: search(alpha=0.5, fit="train"), "alpha is either given or fitted"),
        (lambda: search(fusion="rrf", stage="dense"), "fusion=rrf is for the stage hybrid"),
        (lambda: search(weights=(0.5, -1, 0)), "the weight of cosine is -1"),
        (lambda: search(weights=(0.5, 0, 1)), "the weight of reranker is 1, but no re-ranker is given"),
        (lambda: search(weights=(0.5, 1, 0), stage="bm25"), "the weight of cosine is 1, but the stage is bm25"),
        (lambda: search(fit="dev"), "fit=dev: "),
        (lambda: search(reranker=model, reads=0), "reads 0: expected at least 1 paper"),
        (lambda: search(encoder=home / "papers"), "papers"),
        (lambda: search(encoder=home / "nowhere"), "there is no such folder"),
        (lambda: hw.Searcher(home / "nowhere", **options), "nowhere"),
    ):
        assert words in refusal(call)


def test_claims_that_the_encoder_cuts_are_warned_of_once(collection, options):
    searcher = hw.Searcher(collection, **options)
    long = " ".join(["cat"] * 100)
    with pytest.warns(HeadwiseWarning, match=r"1 of 1 claims are longer than .* the first 40 tokens: .* has 102"):
        assert searcher.search(long, top=1).papers
    with pytest.warns(HeadwiseWarning, match="2 of 3 claims") as caught:
        searcher.stages.scores({"a": long, "b": "cat", "c": long})
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Stages("bm25", searcher.stages.index, None).scores({"a": long})


def test_a_final_score_may_stand_for_the_offset_that_a_re_ranker_was_trained_with():
    first = Weights(0.5, 0.5)
    final = FinalScore(first, Weights(0.2, 0.2, 0.6), offset=3.0, reads=2)
    stages = StageScores(("a", "b", "c"), np.array([4.0, 2.5, 0.0]), np.array([0.9, 0.2, 0.1]))
    assert final.to_read(stages) == [0, 1]
    model = final.with_reranker(stages, {"a": 1.0, "b": -1.0}).reranker
    fused = fuse(stages, first)
    assert model[:2] == pytest.approx([1 + 3 * fused[0], -1 + 3 * fused[1]])
    assert np.isnan(model[2])
