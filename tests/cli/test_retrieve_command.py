"""`headwise retrieve`: from a folder of claims and papers to a TREC run."""

import json
import signal

import pytest
from tiny_runs import Process, assert_done, assert_one_sentence, json_of

from headwise.errors import DiskError
from headwise.metrics.ranking import MEASURES, score_ranking
from headwise.retrieval.bm25 import open_index
from headwise.retrieval.evaluate import read_per_query
from headwise.retrieval.formats import read_collection
from headwise.retrieval.trec import read_run

pytestmark = pytest.mark.usefixtures("cache")

PAPERS = {
    "p1": ("Vitamin D", "Vitamin D lowers the risk of flu in adults."),
    "p2": ("", "Fevers of children with flu last three days."),
    "p3": ("Sleep", "Sleeping less raises blood pressure."),
    "p4": ("Diet", "A diet rich in salt raises blood pressure in adults."),
    "p5": ("Coffee", "Coffee has no effect on sleep."),
}
CLAIMS = {
    "c1": "Vitamin D protects against flu",
    "c2": "Salt is bad for your blood pressure",
    "c3": "Zebras xylophone",
    "c4": "Coffee keeps you awake",
    "c5": "A fever lasts three days",
}
QRELS = {"test": {"c1": "p1", "c2": "p4", "c3": "p2", "c4": "p3"}, "dev": {"c5": "p2"}}


@pytest.fixture
def papers(tmp_path):
    folder = tmp_path / "papers"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": name, "title": title, "text": text} for name, (title, text) in PAPERS.items()]
    claims = [{"_id": name, "text": text} for name, text in CLAIMS.items()]
    for name, rows in (("corpus", documents), ("queries", claims)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, judged in QRELS.items():
        rows = [f"{claim}\t{document}\t1\n" for claim, document in judged.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


@pytest.fixture
def typed(headwise, papers, cache):
    """`headwise retrieve` on five papers."""
    return lambda *words: headwise("retrieve", papers, "--stage", "bm25", "--cache", cache, *words)


def expected_run(papers, cache, claims, top=100):
    return open_index(read_collection(papers), cache=cache).candidates({name: CLAIMS[name] for name in claims}, top)


def test_the_run_goes_to_stdout_and_the_measures_to_stderr(typed, papers, cache, tmp_path):
    out, err = assert_done(typed())
    lines = [line.split() for line in out.splitlines()]
    assert {len(line) for line in lines} == {6}
    assert [line[3] for line in lines if line[0] == "c1"] == [
        str(n + 1) for n in range(len(lines)) if lines[n][0] == "c1"
    ]
    (tmp_path / "run.trec").write_text(out)
    found = {claim: each for claim, each in expected_run(papers, cache, QRELS["test"]).items() if each}
    assert read_run(tmp_path / "run.trec") == found
    assert all(name in err for name in MEASURES)
    assert "1 of 4 claims share no word with any document: c3" in err


def test_the_file_is_written_and_the_measures_go_to_stdout(typed, papers, cache, tmp_path):
    target = tmp_path / "run.trec"
    out, err = assert_done(typed("--output", target, "--top", "2"))
    run = expected_run(papers, cache, QRELS["test"], 2)
    assert read_run(target) == {claim: each for claim, each in run.items() if each}
    scores = score_ranking({claim: {document: 1} for claim, document in QRELS["test"].items()}, run)
    found, strict = (line.split() for line in out.splitlines()[1:3])
    assert found[-6:] == [f"{scores.found[name]:.4f}" for name in MEASURES]
    assert strict[-6:] == [f"{scores.strict[name]:.4f}" for name in MEASURES]
    assert found[-6:] != strict[-6:]
    assert str(target) in out
    assert all(name not in err for name in MEASURES)


def test_json_says_what_was_done(typed, cache, tmp_path):
    target, every = tmp_path / "run.trec", tmp_path / "every.json"
    words = ("--output", target, "--per-query", every, "--json", "--overwrite")
    first, second = (json.loads(typed(*words)[1]) for _ in range(2))
    assert (first["split"], first["claims"], first["documents"], first["top"]) == ("test", 4, 5, 100)
    assert (first["output"], first["per_query"]) == (str(target), str(every))
    assert first["without_candidates"] == ["c3"]
    assert first["index"]["folder"].startswith(str(cache / "retrieval"))
    assert (first["index"]["built"], second["index"]["built"]) == (True, False)
    assert first["index"]["seconds"] > 0
    measures = first["measures"]
    assert measures == second["measures"]
    assert 0 < measures["strict"]["mrr"] < measures["found"]["mrr"] <= 1
    (scores,) = read_per_query(every).values()
    assert scores.per_query.keys() == QRELS["test"].keys()
    assert scores.strict == measures["strict"]


def test_a_split_or_all_claims_can_be_chosen(typed, tmp_path):
    claims = {}
    for split in ("dev", "all"):
        answer = json_of(typed("--split", split, "--output", tmp_path / split, "--json"))
        claims[split] = (answer["claims"], answer["measures"]["claims"])
        assert set(read_run(tmp_path / split)) == ({"c5"} if split == "dev" else set(CLAIMS) - {"c3"})
    assert claims == {"dev": (1, 1), "all": (5, 5)}


def test_claims_without_judgements_are_searched_for_and_not_scored(typed, papers, tmp_path):
    for split in QRELS:
        (papers / "qrels" / f"{split}.tsv").unlink()
    assert json_of(typed("--split", "all", "--output", tmp_path / "run.trec", "--json"))["measures"] is None
    assert len(read_run(tmp_path / "run.trec")) == 4
    _, err = assert_done(typed("--split", "all"))
    assert not any(name in err for name in MEASURES)
    result = typed("--split", "all", "--output", tmp_path / "r", "--per-query", tmp_path / "every.json")
    assert (result[0], result[1]) == (2, "")
    assert "no claim is judged" in result[2].splitlines()[-1]
    assert not (tmp_path / "r").exists()


def test_words_and_numbers_are_options(typed, tmp_path):
    def scores(*words):
        out, _ = assert_done(typed("--split", "dev", *words))
        return {line.split()[2]: float(line.split()[4]) for line in out.splitlines()}

    usual = scores()
    assert scores("--k1", "0.5")["p2"] != usual["p2"]
    assert scores("--b", "0")["p2"] != usual["p2"]
    assert scores("--stem", "none")["p2"] < usual["p2"]  # "fever" is not "fevers" then
    assert "p4" not in usual
    assert "p4" in scores("--stop-words", "none")  # which begins with "A"


def test_mistakes_are_reported_in_one_sentence_before_any_work(typed, cache, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words, parts in (
        (["--stem", "englich"], ["stem 'englich'", "did you mean 'english'"]),
        (["--split", "train"], ["train", "dev, test"]),
        (["--per-query", "a.txt"], ["--per-query a.txt: expected a name that ends in .json"]),
        (["--layout", "bier"], ["bier", "beir"]),
        (["--layout", ""], ["layout", "beir"]),
    ):
        assert_one_sentence(typed(*words), *parts)
    assert not cache.exists()


@pytest.mark.parametrize("option", ["--output", "--per-query"])
def test_files_are_replaced_with_overwrite(typed, tmp_path, option):
    target = tmp_path / "kept.json"
    target.write_text("kept")
    assert typed(option, target, "--overwrite")[0] == 0
    assert target.read_text() != "kept"


def test_judgements_of_unknown_papers_are_refused_or_dropped(typed, papers, tmp_path):
    with (papers / "qrels" / "test.tsv").open("a") as file:
        file.write("c1\tp99\t1\n")
    code, out, err = typed("--output", tmp_path / "run.trec")
    assert (code, out) == (2, "")
    assert "p99" in err.splitlines()[-1]
    assert not (tmp_path / "run.trec").exists()
    _, err = assert_done(typed("--output", tmp_path / "run.trec", "--drop-unknown"))
    assert "1 judgements" in err


def test_nothing_found_for_any_claim_is_refused(typed, papers, tmp_path):
    (papers / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nc3\tp2\t1\n")
    for words in (["--output", tmp_path / "run.trec", "--per-query", tmp_path / "every.json"], []):
        code, out, err = typed(*words)
        assert (code, out) == (2, "")
        assert "none of the 1 claims (test) shares a word with any of the 5 documents" in err.splitlines()[-1]
    assert not (tmp_path / "run.trec").exists()
    assert not (tmp_path / "every.json").exists()


# -- real processes ----------------------------------------------------------------------------------------------------

# Called for every file of a store that is about to be finished.
SETTLE = "headwise.cache._settled"


def test_ctrl_c_ends_with_a_sentence_and_leaves_nothing(papers, cache, tmp_path):
    words = ["retrieve", papers, "--stage", "bm25", "--cache", cache, "--output", tmp_path / "run.trec"]
    code, out, err = Process(tmp_path / "stopped", *words, at=(SETTLE, 2, signal.SIGINT)).result()
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("headwise: stopped; no run was written")
    assert "Traceback" not in err
    assert not [path for path in (cache / "retrieval").iterdir() if path.is_dir()]
    assert not (tmp_path / "run.trec").exists()


def test_without_the_run_the_measures_go_too(typed, tmp_path, monkeypatch):
    def full(path, *more):
        raise DiskError(f"{path} could not be written: No space left on device.")

    words = ("--output", tmp_path / "run.trec", "--per-query", tmp_path / "every.json")
    with monkeypatch.context() as patch:
        patch.setattr("headwise.retrieval.trec.write_run", full)
        assert typed(*words)[0] == 2
    assert not (tmp_path / "every.json").exists()
    assert typed(*words)[0] == 0
