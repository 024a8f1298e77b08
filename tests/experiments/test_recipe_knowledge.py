"""Recipes whose guides need knowledge: built once, for the training examples alone, and kept apart from other runs."""

import signal

import numpy as np
import pytest
from tiny_runs import Process, assert_one_sentence, log, outcome, record, small, write_data, write_table

from headwise.data import Collator, Encoded, Split, encode
from headwise.experiments import check_recipe
from headwise.experiments.gather_knowledge import Sources, count_targets, embeddings_of, gather_knowledge, strongest
from headwise.experiments.prepare import RunPaths, prepare
from headwise.experiments.splits import Splits
from headwise.guides import guidance
from headwise.guides.alignment import token_idf
from headwise.patterns import Dependency, Stored, gather, token_vector, words_of_tokens
from headwise.patterns.base import WordMatrix
from headwise.training import KnowledgeCollator, Silence, WithKnowledge, find_encoder, needs_of

WEIGHT = {"share": 0.1, "every": 3, "window": 4}
PMI_GUIDE = {"pmi": {"weight": WEIGHT, "pattern": {"minimum": 1}}}
STEP = "headwise.training.callbacks.Clock.on_step_end"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where knowledge is kept; nothing is written outside."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


@pytest.fixture
def prepared(tmp_path, encoder, data):
    def ready(**changes):
        changes = {"guides": PMI_GUIDE, **changes}
        return prepare(check_recipe(small(encoder, **changes), "test"), RunPaths(tmp_path / "run", data))

    return ready


class Lines(Silence):
    """What began, and what was logged."""

    def __init__(self):
        self.lines = []

    def start(self, what, total, done=0):
        self.lines.append(what)

    def log(self, message):
        self.lines.append(message)


def no_embeddings():
    raise AssertionError("nobody asked for the embeddings")


def built(cache):
    """When each entry was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in cache.glob("*/meta.json")}


def test_only_training_examples_carry_knowledge_and_only_where_a_guide_needs_some(prepared, cache):
    ready = prepared(guides={"mdg": {}, "next": {}})
    assert ready.train is ready.only.encoded["train"]
    assert type(ready.train) is Encoded
    assert ready.train.offsets is None
    assert type(ready.material(None).first.collate) is Collator
    assert ready.knowledge == {}
    assert not cache.exists()
    ready = prepared()
    assert isinstance(ready.train, WithKnowledge)
    collate = ready.material(None).first.collate_train
    assert isinstance(collate, KnowledgeCollator)
    (entry,) = ready.train[0]["knowledge"]
    batch = collate([ready.train[place] for place in range(8)])
    assert batch["knowledge"][entry].shape == batch["input_ids"].shape
    assert batch["knowledge"][entry].any(1).all()
    for name in ("validation", "test"):
        assert "knowledge" not in ready.only.encoded[name][0]
        assert "knowledge" not in collate([ready.only.encoded[name][0]])


def test_the_record_says_which_knowledge_and_only_where_there_is_some(ran, data):
    run = ran("one", data, guides={**PMI_GUIDE, "mdg": {}})
    asked = record(run)
    assert list(asked["knowledge"]) == ["pmi"]
    known = asked["knowledge"]["pmi"]
    assert len(known["key"]) == 32
    assert known["options"] == {"window": 5, "minimum": 1, "lower": True}
    assert known["fingerprint"]["words"]
    assert "pmi took its knowledge from pmi (window 5, minimum 1, lower True)" in (run / "README.md").read_text()
    values = [entry["guide/pmi"] for entry in log(run) if "guide/pmi" in entry]
    assert len(values) > 5
    assert all(value > 0 for value in values)
    assert "knowledge" not in record(ran("two", data))


def test_seeds_share_what_was_built_and_the_cache_may_lie_elsewhere(prepared, tmp_path, encoder, data, cache):
    first = prepared()
    before = built(cache)
    assert len(before) == 1
    assert prepared(seed=2).knowledge == first.knowledge
    assert built(cache) == before
    prepared(guides={"pmi": {"pattern": {"window": 2}}})
    assert len(built(cache)) == 2
    place = RunPaths(tmp_path / "run", data, cache=tmp_path / "mine")
    prepare(check_recipe(small(encoder, guides=PMI_GUIDE), "test"), place)
    assert len(built(tmp_path / "mine")) == 1


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("pairs", {"training__label_smoothing": 0.1, "training__accumulation": 2}),
        ("sentences", {"data__padding": "fixed", "data__max_length": 12, "training__bf16": True}),
    ],
    ids=str,
)
def test_other_tasks_and_ways_to_train(ran, tmp_path, kind, changes):
    guides = {"pmi": {**PMI_GUIDE["pmi"], "on": "map"}, "dependency": {"weight": 0.1}}
    run = ran("run", write_data(tmp_path / kind, kind), task=kind, guides=guides, **changes)
    values = [entry for entry in log(run) if "guide/pmi" in entry]
    assert values
    assert all(entry["guide/pmi"] > 0 and entry["guide/dependency"] > 0 for entry in values)


def test_embeddings_are_those_of_the_encoder_before_training(prepared, ran, data, tmp_path, encoder):
    guides = {"wordsim": {"pattern": {"source": "embeddings"}, "weight": 0.1}}
    run = ran("run", data, guides=guides)
    recipe = check_recipe(small(encoder, guides=guides), "test")
    sources = Sources(lambda: embeddings_of(recipe))
    splits = prepared(guides=guides).only.splits
    (found,) = gather_knowledge(needs_of(recipe.guides), splits, sources, progress=Silence())
    assert not found.store.built
    assert record(run)["knowledge"]["wordsim"] == found.as_data()


def test_guides_may_share_knowledge(tmp_path, cache):
    split = Split((("a cat sees a dog",), ("a dog sees a cat",)), (0, 1))
    splits = Splits(None, split, split, None, whole=split, chosen=(0, 1), limited=False)
    needs = needs_of({"pmi": PMI_GUIDE["pmi"], "match": {"pattern": {"name": "pmi", "minimum": 1}, "on": "map"}})
    progress = Lines()
    found = gather_knowledge(needs, splits, Sources(no_embeddings), progress=progress, rebuild=True)
    assert [each.need.guide for each in found] == ["pmi", "match"]
    assert found[0].store is found[1].store
    assert progress.lines == ["knowledge pmi"]
    assert found[0].pairs == sum(np.count_nonzero(matrix.rows != matrix.columns) for matrix in found[0].store) > 0


@pytest.mark.parametrize("changes", [{"data__validation_fraction": 0.2}, {"data__fraction": 0.5}], ids=str)
def test_seeds_that_train_on_other_parts_of_a_file_share_what_does_not_depend_on_them(prepared, data, cache, changes):
    if "data__validation_fraction" in changes:
        (data / "validation.tsv").unlink()
    guides = {"dependency": {"weight": 0.1}, "pmi": PMI_GUIDE["pmi"]}
    first, second = (prepared(guides=guides, seed=seed, **changes) for seed in (1, 2))
    assert first.only.splits.train.texts != second.only.splits.train.texts
    assert first.knowledge["dependency"]["key"] == second.knowledge["dependency"]["key"]
    assert first.knowledge["pmi"]["key"] != second.knowledge["pmi"]["key"]  # it counts its training texts only
    assert len(list(cache.glob("dependency-*.lock"))) == 1
    alone = gather(Dependency(), second.only.splits.train.texts, cache=cache / "alone")
    tokens = second.only.encoded["train"]
    for place, matrix in enumerate(alone):  # and each example gets what is known about it
        part = slice(tokens.starts[place], tokens.starts[place + 1])
        expected = token_vector(matrix, words_of_tokens(tokens.offsets[part], tokens.sources[part], matrix.spans))
        np.testing.assert_array_equal(second.train[place]["knowledge"][Dependency().entry("received")], expected)


@pytest.mark.parametrize("changes", [{"data__limit": {"train": 10}}, {"data__fraction": 0.25}], ids=str)
def test_a_small_part_of_a_file_is_built_alone(prepared, cache, changes):
    run = prepared(guides={"dependency": {"weight": 0.1}}, **changes)
    (folder,) = [path for path in cache.glob("dependency-*") if path.is_dir()]
    assert len(Stored(folder, run.knowledge["dependency"]["key"])) == len(run.only.splits.train) == 10


# -- resuming ---------------------------------------------------------------------------------------------------------


def vectors(path, seed):
    random = np.random.default_rng(seed)
    words = "the a cat dog bird man woman house tree river sees likes surely never perhaps".split()
    return write_table(path, [[word, *(f"{each:.3f}" for each in random.normal(size=4))] for word in words], " ")


def test_a_stopped_run_resumes_with_the_same_knowledge_only(headwise, write_recipe, data, tmp_path):
    vectors(data / "words.txt", 1)
    guides = {"wordsim": {"pattern": {"source": "vectors", "path": "words.txt"}, "weight": WEIGHT}}
    recipe = write_recipe(guides=guides)
    words = ["train", recipe, "--data", data, "--cache", tmp_path / "mine", "--output", tmp_path / "run"]
    assert Process(tmp_path / "p1", *words, at=(STEP, 7, signal.SIGINT)).result()[0] == 130
    before = (tmp_path / "run" / "headwise.json").read_bytes()
    vectors(data / "words.txt", 2)
    assert_refused_build(headwise(*words, "--resume"), "holds a run with other knowledge")
    assert (tmp_path / "run" / "headwise.json").read_bytes() == before
    vectors(data / "words.txt", 1)
    assert headwise(*words, "--resume")[0] == 0
    assert headwise(*words[:-1], tmp_path / "whole")[0] == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert len(built(tmp_path / "mine")) == 2


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guides", "part"),
    [
        ({"dependency": {"pattern": {"model": "no_such_model"}}}, "no_such_model"),
        ({"wordsim": {"pattern": {"source": "vectors", "path": "nowhere.txt"}}}, "nowhere.txt"),
        ({"pmi": {"pattern": {"minimum": 100000}}}, "minimum"),
        ({"pmi": {"pattern": {"windows": 3}}}, "windows"),
    ],
    ids=str,
)
def test_mistakes_come_to_light_before_anything_is_written(headwise, write_recipe, data, tmp_path, cache, guides, part):
    recipe = write_recipe(guides={"pmi": {}, **guides})
    result = headwise("train", recipe, "--data", data, "--output", tmp_path / "run")
    assert_one_sentence(result, part)
    assert not (tmp_path / "run").exists()
    assert not built(cache)


def test_texts_in_which_nothing_is_known_are_refused(headwise, write_recipe, tmp_path):
    table = [["sentence", "label"], *([word, word] for word in ("cat", "dog") * 4)]
    for split in ("train", "validation"):
        write_table(tmp_path / "words" / f"{split}.tsv", table)
    for guide, part in (("pmi", "no two words"), ("dependency", "knows nothing about any word of the 8 training")):
        recipe = write_recipe(task="sentences", guides={guide: {}})
        words = ["train", recipe, "--data", tmp_path / "words", "--output", tmp_path / "run"]
        assert_refused_build(headwise(*words), part)
        assert not (tmp_path / "run").exists()


def assert_refused_build(result, part):
    """As any mistake, though the bar of the build may stand before it."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("headwise: ")
    assert part in err.splitlines()[-1]
    assert "Traceback" not in err


# -- looking at it -----------------------------------------------------------------------------------------------------


def test_the_strongest_pairs_by_hand():
    texts = ("pain or pain", "no pain")
    spans = np.array([[0, 0, 4], [0, 5, 7], [0, 8, 12], [1, 0, 2], [1, 3, 7]], np.int32)
    rows, columns = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 4, 3, 4])
    pairs = strongest(WordMatrix(spans, rows, columns, np.array([9, 0.5, 0.5, 2, 1], np.float32)), texts)
    shown = [[(word.word, word.text, word.index) for word in (pair.first, pair.second)] for pair in pairs]
    assert shown == [
        [("pain", 0, 2), ("no", 1, 0)],
        [("pain", 0, 2), ("pain", 1, 1)],
        [("pain", 0, 0), ("pain", 0, 2)],
        [("or", 0, 1), ("pain", 1, 1)],
    ]
    assert [pair.value for pair in pairs] == [2, 1, 0.5, 0.5]
    assert [pair.across for pair in pairs] == [True, True, False, True]
    assert (pairs[0].second.start, pairs[0].second.end) == (0, 2)


# -- guides that look for tokens of a kind --------------------------------------------------------------------------

TEXTS = (("one.", "two"), ("three", "four"), ("five. six.", "seven."))


def test_examples_are_counted_not_tokens_few_are_logged_and_none_is_refused():
    tokenizer = find_encoder("builtin:minilm-l6").tokenizer

    def counted(guides, texts=TEXTS):
        progress = Lines()
        encoded = encode(Split(texts, (0,) * len(texts)), tokenizer, 32)
        return count_targets(guides, encoded, tokenizer, progress), progress.lines

    guides = {"period": {}, "delim": {}, "next": {}, "mdg": {}, "match": {"pattern": "period"}}
    assert counted(guides) == ({"period": 2, "delim": 3, "match": 2}, [])
    assert counted({}) == ({}, [])
    counts, lines = counted({"period": {}}, (*TEXTS[:1], *TEXTS[1:2] * 10))
    assert counts == {"period": 1}
    assert lines == ["guide period: only 1 of 11 training examples have a full-stop token"]
    with pytest.raises(ValueError, match="guide period: none of the 2 training examples has a full-stop token"):
        counted({"period": {}}, TEXTS[1:2] * 2)


def test_pairs_without_a_common_word_and_single_texts_have_no_alignment():
    tokenizer = find_encoder("builtin:minilm-l6").tokenizer
    pairs = (("A man sleeps.", "The man runs."), ("Dogs run.", "Cats sleep."), ("One.", "Two."))

    def counted(texts):
        encoded = encode(Split(texts, (0,) * len(texts)), tokenizer, 32)
        return count_targets({"alignment": {}}, encoded, tokenizer, Silence())

    assert counted(pairs * 30) == {"alignment": 30}
    for texts in (pairs[1:], (("A man and a man.",),)):
        with pytest.raises(ValueError, match=r"examples has a target \(it needs pairs of texts.*guide nothing"):
            counted(texts)


def test_recipes_count_the_tokens_of_the_training_examples(prepared):
    ready = prepared(guides={"alignment": {"weight": 0.1}})
    (guide,) = guidance(ready.model).guides
    train = ready.only.encoded["train"]
    assert guide.idf == token_idf(train[index]["input_ids"] for index in range(len(train)))
    assert ready.targets["alignment"] > 0


def test_relations_that_never_occur_are_refused(prepared, data):
    guides = {"relations": {"pattern": {"path": "terms.tsv"}}}
    (data / "terms.tsv").write_text("xyzzy\tplugh\n", encoding="utf-8")
    with pytest.raises(ValueError, match="relations finds no two related terms of its file in any of the .* training"):
        prepared(guides=guides)
    (data / "terms.tsv").write_text("xyzzy plugh\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"terms.tsv line 1: expected two terms .* got 'xyzzy plugh'"):
        prepared(guides=guides)
