"""Words that a person marks: what a word is, what is saved, and what is resumed or refused."""

import json
import random

import pytest

from headwise.data.marking import Marking, find_words, marks_file, read_rows, show_order
from headwise.errors import InputError

SPELLED = {
    'I don\'t like the "great" idea... really!!!': "I don't like the great idea really",
    "thanks :) #happy and/or state-of-the-art": "thanks :) happy and/or state-of-the-art",
    "sad😀!! <b>C++</b> $5 -- 5€": "sad 😀!! b>C b 5 -- 5 €",
    "我喜欢。ok": "我 喜 欢 ok",
    "हिन्दी में, cafe\u0301": "हिन्दी में cafe\u0301",
    "か\u3099 ❤\ufe0f": "か\u3099 ❤\ufe0f",
    " \n": "",
}


@pytest.mark.parametrize("text", SPELLED)
def test_words(text):
    assert " ".join(text[start:end] for start, end in find_words(text)) == SPELLED[text]


def test_words_of_any_text_are_in_order_and_apart_and_lose_no_letter():
    chance = random.Random(3)
    for _ in range(300):
        text = "".join(chance.choices("aé9_ \n.,'-!😀+我\u0301", k=chance.randrange(12)))
        words = find_words(text)
        inside = [place for start, end in words for place in range(start, end)]
        assert inside == sorted(set(inside))
        assert all(start < end for start, end in words)
        assert all(place in inside for place, letter in enumerate(text) if letter.isalnum() or letter == "😀")
        assert not any(letter.isspace() for start, end in words for letter in text[start:end])


@pytest.fixture
def tweets(tmp_path):
    path = tmp_path / "tweets.csv"
    path.write_text(
        'text,label,id\n"so good, 😀 so bad",positive,7\n  ,none,8\n"a ""b""\nc",negative,9\nlast one,,10\n'
    )
    return path


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": "a b c", "sentence2": "d e", "label": n, "x": float("nan")} for n in range(6)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def saved(marking):
    return [json.loads(line) for line in marking.output.read_text().splitlines()]


def test_columns_are_guessed_and_every_example_is_saved_at_once(tweets, tmp_path):
    rows = read_rows(tweets)
    assert (str(rows.columns), len(rows.rows), rows.empty) == ("text: text; label: label", 3, 1)
    marking = Marking(rows, tmp_path / "m.jsonl")
    shown = marking.example(0)
    assert (shown["label"], shown["state"], shown["total"], shown["done"]) == ("positive", "new", 3, 0)
    assert shown["texts"] == [["", "so", " ", "good", ", ", "😀", " ", "so", " ", "bad", ""]]
    assert not marking.output.exists()
    after = marking.save(0, [[0, 1, 2], [0, 4, 4]])
    first = {"text": "so good, 😀 so bad", "label": "positive", "id": "7", "marks": [[3, 10], [14, 17]]}
    assert saved(marking) == [first]
    assert [first["text"][start:end] for start, end in first["marks"]] == ["good, 😀", "bad"]
    assert (after["number"], after["label"], "".join(after["texts"][0])) == (1, "negative", 'a "b"\nc')
    marking.save(1, [], skip=True)
    end = marking.save(2, [])
    assert (end["number"], "texts" in end) == (3, False)
    assert [line["marks"] for line in saved(marking)] == [[[3, 10], [14, 17]], [], []]
    assert [line.get("skipped") for line in saved(marking)] == [None, True, None]
    assert marking.save(0, [[0, 0, 1], [0, 2, 2]])["number"] == 1  # again; words beside each other are one span
    assert saved(marking)[0]["marks"] == [[0, 10]]
    counts = {"total": 3, "saved": 3, "marked": 1, "unmarked": 1, "skipped": 1}
    assert marking.close() == {"output": str(marking.output), **counts}
    with pytest.raises(InputError, match="ended"):
        marking.save(0, [])


def test_pairs_have_spans_of_both_texts_and_marking_resumes(pairs, tmp_path):
    def start(**options):
        return Marking(read_rows(pairs), tmp_path / "m.jsonl", **options)

    marking = start(seed=5, limit=4)
    order = [marking.example(0)["label"]]
    for number in range(2):
        order.append(marking.save(number, [[0, 1, 2], [1, 0, 0]])["label"])
    assert [line["marks"] for line in saved(marking)] == [[[0, 2, 5], [1, 0, 1]]] * 2
    again = start(seed=5, limit=3)
    assert (again.resumed, again.done, again.total) == (2, 2, 3)
    assert again.example(1)["words"] == [[0, 1, 2], [1, 0, 0]]
    assert again.example(1)["state"] == "saved"
    assert again.example(2)["label"] == order[2]
    again.save(2, [], skip=True)
    assert start(seed=5).example(2)["state"] == "skipped"
    assert (start(seed=5, limit=1).total, start(seed=5).total) == (3, 6)  # what is saved is never cut
    with pytest.raises(InputError, match=r"m.jsonl line 1 does not match the examples of .*pairs.jsonl"):
        start(seed=6)
    assert sorted(show_order(50, 1)) == list(range(50)) == show_order(50, None)
    assert show_order(50, 1) != show_order(50, 2)


def test_another_file_and_damaged_marks_are_refused(tweets, tmp_path):
    output = tmp_path / "m.jsonl"
    Marking(read_rows(tweets), output).save(0, [[0, 0, 0]])
    whole = output.read_text()
    assert Marking(read_rows(tweets), output).done == 1
    for change in (
        ("[[0, 2]]", "[[0, 99]]"),
        ("[[0, 2]]", "[[2, 0]]"),
        ("[[0, 2]]", "[[0, 0, 2]]"),
        ("[[0, 2]]", "[[0, true]]"),
        ('"marks"', '"other"'),
        ("good", "fine"),
        ("}", ""),
    ):
        output.write_text(whole.replace(*change, 1))
        with pytest.raises(InputError, match="line 1 does not match"):
            Marking(read_rows(tweets), output)
    output.write_text(4 * whole)
    with pytest.raises(InputError, match="line 2 does not match"):
        Marking(read_rows(tweets), output)
    output.write_text(whole)
    tweets.write_text(tweets.read_text().replace("so bad", "so sad"))
    with pytest.raises(InputError, match="line 1 does not match"):
        Marking(read_rows(tweets), output)
    with pytest.raises(InputError, match="is the file with the examples"):
        Marking(read_rows(tweets), tweets)
    assert output.read_text() == whole


def test_a_failed_save_changes_nothing(tweets, tmp_path):
    (tmp_path / "folder").mkdir()
    marking = Marking(read_rows(tweets), tmp_path / "folder" / "m.jsonl")
    for number, words in (
        (0, [[0, 0, 99]]),
        (0, [[1, 0, 0]]),
        (0, [[0, 2, 1]]),
        (0, [[0, 0, 4]] * 2),
        (1, []),
        (-1, []),
    ):
        with pytest.raises(InputError, match="load the page again"):
            marking.save(number, words)
    (tmp_path / "folder").rmdir()
    with pytest.raises(OSError, match=r"could not be written"):
        marking.save(0, [])
    assert (marking.done, marking.example(0)["state"]) == (0, "new")
    (tmp_path / "folder").mkdir()
    assert marking.save(0, [])["done"] == 1


BAD = [
    ("a.csv", "id,label\n1,b\n", {}, "none of which is known to be a text"),
    ("a.csv", "text,label\na,b\n", {"text": "x"}, "none named 'x'"),
    ("a.csv", "text,label\na,b\n", {"label": "x"}, "none named 'x'"),
    ("a.csv", "text,label\na,b\n", {"pair": "label"}, "text=NAME"),
    ("a.csv", "text,label\na,b\n", {"text": "text", "pair": "text"}, "the same column"),
    ("a.csv", "text,marks\na,b\n", {}, "has a column 'marks'"),
    ("a.csv", "text,label\n", {}, "has no example with a text"),
    ("a.csv", "text,label\na\n", {}, "line 2: expected 2 fields"),
    ("a.csv", "", {}, "is empty"),
    ("a.jsonl", '{"text": "a"}\n{"txt": "a"}\n', {}, "line 2: expected a text in 'text', got the keys 'txt'"),
    ("a.jsonl", '{"text": "a"}\n{"text": ["a"]}\n', {}, "line 2: expected a text in 'text', got ['a']"),
    ("a.jsonl", '{"text": "a"}\n{"text": "a", "skipped": 1}\n', {}, "line 2 has a key"),
    ("a.jsonl", '{"text": "a", "b": "\\ud800"}\n', {}, "line 1 holds half of a letter"),
    ("a.jsonl", f'{{"text": "{50001 * "a"}"}}\n', {}, "50,001 characters, expected at most 50,000"),
    ("a.parquet", "PAR1", {}, "expected csv, tsv, jsonl"),
]


@pytest.mark.parametrize(("name", "content", "options", "part"), BAD)
def test_bad_files_are_refused(tmp_path, name, content, options, part):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as error:
        read_rows(tmp_path / name, **options)
    assert part in str(error.value)


def test_named_columns_and_the_name_of_the_output(tmp_path):
    path = tmp_path / "a.b.tsv"
    path.write_text("claim\tevidence\tverdict\nx\ty\tno\n")
    rows = read_rows(path, text="claim", pair="evidence", label="verdict")
    assert (rows.rows[0].texts, rows.rows[0].label) == (("x", "y"), "no")
    assert str(read_rows(path, text="claim").columns) == "text: claim; label: none"
    assert marks_file(path).name == marks_file(tmp_path / "a.b.tsv.gz").name == "a.b.marks.jsonl"
