"""JSON documents are read strictly, and what is wrong with one is named by its key path."""

import json
import time
from pathlib import Path

import pytest
from pydantic import Field

from headwise import documents
from headwise.documents import Count, Document
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.comparison.run_plots import training_curves
from headwise.experiments.head_studies.head_files import read_result
from headwise.experiments.outputs import read_outputs
from headwise.experiments.record import read_json, read_stored
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.limits import MAX_DEPTH, deeper_than, parse_json
from headwise.retrieval.cross_genre import read_answers as read_claims
from headwise.retrieval.evaluate import read_per_query
from headwise.training.checkpoints import read_state
from headwise.training.saving import run_settings

PLACE = Path("run") / "file.json"


class Part(Document):
    name: str
    values: list[float] = Field(default=[])


class Whole(Document):
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
        ('"\\ud800"', "a half of a surrogate pair"),
    ],
)
def test_what_is_no_proper_json(text, reason):
    with pytest.raises(ValueError, match=reason):
        documents.parse(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD | {"count": -1}, "count is -1, expected greater than or equal to 0"),
        (GOOD | {"count": True}, "count is true, expected a whole number"),
        (GOOD | {"count": "x" * 10_000}, f'count is "{"x" * 59}..., expected a whole number'),
        (GOOD | {"parts": {"a": {}}}, "parts.a.name is missing"),
        (GOOD | {"parts": {"a": {"name": "x", "values": [1, "2"]}}}, 'parts.a.values.1 is "2", expected a number'),
        (GOOD | {"parts": []}, "parts is [], expected keys with values"),
        (GOOD | {"maybe": [3, None]}, "maybe.1 is null, expected a whole number"),
        (None, "the content is null, expected keys with values"),
        ([], "the content is [], expected keys with values"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(content, reason):
    with pytest.raises(InputError) as caught:
        documents.check(content, Whole, PLACE, "make it again")
    assert str(caught.value) == f"{PLACE} is damaged ({reason}): make it again."


def test_what_is_whole_is_given_back_and_what_cannot_be_read_is_not(tmp_path):
    assert documents.check(GOOD, Whole, PLACE, "make it again") is GOOD
    assert documents.parse('{"a": Infinity, "b": 2}', finite=False) == {"a": float("inf"), "b": 2}  # a log may have it
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    for name, reason in (("none", "No such file or directory"), ("bytes", ".*can't decode.*")):
        with pytest.raises(InputError, match=rf"{name}.json is damaged \({reason}\): train again\."):
            documents.read(tmp_path / f"{name}.json", "train again")
    content = {"a": float("nan"), "b": [1.5, float("inf"), (float("-inf"), "x")], "c": {"d": 3}}
    assert documents.finite(content) == {"a": None, "b": [1.5, None, [None, "x"]], "c": {"d": 3}}


# -- nesting: Python's parser gives up on some, and what walks over the data afterwards on others ----------------------


def nested(depth):
    return '{"format": 1, "outputs": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("headwise.json", record.read),
        ("headwise.json", run_settings),
        ("headwise.json", read_stored),
        ("outputs.json", read_outputs),
        ("trainer_state.json", read_state),
        ("headwise-sweep.json", lambda folder: ResultFolder(folder).check()),
        ("analysis.json", lambda folder: read_result(folder, "analysis", folder)),
        ("importance.json", lambda folder: documents.read(folder / "importance.json", "train again")),
        ("run.json", lambda folder: read_stored(folder / "run.json")),
        ("any.json", lambda folder: read_json(folder / "any.json")),
        ("claims.json", lambda folder: read_per_query(folder / "claims.json")),
        ("train.json", lambda folder: read_claims(folder / "train.json")),
        ("log.jsonl", lambda folder: training_curves(folder, "m")),
    ],
)
def test_every_reader_refuses_deep_nesting_in_one_sentence(finished, tmp_path, name, read):
    if name == "log.jsonl":
        (tmp_path / "headwise.json").write_bytes((finished / "headwise.json").read_bytes())
    (tmp_path / name).write_text(nested(2000) + "\n")
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert time.process_time() - start < 1
    text = str(caught.value)
    assert name in text
    assert name != "log.jsonl" or "line 1, is damaged" in text
    assert "\n" not in text
    assert len(text) < 400


def test_depth_is_counted_in_lists_and_mappings():
    fits = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(fits) == json.loads(fits)
    for text in (nested(500), nested(2000), nested(100_000), f"[{fits}]", '{"a":' * 101 + "1" + "}" * 101):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_json(text)
    assert not deeper_than(0, 3)
    assert deeper_than(0, [])
    assert not deeper_than(1, [1, "x", None])
    data = []
    for _ in range(90):
        data = [data, data]
    start = time.process_time()
    assert not deeper_than(MAX_DEPTH, data)  # shared parts are walked over once
    assert time.process_time() - start < 1
