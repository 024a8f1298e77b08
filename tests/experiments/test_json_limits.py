"""JSON that is nested without end: one sentence, wherever a file of ours is read back."""

import json
import time

import pytest
from tiny_runs import assert_one_sentence

from headwise import documents
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
from headwise.training.checkpoints import saved_callbacks
from headwise.training.saving import run_settings

# Python's parser gives up on the one, and what walks over the data afterwards on the other.
DEPTHS = (500, 2000, 100_000)


def nested(depth):
    return '{"format": 1, "outputs": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("headwise.json", record.read),
        ("headwise.json", run_settings),
        ("headwise.json", read_stored),
        ("outputs.json", read_outputs),
        ("trainer_state.json", saved_callbacks),
        ("headwise-sweep.json", lambda folder: ResultFolder(folder).check()),
        ("analysis.json", lambda folder: read_result(folder, "analysis", folder)),
        ("importance.json", lambda folder: documents.read(folder / "importance.json", "train again")),
        ("run.json", lambda folder: read_stored(folder / "run.json")),
        ("any.json", lambda folder: read_json(folder / "any.json")),
        ("claims.json", lambda folder: read_per_query(folder / "claims.json")),
        ("train.json", lambda folder: read_claims(folder / "train.json")),
    ],
)
def test_every_reader_refuses_in_one_sentence(tmp_path, name, read, depth):
    (tmp_path / name).write_text(nested(depth) + "\n")
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert time.process_time() - start < 1
    text = str(caught.value)
    assert name in text
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_line_of_the_log(finished, tmp_path, depth):
    (tmp_path / "headwise.json").write_bytes((finished / "headwise.json").read_bytes())
    (tmp_path / "log.jsonl").write_text(nested(depth) + "\n")
    with pytest.raises(InputError, match="line 1, is damaged"):
        training_curves(tmp_path, "m")


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_commands(headwise, tmp_path, depth):
    (tmp_path / "headwise.json").write_text(nested(depth))
    for words in (["evaluate"], ["predict", "--input", "x.tsv", "--output", tmp_path / "y.tsv"], ["analyze"]):
        assert_one_sentence(headwise(words[0], tmp_path, *words[1:]), "headwise.json", "nested deeper than 100 levels")


def test_depth_is_counted_in_lists_and_mappings():
    fits = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(fits) == json.loads(fits)
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        parse_json(f"[{fits}]")
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        parse_json('{"a":' * 101 + "1" + "}" * 101)
    assert not deeper_than(0, 3)
    assert deeper_than(0, [])
    assert not deeper_than(1, [1, "x", None])


def test_shared_parts_are_walked_over_once():
    data = []
    for _ in range(90):
        data = [data, data]
    start = time.process_time()
    assert not deeper_than(MAX_DEPTH, data)
    assert time.process_time() - start < 1
