"""Runs that are guided by marked words, from the recipe to the record."""

import json

import pytest
from tiny_runs import changed, record, small

from headwise.data import Split, encode
from headwise.errors import HeadwiseWarning, InputError
from headwise.experiments import check_recipe
from headwise.experiments.gather_knowledge import count_marked
from headwise.experiments.prepare import RunPaths, prepare
from headwise.experiments.run import train
from headwise.training import Silence, find_encoder

LIMIT = {"train": 40, "validation": 20, "test": 20}


class Lines(Silence):
    def __init__(self):
        self.lines = []

    def log(self, message):
        self.lines.append(message)


def recipe(encoder, **changes):
    """The built-in task knows which words decide."""
    plain = changed(small(encoder), task={"name": "clinic"}, data__limit=LIMIT, data__max_length=40, baseline=False)
    return check_recipe(changed(plain, **changes), "test")


def test_a_run_and_its_control_are_guided_by_the_marks(tmp_path):
    """With real words: to the tiny encoder they are all [UNK], which is special and never marked at random."""
    few = {"data__limit": {"train": 32, "validation": 8, "test": 8}, "training__num_train_epochs": 3}
    results = {}
    for name, options in {"guided": {}, "shuffled": {"shuffle": True}}.items():
        guides = {"rationale": {"weight": 0.1, **options}}
        train(recipe("builtin:minilm-l6", guides=guides, **few), RunPaths(tmp_path / name))
        results[name] = record(tmp_path / name)["results"]
        assert results[name]["targets"] == {"rationale": 32}
    first = {name: each["guides"]["rationale"]["first"] for name, each in results.items()}
    assert first["guided"] != first["shuffled"]  # other tokens from the first step on
    assert all(each["guides"]["rationale"]["last"] < first[name] for name, each in results.items())


def test_a_run_has_the_examples_of_its_plain_twin_and_is_not_resumed_with_other_marks(encoder, tmp_path):
    marked, plain = (recipe(encoder, guides=guides) for guides in ({"rationale": {}}, {}))
    prepared, without = (prepare(each, RunPaths(None)) for each in (marked, plain))
    assert prepared.fingerprint == without.fingerprint
    assert without.marks is None
    before = prepared.marks
    prepared.only.encoded["train"].deciding[0][3] ^= True
    assert prepared.marks != before
    train(marked, RunPaths(tmp_path / "run"))
    content = record(tmp_path / "run")
    assert content["marks"] == before
    unfinished = content | {"results": None, "marks": prepared.marks}
    (tmp_path / "run" / "headwise.json").write_text(json.dumps(unfinished), encoding="utf-8")
    with pytest.raises(InputError, match="with other marked words"):
        train(marked, RunPaths(tmp_path / "run"), resume=True)


def test_a_task_without_marks_is_refused(encoder, pairs, tmp_path):
    plain = check_recipe(small(encoder, guides={"rationale": {}}), "test")
    with pytest.raises(InputError, match="guide rationale needs marked words, and task 'pairs' has none"):
        prepare(plain, RunPaths(tmp_path, pairs))


def counted(spans, length=32, texts=(("no pain at all",), ("pain",))):
    tokenizer, progress = find_encoder("builtin:minilm-l6").tokenizer, Lines()
    split = Split(texts, (0,) * len(texts), spans)
    return count_marked(split, encode(split, tokenizer, length, spans=True), progress), progress.lines


def test_marks_are_counted_and_those_lost_by_truncation_are_logged():
    assert counted((((0, 3, 7),), ())) == (1, ["marks: 1 of 2 training examples, 17% of their tokens (median)"])
    count, lines = counted((((0, 11, 14),), ((0, 0, 4),)), length=4)
    assert count == 1
    assert lines[0].endswith("; 1 more lost all their marks by truncation: raise data.max_length")
    with pytest.raises(InputError, match="none of the 2 training examples has a marked token: check task.marks"):
        counted(((), ()))


def test_marks_on_nearly_everything_are_a_warning():
    text = "pain " * 30
    with pytest.warns(HeadwiseWarning, match="the marks cover 9"):
        counted((((0, 0, len(text)),),), 64, ((text,),))
