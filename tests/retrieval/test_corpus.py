"""The document store: what goes in comes out."""

import pickle

import pytest

from headwise.errors import InputError
from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.corpus import documents_key, open_corpus

DOCUMENTS = [
    Document("9", "Fever", "It is high.\nVery high."),
    Document("β-2", "", "No title: naïve 発熱 🤒"),
    Document("3", "Half \ud83d", "and \x00 signs\u2028"),
    Document("10", "Last", "one"),
]


def collection(documents, layout="beir", files=()):
    return Collection("papers", layout, files, lambda: iter(documents), {}, {})


@pytest.fixture
def corpus(tmp_path):
    return stored(collection(DOCUMENTS), tmp_path)


def stored(papers, cache):
    return open_corpus(papers, cache)


def test_documents_come_out_as_they_went_in(corpus):
    assert len(corpus) == 4
    assert [corpus.document(place) for place in range(4)] == DOCUMENTS
    assert [corpus.text(place) for place in range(4)] == [document.whole for document in DOCUMENTS]
    assert corpus.text(1) == "No title: naïve 発熱 🤒"


def test_ids_and_places_belong_together(corpus):
    assert list(corpus.ids) == ["9", "β-2", "3", "10"]
    assert [corpus.position(document) for document in corpus.ids] == [0, 1, 2, 3]
    assert "β-2" in corpus
    assert "1" not in corpus
    with pytest.raises(InputError, match="there is no document '1' among the 4 of the corpus"):
        corpus.position("1")


def test_another_process_gets_the_place_not_the_content(corpus):
    sent = pickle.dumps(corpus)
    assert len(sent) < 1000
    assert b"high" not in sent
    assert pickle.loads(sent).document(0) == DOCUMENTS[0]


def test_documents_are_read_once_and_not_at_all_the_second_time(tmp_path):
    file = tmp_path / "corpus.jsonl"
    file.write_text("stands for its content")
    rounds = []

    def documents():
        rounds.append(len(rounds))
        yield from DOCUMENTS

    papers = Collection("papers", "beir", (file,), documents, {}, {})
    first, second = (stored(papers, tmp_path / "cache") for _ in range(2))
    assert rounds == [0]
    assert first.folder == second.folder
    assert second.document(3) == DOCUMENTS[3]


def test_files_that_change_while_they_are_read_are_not_kept(tmp_path):
    file = tmp_path / "corpus.jsonl"
    file.write_text("as it was")

    def documents():
        yield from DOCUMENTS
        file.write_text("as it is now")

    papers = Collection("papers", "beir", (file,), documents, {}, {})
    with pytest.raises(InputError, match="the files of papers were changed while they were read: try again"):
        stored(papers, tmp_path / "cache")
    assert len(stored(papers, tmp_path / "cache")) == 4


def test_without_files_the_documents_are_the_key():
    keys = {documents_key(collection(each)) for each in (DOCUMENTS, DOCUMENTS[:3], DOCUMENTS[::-1])}
    assert len(keys) == 3
    assert documents_key(collection(list(DOCUMENTS))) in keys


def test_ids_that_stand_there_twice_and_no_documents_are_refused(tmp_path):
    with pytest.raises(InputError, match="papers has two documents with the id '9'"):
        stored(collection([*DOCUMENTS, DOCUMENTS[0]]), tmp_path)
    with pytest.raises(InputError, match="papers has no documents"):
        stored(collection([]), tmp_path)
    assert [path for path in (tmp_path / "retrieval").iterdir() if path.suffix != ".lock"] == []
