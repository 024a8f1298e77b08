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
from headwise.heads.pruning import ranked_heads
from headwise.metrics import score
from headwise.text_formats import csv_text
from headwise.training import Silence
from headwise.training.predict import importance_on

TASKS = ("signs", "single", "number")
PERCENTS = (50.0, 25.0)  # not in order: labels must follow


@pytest.fixture(scope="module")
def tasks(joint):
    return load_tasks(joint)


def measured(tasks, **changes):
    return measure_curve(tasks, CurveSettings(percent=PERCENTS, **changes), Source(), progress=Silence())


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


def test_every_number_is_that_of_a_separate_evaluation(curve, tasks, joint):
    for each, values in list(zip(curve.masks, curve.values, strict=True))[::6]:
        expected = [slowly(tasks, task, each.mask) for task in TASKS]
        assert values == pytest.approx(expected, abs=1e-5)
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
    # Tasks that need the same heads: only the draw can differ.
    same = dict.fromkeys(TASKS, curve.importance["signs"])
    masks = planned_masks(same, CurveSettings(percent=PERCENTS, random=12), lambda task, mask: None)
    drawn = {task: np.stack([m.mask for m in masks if (m.order, m.pruned_for) == (MATCHED, task)]) for task in TASKS}
    assert (drawn["signs"].sum(2) == drawn["single"].sum(2)).all()
    assert (drawn["signs"] != drawn["single"]).any()


# -- the choices -------------------------------------------------------------------------------------------------------


def test_only_the_tasks_named_are_pruned_but_all_are_evaluated(curve, tasks):
    found = measured(tasks, task=("number", "signs"), keep_per_layer=0)
    assert found.pruned_for == ("signs", "number")
    matrix = found.matrix("descending")
    assert np.isnan(matrix[:, 1]).all()
    # Masks that are computed together share layers, so the last digits of a correlation may differ.
    assert matrix[:, [0, 2]] == pytest.approx(curve.matrix("descending")[:, [0, 2]], abs=1e-6)
    assert np.isnan(found.layer_matched[:, 1]).all()
    assert found.layer_matched[:, 2] == pytest.approx(curve.layer_matched[:, 2], abs=1e-6)


def test_exact_masks_begin_as_the_others_and_then_follow_the_importance_under_the_mask(curve, tasks):
    found = measured(tasks, exact=True, controls=False, order="descending")
    assert {each.order for each in found.masks} == {"none", "descending"}
    assert found.random.shape == (2, 0, 3)
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
    found = measured(tasks, keep_per_layer=2, random=5, limit=3, order="ascending")
    assert all(((~each.mask).sum(1) >= 2).all() for each in found.masks)
    assert {each.order for each in found.masks} == {"none", "ascending", "random", "layer-matched"}


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


def test_damaged_files_are_refused(curve, joint, tmp_path):
    content, arrays = tmp_path / "prune-curve.json", tmp_path / "prune-curve.safetensors"
    for damage in (
        lambda: content.write_text("{"),
        arrays.unlink,
        lambda: arrays.write_bytes(b"12345678"),
        lambda: save_file({name: each[..., ::-1].copy() for name, each in load_file(arrays).items()}, arrays),
        lambda: content.write_text(content.read_text().replace('"masks"', '"musk"')),
        lambda: content.write_text(content.read_text().replace('"counts": [4, 2]', '"counts": [4, 2, 1]')),
        lambda: content.write_text("[]"),
    ):
        write_curve(tmp_path, curve)
        damage()
        with pytest.raises(InputError, match="prune-curve.json is damaged .*measure it again"):
            find_curve(tmp_path, joint, TASKS, {})


def test_the_curve_of_another_run_or_with_other_settings_is_refused(curve, joint, finished, tmp_path):
    write_curve(tmp_path, curve)
    assert find_curve(tmp_path, joint, TASKS, {"task": ("number", "signs", "single")}) is not None
    with pytest.raises(InputError, match="was made for another run"):
        find_curve(tmp_path, finished, TASKS, {})
    with pytest.raises(InputError, match="is about signs, single, number, the run about signs, single"):
        find_curve(tmp_path, joint, TASKS[:2], {})
    with pytest.raises(
        InputError, match=r"was measured with percent=50 25, not percent=20: leave that out, or measure the curve again"
    ):
        find_curve(tmp_path, joint, TASKS, {"percent": (20.0,)})


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"percent": (20.0, 100.0)}, "percent=100.0: expected a number above 0 and below 100"),
        ({"number": (0,)}, "number=0: expected a whole number of 1 or more"),
        ({"number": (7,), "keep_per_layer": 1}, "7 of 8 heads cannot be pruned: keeping 1 in each layer leaves 6"),
        ({"task": ("sign",)}, r"task=sign: did you mean 'signs'\?"),
        ({"importance_split": "tets"}, "tets"),
        ({"percent": (20.0,), "number": (3,)}, "percent=... and number=... both"),
        ({"percent": (20.0, 30.0, 20.0)}, "percent=20 is given twice"),
        ({"order": "up"}, "order=up: known: ascending, descending"),
        ({"granularity": "word"}, "granularity=word: known: batch, sample, token"),
    ],
)
def test_bad_settings_are_refused_before_any_work(tasks, changes, message, monkeypatch):
    monkeypatch.setattr("headwise.experiments.head_studies.prune_curve.task_importance", None)
    with pytest.raises(InputError, match=message):
        measure_curve(tasks, CurveSettings(**changes), Source(), progress=Silence())


def test_runs_that_cannot_be_studied_are_refused(tasks, finished, monkeypatch):
    pruned = load_tasks(finished)
    hw.prune(pruned.first.model, {1: [0, 2]})
    with pytest.raises(InputError, match=r"heads were pruned from the model of .*\(layer 1: 0, 2\)"):
        measured(pruned)
    recipe = check_recipe({"task": {"name": "retrieval", "collection": "papers"}}, "test")
    reranker = replace(tasks.first, recipe=recipe, task=build_task("retrieval", {"collection": "papers"}))
    with pytest.raises(InputError, match="this run is a re-ranker"):
        labelled_examples({"retrieval": reranker}, "train", Source())

    def hiding(*args, **options):
        split = read_split(*args, **options)
        return replace(split, labels=(None, *split.labels[1:])) if args[2] == "test" else split

    monkeypatch.setattr("headwise.experiments.head_studies.head_importance.read_split", hiding)
    monkeypatch.setattr("headwise.experiments.head_studies.prune_curve.task_importance", None)
    with pytest.raises(InputError, match="the test set of signs has no labels"):
        measured(tasks, split="test")
