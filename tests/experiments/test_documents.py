"""JSON documents are read strictly, and what is wrong with one is named by its key path."""

import json
from pathlib import Path

import pytest
from pydantic import Field

from headwise import documents
from headwise.documents import Count, Document
from headwise.errors import InputError

PLACE = Path("run") / "file.json"


class Part(Document):
    """A part."""

    name: str
    values: list[float] = Field(default=[])


class Whole(Document):
    """A whole."""

    count: Count
    parts: dict[str, Part]
    maybe: list[int | str] = []


GOOD = {"count": 3, "parts": {"a": {"name": "x", "values": [1, 2.5]}}, "more": {"anything": None}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("NaN", "the content is nan, expected a finite number"),
        ('{"a": [1, {"b": -Infinity}]}', "a.1.b is -inf, expected a finite number"),
        ('{"a": 1e999}', "a is inf, expected a finite number"),
        ("9" * 20, "the number 999999999999... has 20 digits"),
        ("9" * 5000, "int string conversion|digits"),
        ("[" * 100_000 + "]" * 100_000, "it is nested deeper than 100 levels"),
        ('"\\ud800"', "a half of a surrogate pair"),
    ],
)
def test_what_is_no_proper_json(text, reason):
    with pytest.raises(ValueError, match=reason):
        documents.parse(text)


def test_logs_may_have_numbers_that_are_not_finite():
    assert documents.parse('{"a": Infinity, "b": 2}', finite=False) == {"a": float("inf"), "b": 2}


def test_a_good_document_is_given_back_as_it_is():
    assert documents.check(GOOD, Whole, PLACE, "make it again") is GOOD


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"count": -1}, "count is -1, expected greater than or equal to 0"),
        ({"count": True}, "count is true, expected a whole number"),
        ({"count": "3"}, 'count is "3", expected a whole number'),
        ({"count": 2.0}, "count is 2.0, expected a whole number"),
        ({"parts": {"a": {}}}, "parts.a.name is missing"),
        ({"parts": {"a": {"name": "x", "values": [1, "2"]}}}, 'parts.a.values.1 is "2", expected a number'),
        ({"parts": []}, "parts is [], expected keys with values"),
        ({"maybe": [3, None]}, "maybe.1 is null, expected a whole number"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(change, reason):
    with pytest.raises(InputError) as caught:
        documents.check({**GOOD, **change}, Whole, PLACE, "make it again")
    assert str(caught.value) == f"{PLACE} is damaged ({reason}): make it again."


@pytest.mark.parametrize("content", [None, 3, [], "text"])
def test_a_document_is_an_object(content):
    with pytest.raises(InputError, match=r"is damaged \(the content is .*, expected keys with values\)"):
        documents.check(content, Whole, PLACE, "make it again")


def test_long_values_are_cut():
    with pytest.raises(InputError) as caught:
        documents.check({**GOOD, "count": "x" * 10_000}, Whole, PLACE, "make it again")
    assert len(str(caught.value)) < 200


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"none.json is damaged \(No such file or directory\): train again\."):
        documents.read(tmp_path / "none.json", "train again")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bytes.json is damaged \(.*can't decode.*\): train again\."):
        documents.read(tmp_path / "bytes.json", "train again")


def test_numbers_that_are_not_finite_are_written_as_null():
    content = {"a": float("nan"), "b": [1.5, float("inf"), (float("-inf"), "x")], "c": {"d": 3}}
    assert documents.finite(content) == {"a": None, "b": [1.5, None, [None, "x"]], "c": {"d": 3}}
    assert documents.parse(json.dumps(documents.finite(content)))
