"""`headwise score`: measures of TREC runs, and tests between them."""

import json

import pytest
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.errors import InputError
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.metrics.significance import holm, paired_test
from headwise.retrieval.evaluate import compare_runs, read_per_query
from headwise.retrieval.trec import read_qrels, read_run

CLAIMS = [f"c{number}" for number in range(20)]
# `first` finds the answer at ranks 1 to 4 in turn, and misses every fifth; `second` has it always at rank 1.
RANKS = {"first": [0 if n % 5 == 4 else n % 4 + 1 for n in range(20)], "second": [1] * 20, "third": [2] * 20}


def write_run(path, ranks):
    """A run with 5 candidates for each claim, the answer at the given rank, if there is one."""
    path.parent.mkdir(exist_ok=True)
    rows = (
        f"{claim} Q0 {'gold' if place == rank else f'd{place}'} {place} {10 - place} made-up\n"
        for claim, rank in zip(CLAIMS, ranks, strict=False)
        for place in range(1, 6)
    )
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def qrels(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("".join(f"{claim} 0 gold 1\n{claim} 0 d5 0\n" for claim in CLAIMS), encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path):
    return {name: write_run(tmp_path / f"{name}.trec", ranks) for name, ranks in RANKS.items()}


@pytest.fixture
def collection(tmp_path):
    """A collection in BEIR's layout with two splits of judgements."""
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "gold", "title": "", "text": "Gold."}\n', encoding="utf-8")
    queries = (json.dumps({"_id": claim, "text": "A claim."}) + "\n" for claim in CLAIMS)
    (folder / "queries.jsonl").write_text("".join(queries), encoding="utf-8")
    for split, claims in {"test": CLAIMS[:10], "train": CLAIMS[10:]}.items():
        rows = ["query-id\tcorpus-id\tscore", *(f"{claim}\tgold\t1" for claim in claims)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def answer(headwise):
    return lambda *words: json_of(headwise("score", *words, "--json"))


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_other_runs_are_tested_against_the_first(headwise, runs, qrels):
    out, _ = assert_done(headwise("score", *runs.values(), "--qrels", qrels))
    lines = [line.split() for line in out.splitlines()]
    for name in ("second", "third"):
        place = lines.index([name, "against", "first"])
        mrr = lines[place + 2]
        values = {run: [1 / rank if rank else 0 for rank in RANKS[run]] for run in RANKS}
        test = paired_test(values["first"], values[name])
        interval = [f"{test.low:+.4f}", "to", f"{test.high:+.4f}"]
        assert mrr[:6] == ["mrr", f"{test.difference:+.4f}", *interval, f"{test.p:.4f}"]
        assert mrr[7:] == [str(test.better), str(test.worse), str(test.equal)]
        assert [line[0] for line in lines[place + 2 : place + 8]] == list(MEASURES)


def test_json_has_everything(answer, runs, qrels):
    data = answer(*runs.values(), "--qrels", qrels)
    judged = read_qrels(qrels)
    assert data["measures"] == list(MEASURES)
    assert list(data["runs"]) == ["first", "second", "third"]
    for name, run in data["runs"].items():
        scores = score_ranking(judged, read_run(runs[name]))
        assert run == {"file": str(runs[name]), **scores.summary(), **scores.as_data()}
    assert [(test["run"], test["against"], test["measure"]) for test in data["tests"]] == [
        (name, "first", measure) for name in ("second", "third") for measure in MEASURES
    ]
    assert [test["p_holm"] for test in data["tests"]] == holm([test["p"] for test in data["tests"]])
    recall = data["tests"][1]
    assert (recall["better"], recall["worse"], recall["equal"]) == (16, 0, 4)
    assert recall["difference"] == pytest.approx(16 / 20)


def test_a_collection_brings_its_judgements(answer, runs, collection):
    for words, where in (((), "test"), (("--split", "train"), "train")):
        data = answer(runs["second"], "--collection", collection, *words)
        assert data["judgements"] == f"{collection} ({where})"
        assert data["runs"]["second"]["claims"] == 10
    assert answer(runs["second"], "--collection", collection, "--split", "all")["runs"]["second"]["claims"] == 20


def test_judged_papers_that_are_not_in_the_corpus_count_as_in_retrieve(headwise, answer, collection, cache, tmp_path):
    """Refused, or dropped: an answer that nobody can find must not lower the numbers of one command alone."""
    with (collection / "qrels" / "test.tsv").open("a", encoding="utf-8") as file:
        file.write("c0\tlost\t1\n")
    run = write_run(tmp_path / "run.trec", [1] * 10)
    assert_one_sentence(headwise("score", run, "--collection", collection), "lost", "test.tsv")
    assert [path.name for path in cache.iterdir()] == ["retrieval"]
    words = "--collection", collection, "--drop-unknown", "--cache", tmp_path / "other"
    assert answer(run, *words)["runs"]["run"]["strict"]["recall@1"] == 1
    assert (tmp_path / "other" / "retrieval").is_dir()
    assert "1 judgements of documents that are not in the corpus are left out" in headwise("score", run, *words)[2]


def test_claims_that_are_missing_or_not_judged_are_reported_on_stderr(headwise, tmp_path, qrels):
    run = write_run(tmp_path / "short.trec", [1] * 15)
    run.write_text(run.read_text(encoding="utf-8") + "strange Q0 gold 1 1 made-up\n", encoding="utf-8")
    out, err = assert_done(headwise("score", run, "--qrels", qrels))
    assert err.splitlines() == [
        "short: 5 of 20 judged claims have no candidates: 0 each",
        "short: 1 of 16 claims are not judged: ignored",
    ]
    assert out.splitlines()[1].split()[:5] == ["short", "15", "of", "20", "1.0000"]
    assert out.splitlines()[2].split()[:3] == ["all", "20", "0.7500"]


def test_runs_of_one_name_get_longer_names(answer, tmp_path, qrels):
    one, two, other = (write_run(tmp_path / place, [1] * 20) for place in ("a/run.trec", "b/run.trec", "a/run.txt"))
    assert list(answer(one, two, "--qrels", qrels)["runs"]) == ["a/run", "b/run"]
    assert list(answer(one, other, "--qrels", qrels)["runs"]) == ["run.trec", "run.txt"]
    assert list(answer(one, two, other, "--qrels", qrels)["runs"]) == [str(one), str(two), str(other)]


# -- the file for every claim ------------------------------------------------------------------------------------------


def test_the_measures_of_every_claim_are_kept(headwise, runs, qrels, tmp_path):
    path = tmp_path / "claims.json"
    assert headwise("score", runs["first"], runs["second"], "--qrels", qrels, "--per-query", path)[0] == 0
    judged = read_qrels(qrels)
    expected = {name: score_ranking(judged, read_run(runs[name])) for name in ("first", "second")}
    assert read_per_query(path) == expected
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content == {"measures": list(MEASURES), "runs": {name: each.as_data() for name, each in expected.items()}}
    assert headwise("score", runs["third"], "--qrels", qrels, "--per-query", path, "--overwrite")[0] == 0
    assert list(read_per_query(path)) == ["third"]


def test_other_files_and_runs_on_other_claims_are_refused(tmp_path):
    path = tmp_path / "claims.json"
    for text in ("", '{"runs": {"a": {"per_query": {}, "reachable": []}}}', '{"runs": 1}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="expected the JSON that write_per_query writes"):
            read_per_query(path)
    row = dict.fromkeys(MEASURES, 1.0)
    scores = {"a": RankingScores.of({"x": row, "y": row}, ["x"]), "b": RankingScores.of({"x": row}, ["x"])}
    with pytest.raises(InputError, match="1 claims, such as 'y', are in only one of a and b"):
        compare_runs(scores)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_mistakes_are_reported_in_one_sentence(headwise, runs, qrels, collection, tmp_path):
    run, other = runs["first"], tmp_path / "other.txt"
    other.write_text("x1 0 gold 1\n", encoding="utf-8")
    parts = str(run), str(other), "no claim", "'c0'", "'x1'"
    assert_one_sentence(headwise("score", run, "--qrels", other), *parts)
    again = run.parent / "." / ".." / run.parent.name / run.name
    assert_one_sentence(headwise("score", run, again, "--qrels", qrels), "given twice")
    assert_one_sentence(headwise("score", run, "--qrels", qrels, "--gold", "cited"), "--gold cited is for --collection")
    assert_one_sentence(headwise("score", run), "--qrels FILE", "--collection FOLDER")
    both = headwise("score", run, "--qrels", qrels, "--collection", collection)
    assert_one_sentence(both, str(qrels), str(collection), "leave one out")
    assert_one_sentence(headwise("score", run, "--qrels", qrels, "--split", "test"), "--split test", "--collection")
