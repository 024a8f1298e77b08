"""Marks: every source against texts whose marked words are known, and what is refused, counted or left unmarked."""

import json
import random

import pytest
from data.files import json_lines, table, write

from headwise.data import build_task, encode
from headwise.data.checks import check_files
from headwise.data.marks import words_marked
from headwise.data.near_duplicates import word_positions, words_and_signs
from headwise.errors import HeadwiseWarning, InputError
from headwise.training import find_encoder

SINGLE = ("sentence", "label", "mark")
LABELS = ("x", "y")


def rows(*marked, header=SINGLE):
    """A TSV of texts and marks, with labels that take turns."""
    return table(header, *((text, LABELS[index % 2], mark) for index, (text, mark) in enumerate(marked)))


def read(folder, content, marks, *, split="train", task="sentences", name="train.tsv", **options):
    write(folder / name, content)
    return build_task(task, {"files": {split: name}, "labels": list(LABELS), "marks": marks, **options}).read(
        split, folder
    )


def pieces(split, index=None):
    """The marked parts of each example, or of one."""
    marked = [
        [texts[number][start:end] for number, start, end in spans]
        for texts, spans in zip(split.texts, split.spans, strict=True)
    ]
    return marked if index is None else marked[index]


# -- words -------------------------------------------------------------------------------------------------------------


def test_positions_of_words_are_where_the_words_are():
    for text in ("It isn't 0.05, p_value; naïve", "abc漢字x 東京タワー no", "नमस्ते दुनिया", "", " *** "):
        found = [text[start:end].lower() for start, end in word_positions(text)]
        assert found == words_and_signs(text)


# -- a column with the selected text -----------------------------------------------------------------------------------


def test_selected_text_is_found_first_whole_and_in_any_case(tmp_path):
    content = rows(
        ("bad day, bad luck", "bad"),
        ("on wonderful days on end", "on"),  # not the end of wonderful
        ("scaffold the old on wonder", "old"),
        ("this is  soooo GOOD today", "is Soooo good"),
        ("nothing here", ""),
        ("a miserable day", "iser"),
    )
    split = read(tmp_path, content, {"column": "mark"})
    assert split.spans[:2] == (((0, 0, 3),), ((0, 0, 2),))
    assert pieces(split)[2:] == [["old"], ["is  soooo GOOD"], [], ["miserable"]]
    assert pieces(read(tmp_path, content, {"column": "mark", "widen": False}), 5) == ["iser"]


def test_a_selected_text_that_is_not_there_is_counted_and_refused_if_none_is(tmp_path):
    with pytest.warns(HeadwiseWarning, match=r"1 of 2 examples have a selected text that .*first: line 3"):
        split = read(tmp_path, rows(("good one", "good"), ("bad one", "terrible")), {"column": "mark"})
    assert split.spans == (((0, 0, 4),), ())
    with pytest.raises(InputError, match=r"no example is marked, because no text in 'mark' is part of the text"):
        read(tmp_path, rows(("good one", "x"), ("bad one", "terrible")), {"column": "mark"})


def test_several_selected_texts_and_pairs(tmp_path):
    content = json_lines(
        {"sentence1": "a man", "sentence2": "a man sleeps or rests", "label": "x", "why": ["sleeps", "rests"]},
        {"sentence1": "b", "sentence2": "c", "label": "y"},
    )
    options = {"task": "pairs", "name": "train.jsonl"}
    split = read(tmp_path, content, {"column": "why", "text": "sentence2"}, **options)
    assert split.spans == (((1, 6, 12), (1, 16, 21)), ())
    with pytest.raises(InputError, match=r"has two texts, and marks.text does not say"):
        read(tmp_path, content, {"column": "why"}, **options)


# -- stars -------------------------------------------------------------------------------------------------------------


def test_stars_are_marks_and_never_reach_the_model(tmp_path):
    texts = ("a *very good* film, *truly*!", "f*ck this s*it, 5 * 3 * 2 and **", "我*喜欢*你 *a*", "no *b*.")
    content = table(SINGLE[:2], *((text, LABELS[index % 2]) for index, text in enumerate(texts)))
    split = read(tmp_path, content, {"stars": True})
    assert [text for (text,) in split.texts] == ["a very good film, truly!", texts[1], "我喜欢你 a", "no b."]
    assert pieces(split) == [["very good", "truly"], [], ["喜欢", "a"], ["b"]]
    task = build_task("sentences", {"labels": list(LABELS), "marks": {"stars": True}})
    for labelled in (True, False):
        assert task.read_file(tmp_path / "train.tsv", labelled=labelled).texts == split.texts
    plain = table(SINGLE[:2], ("a b", "x"), ("c", "y"))
    assert read(tmp_path, plain, {"stars": True}, split="test").spans is None
    with pytest.raises(InputError, match="no text has words between stars"):
        read(tmp_path, plain, {"stars": True})


# -- spans -------------------------------------------------------------------------------------------------------------


def reference(text, spans):
    """The characters that are marked, one by one: those in spans, and all of a word that a span cuts."""
    marked = [any(start <= place < end for start, end in spans) for place in range(len(text))]
    for first, last in word_positions(text):
        for start, end in spans:
            if first < start < last or first < end < last:
                marked[first:last] = [True] * (last - first)
    return marked


def test_random_spans_are_widened_and_merged_as_the_slow_reference_says(tmp_path):
    rng = random.Random(5)
    texts = [" ".join(rng.choices(["a", "bad", "film.", "0.05", "don't", "--", "été"], k=12)) for _ in range(60)]
    spans = []
    for text in texts:
        starts = [rng.randrange(len(text) - 1) for _ in range(rng.randrange(4))]
        spans.append([[start, min(len(text), start + rng.randint(1, 6))] for start in starts])
    content = rows(*((text, json.dumps(each)) for text, each in zip(texts, spans, strict=True)))
    split = read(tmp_path, content, {"spans": "mark"})
    for (text,), found, given in zip(split.texts, split.spans, spans, strict=True):
        marked = [False] * len(text)
        for _, start, end in found:
            assert not any(marked[start:end])
            marked[start:end] = [True] * (end - start)
        assert marked == reference(text, given)
        inside = [any(marked[first:last]) for first, last in word_positions(text)]
        assert words_marked((text,), found) == (sum(inside), len(inside))


def test_shapes_of_spans(tmp_path):
    one = {"sentence": "very good film", "label": "x"}
    for value in ([[5, 9]], [5, 9], [[0, 5, 9]], [{"start": 5, "end": 9}], [[5, 9, "NAME"]], "[[5, 9]]"):
        content = json_lines({"sentence": "b", "label": "y"}, {**one, "marks": value})
        assert pieces(read(tmp_path, content, {"spans": "marks"}, name="train.jsonl")) == [[], ["good"]]
    tokens = json_lines({**one, "marks": [[1, 3]]}, {"sentence": "b", "label": "y", "marks": None})
    options = {"name": "train.jsonl"}
    assert pieces(read(tmp_path, tokens, {"spans": "marks", "unit": "tokens"}, **options), 0) == ["good film"]
    pair = json_lines({"sentence1": "a b", "sentence2": "c d", "label": "x", "marks": [[1, 2, 3], [0, 0, 1]]})
    pair += json_lines({"sentence1": "a", "sentence2": "c", "label": "y", "marks": []})
    split = read(tmp_path, pair, {"spans": "marks"}, task="pairs", **options)
    assert split.spans == (((0, 0, 1), (1, 2, 3)), ())


BAD_SPANS = [
    ("[[0, 4]]", r"train.tsv line 2: the mark \[0, 4\] is not inside its text, which has 3 characters"),
    ("[[2, 2]]", r"0 <= start < end <= 3"),
    ("[[-1, 2]]", r"0 <= start < end <= 3"),
    ("[[1, 0, 2]]", r"the mark \[1, 0, 2\] is in text 1, expected 0 to 0"),
    ("[[0, 2", r"line 2: column 'mark' holds '\[\[0, 2', which is no JSON"),
    ("[[0]]", r"line 2: column 'mark' holds the mark \[0\]: expected"),
    ("[[0, true]]", r"expected \[\[start, end\], ...\] in whole numbers"),
    ('"a"', r"holds the mark 'a'"),
]


def test_spans_that_cannot_be_used_are_refused_or_with_broken_rows_counted(tmp_path):
    for value, message in BAD_SPANS:
        content = rows(("a b", value), ("good film", "[[0, 4]]"))
        with pytest.raises(InputError, match=message):
            read(tmp_path, content, {"spans": "mark"})
        with pytest.warns(HeadwiseWarning, match=r"1 of 2 examples have marks that"):
            split = read(tmp_path, content, {"spans": "mark"}, broken_rows="drop")
        assert split.spans == ((), ((0, 0, 4),))
        # Nothing but training needs marks.
        assert read(tmp_path, content, {"spans": "mark"}, split="test").spans == split.spans
    with pytest.raises(InputError, match=r"has 2 tokens between white space"):
        read(tmp_path, rows(("a b", "[[1, 3]]")), {"spans": "mark", "unit": "tokens"})


def test_marks_that_say_nothing_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"marks every word of all 2 marked examples"):
        read(tmp_path, rows(("a b.", "[0, 3]"), ("c", "[0, 1]"), ("d e", "")), {"spans": "mark"})
    with pytest.raises(InputError, match=r"no example is marked, because nothing is marked in 'mark'"):
        read(tmp_path, rows(("a b.", "[]"), ("c", "")), {"spans": "mark"})


def test_only_training_needs_the_column(tmp_path):
    content = table(SINGLE[:2], ("a b", "x"), ("c", "y"))
    for split in ("validation", "test"):
        assert read(tmp_path, content, {"spans": "mark"}, split=split).spans is None
    with pytest.raises(InputError, match=r"has no column 'mark', only 'sentence', 'label'"):
        read(tmp_path, content, {"spans": "mark"})
    task = build_task("sentences", {"marks": {"column": "mark"}, "labels": list(LABELS)})
    assert task.read_file(tmp_path / "train.tsv", labelled=True).spans is None


# -- masks and evidence ------------------------------------------------------------------------------------------------


def test_masks_of_annotators_agree_as_counted(tmp_path):
    rng = random.Random(3)
    texts = [" ".join(rng.choices(["a", "b.", "c-d"], k=rng.randint(2, 7))) for _ in range(20)]
    masks = [[[rng.randrange(2) for _ in text.split()] for _ in range(rng.randint(1, 4))] for text in texts]
    nested = json_lines(
        *({"sentence": text, "label": LABELS[n % 2], "m": masks[n]} for n, text in enumerate(texts)),
    )
    for agreement, enough in {
        "any": lambda votes: any(votes),
        "majority": lambda votes: 2 * sum(votes) > len(votes),
        "all": lambda votes: all(votes),
    }.items():
        split = read(tmp_path, nested, {"tokens": "m", "agreement": agreement}, name="train.jsonl")
        for number, text in enumerate(texts):
            votes = zip(*masks[number], strict=True)
            expected = [word for word, each in zip(text.split(), votes, strict=True) if enough(each)]
            assert pieces(split, number) == expected


def test_masks_in_several_columns(tmp_path):
    header = ("sentence", "label", "first", "second")
    content = table(header, ("very good film", "x", "0 1 0", "[0, 1, 1]"), ("bad film", "y", "1 0", ""))
    split = read(tmp_path, content, {"tokens": ["first", "second"], "agreement": "all"})
    assert pieces(split) == [["good"], ["bad"]]
    with pytest.raises(InputError, match=r"line 2: a mask in 'm' has 2 values and the text has 3 tokens"):
        read(tmp_path, table(("sentence", "label", "m"), ("a b c", "x", "0 1"), ("d", "y", "")), {"tokens": "m"})
    with pytest.raises(InputError, match=r"column 'm' holds \[0, 2\]: expected a list of 0 and 1"):
        read(tmp_path, table(("sentence", "label", "m"), ("a b", "x", "[0, 2]"), ("d", "y", "")), {"tokens": "m"})


def test_evidence_names_sentences_that_are_joined_to_a_text(tmp_path):
    texts = {"claim": "it works", "abstract": ["One.", "It works well.", "Three."]}
    evidence = [[1], [0, 2], {"17": [{"sentences": [1], "label": "SUPPORT"}]}, "[2]", []]
    records = [{**texts, "label": LABELS[n % 2], "evidence": each} for n, each in enumerate(evidence)]
    options = {"task": "pairs", "texts": ["claim", "abstract"], "name": "train.jsonl"}
    marks = {"evidence": "evidence", "text": "abstract"}
    split = read(tmp_path, json_lines(*records), marks, **options)
    assert split.texts[0] == ("it works", "One. It works well. Three.")
    assert pieces(split) == [["It works well."], ["One.", "Three."], ["It works well."], ["Three."], []]
    bare = json_lines(*({**texts, "label": "x"} for _ in range(2)))
    tested = read(tmp_path, bare, marks, split="test", **{**options, "name": "test.jsonl"})
    assert (tested.texts, tested.spans) == (split.texts[:2], None)
    task = build_task("pairs", {"texts": ["claim", "abstract"], "labels": list(LABELS), "marks": marks})
    assert task.read_file(tmp_path / "test.jsonl", labelled=False).texts == tested.texts
    with pytest.raises(InputError, match=r"line 1: 'evidence' names sentence 3 of a text that has 3: expected 0 to 2"):
        read(tmp_path, json_lines({**records[0], "evidence": [3]}), marks, **options)
    lines = json_lines({"sentence": "One .\nTwo .", "label": "x", "e": [1]}, {"sentence": "b", "label": "y", "e": []})
    assert pieces(read(tmp_path, lines, {"evidence": "e"}, name="train.jsonl"), 0) == ["Two ."]


# -- twins and lexicons ------------------------------------------------------------------------------------------------


def test_edits_leave_what_both_twins_have(tmp_path):
    rng = random.Random(7)
    words = ["the", "film", "was", "good", "bad", "it", "is", "never"]
    pairs = [[" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(2)] for _ in range(40)]
    split = read(tmp_path, rows(*pairs), {"edit_of": "mark"})
    for (text, twin), (given,), spans in zip(pairs, split.texts, split.spans, strict=True):
        assert given == text
        kept = [text[a:b] for a, b in word_positions(text) if not any(a < end and start < b for _, start, end in spans)]
        others = iter(twin.split())
        assert all(word in others for word in kept)  # in the same order
        assert kept or not set(text.split()) & set(twin.split())
    content = rows(("It was good.", "it was BAD"), ("same", "Same"), ("no twin", ""))
    assert pieces(read(tmp_path, content, {"edit_of": "mark"})) == [["good"], [], []]


def test_twins_by_id_are_rows_with_other_labels(tmp_path):
    content = table(
        ("id", "sentence1", "sentence2", "label"),
        (1, "a red car", "a car", "x"),
        (2, "alone", "here", "x"),
        (1, "a blue car", "a car", "y"),
        (1, "a red van", "a car", "x"),
        ("", "some text", "a", "y"),
        ("", "other text", "b", "x"),
    )
    split = read(tmp_path, content, {"twin_id": "id"}, task="pairs")
    assert pieces(split) == [["red"], [], ["blue", "car"], ["red", "van"], [], []]
    only = read(tmp_path, content, {"twin_id": "id", "text": "sentence1"}, task="pairs")
    assert only.spans == split.spans
    with pytest.raises(InputError, match=r"no texts of one id differ by 'id'"):
        read(tmp_path, content, {"twin_id": "id", "text": "sentence2"}, task="pairs")


def test_terms_of_a_lexicon_are_whole_words_and_the_longest_first(tmp_path):
    write(tmp_path / "terms.txt", "heart\nHeart attack\n\nheart attack risk factor\nE. coli\nα-blocker\n0.5 mg\n")
    content = rows(
        ("A heart  attack risk, hearty.", ""),
        ("The heart. Attack it with E. COLI", ""),
        ("Α-blocker at 0.5 mg of e coli", ""),
        ("none", ""),
    )
    split = read(tmp_path, content, {"lexicon": "terms.txt"})
    assert pieces(split) == [["heart  attack"], ["heart", "E. COLI"], ["Α-blocker", "0.5 mg"], []]
    write(tmp_path / "terms.txt", "lung\n")
    with pytest.raises(InputError, match=r"no example is marked, because no term of terms.txt occurs in a text"):
        read(tmp_path, content, {"lexicon": "terms.txt"})
    with pytest.raises(InputError, match=r"gone.txt does not exist"):
        read(tmp_path, content, {"lexicon": "gone.txt"})
    assert read(tmp_path, content, {"lexicon": "gone.txt"}, split="test").spans is None
    write(tmp_path / "terms.txt", "\n--\n")
    with pytest.raises(InputError, match=r"terms.txt has no term"):
        read(tmp_path, content, {"lexicon": "terms.txt"})


# -- options -----------------------------------------------------------------------------------------------------------

BAD_OPTIONS = [
    ("sentences", {"colum": "a"}, r"marks: 'colum' is not known; did you mean 'column'"),
    ("sentences", {"column": "a", "stars": True}, r"expected one source, got both column and stars; keep one"),
    ("sentences", {"widen": True}, r"expected one source, got only \['widen'\]; add a source"),
    ("sentences", {"stars": "yes"}, r"marks.stars: expected true or false, got 'yes'"),
    ("sentences", {"stars": False}, r"marks.stars is false, and there is no other source"),
    ("sentences", {"column": 5}, r"marks.column: expected a list of texts, got 5"),
    ("sentences", {"column": ["a", "b"]}, r"marks.column: expected one column"),
    ("sentences", {"stars": True, "agreement": "any"}, r"marks.agreement is an option of tokens, not of stars"),
    ("sentences", {"tokens": "a", "agreement": "most"}, r"marks.agreement: 'most' is not known"),
    ("sentences", {"spans": "a", "unit": "words"}, r"marks.unit: 'words' is not known"),
    ("pairs", {"column": "a", "text": "sentence3"}, r"marks.text: 'sentence3' is not known"),
    ("sentences", "stars", r"marks: expected a mapping, got 'stars'"),
    ("clinic", {"stars": True}, r"marks"),
]


def test_options_that_cannot_work_are_refused():
    for task, marks, message in BAD_OPTIONS:
        with pytest.raises(InputError, match=message):
            build_task(task, {"marks": marks})
    assert build_task("sentences", {"marks": None}).marks is None


# -- headwise data check -----------------------------------------------------------------------------------------------


def test_a_check_counts_what_training_refuses(tmp_path):
    content = rows(
        ("the cat sees a dog", "cat"),
        ("the man", "the man"),
        ("the dog and the cat", "se"),
        ("a dog", ""),
        ("a hound of the house", "oun"),
    )
    train = write(tmp_path / "train.tsv", content)
    test = write(tmp_path / "test.tsv", table(SINGLE[:2], ("some text", "x"), ("more", "y")))
    report = check_files([train, test], marks={"column": "mark"})
    marks = report.files[0].marks
    assert (marks.examples, marks.share, marks.marks, marks.cut) == (3, 0.6, 3, 1)
    assert (marks.words, marks.every_word, marks.not_found) == (0.2, 1, (4,))
    assert (report.files[1].marks, marks.tokens) == (None, None)
    assert {finding.kind for finding in report.findings} >= {"marks_not_found", "marks_everywhere", "cut_words"}
    with pytest.raises(InputError, match=r"train.tsv has no column 'gone'"):
        check_files([train, test], marks={"column": "gone"})
    spans = write(tmp_path / "s.tsv", rows(("a b", "[[0, 9]]"), ("c d", "[[0"), ("e f", "[[0, 1]]"), ("g", "")))
    marks = check_files([spans], marks={"spans": "mark"}).files[0].marks
    assert (marks.examples, len(marks.outside), len(marks.broken)) == (1, 1, 1)
    assert marks.outside[0].startswith(f"{spans} line 2: the mark [0, 9]")
    stars = write(tmp_path / "stars.tsv", table(SINGLE[:2], ("a *b*", "x"), ("a b", "x"), ("c", "y")))
    report = check_files([stars], marks={"stars": True})
    assert report.files[0].duplicates.repeated.count == 1  # the stars are not part of the text
    plain = write(tmp_path / "train.tsv", table(SINGLE[:2], ("a b", "x"), ("c", "y")))
    found = check_files([plain, write(tmp_path / "test.tsv", plain.read_text())], marks={"stars": True}).findings
    assert [each.message for each in found if each.kind == "no_marks"] == ["train: no example is marked"]


def test_a_check_puts_marks_on_the_tokens_of_a_model(tmp_path, encoder):
    # In the encoder's vocabulary, so that words are tokens: [CLS] the cat sees a dog [SEP].
    tokenizer = find_encoder(encoder).tokenizer
    content = rows(
        ("the cat sees a dog", "[[0, 3], [15, 18]]"), ("a dog sees the cat", "[[15, 18]]"), ("a cat", "[0, 1]")
    )
    path = write(tmp_path / "train.tsv", content)
    tokens = check_files([path], marks={"spans": "mark"}, tokenizer=tokenizer, max_length=5).files[0].marks.tokens
    assert (tokens.limit, tokens.lost, tokens.shortened, tokens.split) == (5, 1, 1, 0)
    assert tokens.share == pytest.approx(0.4)
    cut = rows(("the cat sees a dog", "[[4, 6], [8, 12]]"), ("a dog", ""))
    write(path, cut)
    marks = check_files([path], marks={"spans": "mark", "widen": False}, tokenizer=tokenizer).files[0].marks
    assert (marks.cut, marks.tokens.split, marks.tokens.lost) == (1, 1, 0)
    split = read(tmp_path, cut, {"spans": "mark"})
    encoded = encode(split, tokenizer, 16, spans=True)
    assert [mask.tolist() for mask in encoded.deciding] == [
        [False, False, True, True, False, False, False],
        [False] * 4,
    ]
    report = check_files([path], marks={"spans": "mark"}, tokenizer=tokenizer, max_length=4)
    assert "cut to 4 tokens, 0 of 1 marked examples lose all marks and 1 lose some" in str(report.findings)
