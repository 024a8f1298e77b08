"""`headwise rerank`: what it writes and prints, and that stopping it changes nothing."""

import json
import os
import shutil
import signal
import zipfile
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder
from small_collection import write_collection
from tiny_runs import Process, assert_one_sentence, build_tokenizer
from transformers import AutoModelForSequenceClassification

from headwise.errors import DiskError, InputError
from headwise.experiments import check_recipe
from headwise.experiments.prepare import Place
from headwise.experiments.run import train
from headwise.metrics.ranking import score_ranking
from headwise.retrieval.formats import read_collection
from headwise.retrieval.rerank import PIECE, PartialScores, locked_file
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
    save_classifier(found, tokenizer, folder, "pooler")
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


def test_candidates_come_out_in_the_order_of_the_model(headwise, words, model, candidates, collection, tmp_path):
    code, out, err = headwise(*words, "--output", tmp_path / "run.trec")
    assert code == 0, err
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
    assert names(tmp_path) == ["run.trec"]
    assert not (tmp_path / "cache" / "rerank").exists()


def test_measures_are_those_of_the_two_runs(headwise, words, candidates, collection, tmp_path):
    files = "--output", tmp_path / "run.trec", "--per-query", tmp_path / "claims.json"
    code, out, err = headwise(*words, *files, "--json")
    assert code == 0, err
    answer = json.loads(out)
    qrels = read_collection(collection).qrels["test"]
    for name, path in (("candidates", candidates), ("reranked", tmp_path / "run.trec")):
        expected = score_ranking(qrels, read_run(path))
        assert answer["measures"][name] == json.loads(json.dumps(expected.summary()))
        assert json.loads((tmp_path / "claims.json").read_text())["runs"][name]["per_query"] == expected.per_query
    assert answer["measures"]["candidates"]["strict"] != answer["measures"]["reranked"]["strict"]
    assert (answer["claims"], answer["pairs"], answer["resumed"]) == (6, len(candidates.read_text().splitlines()), 0)
    assert answer["without_candidates"] == ["v5"]


def test_without_output_the_run_is_printed_and_the_table_told(headwise, words, tmp_path):
    code, out, err = headwise(*words)
    assert code == 0, err
    assert "reranked" in err
    assert headwise(*words, "--output", tmp_path / "run.trec")[0] == 0
    assert out == (tmp_path / "run.trec").read_text()
    assert list((tmp_path / "cache" / "rerank").iterdir()) == []


def test_top_cuts_the_candidates(headwise, words, candidates, tmp_path):
    code, out, err = headwise(*words, "--top", 3, "--output", tmp_path / "run.trec", "--json")
    assert code == 0, err
    assert json.loads(out)["pairs"] == 15
    for claim, found in read_run(tmp_path / "run.trec").items():
        assert set(found) == set(list(read_run(candidates)[claim])[:3])


def test_claims_of_other_splits_are_passed_over(headwise, words, tmp_path):
    both = write_candidates(tmp_path / "both.trec", {"t0": ["t0-yes"], "v0": ["v0-no1", "v0-yes"]})
    words[3] = both
    code, out, err = headwise(*words)
    assert code == 0, err
    assert "1 claims of the candidates are not in the split test: ignored" in err
    assert {line.split()[0] for line in out.splitlines()} == {"v0"}


def test_a_run_knows_its_collection_and_is_a_cross_encoder(headwise, encoder, collection, candidates, tmp_path):
    recipe = {
        "task": {"name": "retrieval", "collection": collection.name, "negatives": 2, "validation_candidates": 3},
        "model": encoder,
        "data": {"max_length": 20, "limit": {"train": 4, "validation": 1}},
        "training": {"num_train_epochs": 1, "per_device_train_batch_size": 8, "learning_rate": 0.003},
    }
    train(check_recipe(recipe, "test"), Place(tmp_path / "trained", collection.parent, cache=tmp_path / "cache"))
    words = "--candidates", candidates, "--cache", tmp_path / "cache"
    code, out, err = headwise("rerank", tmp_path / "trained", *words)
    assert code == 0, err
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
    code, out, err = headwise("rerank", model, "--candidates", tmp_path / "test.csv", "--cache", tmp_path / "cache")
    assert code == 0, err
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
    code, out, err = headwise(*words, *files, "--json")
    assert code == 0, err
    assert list(json.loads(out)["measures"]) == ["reranked"]
    assert list(json.loads((tmp_path / "claims.json").read_text())["runs"]) == ["reranked"]
    code, out, err = headwise(*words, *files)
    assert code == 0, err
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
    code, out, err = headwise(*words, "--collection", path.parent)
    assert code == 0, err
    assert len(out.splitlines()) == 2


def test_bf16_and_the_batch_are_used(headwise, words):
    plain, cut, rough = (headwise(*words, *more)[1] for more in ([], ["--batch", 1], ["--precision", "bf16"]))
    values = [[float(line.split()[4]) for line in sorted(each.splitlines())] for each in (plain, cut, rough)]
    assert values[0] == pytest.approx(values[1], abs=1e-5)
    assert rough != plain


# -- stopped and gone on with ------------------------------------------------------------------------------------------


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
    code, _, err = Process(folder / "p", *words).result()
    assert code == 0, err
    return (folder / "run.trec").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "count", "done"),
    [
        (ADD, 1, 0),  # nothing is kept yet
        (ADD, 3, 2 * PIECE),
        ("headwise.retrieval.rerank.os.fsync", 2, 2 * PIECE),  # written, not yet known to be
        ("headwise.retrieval.trec.write_run", 1, None),  # all is kept, nothing is written
    ],
)
def test_a_killed_run_goes_on(long, whole, tmp_path, place, count, done):
    code, _, err = Process(tmp_path / "p1", *long, at=(place, count, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    assert not (tmp_path / "run.trec").exists()
    code, _, err = Process(tmp_path / "p2", *long).result()
    assert code == 0, err
    total = len(whole.splitlines())
    assert (f"resuming from pair {total if done is None else done} of {total}" in err) == (done != 0)
    assert (tmp_path / "run.trec").read_bytes() == whole
    assert names(tmp_path) == ["p1", "p2", "run.trec"]


def test_a_kill_before_the_scores_are_removed_leaves_nothing(long, whole, tmp_path):
    kill = ("headwise.retrieval.search.Ranking.done", 1, signal.SIGKILL)
    assert Process(tmp_path / "p1", *long, at=kill).result()[0] == -signal.SIGKILL
    assert (tmp_path / "run.trec.partial").exists()
    code, _, err = Process(tmp_path / "p2", *long).result()
    assert (code, "exists already" in err) == (2, True)
    assert (tmp_path / "run.trec").read_bytes() == whole
    assert [name for name in names(tmp_path) if not name.startswith(".")] == ["p1", "p2", "run.trec"]


def test_half_a_piece_is_scored_again(long, whole, tmp_path):
    code, _, err = Process(tmp_path / "p1", *long, at=(ADD, 3, signal.SIGKILL)).result()
    assert code == -signal.SIGKILL, err
    with (tmp_path / "run.trec.partial").open("ab") as file:
        file.write(b"[0.5, 0.25, 0.1")
    assert Process(tmp_path / "p2", *long).result()[0] == 0
    assert (tmp_path / "run.trec").read_bytes() == whole


def test_ctrl_c_is_130_and_the_same_command_goes_on(long, whole, tmp_path):
    code, out, err = Process(tmp_path / "p1", *long, at=(ADD, 2, signal.SIGINT)).result()
    assert (code, out) == (130, ""), err
    assert err.splitlines()[-1] == (
        "headwise: stopped; the scores so far are kept, and the same command resumes from there"
    )
    assert (tmp_path / "run.trec.partial").exists()
    assert Process(tmp_path / "p2", *long).result()[0] == 0
    assert (tmp_path / "run.trec").read_bytes() == whole


def test_ctrl_c_before_the_first_score_leaves_nothing(long, tmp_path):
    code, out, err = Process(tmp_path / "p1", *long, at=(ADD, 1, signal.SIGINT)).result()
    assert (code, out) == (130, ""), err
    assert err.splitlines()[-1] == "headwise: stopped; nothing was written"
    assert names(tmp_path) == ["p1"]


def test_scores_of_something_else_are_refused(headwise, words, tmp_path):
    path = tmp_path / "run.trec.partial"
    path.write_text('{"mark": "headwise-rerank", "of": {"model": "another"}}\n[0.5]\n')
    again = [*words, "--output", tmp_path / "run.trec"]
    assert_last(headwise(*again), "run.trec.partial holds scores of something else (another model and another list of")
    assert path.exists()
    assert headwise(*again, "--overwrite")[0] == 0
    assert names(tmp_path) == ["run.trec"]


def assert_last(result, *parts):
    """Notes may come before the sentence."""
    code, out, err = result
    assert_one_sentence((code, out, err.strip().splitlines()[-1]), *parts)


# -- the file of scores so far -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"[3.0", b"[3.0]\n", b"nonsense\n", b'["a", "b"]\n'])
def test_a_piece_that_is_not_whole_is_cut_off(tmp_path, tail):
    path, of = tmp_path / "a.partial", {"model": "m"}
    PartialScores(path, of, [2, 2]).add([1.0, 2.0])
    with path.open("ab") as file:
        file.write(tail)
    again = PartialScores(path, of, [2, 2])
    assert again.scores == [[1.0, 2.0]]
    again.add([3.0, 4.0])
    assert PartialScores(path, of, [2, 2]).scores == [[1.0, 2.0], [3.0, 4.0]]


def test_a_file_of_somebody_else_is_not_touched(tmp_path):
    path = tmp_path / "a.partial"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match="something else .it was not written by headwise."):
        PartialScores(path, {"model": "m"}, [1])
    assert path.read_text() == "my notes\n"


def test_two_processes_do_not_share_a_file(tmp_path):
    path = tmp_path / "a.partial"
    with (
        locked_file(path),
        pytest.raises(InputError, match=rf"a.partial is in use by process {os.getpid()} "),
        locked_file(path),
    ):
        pass
    with locked_file(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_exist_are_refused_before_any_work(headwise, words, tmp_path):
    (tmp_path / "run.trec").write_text("precious")
    (tmp_path / "claims.json").write_text("precious")
    words[1] = "nowhere"  # would be the next mistake
    assert_one_sentence(headwise(*words, "--output", tmp_path / "run.trec"), "exists already", "--overwrite")
    assert_one_sentence(headwise(*words, "--per-query", tmp_path / "claims.json"), "exists already", "--overwrite")
    assert {path.name: path.read_text() for path in tmp_path.glob("*.*")} == {
        "run.trec": "precious",
        "claims.json": "precious",
    }


def test_outputs_are_replaced_when_asked(headwise, words, candidates, tmp_path):
    run, claims = tmp_path / "run.trec", tmp_path / "claims.json"
    for path in (run, claims):
        path.write_text("precious")
    code, _, err = headwise(*words, "--output", run, "--per-query", claims, "--overwrite")
    assert code == 0, err
    assert set(read_run(run)) == set(read_run(candidates))
    assert json.loads(claims.read_text())


# -- bad input ---------------------------------------------------------------------------------------------------------


MISTAKES = [
    (["--json"], "--json needs --output"),
    (["--precision", "fp8"], "--precision fp8"),
    (["--output", "same.json", "--per-query", "same.json"], "name two files"),
    (["--split", "dev"], "has no split 'dev'"),
]


@pytest.mark.parametrize(("more", "sentence"), MISTAKES)
def test_mistakes_are_told_in_one_sentence(headwise, words, tmp_path, monkeypatch, more, sentence):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(headwise(*words, *more), sentence)
    assert names(tmp_path) == []


def test_a_folder_that_is_no_run_needs_a_collection(headwise, model, candidates):
    result = headwise("rerank", model, "--candidates", candidates)
    assert_one_sentence(result, "is not a run of the task retrieval", "give it as --collection FOLDER")


def test_a_folder_that_is_not_there_is_told(headwise, words, tmp_path):
    words[1] = tmp_path / "nope"
    for given in (words, words[:4]):  # with a collection and without one
        assert_one_sentence(headwise(*given), "nope: there is no such folder", "name that of a trained re-ranker")


def test_a_folder_at_home_is_the_same_model(headwise, words, model, tmp_path, monkeypatch):
    """The scores that one spelling of its name has left behind are those of the other."""
    shutil.copytree(model, tmp_path / "home" / "model")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    target = tmp_path / "run.trec"
    with monkeypatch.context() as patched:
        patched.setattr("headwise.retrieval.trec.write_run", full_disk)
        assert headwise(*words, "--output", target)[0] != 0
    words[1] = "~/model"
    code, _, err = headwise(*words, "--output", target)
    assert code == 0, err
    assert "resuming from pair" in err
    assert read_run(target)


def full_disk(*_):
    raise DiskError("no room")


def test_a_classifier_of_classes_is_refused(headwise, words, finished):
    words[1] = finished
    assert_last(headwise(*words), "one logit, and this model has 3")


def test_candidates_of_another_collection_are_refused(headwise, words, tmp_path):
    words[3] = write_candidates(tmp_path / "strange.trec", {"v0": ["v0-yes", "nobody"]})
    assert_one_sentence(headwise(*words), "strange.trec line 2", "document 'nobody'")
    words[3] = write_candidates(tmp_path / "other.trec", {"t0": ["t0-yes"]})
    assert_one_sentence(headwise(*words), "no candidates for any of the 6 claims")


def test_scores_that_are_not_numbers_end_in_one_sentence(headwise, words, model, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    found = AutoModelForSequenceClassification.from_pretrained(broken)
    with torch.no_grad():
        found.classifier.bias.fill_(float("nan"))
    found.save_pretrained(broken)
    words[1] = broken
    code, out, err = headwise(*words, "--output", tmp_path / "run.trec")
    assert (code, out) == (1, "")
    assert "not finite" in err.splitlines()[-1]
    assert not Path(tmp_path / "run.trec").exists()
