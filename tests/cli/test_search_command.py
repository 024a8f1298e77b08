"""`headwise search`: the papers behind one claim, with the scores of every stage, and why the best was found."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from small_collection import write_collection
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.explain import explain
from headwise.retrieval.formats import read_collection
from headwise.retrieval.fusion import Weights, fuse
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.stages import Stages

# Other than the defaults, so that it shows whether they are used.
OPTIONS = IndexOptions(Words("none", "none"), k1=0.9, b=0.4)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two collections, a cache with their indexes, and a run that was trained on the first."""
    folder = tmp_path_factory.mktemp("search")
    collection = read_collection(write_collection(folder / "papers", train=8, test=2))
    other = read_collection(write_collection(folder / "other", train=2, test=2, seed=1))
    for each, options in ((collection, IndexOptions()), (other, OPTIONS)):
        open_index(each, options, cache=folder / "cache")
    return folder


@pytest.fixture(scope="module")
def run(home, encoder):
    task = {"name": "retrieval", "collection": "papers", "negatives": 2, "stem": "none", "stop_words": "none"}
    task["encoder"] = encoder
    recipe = {
        "task": {**task, "k1": 0.9, "b": 0.4, "validation_candidates": 3},
        "model": encoder,
        "data": {"max_length": 40, "limit": {"train": 4, "validation": 1}},
        "training": {"num_train_epochs": 1, "per_device_train_batch_size": 8, "learning_rate": 0.003},
    }
    train(check_recipe(recipe, "test"), RunPaths(home / "run", home, cache=home / "cache"))
    return home / "run"


@pytest.fixture(scope="module")
def plain(home, run):
    """The same model as other libraries save it."""
    shutil.copytree(run, home / "plain")
    (home / "plain" / "headwise.json").unlink()
    return home / "plain"


@pytest.fixture(scope="module")
def claim(home):
    return claim_of(home / "papers", "v0")


def claim_of(folder, name):
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    return next(row["text"] for row in rows if row["_id"] == name)


@pytest.fixture
def search(headwise, home):
    return lambda *words: headwise("search", *words, "--cache", home / "cache")


@pytest.fixture
def other(home, plain, encoder):
    """The words that search the first collection with a model of another library as the third stage."""
    return [plain, "--collection", home / "papers", "--encoder", encoder, "--weights", "0.2,0.3,0.5"]


@pytest.fixture
def answer(search):
    return lambda *words: json_of(search(*words, "--json"))


# -- json --------------------------------------------------------------------------------------------------------------


def test_a_run_searches_its_collection_with_its_words_encoder_and_weights(answer, home, run, claim):
    found, final = answer(run, claim), json.loads((run / "headwise.json").read_text())["results"]["final"]
    assert found["score"]["weights"] == final["fit"]["weights"]
    assert (found["read"], found["score"]["note"]) == (0, final["fit"]["note"])  # 1 validation claim says nothing
    (lexical,) = open_index(read_collection(home / "papers"), OPTIONS, cache=home / "cache").search([claim], 100)
    scores = {paper["bm25_rank"]: paper["bm25"] for paper in found["papers"] if paper["bm25_rank"]}
    assert scores == {rank: pytest.approx(lexical[rank - 1][1]) for rank in scores}
    assert (found["claim"], found["collection"], found["documents"]) == (claim, str(home / "papers"), 60)
    assert "explain" not in found
    assert answer("--rerank", run, claim) == found


def test_a_model_of_another_library_is_a_third_stage(answer, home, other, encoder, claim):
    found = answer(*other, claim, "--reads", 3, "--depth", 10, "--top", 4)
    collection = read_collection(home / "papers")
    stages = Stages.open(collection, encoder=encoder, cache=home / "cache")
    scores = stages.scores({"c": claim}, 10)["c"]
    first = scores.run(fuse(scores, Weights(0.2, 0.3)))
    read = list(first)[:3]
    logits = Reranker.load(other[0]).predict([(claim, stages.index.corpus.text_of(paper)) for paper in read])
    by_paper = dict(zip(read, logits.tolist(), strict=True))
    every = replace(scores, reranker=np.array([by_paper.get(paper, np.nan) for paper in scores.documents]))
    best = list(every.run(fuse(every, Weights(0.2, 0.3, 0.5))).items())[:4]
    assert [(paper["id"], paper["score"]) for paper in found["papers"]] == [(id, pytest.approx(x)) for id, x in best]
    assert [paper["reranker"] for paper in found["papers"]] == [
        pytest.approx(by_paper[id], abs=1e-5) if id in by_paper else None for id, _ in best
    ]
    assert (found["read"], found["candidates"]) == (3, len(scores.documents))


def test_no_run_is_needed_and_one_stage_may_be_enough(answer, home, claim):
    index = open_index(read_collection(home / "papers"), cache=home / "cache")
    found = answer(f"  {claim}\n", "--collection", home / "papers", "--stage", "bm25", "--top", 3)
    (lexical,) = index.search([claim], 3)
    assert [(paper["id"], paper["score"]) for paper in found["papers"]] == [
        (index.corpus.ids[position], pytest.approx(score)) for position, score in lexical
    ]
    assert (found["run"], found["claim"], found["stage"]) == (None, claim, "bm25")


def test_explain_speaks_of_the_best_paper(answer, home, other, claim):
    about = answer(*other, claim, "--explain")
    best, reasons = about["papers"][0]["id"], about["explain"]
    assert reasons["id"] == best
    reranker = Reranker.load(other[0])
    whole = explain(reranker.model, reranker.tokenizer, claim, reasons["text"], max_length=40)
    assert reasons["attention"]["words"] == [pytest.approx(vars(word)) for word in whole.words]
    assert {match["word"] for match in reasons["matches"]}


def test_the_table_has_the_scores_and_ranks_of_every_stage(answer, search, other, claim):
    out, _ = assert_done(search(*other, claim))
    lines = out.splitlines()
    assert lines[0].split() == [
        "rank",
        "score",
        "BM25",
        "rank",
        "cosine",
        "rank",
        "re-ranker",
        "rank",
        "paper",
        "title",
    ]
    papers = answer(*other, claim)["papers"]
    for line, paper in zip(lines[1:6], papers, strict=True):
        cells = [str(paper["rank"]), f"{paper['score']:.3f}"]
        for name in ("bm25", "cosine", "reranker"):
            rank = paper[f"{name}_rank"]
            cells += [f"{paper[name]:.3f}", "-" if rank is None else str(rank)]
        assert line.split()[: len(cells) + 1] == [*cells, paper["id"]]
    text = " ".join(" ".join(lines[6:]).split())
    assert text.startswith("score: 0.2 BM25 + 0.3 cosine + 0.5 re-ranker. 60 of 60 papers are candidates.")
    assert "The re-ranker read 20 of them." in text


# -- text --------------------------------------------------------------------------------------------------------------


def test_the_text_of_an_explanation_marks_shared_words_and_does_not_promise_too_much(search, other, claim):
    out, _ = assert_done(search(*other, claim, "--explain"))
    assert any(f"**{word}**" in out for word in claim.split())
    text = " ".join(out.split())
    assert f"claim: {claim}" in text
    assert "alone it is no explanation" in text
    assert "\x1b" not in out


def test_no_color_leaves_styles_only(search, other, claim, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, _ = search(*other, claim, "--explain")
    assert "\x1b[1;7m" in out
    assert "**" not in out


def test_what_a_terminal_would_obey_is_not_printed(search, home, plain, claim):
    folder = write_collection(home / "odd", train=1, test=1)
    paper = {"_id": "p1", "title": "\x1b[31mred [bold]", "text": f"{claim}\x07\r\x1b]0;title"}
    (folder / "corpus.jsonl").write_text(json.dumps(paper) + "\n", encoding="utf-8")
    (folder / "qrels" / "train.tsv").unlink()
    (folder / "qrels" / "test.tsv").unlink()
    out, _ = assert_done(search(plain, claim, "--collection", folder, "--stage", "bm25", "--explain"))
    assert not {"\x1b", "\x07", "\r"} & set(out)
    assert "[31mred [bold]" in out


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_mistakes_are_reported_in_one_sentence(search, home, run, plain, monkeypatch):
    monkeypatch.chdir(home)
    shutil.copytree(run, home / "half")
    content = json.loads((run / "headwise.json").read_text(encoding="utf-8"))
    (home / "half" / "headwise.json").write_text(json.dumps({**content, "results": None}), encoding="utf-8")
    bm25 = ["--collection", "papers", "--stage", "bm25"]
    for words, parts in (
        (["run", ""], ["the claim is empty"]),
        (["run", "a \udcff"], ["no UTF-8"]),
        (["run", "zzzz qqqq", "--stage", "bm25"], ["no document of", "papers has a word of the claim 'zzzz qqqq'"]),
        (["run", "cat", "--top", "5", "--depth", "4"], ["top 5 of depth 4"]),
        (["run", "cat", "--precision", "fp8"], ["unknown precision 'fp8'"]),
        (["papers", "cat"], ["papers holds no model"]),
        (["plain", "cat"], ["plain", "--collection"]),
        (["half", "cat"], ["not finished"]),
        (["cat"], ["nothing says which papers to search: give --collection"]),
        (["run"], ["run is a folder, and there is no claim"]),
        (["run", "red", "cat"], ["got 3 words: write the claim in quotation marks"]),
        (["run", "cat", "--rerank", "plain"], ["RUN is run and --rerank is plain: name one re-ranker"]),
        (["cat", *bm25[:-1], "sparse"], ["unknown stage 'sparse'"]),
        (["cat", *bm25, "--alpha", "0.5"], ["--alpha 0.5 is for the stage hybrid"]),
        (["cat", *bm25[:-2], "--alpha", "7"], ["alpha 7.0: expected a number from 0"]),
        (["cat", *bm25[:-2], "--fit", "dev"], ["--fit dev", "train"]),
        (["cat", *bm25, "--weights", "1;2"], ["weights '1;2': expected three numbers"]),
        (["cat", *bm25[:-2], "--encoder", "papers"], ["papers"]),
        (["plain", "cat", *bm25, "--template", "{claim}"], ["template '{claim}': expected {claim} and {text}"]),
    ):
        assert_one_sentence(search(*words), *parts)
