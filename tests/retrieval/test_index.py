"""Words, documents and scores of the index: against the formula, and in folders that are found or built again."""

import math
import pickle
import random
import shutil
import sys
from collections import Counter
from dataclasses import replace

import pytest
import Stemmer
from retrieval.small_collections import refusal

from headwise.cache import META
from headwise.errors import HeadwiseWarning
from headwise.retrieval.bm25 import IndexOptions, Words, open_index, plain_words
from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.corpus import open_corpus

PLAIN = IndexOptions(Words("none", "none"))


def papers_of(documents, files=()):
    return Collection("papers", "beir", files, lambda: iter(documents))


@pytest.fixture
def opened(tmp_path):
    """An index of some texts, in a cache of this test."""

    def open_texts(texts, options=PLAIN, **more):
        papers = papers_of([Document(f"d{place}", "", text) for place, text in enumerate(texts)])
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


# -- words -------------------------------------------------------------------------------------------------------------

CUT = {
    "IL-6 and IL 6": ["il", "6", "and", "il", "6"],
    "p53, TNF-α; β-Catenin": ["p53", "tnf", "α", "β", "catenin"],
    "vitamin D (hepatitis B)": ["vitamin", "d", "hepatitis", "b"],
    "p<0.05 in 1,000 of 2.5mg.": ["p", "0.05", "in", "1,000", "of", "2.5", "mg"],
    "snake_case Übelkeit ЖАР 発熱": ["snake", "case", "übelkeit", "жар", "発熱"],
    "हिन्दी में": ["हिन्दी", "में"],
    " -- ... \n": [],
}
LOOK_ALIKE = [
    ("cafe\u0301", "caf\u00e9"),
    ("5 \u00b5g", "5 \u03bcg"),
    ("\ufb01brosis", "FIBROSIS"),
    ("IL\u20116", "IL-6"),
]


def test_words_are_letters_digits_and_numbers():
    assert {text: Words("none", "none").cut(text) for text in CUT} == CUT
    assert [pair for pair in LOOK_ALIKE if plain_words(pair[0]) != plain_words(pair[1])] == []


def test_stop_words_go_before_endings_are_cut():
    # The stem of "its" is "it", a stop word; "its" itself is none.
    assert Words("english", "english").cut("The cat and its fevers") == ["cat", "it", "fever"]
    assert Words("none", "english").cut("The cat and its fevers") == ["cat", "its", "fevers"]
    assert Words("german", "none").cut("fevers") == Stemmer.Stemmer("german").stemWords(["fevers"])


def test_unknown_languages_and_a_missing_library_are_refused(monkeypatch):
    message = refusal(Words, "englisch")
    assert "stem 'englisch': expected a language; did you mean 'english'? known: " in message
    assert "stop_words 'klingon': expected a language; known: chinese, " in refusal(Words, stop_words="klingon")
    for module, package in (("bm25s", "bm25s"), ("Stemmer", "PyStemmer")):
        monkeypatch.setitem(sys.modules, module, None)
        message = f"the search needs {package}: install it by pip install 'headwise[retrieval]'"
        assert message in refusal(Words, "none", "german")


# -- documents ---------------------------------------------------------------------------------------------------------

DOCUMENTS = [
    Document("9", "Fever", "It is high.\nVery high."),
    Document("β-2", "", "No title: naïve 発熱 🤒"),
    Document("3", "Half \ud83d", "and \x00 signs\u2028"),
    Document("10", "Last", "one"),
]


def test_documents_are_read_as_they_were_written(tmp_path):
    stored = open_corpus(papers_of(DOCUMENTS), tmp_path)
    sent = pickle.dumps(stored)
    assert len(sent) < 1000  # the folder, not the content
    for corpus in (stored, pickle.loads(sent)):
        assert len(corpus) == 4
        assert [corpus.document(position) for position in range(4)] == DOCUMENTS
        assert list(corpus.ids) == ["9", "β-2", "3", "10"]
        assert corpus.text_of("β-2") == "No title: naïve 発熱 🤒"
        assert "β-2" in corpus
        assert "1" not in corpus
        assert "there is no document '1' among the 4 of the corpus" in refusal(corpus.text_of, "1")


def test_changed_files_are_read_again_and_not_kept_if_they_change_meanwhile(tmp_path):
    file, cache, found = tmp_path / "corpus.jsonl", tmp_path / "cache", []
    for text in ("fever", "cough", "fever"):
        file.write_text(text)
        index = open_index(papers_of([Document("d0", "", text)], (file,)), PLAIN, cache=cache)
        assert index.corpus.document(0).whole == text
        found.append((index.folder, index.corpus.folder, index.built))
    assert found[0][:2] == found[2][:2]
    assert not {*found[0][:2]} & {*found[1][:2]}
    assert [built for *_, built in found] == [True, True, False]
    file.write_text("as it was")

    def documents():
        yield from DOCUMENTS
        file.write_text("as it is now")

    papers = Collection("papers", "beir", (file,), documents)
    assert "the files of papers were changed while they were read" in refusal(open_corpus, papers, cache)
    assert len(open_corpus(papers, cache)) == 4


def test_repeated_ids_and_no_documents_are_refused(tmp_path):
    message = refusal(open_corpus, papers_of([*DOCUMENTS, DOCUMENTS[0]]), tmp_path)
    assert "papers has two documents with the id '9'" in message
    assert "papers has no documents" in refusal(open_corpus, papers_of([]), tmp_path)
    assert [path for path in (tmp_path / "retrieval").iterdir() if path.suffix != ".lock"] == []


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.0, 1.0), (2.0, 0.0)])
def test_scores_are_those_of_the_formula(opened, k1, b):
    options = replace(PLAIN, k1=k1, b=b)
    texts = random_texts(3)
    claims = [*random_texts(4, 8), "w1 w1 w1 w2", "w1 unheard"]
    for claim, found in zip(claims, opened(texts, options).search(claims, 100), strict=True):
        assert dict(found) == pytest.approx(slow_scores(texts, claim, options), rel=1e-5)
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True)


def test_titles_and_letters_of_all_kinds_are_found(tmp_path):
    documents = [Document("1", "Fevers", "β-catenin in liver"), Document("2", "", "IL-6 ..."), Document("3", "", "...")]
    index = open_index(papers_of(documents), cache=tmp_path)
    claims = {"title": "fever", "greek": "β catenin", "joined": "il6", "apart": "IL 6", "none": "the of ?!", "": ""}
    expected = {"title": ["1"], "greek": ["1"], "joined": [], "apart": ["2"], "none": [], "": []}
    assert {claim: list(found) for claim, found in index.candidates(claims, 5).items()} == expected
    assert index.search([], 5) == []
    assert "top 0: expected at least 1 candidate" in refusal(index.search, ["fever"], 0)


def test_fewer_candidates_are_the_first_of_more_and_ties_follow_the_corpus(opened):
    index, claims = opened(random_texts(5)), random_texts(6, 10)
    whole = index.search(claims, 40)
    for top in (1, 2, 7, 39, 1000):
        assert index.search(claims, top) == [found[:top] for found in whole]
    index = opened(["cough", *["fever"] * 30, "fever fever"])
    for top in (2, 11, 30):
        assert [place for place, _ in index.search(["fever"], top)[0]] == [31, *range(1, top)]


def test_options_and_documents_without_meaning_are_refused(opened):
    assert "k1 nan: expected a number of 0 or more" in refusal(IndexOptions, k1=math.nan)
    assert "b 1.5: expected a number from 0 to 1" in refusal(IndexOptions, b=1.5)
    message = refusal(opened, ["the", "of the ..."], IndexOptions())
    assert "none of the 2 documents has a word to search for" in message


# -- folders -----------------------------------------------------------------------------------------------------------


class Recorder:
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


def times(*folders):
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.iterdir()}


def test_an_index_is_found_again_or_built_again_and_progress_grows_to_the_end(opened, monkeypatch):
    monkeypatch.setattr("headwise.retrieval.corpus.EVERY_STORED", 1000)
    texts, claims, build, find = random_texts(11, 2500), random_texts(12, 6), Recorder(), Recorder()
    first = opened(texts, progress=build)
    assert build.lines == ["documents stored: 1000", "documents stored: 2000"]
    assert build.starts == [("index", 2500)]
    assert build.done == sorted(build.done)
    assert build.done[-1] == 2500
    before = times(first.folder, first.corpus.folder)
    second = opened(list(texts), progress=find)
    assert (find.lines, find.starts, find.done) == ([], [], [])
    assert (first.built, second.built) == (True, False)
    assert second.folder == first.folder
    assert times(first.folder, first.corpus.folder) == before
    assert second.search(claims, 9) == first.search(claims, 9)
    assert opened(texts, rebuild=True).built
    after = times(first.folder, first.corpus.folder)
    assert after.keys() == before.keys()
    assert after != before


def test_other_options_have_another_index_over_the_same_documents(opened):
    first = opened(["fever", "the cough"])
    before, folders = times(first.corpus.folder), {first.folder}
    words = Words("english", "none"), Words("none", "english")
    for other in (replace(PLAIN, k1=1.2), replace(PLAIN, b=0.5), *(replace(PLAIN, words=each) for each in words)):
        index = opened(["fever", "the cough"], other)
        assert index.built
        assert index.corpus.folder == first.corpus.folder
        folders.add(index.folder)
    assert len(folders) == 5
    assert times(first.corpus.folder) == before


def test_what_is_damaged_is_built_again_with_a_warning(opened, tmp_path):
    texts, claims = random_texts(13, 10), random_texts(14, 3)
    expected = opened(texts).search(claims, 5)
    for folder, name in (("documents", "texts.bin"), ("index", "data.csc.index.npy")):
        (path,) = (tmp_path / "cache" / "retrieval").glob(f"{folder}-*/{name}")
        path.write_bytes(path.read_bytes()[:-1])
        reason = rf"{name} has \d+ bytes, not \d+"
        with pytest.warns(HeadwiseWarning, match=f"{path.parent} is damaged and is built again: {reason}"):
            again = opened(texts)
        assert again.search(claims, 5) == expected
        assert again.built == (folder == "index")
        assert not opened(texts).built


@pytest.mark.parametrize("stage", ["documents", "index"])
def test_a_build_that_is_stopped_leaves_nothing_and_the_next_one_works(opened, tmp_path, monkeypatch, stage):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.retrieval.corpus.EVERY_STORED", 1000)
    progress = Recorder()
    monkeypatch.setattr(progress, "log" if stage == "documents" else "advance", stop)
    texts = ["fever"] * 1000
    with pytest.raises(KeyboardInterrupt):
        opened(texts, progress=progress)
    left = [path.name[:6] for path in (tmp_path / "cache" / "retrieval").iterdir() if path.is_dir()]
    assert left == ([] if stage == "documents" else ["docume"])
    assert opened(texts).built


def test_a_kill_during_a_rebuild_leaves_nothing_in_the_way(opened, monkeypatch, tmp_path):
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
