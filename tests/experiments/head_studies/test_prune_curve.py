"""The pruning curve of a run: every number against a slow evaluation, one mask at a time."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import headwise as hw
from headwise.attention import mask
from headwise.data import build_task
from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.apply import Source, evaluate, load_run, load_tasks
from headwise.experiments.head_studies.curve_masks import MATCHED, CurveSettings, planned_masks
from headwise.experiments.head_studies.head_importance import labelled_examples
from headwise.experiments.head_studies.prune_curve import find_curve, measure_curve, write_curve
from headwise.experiments.splits import read_split
from headwise.experiments.text_formats import csv_text
from headwise.heads.pruning import ranked_heads
from headwise.metrics import score
from headwise.training import Silence
from headwise.training.predict import importance_on

TASKS = ("signs", "single", "number")
PERCENTS = (50.0, 25.0)  # not in order: labels must follow


@pytest.fixture(scope="module")
def tasks(joint):
    return load_tasks(joint)


def measured(tasks, **changes):
    return measure_curve(tasks, CurveSettings(percent=PERCENTS, **changes), Source(), listener=Silence())


@pytest.fixture(scope="module")
def curve(tasks):
    return measured(tasks)


def slowly(tasks, task, silenced):
    """The main metric of a task, by the ordinary evaluation under a mask."""
    run = tasks.runs[task]
    split = read_split(run.recipe, run.task, "validation", run.data)
    if silenced.any():
        with mask(run.model, silenced):
            logits = run.logits(split, None, None)
    else:
        logits = run.logits(split, None, None)
    predictions = logits[:, 0] if run.task.kind == "regression" else logits.argmax(1)
    return score([run.task.primary], predictions, np.asarray(split.labels))[run.task.primary]


# -- the numbers -------------------------------------------------------------------------------------------------------


def test_every_number_is_that_of_a_separate_evaluation(curve, tasks):
    for each, values in list(zip(curve.masks, curve.values, strict=True))[::4]:
        expected = [slowly(tasks, task, each.mask) for task in TASKS]
        assert values == pytest.approx(expected, abs=1e-5)


def test_the_base_is_what_evaluate_says(curve, joint):
    for task, metric, value in zip(TASKS, ("accuracy", "accuracy", "pearson"), curve.base, strict=True):
        assert curve.metrics[task] == metric
        assert value == pytest.approx(evaluate(load_run(joint, task), "validation")["metrics"][metric], abs=1e-6)


def test_the_masks_silence_the_heads_that_a_task_needs_most(curve, tasks):
    examples = labelled_examples(tasks.runs, "train", Source())
    for task, run in tasks.runs.items():
        scores = importance_on(run.model, examples[task].encoded, examples[task].collate).scores
        assert scores == pytest.approx(curve.importance[task].scores)
        order = ranked_heads(scores)
        for step, count in ((0, 4), (1, 2)):
            for name, heads in (("descending", order[:count]), ("ascending", order[-count:])):
                (found,) = [m.mask for m in curve.masks if (m.order, m.step, m.pruned_for) == (name, step, task)]
                assert sorted(heads) == [tuple(each) for each in np.argwhere(found).tolist()]


def test_every_control_has_its_size_and_smaller_masks_lie_within_larger(curve):
    assert curve.counts == (4, 2)
    kinds = {}
    for each in curve.masks[1:]:
        assert each.mask.sum() == curve.counts[each.step]
        kinds.setdefault((each.order, each.pruned_for, each.repeat), {})[each.step] = each.mask
    assert len(kinds) == 2 * 3 + 3 + 3 * 3
    for large, small in ((found[0], found[1]) for found in kinds.values()):
        assert not (small & ~large).any()
    ranked = {(m.step, m.pruned_for): m.mask for m in curve.masks if m.order == "descending"}
    for each in curve.masks:
        if each.order == "layer-matched":
            assert (each.mask.sum(1) == ranked[each.step, each.pruned_for].sum(1)).all()


def test_layer_matched_masks_of_tasks_are_drawn_apart(curve):
    """For tasks that need the same heads, so that only the draw can differ."""
    same = dict.fromkeys(TASKS, curve.importance["signs"])
    masks = planned_masks(same, CurveSettings(percent=PERCENTS, random=12), lambda task, mask: None)
    drawn = {task: np.stack([m.mask for m in masks if (m.order, m.pruned_for) == (MATCHED, task)]) for task in TASKS}
    assert (drawn["signs"].sum(2) == drawn["single"].sum(2)).all()
    assert (drawn["signs"] != drawn["single"]).any()
    assert (drawn["signs"] != drawn["number"]).any()


# -- the choices -------------------------------------------------------------------------------------------------------


def test_only_the_tasks_named_are_pruned_but_all_are_evaluated(curve, tasks):
    found = measured(tasks, task=("number", "signs"))
    assert found.pruned_for == ("signs", "number")
    matrix = found.matrix("descending")
    assert np.isnan(matrix[:, 1]).all()
    assert (matrix[:, [0, 2]] == curve.matrix("descending")[:, [0, 2]]).all()
    assert np.isnan(found.layer_matched[:, 1]).all()
    assert (found.layer_matched[:, 2] == curve.layer_matched[:, 2]).all()


def test_without_controls_only_the_order_asked_for_is_measured(tasks):
    found = measured(tasks, controls=False)
    assert {each.order for each in found.masks} == {"none", "descending"}
    assert found.random.shape == (2, 0, 3)
    assert {each.order for each in measured(tasks, order="ascending", random=0).masks} == {"none", "ascending"}


def test_exact_masks_begin_as_the_others_and_then_follow_the_importance_under_the_mask(curve, tasks):
    found = measured(tasks, exact=True, controls=False, order="descending")
    examples = labelled_examples(tasks.runs, "train", Source())
    differ = 0
    for task, run in tasks.runs.items():
        large, small = ([m.mask for m in found.masks if m.pruned_for == task and m.step == step][0] for step in (0, 1))
        once = {m.step: m.mask for m in curve.masks if m.order == "descending" and m.pruned_for == task}
        assert (small == once[1]).all()
        again = importance_on(run.model, examples[task].encoded, examples[task].collate, mask=small).scores
        expected = [head for head in ranked_heads(again) if not small[head]][:2]
        assert {tuple(each) for each in np.argwhere(large & ~small).tolist()} == set(expected)
        differ += int((large != once[0]).any())
    assert differ


def test_every_mask_keeps_so_many_heads_of_each_layer(tasks):
    found = measured(tasks, keep_per_layer=2, random=5, limit=3)
    assert all(((~each.mask).sum(1) >= 2).all() for each in found.masks)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_curve_comes_back_from_its_files(curve, joint, tmp_path):
    paths = write_curve(tmp_path / "heads", curve)
    assert [path.name for path in paths] == ["prune-curve.safetensors", "prune-curve.csv", "prune-curve.json"]
    assert sorted(path.name for path in (tmp_path / "heads").iterdir()) == sorted(path.name for path in paths)
    found = find_curve(tmp_path / "heads", joint, TASKS, {"percent": PERCENTS})
    assert found.as_dict() == curve.as_dict()
    assert csv_text(list(found.rows())) == csv_text(list(curve.rows()))
    for name, each in curve.task_predictions().items():
        assert (found.task_predictions()[name].masked == each.masked).all()


DAMAGE = {
    "json cut off": lambda folder: (folder / "prune-curve.json").write_text("{"),
    "no arrays": lambda folder: (folder / "prune-curve.safetensors").unlink(),
    "no such arrays": lambda folder: (folder / "prune-curve.safetensors").write_bytes(b"12345678"),
    "arrays of another curve": lambda folder: save_file(
        {name: array[..., ::-1].copy() for name, array in load_file(folder / "prune-curve.safetensors").items()},
        folder / "prune-curve.safetensors",
    ),
    "no masks": lambda folder: (folder / "prune-curve.json").write_text(
        (folder / "prune-curve.json").read_text().replace('"masks"', '"musk"')
    ),
    "a list": lambda folder: (folder / "prune-curve.json").write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused(curve, joint, tmp_path, damage):
    write_curve(tmp_path, curve)
    DAMAGE[damage](tmp_path)
    with pytest.raises(InputError, match="prune-curve.json is damaged .*measure it again"):
        find_curve(tmp_path, joint, TASKS, {})


def test_the_curve_of_another_run_and_of_other_tasks_is_refused(curve, joint, finished, tmp_path):
    write_curve(tmp_path, curve)
    with pytest.raises(InputError, match="was made for another run"):
        find_curve(tmp_path, finished, TASKS, {})
    with pytest.raises(InputError, match="is about signs, single, number, the run about signs, single"):
        find_curve(tmp_path, joint, TASKS[:2], {})


def test_a_curve_with_other_settings_than_asked_for_is_refused(curve, joint, tmp_path):
    write_curve(tmp_path, curve)
    with pytest.raises(
        InputError, match=r"was measured with percent=50 25, not percent=20: leave that out, or measure the curve again"
    ):
        find_curve(tmp_path, joint, TASKS, {"percent": (20.0,)})
    assert find_curve(tmp_path, joint, TASKS, {"task": ("number", "signs", "single")}) is not None


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"percent": (0.0,)}, "percent=0.0: expected a number above 0 and below 100"),
        ({"percent": (20.0, 100.0)}, "percent=100.0: expected a number above 0 and below 100"),
        ({"number": (8,)}, "8 of 8 heads cannot be pruned"),
        ({"number": (0,)}, "number=0: expected a whole number of 1 or more"),
        ({"number": (7,), "keep_per_layer": 1}, "7 of 8 heads cannot be pruned: keeping 1 in each layer leaves 6"),
        ({"task": ("sign",)}, "task=sign: did you mean 'signs'?"),
        ({"importance_split": "tets"}, "tets"),
        ({"percent": (20.0,), "number": (3,)}, "percent=... and number=... both"),
        ({"percent": (20.0, 30.0, 20.0)}, "percent=20 is given twice"),
        ({"order": "up"}, "order=up: known: ascending, descending"),
        ({"granularity": "word"}, "granularity=word: known: batch, sample, token"),
    ],
)
def test_bad_settings_are_refused_before_any_work(tasks, changes, message, monkeypatch):
    monkeypatch.setattr("headwise.experiments.head_studies.prune_curve.task_importance", None)
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        measure_curve(tasks, CurveSettings(**changes), Source(), listener=Silence())


def test_a_model_without_some_of_its_heads_is_refused(finished):
    tasks = load_tasks(finished)
    hw.prune(tasks.first.model, {1: [0, 2]})
    with pytest.raises(InputError, match=r"heads were pruned from the model of .*\(layer 1: 0, 2\)"):
        measured(tasks)


def test_unlabelled_examples_are_refused(tasks, monkeypatch):
    def hiding(*args, **options):
        split = read_split(*args, **options)
        return replace(split, labels=(None, *split.labels[1:])) if args[2] == "test" else split

    monkeypatch.setattr("headwise.experiments.head_studies.head_importance.read_split", hiding)
    monkeypatch.setattr("headwise.experiments.head_studies.prune_curve.task_importance", None)
    with pytest.raises(InputError, match="the test set of signs has no labels"):
        measured(tasks, split="test")


def test_a_re_ranker_is_refused(tasks):
    options = {"name": "retrieval", "collection": "papers"}
    recipe = check_recipe({"task": options}, "test")
    task = build_task("retrieval", {"collection": "papers"})
    run = replace(tasks.first, recipe=recipe, task=task)
    with pytest.raises(InputError, match="this run is a re-ranker"):
        labelled_examples({"retrieval": run}, "train", Source())
