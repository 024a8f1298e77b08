"""`headwise heads importance`, and what all commands that study heads have in common."""

import csv
import json
import shutil

import numpy as np
import pytest
from tiny_runs import assert_done, assert_one_sentence

from headwise.experiments.apply import Source, load_tasks
from headwise.experiments.head_studies.head_importance import labelled_examples
from headwise.heads.importance import HeadImportance
from headwise.heads.similarity import importance_similarity
from headwise.training.predict import importance_on

TASKS = ["signs", "single", "number"]


def test_json_and_files_are_what_the_library_says(studied, joint, tmp_path):
    found, tasks = studied("importance"), load_tasks(joint)
    assert list(found["tasks"]) == TASKS
    examples = labelled_examples(tasks.runs, "train", Source())
    scores = {}
    for task, run in tasks.runs.items():
        expected = importance_on(run.model, examples[task].encoded, examples[task].collate)
        theirs = HeadImportance.from_dict(found["tasks"][task])
        scores[task] = theirs.scores
        assert theirs.scores == pytest.approx(expected.scores)
        assert theirs.half_width == pytest.approx(expected.half_width)
        assert (theirs.examples, theirs.stability) == (40, expected.stability)
    assert found["similarity"] == importance_similarity(scores).as_dict()
    written = json.loads((tmp_path / "found" / "importance.json").read_text())
    assert {**written, "files": found["files"]} == {"format": 1, "kind": "importance", **found}
    with (tmp_path / "found" / "importance.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["task", "layer", "head", "score", "half_width", "rank"]
    assert len(rows) == 3 * 8
    for row in rows:
        value = scores[row["task"]][int(row["layer"]), int(row["head"])]
        assert float(row["score"]) == value
        assert int(row["rank"]) == 1 + (scores[row["task"]] > value).sum()


def test_the_options_are_obeyed(studied):
    words = ("--task", "single", "--examples", 10, "--split", "validation", "--granularity", "token", "--seed", 4)
    found = studied("importance", "--normalise", "layer", *words)
    assert list(found["tasks"]) == ["single"]
    assert "similarity" not in found
    single = found["tasks"]["single"]
    assert (single["examples"], single["granularity"]) == (10, "token")
    assert (found["settings"]["split"], found["settings"]["seed"]) == ("validation", 4)
    assert np.linalg.norm(single["scores"], axis=1) == pytest.approx([1, 1])


def test_the_tables_show_the_strongest_heads_and_how_sure_they_are(study, studied):
    out, err = assert_done(study("importance", "--top", 2))
    found = studied("importance", "--overwrite")
    assert out.count(" head ") == 6
    for task in TASKS:
        scores = np.array(found["tasks"][task]["scores"])
        layer, head = np.unravel_index(scores.argmax(), scores.shape)
        width = found["tasks"][task]["half_width"][layer][head]
        assert f"layer {layer} head {head}: {scores.max():.4g} ± {width:.3g}" in out
        assert f"{found['tasks'][task]['stability']['spearman']:.3f}" in out
    assert "signs, number" in out
    assert "importance for single: 40/40" in err.splitlines()


# -- all commands ------------------------------------------------------------------------------------------------------


def test_without_output_the_files_go_into_the_run_and_a_run_of_one_task_works(headwise, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    out, _ = assert_done(headwise("heads", "importance", tmp_path / "run"))
    assert len((tmp_path / "run" / "heads" / "importance.csv").read_text().splitlines()) == 1 + 8
    assert "between tasks" not in out


def test_what_cannot_be_studied_is_refused_and_nothing_is_written(study, headwise, joint, finished, tmp_path):
    assert_one_sentence(study("importance", "--task", "sings"), "--task sings", "did you mean 'signs'?")
    assert_one_sentence(study("importance", "--granularity", "word"), "--granularity word", "batch, sample, token")
    assert_one_sentence(headwise("heads", "importance", tmp_path), "is not a run of headwise")
    for command, what in (("dissociation", "a D-score compares tasks"), ("similarity", "similarity compares tasks")):
        result = headwise("heads", command, finished, "--output", tmp_path / "found")
        assert_one_sentence(result, what, "one only (pairs)")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").write_text("x")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        assert_one_sentence(headwise("heads", "importance", joint, "--output", path), "taken is a file", "--output")
    run = shutil.copytree(joint, tmp_path / "run")
    record = json.loads((run / "headwise.json").read_text())
    (run / "headwise.json").write_text(json.dumps({**record, "results": None}))
    for command in ("importance", "prune-curve", "dissociation", "similarity"):
        assert_one_sentence(headwise("heads", command, run), "holds a run that is not finished")
    assert not (run / "heads").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("importance", ("--examples", 4)),
        ("prune-curve", ("--number", 1, "--no-controls", "--examples", 4, "--limit", 4)),
        ("dissociation", ("--number", 1, "--no-controls", "--examples", 4, "--limit", 4, "--resamples", 5)),
        ("similarity", ("--examples", 4)),
    ],
)
def test_earlier_results_are_replaced_only_with_overwrite(headwise, joint, tmp_path, command, options):
    words = ("heads", command, joint, "--output", tmp_path, *options)
    assert headwise(*words)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    path = tmp_path / f"{command}.json"
    assert_one_sentence(headwise(*words), f"{path} exists already: pass --overwrite to replace it.")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    path.write_text("old")
    assert headwise(*words, "--overwrite")[0] == 0
    assert path.read_bytes() == before[path.name]
