"""`headwise search`: the papers behind one claim, with both scores, and what the claim looks at."""

import json
import shutil

import pytest
from small_collection import write_collection
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.explain import explain
from headwise.retrieval.formats import read_collection
from headwise.retrieval.reranker import Reranker

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
def answer(search):
    return lambda *words: json_of(search(*words, "--json"))


def expected(home, folder, model, claim, options):
    """Every candidate: (logit, BM25 score, BM25 rank, id, title), the best first."""
    index = open_index(read_collection(home / folder), options, cache=home / "cache")
    (found,) = index.search([claim], 100)
    documents = [index.corpus.document(place) for place, _ in found]
    logits = Reranker.load(model).predict([(claim, document.whole) for document in documents]).tolist()
    rows = zip(logits, (score for _, score in found), range(1, 101), documents, strict=False)
    return sorted(rows, key=lambda row: -row[0])


# -- json --------------------------------------------------------------------------------------------------------------


def check(found, rows):
    assert found["candidates"] == len(rows) == 6
    assert [paper["rank"] for paper in found["papers"]] == list(range(1, len(found["papers"]) + 1))
    for paper, (logit, bm25, rank, document) in zip(found["papers"], rows, strict=False):
        assert (paper["id"], paper["title"], paper["bm25_rank"]) == (document.id, document.title, rank)
        assert paper["score"] == pytest.approx(logit, abs=1e-5)
        assert paper["bm25_score"] == pytest.approx(bm25)


def test_candidates_of_the_training_collection_come_in_the_order_of_the_model(answer, home, run, claim):
    found = answer(run, claim)
    rows = expected(home, "papers", run, claim, OPTIONS)
    check(found, rows)
    assert len(found["papers"]) == 5
    assert [row[2] for row in rows] != sorted(row[2] for row in rows)  # or the model would not matter
    assert (found["claim"], found["collection"], found["documents"]) == (claim, str(home / "papers"), 60)
    assert "explain" not in found


def test_a_model_of_another_library_searches_with_the_default_options(answer, home, plain, claim):
    found = answer(plain, claim, "--collection", home / "papers")
    check(found, expected(home, "papers", plain, claim, IndexOptions()))
    assert found["papers"][0]["bm25_score"] != answer(home / "run", claim)["papers"][0]["bm25_score"]


def test_the_model_reads_depth_candidates_and_top_are_shown(answer, home, run, claim):
    found = answer(run, f"  {claim}\n", "--depth", 3, "--top", 2, "--batch", 1)
    assert (found["claim"], found["candidates"], len(found["papers"])) == (claim, 3, 2)
    rows = [row for row in expected(home, "papers", run, claim, OPTIONS) if row[2] <= 3]
    assert [paper["id"] for paper in found["papers"]] == [row[3].id for row in rows[:2]]


def test_explain_speaks_of_the_best_paper(answer, home, run, claim):
    found = answer(run, claim, "--explain")
    best = expected(home, "papers", run, claim, OPTIONS)[0][3]
    reranker = Reranker.load(run)
    whole = explain(reranker.model, reranker.tokenizer, claim, best.whole, max_length=40)
    about = found["explain"]
    assert (about["id"], about["text"], about["truncated"]) == (best.id, best.whole, False)
    assert about["words"] == [pytest.approx(vars(word)) for word in whole.words]
    assert about["special_share"] == pytest.approx(whole.special_share)
    assert [link["text"] for link in about["links"]] == claim.split()


def test_the_table_has_both_scores_and_both_ranks(answer, search, run, claim):
    out, _ = assert_done(search(run, claim))
    lines = out.splitlines()
    for line, paper in zip(lines[1:], answer(run, claim)["papers"], strict=False):
        numbers = [str(paper["rank"]), f"{paper['score']:.3f}", f"{paper['bm25_score']:.3f}", str(paper["bm25_rank"])]
        assert line.split() == [*numbers, paper["id"], *paper["title"].split()]
    assert lines[6] == "model: the logit of the re-ranker, which read the best 6 of 60 by BM25."
    assert len(lines) == 7


# -- text --------------------------------------------------------------------------------------------------------------


def test_the_text_of_an_explanation_marks_the_strongest_words_and_does_not_promise_too_much(answer, search, run, claim):
    _, out, _ = search(run, claim, "--explain")
    about = answer(run, claim, "--explain")["explain"]
    strongest = sorted(about["words"], key=lambda word: -word["share"])
    marked = about["text"]
    for word in sorted(strongest[:10], key=lambda word: -word["start"]):
        marked = f"{marked[: word['start']]}**{word['text']}**{marked[word['end'] :]}"
    assert f"\n{marked}\n" in out
    rows = [line.split() for line in out.splitlines()]
    assert [strongest[0]["text"], f"{100 * strongest[0]['share']:.1f}", "%"] in rows
    text = " ".join(out.split())
    assert f"claim: {claim}" in text
    assert "not a proof of why" in text
    assert f"{100 * about['special_share']:.1f} % of the claim's attention went to special tokens" in text
    assert "longer than the model reads" not in text
    assert "\x1b" not in out


def test_no_color_leaves_styles_only(search, run, claim, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, _ = search(run, claim, "--explain")
    assert "\x1b[1;7m" in out
    assert "**" not in out


def test_a_paper_that_was_cut_is_called_so(answer, search, home, run, claim):
    short = home / "short"
    shutil.copytree(run, short)
    content = json.loads((short / "headwise.json").read_text(encoding="utf-8"))
    content["recipe"]["data"]["max_length"] = 12
    (short / "headwise.json").write_text(json.dumps(content), encoding="utf-8")
    about = answer(short, claim, "--explain")["explain"]
    assert about["truncated"]
    assert about["read"] == about["words"][-1]["end"] < len(about["text"])
    _, out, _ = search(short, claim, "--explain")
    assert " ...\n" in out
    assert about["text"].split()[-1] not in out.partition("paper: ")[2].partition("word")[0].split("\n\n")[1]
    assert "longer than the model reads" in " ".join(out.split())


def test_what_a_terminal_would_obey_is_not_printed(search, home, plain, claim):
    folder = write_collection(home / "odd", train=1, test=1)
    paper = {"_id": "p1", "title": "\x1b[31mred [bold]", "text": f"{claim}\x07\r\x1b]0;title"}
    (folder / "corpus.jsonl").write_text(json.dumps(paper) + "\n", encoding="utf-8")
    (folder / "qrels" / "train.tsv").unlink()
    (folder / "qrels" / "test.tsv").unlink()
    out, _ = assert_done(search(plain, claim, "--collection", folder, "--explain"))
    assert not {"\x1b", "\x07", "\r"} & set(out)
    assert "[31mred [bold]" in out


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_mistakes_are_reported_in_one_sentence(search, home, run, plain, monkeypatch):
    monkeypatch.chdir(home)
    shutil.copytree(run, home / "half")
    content = json.loads((run / "headwise.json").read_text(encoding="utf-8"))
    (home / "half" / "headwise.json").write_text(json.dumps({**content, "results": None}), encoding="utf-8")
    for words, parts in (
        (["run", ""], ["the claim is empty"]),
        (["run", "a \udcff"], ["no UTF-8"]),
        (["run", "zzzz qqqq"], ["no document of", "papers has a word of the claim 'zzzz qqqq'"]),
        (["run", "cat", "--top", "5", "--depth", "4"], ["top 5 of depth 4"]),
        (["run", "cat", "--precision", "fp8"], ["unknown precision 'fp8'"]),
        (["papers", "cat"], ["papers holds no model"]),
        (["plain", "cat"], ["plain", "--collection"]),
        (["half", "cat"], ["not finished"]),
    ):
        assert_one_sentence(search(*words), *parts)
