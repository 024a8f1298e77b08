"""Similarity of words: the matrices of examples, from each of the sources."""

import pickle

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.patterns import WordSimilarity, build_pattern
from headwise.patterns.base import Resources
from headwise.patterns.vectors import PackagedVectors
from headwise.patterns.wordnet import find_wordnet, open_wordnet


class Plane:
    """Vectors of two numbers, whose angles are plain to see."""

    fingerprint = "plane"
    known = {"east": (2, 0), "north": (0, 1), "west": (-3, 0), "corner": (0.6, 0.8), "nil": (0, 0)}

    def look_up(self, words):
        vectors = np.array([self.known.get(word, (5, 5)) for word in words], np.float32).reshape(-1, 2)
        return vectors, np.array([word in self.known for word in words], bool)


PLANE = Resources(embeddings=Plane())


def no_spread(function, examples):
    raise AssertionError("nothing is counted over the corpus")


def build(examples, resources=PLANE, **options):
    pattern = WordSimilarity(**{"source": "embeddings", **options})
    builder = pickle.loads(pickle.dumps(pattern.builder((), resources, no_spread)))
    return builder(examples)


def test_by_hand():
    # corner is (0.6, 0.8): 0.6 to the east, 0.8 to the north. west is opposed to east (-1) and to corner (-0.6): 0.
    (matrix,) = build([("east corner", "up north west")])
    expected = [
        [1, 0.6, 0, 0, 0],
        [0.6, 1, 0, 0.8, 0],
        [0, 0, 0, 0, 0],
        [0, 0.8, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(matrix.dense(), expected, atol=1e-6)
    assert matrix.spans.tolist() == [[0, 0, 4], [0, 5, 11], [1, 0, 2], [1, 3, 8], [1, 9, 13]]
    assert len(matrix.values) == 6
    assert (matrix.rows <= matrix.columns).all()


def test_no_value_is_above_1():
    class Parallel:
        fingerprint = "parallel"

        def look_up(self, words):
            scale = np.arange(1, len(words) + 1, dtype=np.float32)[:, None]
            return scale * np.linspace(0.1, 0.7, 50, dtype=np.float32), np.ones(len(words), bool)

    text = " ".join(f"word{number}" for number in range(40))
    (matrix,) = WordSimilarity(source="embeddings").builder((), Resources(embeddings=Parallel()), None)([(text,)])
    assert len(matrix.values) == 40 * 41 / 2
    assert matrix.values.max() == 1
    assert matrix.values.min() > 0.999999


def test_small_values_are_left_out():
    for threshold, kept in [(0.5, 5), (0.7, 4), (1, 3)]:
        (matrix,) = build([("east corner north",)], threshold=threshold)
        assert len(matrix.values) == kept


def test_wordnet_is_the_default_source():
    text = "The doctor saw an ill patient, the doctors ran."
    (matrix,) = build([(text,)], Resources(), source="wordnet")
    said = [text[start:end] for _, start, end in matrix.spans]
    wordnet = open_wordnet(find_wordnet(None))
    np.testing.assert_array_equal(matrix.dense(), wordnet.similarities(said))
    assert matrix.dense()[said.index("doctor"), said.index("doctors")] == 1


def test_real_vectors_against_a_cosine_by_hand():
    text = "The nurse helped the xqzzyq doctor."
    (matrix,) = build([(text, "hospital")], Resources(), source="vectors")
    said = [(text, "hospital")[which][start:end] for which, start, end in matrix.spans]
    vectors, known = PackagedVectors.find().look_up(said)
    for one, row in enumerate(matrix.dense()):
        for two, value in enumerate(row):
            first, second = vectors[one].astype(float), vectors[two].astype(float)
            cosine = first @ second / np.sqrt((first @ first) * (second @ second))
            expected = max(0.0, cosine) if known[one] and known[two] else 0.0
            assert value == pytest.approx(expected, abs=1e-5)
    assert 0.5 < matrix.dense()[1, said.index("doctor")] < 0.95


def test_a_path_lies_below_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "words.txt").write_text("a 1 0\nb 1 0\n")
    for resources, path in (
        (Resources(data=tmp_path), "words.txt"),
        (Resources(), str(tmp_path / "words.txt")),
        (Resources(data=tmp_path / "elsewhere"), str(tmp_path / "words.txt")),
    ):
        (matrix,) = build([("a b",)], resources, source="vectors", path=path)
        np.testing.assert_array_equal(matrix.dense(), np.ones((2, 2)))
    monkeypatch.chdir(tmp_path)
    assert build([("a b",)], Resources(), source="vectors", path="words.txt")[0].dense().all()


def test_the_fingerprint_holds_the_source_and_what_is_missing_is_said_before_any_work(tmp_path):
    for source in ("wordnet", "vectors", "embeddings"):
        found = WordSimilarity(source=source).fingerprint(PLANE)
        assert set(found) == {"words", source} | ({"nltk"} if source == "wordnet" else set())
        assert found["words"]["rules"] >= 1
    with pytest.raises(InputError, match=r"needs the encoder's input embeddings: .*Resources\(embeddings="):
        WordSimilarity(source="embeddings").fingerprint(Resources())
    with pytest.raises(InputError, match=r"no file of vectors at .*/none.txt"):
        WordSimilarity(source="vectors", path="none.txt").fingerprint(Resources(data=tmp_path))
    with pytest.raises(InputError, match=r"no WordNet .* in \S*/none"):
        WordSimilarity(path="none").fingerprint(Resources(data=tmp_path))


def test_options():
    assert build_pattern({"name": "wordsim", "threshold": 0.2}) == WordSimilarity(source="wordnet", threshold=0.2)
    for options, match in [
        ({"source": "wordnt"}, r"wordsim\(source='wordnt'\): did you mean 'wordnet'"),
        ({"path": 3}, r"wordsim\(path=3\): expected the path"),
        ({"path": ""}, r"wordsim\(path=''\)"),
        ({"source": "embeddings", "path": "x"}, "embeddings have no path"),
        ({"threshold": 1.1}, r"threshold=1.1\): expected a number from 0 to 1"),
        ({"threshold": float("nan")}, "expected a number from 0 to 1"),
        ({"threshold": True}, "expected a number from 0 to 1"),
    ]:
        with pytest.raises(InputError, match=match):
            WordSimilarity(**options)
