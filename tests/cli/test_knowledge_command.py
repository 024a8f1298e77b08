"""`headwise knowledge`: what guides know about words, built and looked at."""

import json
import signal
import warnings

import pytest
from tiny_runs import Process, assert_done, assert_one_sentence, json_of, rows, write_data, write_table

from headwise.experiments.gather_knowledge import strongest
from headwise.patterns.pmi import PMI
from headwise.patterns.store import gather

pytestmark = pytest.mark.usefixtures("cache")

GUIDES = {"pmi": {"pattern": {"minimum": 1}}, "dependency": {}, "mdg": {}}
WRITE = "headwise.patterns.store.write_atomically"


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


@pytest.fixture
def typed(headwise, write_recipe, data, cache):
    """`headwise knowledge ACTION` on a small recipe."""

    def type_in(action, *words, guides=GUIDES, **changes):
        recipe = write_recipe(guides=guides, **changes)
        return headwise("knowledge", action, recipe, "--data", data, "--cache", cache, *words)

    return type_in


def texts_of(data):
    _, *lines = [line.split("\t") for line in (data / "train.tsv").read_text().splitlines()]
    return [tuple(line[:2]) for line in lines]


def pmi_store(data, cache):
    texts = texts_of(data)
    return gather(PMI(minimum=1), texts, corpus=texts, cache=cache)


def test_build_reports_how_much_there_is_and_where(typed, data, cache):
    out, err = assert_done(typed("build"))
    head, first, second, *places = out.splitlines()
    assert head.split() == ["guide", "examples", "word", "pairs", "seconds", "size"]
    assert first.split()[:2] == ["dependency", "40"]
    store = pmi_store(data, cache)
    assert not store.built
    pairs = sum(len(strongest(matrix, texts)) for matrix, texts in zip(store, texts_of(data), strict=True))
    assert second.split()[:3] == ["pmi", "40", str(pairs)]
    assert float(second.split()[3]) >= 0
    assert places[1] == f"pmi is in {store.folder}"
    assert "knowledge pmi: 40/40" in err
    # The second time it is found, unless it is rebuilt.
    code, out, err = typed("build")
    assert (code, err) == (0, "")
    assert [line.split()[3] for line in out.splitlines()[1:3]] == ["found", "found"]
    before = {path: path.stat().st_mtime_ns for path in cache.glob("*/meta.json")}
    assert all(row["built"] for row in json_of(typed("build", "--rebuild", "--workers", "1", "--json"))["knowledge"])
    assert {path for path in cache.glob("*/meta.json") if path.stat().st_mtime_ns != before[path]} == set(before)


def test_build_as_json_and_train_with_it(typed, headwise, write_recipe, data, cache, tmp_path):
    first, row = json_of(typed("build", "--json", "--set", "guides.pmi.pattern.window=3"))["knowledge"]
    assert (first["guide"], row["guide"]) == ("dependency", "pmi")
    assert row["pattern"] == {"name": "pmi", "window": 3, "minimum": 1, "lower": True}
    assert (row["examples"], row["built"]) == (40, True)
    assert row["pairs"] > 40
    assert row["bytes"] == sum(path.stat().st_size for path in (cache / f"pmi-{row['key']}").iterdir())
    assert row["folder"] == str(cache / f"pmi-{row['key']}")
    before = {path: path.stat().st_mtime_ns for path in cache.glob("*/meta.json")}
    words = ["--data", data, "--cache", cache, "--output", tmp_path / "run", "--set", "guides.pmi.pattern.window=3"]
    _, err = assert_done(headwise("train", write_recipe(guides=GUIDES), *words))
    assert "knowledge" not in err
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*/meta.json")} == before


def test_show_as_json_is_what_the_store_holds(typed, data, cache):
    answer = json_of(typed("show", "--example", "3", "--top", "4", "--json"))
    texts = texts_of(data)[3]
    assert (answer["example"], answer["texts"]) == (3, list(texts))
    assert list(answer["pairs"]) == ["dependency", "pmi"]
    expected = strongest(pmi_store(data, cache)[3], texts)[:4]
    assert [pair["value"] for pair in answer["pairs"]["pmi"]] == [pair.value for pair in expected]
    for pair in answer["pairs"]["pmi"]:
        for side in ("first", "second"):
            word = pair[side]
            assert texts[word["text"]][word["start"] : word["end"]] == word["word"]
            assert texts[word["text"]].split()[word["index"]] == word["word"]
        assert pair["across"] == (pair["first"]["text"] != pair["second"]["text"])


def test_show_prints_the_positions_of_words_and_pairs_across_texts(headwise, write_recipe, cache, tmp_path):
    table = rows(12, 1)
    table[1][:2] = ["the cat sees the dog", "[cat] sees a [bold]dog"]
    for split in ("train", "validation"):
        write_table(tmp_path / "own" / f"{split}.tsv", table)
    recipe = write_recipe(guides={"wordsim": {}})
    out, _ = assert_done(
        headwise("knowledge", "show", recipe, "--data", tmp_path / "own", "--cache", cache, "--top", "50")
    )
    lines = out.splitlines()
    assert lines[:2] == ["text 0: the cat sees the dog", "text 1: [cat] sees a [bold]dog"]
    assert lines[3].startswith("wordsim: the strongest ")
    cells = [line.split() for line in lines[5:]]
    assert ["cat", "0.1", "cat", "1.1", "1.000", "across", "texts"] in cells
    assert ["dog", "0.4", "dog", "1.8", "1.000", "across", "texts"] in cells
    assert any(each[:4] == ["cat", "0.1", "dog", "0.4"] and len(each) == 5 for each in cells)
    assert not any(each[1] == each[3] for each in cells)  # a word with itself is no pair
    values = [float(each[4]) for each in cells]
    assert values == sorted(values, reverse=True)


def test_what_cannot_be_done_is_said_before_any_work(typed, cache):
    for action in ("build", "show"):
        assert_one_sentence(
            typed(action, guides={"mdg": {}, "next": {}}), "mdg, next", "dependency, pmi, relations, wordsim"
        )
        assert_one_sentence(typed(action, guides={}), "it has none", "dependency, pmi, relations, wordsim")
    guides = {"pmi": {}, "wordsim": {"pattern": {"path": "no-wordnet-here"}}}
    assert_one_sentence(typed("build", guides=guides), "no-wordnet-here")
    assert_one_sentence(typed("show", "--example", "40"), "--example 40", "from 0 to 39")
    assert not cache.exists()
    cache.write_text("a file")
    assert_one_sentence(typed("build"), str(cache))


def test_a_damaged_store_is_reported_in_a_sentence_and_built_again(typed, cache):
    guides = {"pmi": GUIDES["pmi"]}
    typed("build", guides=guides)
    (values,) = cache.glob("pmi-*/values.npy")
    values.write_bytes(values.read_bytes() + b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # as on the command line, where they are not errors
        code, out, err = typed("build", "--json", guides=guides)
    assert code == 0
    assert json.loads(out)["knowledge"][0]["built"]
    (warning,) = [line for line in err.splitlines() if "damaged" in line]
    assert warning.startswith(f"headwise: {values.parent} is damaged and is built again")


def test_a_stopped_build_is_resumed(headwise, write_recipe, tmp_path, cache):
    data = write_data(tmp_path / "large", sizes=(90, 24, 21))
    words = ["knowledge", "build", write_recipe(guides={"pmi": {}}), "--data", data, "--cache", cache, "--workers", "1"]
    code, out, err = Process(tmp_path / "p1", *words, at=(WRITE, 3, signal.SIGINT)).result()
    assert (code, out) == (130, "")
    assert "the same command resumes it" in err.splitlines()[-1]
    assert "Traceback" not in err
    out, err = assert_done(headwise(*words))
    assert err.splitlines()[0].startswith("knowledge pmi: 50/90")
    assert out.splitlines()[1].split()[:2] == ["pmi", "90"]


def test_a_run_that_is_stopped_before_it_has_its_knowledge_leaves_nothing(write_recipe, data, cache, tmp_path):
    words = ["train", write_recipe(guides={"pmi": {}}), "--data", data, "--cache", cache, "--output", tmp_path / "run"]
    code, out, err = Process(tmp_path / "p1", *words, at=(WRITE, 2, signal.SIGINT)).result()
    assert (code, out) == (130, "")
    assert "the same command resumes it" in err.splitlines()[-1]
    assert not (tmp_path / "run").exists()
