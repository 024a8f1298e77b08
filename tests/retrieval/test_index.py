"""The index: scores against the formula computed slowly, and folders that are found, mended and made anew."""

import json
import math
import random
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from headwise.cache import META, digest
from headwise.errors import DiskError, HeadwiseWarning, InputError
from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.collections import Collection, Document

PLAIN = IndexOptions(Words("none", "none"))


def collection(texts, ids=None, files=()):
    names = ids or [f"d{place}" for place in range(len(texts))]
    documents = [Document(name, "", text) for name, text in zip(names, texts, strict=True)]
    return Collection("papers", "beir", files, lambda: iter(documents), {}, {})


@pytest.fixture
def opened(tmp_path):
    """An index of some texts, in a cache of this test."""

    def open_texts(texts, options=PLAIN, **more):
        papers = texts if isinstance(texts, Collection) else collection(texts)
        return open_index(papers, options, cache=tmp_path / "cache", **more)

    return open_texts


def random_texts(seed, count=40):
    """Words of which some are common and some are rare."""
    chance = random.Random(seed)
    words = [f"w{int(chance.paretovariate(0.7)) % 60}" for _ in range(4000)]
    return [" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(count)]


def slow_scores(texts, claim, options):
    """Place -> score of every document that scores above 0."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    containing = Counter(word for document in documents for word in set(document))
    scores = {}
    for place, document in enumerate(documents):
        score = 0.0
        for word in claim.split():
            f = document.count(word)
            if f:
                part = f / (f + options.k1 * (1 - options.b + options.b * len(document) / mean))
                n = containing[word]
                score += math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) * part
        if score > 0:
            scores[place] = score
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.0, 1.0), (2.0, 0.0)])
def test_scores_are_those_of_the_formula(opened, k1, b):
    options = replace(PLAIN, k1=k1, b=b)
    texts = random_texts(3)
    claims = [*random_texts(4, 8), "w1 w1 w1 w2", "w1 unheard"]
    for claim, found in zip(claims, opened(texts, options).search(claims, 100), strict=True):
        expected = slow_scores(texts, claim, options)
        assert dict(found) == pytest.approx(expected, rel=1e-5)
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True)


def test_a_case_worked_by_hand(opened):
    # Mean length 5/3, "fever" in 2 of 3: log(1 + 1.5 / 2.5) = 0.470004.
    # d0: 1 / (1 + 1.5 * (0.25 + 0.75 * 0.6)) = 1 / 2.05; d1: 2 / (2 + 1.5 * (0.25 + 0.75 * 1.8)) = 2 / 4.4.
    (found,) = opened(["fever", "fever fever cough", "cough"]).search(["Fever!"], 10)
    assert [place for place, _ in found] == [0, 1]
    assert [score for _, score in found] == pytest.approx([0.470004 / 2.05, 0.470004 * 2 / 4.4], abs=1e-6)


def test_a_title_is_searched_as_well(tmp_path):
    papers = Collection(
        "papers", "beir", (), lambda: iter([Document("1", "Fever", "x"), Document("2", "", "y")]), {}, {}
    )
    assert open_index(papers, cache=tmp_path).candidates({"c": "fevers"}, 5)["c"].keys() == {"1"}


def test_fewer_candidates_are_the_first_of_more(opened):
    index = opened(random_texts(5))
    claims = random_texts(6, 10)
    whole = index.search(claims, 40)
    for top in (1, 2, 7, 39):
        assert index.search(claims, top) == [found[:top] for found in whole]
    assert index.search(claims, 1000) == whole


def test_ties_are_in_the_order_of_the_corpus(opened):
    index = opened(["cough", *["fever"] * 30, "fever fever"])
    for top in (2, 3, 11, 30):
        (found,) = index.search(["fever"], top)
        assert [place for place, _ in found] == [31, *range(1, top)]


def test_claims_that_share_no_word_have_no_candidates(opened):
    index = opened(["fever", "cough"], IndexOptions())
    assert index.search(["", "?!", "the of", "headache"], 5) == [[], [], [], []]
    assert index.candidates({"1": "headache", "2": "Cough"}, 5) == {
        "1": {},
        "2": {"d1": pytest.approx(0.277, abs=1e-3)},
    }
    assert index.search([], 5) == []


def test_a_document_without_words_is_never_found(opened):
    index = opened(["...", "fever", ""])
    assert [place for place, _ in index.search(["fever ..."], 5)[0]] == [1]
    assert len(index.corpus) == 3


def test_letters_of_all_kinds_are_found(opened):
    index = opened(["β-catenin in liver", "IL-6 and p53", "catenin"], IndexOptions())
    found = index.search(["β catenin", "il6", "IL 6"], 3)
    assert [[place for place, _ in each] for each in found] == [[0, 2], [], [1]]


# -- folders -----------------------------------------------------------------------------------------------------------


def times(*folders):
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.iterdir()}


def test_an_index_is_found_again(opened):
    texts, claims = random_texts(11), random_texts(12, 6)
    first = opened(texts)
    before = times(first.folder, first.corpus.folder)
    second = opened(list(texts))
    assert (first.built, second.built) == (True, False)
    assert second.folder == first.folder
    assert times(first.folder, first.corpus.folder) == before
    assert second.search(claims, 9) == first.search(claims, 9)


def test_rebuild_makes_it_again(opened):
    texts = random_texts(11)
    before = times(opened(texts).folder)
    again = opened(texts, rebuild=True)
    assert again.built
    assert times(again.folder).keys() == before.keys()
    assert times(again.folder) != before


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, k1=1.2),
        replace(PLAIN, b=0.5),
        replace(PLAIN, words=Words("english", "none")),
        replace(PLAIN, words=Words("none", "english")),
    ],
)
def test_other_options_have_another_index_over_the_same_documents(opened, other):
    texts = ["fever", "the cough"]
    first = opened(texts)
    before = times(first.corpus.folder)
    second = opened(texts, other)
    assert second.built
    assert second.folder != first.folder
    assert second.corpus.folder == first.corpus.folder
    assert times(first.corpus.folder) == before


def test_a_changed_file_has_another_index(opened, tmp_path):
    file = tmp_path / "corpus.jsonl"
    found = []
    for texts in (["fever"], ["cough"], ["fever"]):
        file.write_text(texts[0])
        index = opened(collection(texts, files=(file,)))
        found.append((index.folder, index.corpus.folder, index.built))
        assert index.corpus.text(0) == texts[0]
    assert found[0][:2] == found[2][:2]
    assert not {*found[0][:2]} & {*found[1][:2]}
    assert [built for *_, built in found] == [True, True, False]


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def forge(path):
    """A file of another store, or none."""
    if path.name == META:
        meta = {**json.loads(path.read_text()), "key": "another"}
        del meta["seal"]
        path.write_text(json.dumps({**meta, "seal": digest(meta)}))
    else:
        path.unlink()


@pytest.mark.parametrize("damage", [cut_short, flip, forge])
@pytest.mark.parametrize(
    ("folder", "name"), [("documents", "texts.bin"), ("index", "data.csc.index.npy"), ("index", META)]
)
def test_what_is_damaged_is_told_and_made_again(opened, tmp_path, damage, folder, name):
    texts, claims = random_texts(13, 10), random_texts(14, 3)
    expected = opened(texts).search(claims, 5)
    (path,) = (tmp_path / "cache" / "retrieval").glob(f"{folder}-*/{name}")
    damage(path)
    reason = r"\S+ has \d+ bytes, not \d+" if damage is cut_short and name != META else ""
    with pytest.warns(HeadwiseWarning, match=f"{path.parent} is damaged and is built again: {reason}"):
        mended = opened(texts)
    assert mended.search(claims, 5) == expected
    assert mended.built == (folder == "index")
    assert not opened(texts).built


def test_what_is_not_ours_is_not_replaced(opened):
    index = opened(["fever"])
    for path in index.folder.iterdir():
        path.unlink()
    (index.folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="was not made by headwise: move it away"):
        opened(["fever"])
    assert (index.folder / "thesis.tex").read_text() == "years of work"


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"file/retrieval could not be written \(.+\): make room"):
        open_index(collection(["fever"]), cache=tmp_path / "file")


class Told:
    """A listener that keeps what it receives."""

    def __init__(self):
        self.starts, self.done, self.lines, self.ends = [], [], [], 0

    def start(self, what, total, done=0):
        self.starts.append((what, total))

    def advance(self, done, note=""):
        self.done.append(done)

    def log(self, message):
        self.lines.append(message)

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("stage", ["documents", "index"])
def test_a_build_that_is_stopped_leaves_nothing_and_the_next_one_works(opened, tmp_path, monkeypatch, stage):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.retrieval.corpus.EVERY_STORED", 1000)
    listener = Told()
    monkeypatch.setattr(listener, "log" if stage == "documents" else "advance", stop)
    texts = ["fever"] * 1000
    with pytest.raises(KeyboardInterrupt):
        opened(texts, listener=listener)
    left = [path.name[:6] for path in (tmp_path / "cache" / "retrieval").iterdir() if path.is_dir()]
    assert left == ([] if stage == "documents" else ["docume"])
    assert opened(texts).built


def test_what_dead_builders_left_is_removed(opened, tmp_path):
    left = tmp_path / "cache" / "retrieval" / "index-of-somebody.draft"
    left.mkdir(parents=True)
    (left / "half.npy").write_text("half")
    opened(["fever"])
    assert not left.exists()


def test_a_kill_while_the_old_one_is_deleted_does_not_stand_in_the_way(opened, monkeypatch, tmp_path):
    index = opened(["fever"])
    delete = shutil.rmtree

    def killed(folder, **options):
        """Dies after its first file, which is the one that says whose the folder is."""
        if (folder / META).is_file():
            (folder / META).unlink()
            raise SystemExit
        delete(folder, **options)

    with monkeypatch.context() as patched:
        patched.setattr("headwise.cache.shutil.rmtree", killed)
        with pytest.raises(SystemExit):
            opened(["fever"], rebuild=True)
    assert list((tmp_path / "cache" / "retrieval").glob("*.old.draft"))
    assert opened(["fever"]).folder == index.folder
    opened(["cough"])
    assert not list((tmp_path / "cache" / "retrieval").glob("*.draft"))


def test_progress_never_goes_back_and_reaches_the_end(opened, monkeypatch):
    monkeypatch.setattr("headwise.retrieval.corpus.EVERY_STORED", 1000)
    first, second = Told(), Told()
    opened(["fever"] * 2500, listener=first)
    assert first.lines == ["documents stored: 1000", "documents stored: 2000"]
    assert first.starts == [("index", 2500)]
    assert first.done == sorted(first.done)
    assert first.done[-1] == 2500
    opened(["fever"] * 2500, listener=second)
    assert (second.lines, second.starts, second.done) == ([], [], [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k1": -1.0}, "k1 -1.0: expected a number of 0 or more"),
        ({"k1": math.nan}, "k1 nan"),
        ({"b": 1.5}, "b 1.5: expected a number from 0 to 1"),
    ],
)
def test_options_without_a_meaning_are_refused(change, message):
    with pytest.raises(InputError) as caught:
        IndexOptions(**change)
    assert message in str(caught.value)


def test_documents_of_stop_words_alone_cannot_be_searched(opened):
    with pytest.raises(InputError, match="none of the 2 documents has a word to search for"):
        opened(["the", "of the ..."], IndexOptions())
