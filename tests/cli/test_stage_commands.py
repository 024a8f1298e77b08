"""`--stage` of retrieve, rerank and score: candidates of both stages, weights that are fitted and printed."""

import json

import pytest
import torch
from small_collection import write_collection
from tiny_runs import assert_done, assert_one_sentence, build_tokenizer, json_of
from transformers import AutoModelForSequenceClassification

from headwise.metrics.ranking import score_ranking
from headwise.retrieval.formats import read_collection
from headwise.retrieval.fusion import StageScores, Weights, fuse
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.stages import Stages
from headwise.retrieval.trec import read_run
from headwise.training.saving import prepare_reranker, save_classifier


@pytest.fixture(scope="module")
def home(tmp_path_factory, encoder):
    """A collection, and a re-ranker that nobody trained."""
    folder = tmp_path_factory.mktemp("stages")
    write_collection(folder / "papers", train=22, test=4)
    torch.manual_seed(1)
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1), build_tokenizer()
    prepare_reranker(model, tokenizer, 40)
    save_classifier(model, tokenizer, folder / "model", "cls")
    return folder


@pytest.fixture
def typed(headwise, home, encoder):
    """A command with the small encoder."""
    return lambda command, *words: headwise(command, *words, "--encoder", encoder, "--cache", home / "cache")


@pytest.fixture(scope="module")
def scores(home, encoder):
    """Of the test claims."""
    collection = read_collection(home / "papers")
    claims = {claim: collection.claims[claim] for claim in collection.qrels["test"]}
    return Stages.open(collection, encoder=encoder, cache=home / "cache").scores(claims)


def best(scores: StageScores, weights: Weights, top: int = 100) -> dict[str, float]:
    return dict(list(scores.run(fuse(scores, weights)).items())[:top])


def test_retrieve_fits_on_another_split_and_says_so(typed, home, scores, tmp_path):
    words = ("--split", "test", "--output", tmp_path / "run.trec", "--overwrite")
    out, err = assert_done(typed("retrieve", home / "papers", *words))
    assert "fitted on 22 claims. Split: train." in err
    answer = json_of(typed("retrieve", home / "papers", *words, "--json"))
    weights = Weights(**answer["score"]["weights"])
    assert f"score: {weights}" in err
    assert read_run(tmp_path / "run.trec") == {
        claim: pytest.approx(best(each, weights)) for claim, each in scores.items()
    }
    assert "hybrid" in out
    assert "headwise-hybrid" in (tmp_path / "run.trec").read_text()


def test_retrieve_with_a_given_alpha_fits_nothing(typed, home, scores, tmp_path):
    out, err = assert_done(typed("retrieve", home / "papers", "--split", "test", "--alpha", "0.25", "--top", "3"))
    (tmp_path / "run.trec").write_text(out)
    assert read_run(tmp_path / "run.trec") == {
        claim: pytest.approx(best(each, Weights(0.75, 0.25), 3)) for claim, each in scores.items()
    }
    assert "fitted" not in err


def test_rerank_makes_its_candidates_and_adds_up_all_stages(typed, home, scores, tmp_path):
    words = ("--collection", home / "papers", "--split", "test", "--fit", "none", "--top", "4")
    answer = json_of(typed("rerank", home / "model", *words, "--output", tmp_path / "run.trec", "--json"))
    assert (answer["pairs"], answer["score"]["reads"]) == (16, 4)
    weights, run = Weights(**answer["score"]["weights"]), read_run(tmp_path / "run.trec")
    assert weights == Weights().with_reranker()
    reranker, collection = Reranker.load(home / "model"), read_collection(home / "papers")
    texts = {document.id: document.whole for document in collection.documents()}
    for claim, each in scores.items():
        read = list(best(each, Weights()))[:4]
        assert set(list(run[claim])[:4]) == set(read)
        logits = reranker.predict([(collection.claims[claim], texts[paper]) for paper in read])
        order = dict(zip(read, logits.tolist(), strict=True))
        model = torch.tensor([order.get(paper, float("nan")) for paper in each.documents]).double().numpy()
        final = best(StageScores(each.documents, each.bm25, each.cosine, model), weights, 1000)
        assert run[claim] == pytest.approx(final, abs=1e-5)
    before = score_ranking(
        collection.qrels["test"], {claim: best(each, Weights(), 1000) for claim, each in scores.items()}
    )
    assert answer["measures"]["candidates"]["strict"] == pytest.approx(before.strict)


def test_rerank_combines_given_candidates_with_a_stage(typed, home, scores, tmp_path):
    lines = [f"v0 Q0 {paper} {rank} {9 - rank} t\n" for rank, paper in enumerate(scores["v0"].documents[:3], 1)]
    (tmp_path / "given.trec").write_text("".join(lines))
    words = ("--candidates", tmp_path / "given.trec", "--collection", home / "papers", "--split", "test")
    answer = json_of(
        typed("rerank", home / "model", *words, "--stage", "bm25", "--output", tmp_path / "run.trec", "--json")
    )
    assert (answer["pairs"], answer["score"]["weights"]["cosine"]) == (3, 0)
    assert set(read_run(tmp_path / "run.trec")["v0"]) == set(scores["v0"].documents[:3])


def test_a_re_ranker_that_gets_no_weight_is_not_run(typed, home, tmp_path):
    words = ("--collection", home / "papers", "--split", "test", "--top", "4", "--output", tmp_path / "run.trec")
    out, err = assert_done(typed("rerank", home / "model", *words))
    if "the re-ranker is not run" in err:
        assert "Split: train." in err
        assert "0 of 0" not in out
    assert read_run(tmp_path / "run.trec").keys() == {"v0", "v1", "v2", "v3"}


def test_score_tests_stages_beside_runs(typed, home, scores, tmp_path):
    lines = [f"{claim} Q0 {each.documents[-1]} 1 1 t\n" for claim, each in scores.items()]
    (tmp_path / "other.trec").write_text("".join(lines))
    words = (tmp_path / "other.trec", "--stage", "bm25", "--stage", "hybrid", "--collection", home / "papers")
    answer = json_of(typed("score", *words, "--split", "test", "--alpha", "0.5", "--json"))
    assert list(answer["runs"]) == ["other", "bm25", "hybrid"]
    assert {(test["run"], test["against"]) for test in answer["tests"]} == {("bm25", "other"), ("hybrid", "other")}
    run = {claim: best(each, Weights(0.5, 0.5)) for claim, each in scores.items()}
    expected = score_ranking(read_collection(home / "papers").qrels["test"], run)
    assert answer["runs"]["hybrid"]["strict"] == pytest.approx(json.loads(json.dumps(expected.strict)))
    assert answer["runs"]["hybrid"]["score"]["weights"]["cosine"] == 0.5


def test_mistakes_are_reported_in_one_sentence(typed, home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    (tmp_path / "table.tsv").write_text("Hypothesis\tPremise\tPMID\tEntails\na\tb\t1\t1\n")
    split = ["--split", "test"]
    for words, parts in (
        (["retrieve", "papers", *split, "--stage", "bm52"], ["unknown stage 'bm52'", "bm25"]),
        (["retrieve", "papers", *split, "--stage", "bm25"], ["--encoder", "is for the stages dense and hybrid"]),
        (["retrieve", "papers", *split, "--alpha", "-0.1"], ["alpha -0.1: expected a number from 0"]),
        (["retrieve", "papers", *split, "--fusion", "sum"], ["unknown fusion 'sum'"]),
        (["retrieve", "papers", *split, "--fusion", "rrf", "--fit", "train"], ["--fit train is for convex fusion"]),
        (["retrieve", "papers", *split, "--fit", "test"], ["never fitted on the claims that are scored"]),
        (["rerank", "model", *split], ["model is not a run of the task retrieval", "--collection"]),
        (
            ["rerank", "model", *split, "--candidates", tmp_path / "table.tsv", "--stage", "bm25"],
            ["--stage bm25 needs papers of a collection"],
        ),
        (["score", "--collection", "papers"], ["there is nothing to measure"]),
        (["score", "--stage", "bm25"], ["--stage bm25 searches a collection"]),
        (["score", "--stage", "bm52", "--collection", "papers"], ["unknown stage 'bm52'"]),
    ):
        assert_one_sentence(typed(*words), *parts)
