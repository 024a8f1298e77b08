"""`headwise rerank`: what it writes and prints, and that stopping it changes nothing."""

import json
import shutil
import signal
import zipfile

import pytest
import torch
from sentence_transformers import CrossEncoder
from small_collection import write_collection
from tiny_runs import Process, assert_done, assert_one_sentence, build_tokenizer, json_of
from transformers import AutoModelForSequenceClassification

from headwise.errors import DiskError
from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.metrics.ranking import score_ranking
from headwise.retrieval.formats import read_collection
from headwise.retrieval.rerank import PIECE, PartialScores
from headwise.retrieval.reranker import Reranker
from headwise.retrieval.trec import read_run
from headwise.training.saving import prepare_reranker, save_classifier

ADD = "headwise.retrieval.rerank.PartialScores.add"


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("papers") / "papers", train=8, test=6)


@pytest.fixture(scope="module")
def model(tmp_path_factory, encoder):
    """A re-ranker that nobody trained, as a folder of transformers."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(1)
    found = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
    tokenizer = build_tokenizer()
    prepare_reranker(found, tokenizer, 16)
    save_classifier(found, tokenizer, folder, "cls")
    return folder


def documents(collection):
    lines = (collection / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["_id"]: f"{row['title']} {row['text']}" for row in map(json.loads, lines)}


def claims(collection):
    lines = (collection / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["_id"]: row["text"] for row in map(json.loads, lines)}


def write_candidates(path, ids):
    """All given documents for each claim, in one order."""
    rows = [
        f"{claim} Q0 {document} {rank} {100 - rank} t\n"
        for claim, found in ids.items()
        for rank, document in enumerate(found, 1)
    ]
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def candidates(tmp_path_factory, collection):
    """Of the test claims; v1 lacks its answer and v5 has no candidates."""
    ids = list(documents(collection))
    found = {f"v{number}": [each for each in ids[:30] if each != "v1-yes"] for number in range(5)}
    for number in (0, 2, 3, 4):
        found[f"v{number}"].append(f"v{number}-yes") if f"v{number}-yes" not in found[f"v{number}"] else None
    return write_candidates(tmp_path_factory.mktemp("candidates") / "bm25.trec", found)


@pytest.fixture
def words(model, candidates, collection, tmp_path):
    return ["rerank", model, "--candidates", candidates, "--collection", collection, "--cache", tmp_path / "cache"]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "cache")


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_candidates_are_in_the_order_of_the_model(headwise, words, model, candidates, collection, tmp_path):
    out, err = assert_done(headwise(*words, "--output", tmp_path / "run.trec", "--per-query", tmp_path / "claims.json"))
    run, before = read_run(tmp_path / "run.trec"), read_run(candidates)
    texts, asked = documents(collection), claims(collection)
    assert list(run) == list(before)
    for claim, found in run.items():
        assert set(found) == set(before[claim])
        ranked = Reranker.load(model).rank(asked[claim], [texts[each] for each in before[claim]])
        assert list(found.values()) == pytest.approx([score for _, score in ranked], abs=1e-5)
    assert "1 of 6 claims have no candidates, and count 0: v5" in err
    for line in ("candidates  4 of 6", "reranked    4 of 6", "all 6"):
        assert line in out
    qrels = read_collection(collection).qrels["test"]
    for name, each in (("candidates", before), ("reranked", run)):
        measures = json.loads((tmp_path / "claims.json").read_text())["runs"][name]["per_query"]
        assert measures == score_ranking(qrels, each).per_query
    assert names(tmp_path) == ["claims.json", "run.trec"]
    assert list((tmp_path / "cache" / "rerank").iterdir()) == []


def test_json_says_what_was_done_and_top_cuts_the_candidates(headwise, words, candidates, collection, tmp_path):
    out, _ = assert_done(headwise(*words, "--top", 3, "--output", tmp_path / "run.trec", "--json"))
    answer, run = json.loads(out), read_run(tmp_path / "run.trec")
    assert (answer["claims"], answer["pairs"], answer["resumed"]) == (6, 15, 0)
    assert answer["without_candidates"] == ["v5"]
    expected = score_ranking(read_collection(collection).qrels["test"], run).summary()
    assert answer["measures"]["reranked"] == json.loads(json.dumps(expected))
    for claim, found in read_run(candidates).items():
        assert set(run[claim]) == set(list(found)[:3])


def test_without_output_the_run_is_printed(headwise, words, tmp_path):
    out, err = assert_done(headwise(*words))
    assert "reranked" in err
    assert headwise(*words, "--output", tmp_path / "run.trec")[0] == 0
    assert out == (tmp_path / "run.trec").read_text()
    assert list((tmp_path / "cache" / "rerank").iterdir()) == []


def test_claims_of_other_splits_are_passed_over(headwise, words, tmp_path):
    both = write_candidates(tmp_path / "both.trec", {"t0": ["t0-yes"], "v0": ["v0-no1", "v0-yes"]})
    words[3] = both
    out, err = assert_done(headwise(*words))
    assert "1 claims of the candidates are not in the split test: ignored" in err
    assert {line.split()[0] for line in out.splitlines()} == {"v0"}


def test_a_run_knows_its_collection_and_is_a_cross_encoder(headwise, encoder, collection, candidates, tmp_path):
    recipe = {
        "task": {"name": "retrieval", "collection": collection.name, "negatives": 2, "validation_candidates": 3},
        "model": encoder,
        "data": {"max_length": 20, "limit": {"train": 4, "validation": 1}},
        "training": {"num_train_epochs": 1, "per_device_train_batch_size": 8, "learning_rate": 0.003},
    }
    train(check_recipe(recipe, "test"), RunPaths(tmp_path / "trained", collection.parent, cache=tmp_path / "cache"))
    words = "--candidates", candidates, "--cache", tmp_path / "cache"
    out, _ = assert_done(headwise("rerank", tmp_path / "trained", *words))
    texts, asked = documents(collection), claims(collection)
    rows = [line.split() for line in out.splitlines()]
    pairs = [(asked[row[0]], texts[row[2]]) for row in rows]
    theirs = CrossEncoder(str(tmp_path / "trained"), device="cpu").predict(pairs)
    assert [float(row[4]) for row in rows] == pytest.approx(theirs.tolist(), abs=1e-5)
    assert Reranker.load(tmp_path / "trained").max_length == 20


def test_a_table_brings_its_texts_along(headwise, model, tmp_path):
    """As in Cross-genre-IR; the longer of two texts of a paper is the paper."""
    rows = [
        ("the cat", "surely a dog", 1, 0),
        ("the cat", "old bird", 2, 1),
        ("the cat", "surely a dog and tree", 1, 0),
    ]
    rows += [("red river", "green house", 1, 1), ("red river", "a man never", 3, 0)]
    table = "Hypothesis,Premise,PMID,Entails\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "test.csv").write_text(table, encoding="utf-8")
    out, err = assert_done(
        headwise("rerank", model, "--candidates", tmp_path / "test.csv", "--cache", tmp_path / "cache")
    )
    assert "all 2" in err
    found = [(line.split()[2], float(line.split()[4])) for line in out.splitlines()]
    ranked = [
        Reranker.load(model).rank("the cat", ["surely a dog and tree", "old bird"]),
        Reranker.load(model).rank("red river", ["green house", "a man never"]),
    ]
    names_of = [["1", "2"], ["1", "3"]]
    expected = [(names_of[number][place], score) for number, each in enumerate(ranked) for place, score in each]
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)
    result = headwise("rerank", model, "--candidates", tmp_path / "test.csv", "--split", "test")
    assert_one_sentence(result, "--split test chooses claims of a collection", "--collection FOLDER")


CONTRARY = "Hypothesis,Premise,PMID,Entails\nthe cat,old bird,2,1\nthe cat,a dog,1,0\n"


def test_the_order_of_a_table_is_not_measured_but_that_of_the_model_is(headwise, model, tmp_path):
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        archive.writestr("test.csv", CONTRARY)
    words = "rerank", model, "--candidates", tmp_path / "pairs.zip/test.csv", "--cache", tmp_path / "cache"
    files = "--output", tmp_path / "run.trec", "--per-query", tmp_path / "claims.json", "--overwrite"
    assert list(json_of(headwise(*words, *files, "--json"))["measures"]) == ["reranked"]
    assert list(json.loads((tmp_path / "claims.json").read_text())["runs"]) == ["reranked"]
    out, _ = assert_done(headwise(*words, *files))
    assert "reranked" in out
    assert "candidates " not in out


def test_rows_that_contradict_each_other_are_refused_where_entails_decides(headwise, model, tmp_path):
    path = tmp_path / "papers" / "test.csv"
    path.parent.mkdir()
    path.write_text(CONTRARY + "the cat,a young dog,1,1\n", encoding="utf-8")
    sentence = "test.csv line 4: PMID '1' both answers and does not answer the claim 'the cat'"
    words = "rerank", model, "--candidates", path, "--cache", tmp_path / "cache"
    assert_one_sentence(headwise(*words), sentence)
    assert_one_sentence(headwise(*words, "--collection", path.parent), sentence)
    path.with_suffix(".json").write_text('{"the cat": [1]}')
    out, _ = assert_done(headwise(*words, "--collection", path.parent))
    assert len(out.splitlines()) == 2


# -- stopped and resumed -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory, collection):
    """More than three pieces: every document for every claim, some claims many times under other names."""
    folder = tmp_path_factory.mktemp("many")
    shutil.copytree(collection, folder / "papers")
    ids, texts = list(documents(collection)), claims(collection)
    more = {f"{claim}x{copy}": text for claim, text in texts.items() for copy in range(3)}
    with (folder / "papers" / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": claim, "text": text}) + "\n" for claim, text in more.items())
    write_candidates(folder / "bm25.trec", dict.fromkeys([*texts, *more][: 3 * PIECE // len(ids) + 2], ids))
    return folder


@pytest.fixture
def long(model, many, tmp_path):
    """A command of four pieces that writes tmp_path/run.trec."""
    assert len((many / "bm25.trec").read_text().splitlines()) > 3 * PIECE
    where = "--collection", many / "papers", "--cache", many / "cache", "--split", "all"
    return ["rerank", model, "--candidates", many / "bm25.trec", *where, "--output", tmp_path / "run.trec"]


@pytest.fixture(scope="module")
def whole(model, many, tmp_path_factory):
    """The run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    where = "--collection", many / "papers", "--cache", many / "cache", "--split", "all"
    words = ["rerank", model, "--candidates", many / "bm25.trec", *where, "--output", folder / "run.trec"]
    assert_done(Process(folder / "p", *words).result())
    return (folder / "run.trec").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "count", "done"),
    [
        (ADD, 1, 0),  # nothing is kept yet
        (ADD, 3, 2 * PIECE),
        ("headwise.retrieval.trec.write_run", 1, None),  # all is kept, nothing is written
    ],
)
def test_a_killed_run_resumes(long, whole, tmp_path, place, count, done):
    code, _, err = Process(tmp_path / "p1", *long, at=(place, count, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    assert not (tmp_path / "run.trec").exists()
    _, err = assert_done(Process(tmp_path / "p2", *long).result())
    total = len(whole.splitlines())
    assert (f"resuming from pair {total if done is None else done} of {total}" in err) == (done != 0)
    assert (tmp_path / "run.trec").read_bytes() == whole
    assert names(tmp_path) == ["p1", "p2", "run.trec"]


def test_ctrl_c_is_130_and_the_same_command_resumes(long, whole, tmp_path):
    code, out, err = Process(tmp_path / "p1", *long, at=(ADD, 2, signal.SIGINT)).result()
    assert (code, out) == (130, ""), err
    assert err.splitlines()[-1] == (
        "headwise: stopped; the scores so far are kept, and the same command resumes from there"
    )
    assert Process(tmp_path / "p2", *long).result()[0] == 0
    assert (tmp_path / "run.trec").read_bytes() == whole


def test_ctrl_c_before_the_first_score_leaves_nothing(long, tmp_path):
    code, out, err = Process(tmp_path / "p1", *long, at=(ADD, 1, signal.SIGINT)).result()
    assert (code, out) == (130, ""), err
    assert err.splitlines()[-1] == "headwise: stopped; nothing was written"
    assert names(tmp_path) == ["p1"]


def assert_last(result, *parts):
    """Notes may come before the sentence."""
    code, out, err = result
    assert_one_sentence((code, out, err.strip().splitlines()[-1]), *parts)


# -- the scores so far -------------------------------------------------------------------------------------------------


def test_pieces_that_are_not_whole_are_scored_again(tmp_path):
    for content in ("[3.0", "[3.0]", "nonsense", '["a", "b"]', "[3.0, NaN]", "[" * 100_000):
        PartialScores(tmp_path, []).add([1.0, 2.0])
        (tmp_path / "1.json").write_text(content)
        scores = PartialScores(tmp_path, [2, 2])
        assert scores.scores == [[1.0, 2.0]]
        scores.add([3.0, 4.0])
        assert PartialScores(tmp_path, [2, 2]).scores == [[1.0, 2.0], [3.0, 4.0]]


def test_scores_of_another_job_are_not_used(headwise, words, candidates, tmp_path, monkeypatch):
    """Interrupted once for all candidates and once for three of each: each resumes its own."""

    def full_disk(*_):
        raise DiskError("no room")

    output = "--output", tmp_path / "run.trec"
    with monkeypatch.context() as patched:
        patched.setattr("headwise.retrieval.trec.write_run", full_disk)
        assert headwise(*words, *output)[0] != 0
        assert headwise(*words, *output, "--top", 3)[0] != 0
    assert len(list((tmp_path / "cache" / "rerank").iterdir())) == 2
    for more, total in ((["--top", 3], 15), (["--overwrite"], len(candidates.read_text().splitlines()))):
        _, err = assert_done(headwise(*words, *output, *more))
        assert f"resuming from pair {total} of {total}" in err
    assert list((tmp_path / "cache" / "rerank").iterdir()) == []


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_reported_in_one_sentence(headwise, words, model, candidates, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more, sentence in (
        (["--json"], "--json needs --output"),
        (["--precision", "fp8"], "--precision fp8"),
        (["--output", "same.json", "--per-query", "same.json"], "name two files"),
        (["--split", "dev"], "has no split 'dev'"),
    ):
        assert_one_sentence(headwise(*words, *more), sentence)
    assert names(tmp_path) == []
    result = headwise("rerank", model, "--candidates", candidates)
    assert_one_sentence(result, "is not a run of the task retrieval", "give it as --collection FOLDER")
    missing = headwise("rerank", tmp_path / "nope", "--candidates", candidates)
    assert_one_sentence(missing, "nope: there is no such folder", "name that of a trained re-ranker")
    words[3] = write_candidates(tmp_path / "strange.trec", {"v0": ["v0-yes", "nobody"]})
    assert_one_sentence(headwise(*words), "strange.trec line 2", "document 'nobody'")
    words[3] = write_candidates(tmp_path / "other.trec", {"t0": ["t0-yes"]})
    assert_one_sentence(headwise(*words), "no candidates for any of the 6 claims")
