"""Runs with self-supervised attention: what they log and record, with what they go together, and what is refused."""

from pathlib import Path

import pytest
from small_collection import write_collection
from tiny_runs import assert_one_sentence, log, outcome, record, rows, small, weights, write_data, write_table

from headwise.errors import HeadwiseWarning, InputError
from headwise.experiments import check_recipe
from headwise.experiments.apply import evaluate, load_run
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.training import Silence

# Every probe gives labels, so each epoch has the share that it should have.
SOFT = {"label_rule": "soft", "precision": "fp32"}
PLAIN = {"guides": {}, "training__epochs": 3}


def steps(run):
    return [entry for entry in log(run) if "loss" in entry]


def recorded(run):
    """What is recorded of each epoch's labels, but for the clock."""
    entries = record(run)["results"]["ssa"]
    return [{name: value for name, value in each.items() if name != "seconds"} for each in entries]


@pytest.fixture(scope="module")
def supervised(tmp_path_factory, encoder, pairs):
    """A run of three epochs of five steps with guides and SSA, to look at only."""
    folder = tmp_path_factory.mktemp("supervised") / "run"
    train(check_recipe(small(encoder, ssa=SOFT, training__epochs=3), "test"), RunPaths(folder, Path(pairs)))
    return folder


# -- log and record ----------------------------------------------------------------------------------------------------


def test_every_epoch_and_every_part_of_the_loss_are_in_log_and_record(supervised):
    found = recorded(supervised)
    assert [each["share"] for each in found] == pytest.approx([0, 0.2, 0.4])
    logged = [entry for entry in log(supervised) if "ssa/share" in entry]
    assert [entry["step"] for entry in logged] == [5, 10, 15]
    for entry, each in zip(logged, found, strict=True):
        assert {name: entry[f"ssa/{name}"] for name in each} == each
        assert {"epoch", "share", "acceptance", "base_rate", "kept"} <= set(each)
        assert 0 <= each["kept"] <= 1
    assert found[0]["labelled_tokens"] == 0 < found[1]["labelled_tokens"] < found[2]["labelled_tokens"]
    found = steps(supervised)
    assert [entry["step"] for entry in found] == list(range(1, 16))
    for entry in found:  # the guides' task loss is what SSA makes of the task
        task = entry["ssa/task_loss"] + entry["ssa/token_weight"] * entry["ssa/token_loss"]
        assert entry["task_loss"] == pytest.approx(task, rel=1e-4)
        guides = entry["guide/mdg_weighted"] + entry["guide/pdg_weighted"]
        assert entry["loss"] == pytest.approx(task + guides, rel=1e-4)
    assert [entry["ssa/token_loss"] > 0 for entry in found[:6]] == [False] * 5 + [True]


def test_the_same_seed_gives_the_same_bits_and_listeners_receive_a_line_for_each_epoch(
    encoder, pairs, supervised, tmp_path
):
    lines, notes = [], []

    class Listening(Silence):
        def log(self, message):
            lines.append(message)

        def advance(self, done, note=""):
            notes.append((done, note))

    recipe = check_recipe(small(encoder, ssa=SOFT, training__epochs=3), "test")
    train(recipe, RunPaths(tmp_path / "run", Path(pairs)), progress=Listening())
    assert outcome(tmp_path / "run") == outcome(supervised)
    assert recorded(tmp_path / "run") == recorded(supervised)
    lines = [line for line in lines if line.startswith("ssa epoch")]
    assert lines[0].startswith("ssa epoch 0: no labels, kept tokens ")
    assert lines[1].startswith("ssa epoch 1: labelled 0.200 of the examples, acceptance 1.000, base rate 0.")
    assert "kept tokens" in lines[1]
    notes = [note for done, note in notes if done == 5 and note.startswith("labelling tokens")]
    assert notes
    assert notes[-1].endswith("examples predicted")


def test_an_epoch_that_training_stopped_in_is_recorded(ran):
    changes = {"training__evaluate_every": 1, "training__early_stopping": 2, "training__learning_rate": 1e-9}
    run = ran(ssa=SOFT, **changes)
    assert record(run)["results"]["steps"] == 3
    assert [each["epoch"] for each in recorded(run)] == [0]
    assert "kept" in recorded(run)[0]


# -- controls ----------------------------------------------------------------------------------------------------------


def test_only_bert_is_a_run_without_ssa_bit_for_bit(ran, finished):
    run = ran("plain", ssa={"only_bert": True})
    assert outcome(run) == outcome(finished)
    assert [entry for entry in log(run) if "loss" in entry] == steps(finished)
    assert "ssa" not in record(run)["results"]
    assert record(run)["recipe"]["ssa"] == {"only_bert": True}
    assert "ssa" not in record(finished)["recipe"]


def test_without_a_weight_nothing_is_probed(ran, finished):
    run = ran(ssa={"aug_loss_weight": 0})
    assert "ssa" not in record(run)["results"]
    assert not [entry for entry in log(run) if "ssa/share" in entry or "ssa/token_loss" in entry]
    assert all("ssa/task_loss" in entry for entry in steps(run))
    assert weights(run) != weights(finished)  # it pools all the same


def test_a_model_that_knows_the_task_labels_at_once(ran, finished):
    run = ran("next", ssa={**SOFT, "use_saved": str(finished)})
    assert [each["share"] for each in recorded(run)] == pytest.approx([0.2, 0.4])
    assert steps(run)[0]["ssa/token_loss"] > 0


# -- what it goes together with ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ssa", "changes"),
    [
        ("sentences", {"model": "cotraining", "sampler": "reference", "label_rule": "reference"}, {}),
        ("pairs", {"whole_words": True, "share_weight": False}, {"data__padding": "fixed"}),
        ("pairs", {"shuffle_labels": True}, {"training__accumulation": 2, "head": "relu", "training__bf16": True}),
        ("pairs", {"pool_softmax": "logits"}, {"training__label_smoothing": 0.1}),
        ("pairs-regression", {"regression_tolerance": 0.3}, {}),
    ],
    ids=str,
)
def test_other_tasks_and_training_options(ran, tmp_path, kind, ssa, changes):
    data = write_data(tmp_path / "data", kind)
    run = ran(data=data, task=kind, ssa={**SOFT, **ssa}, **PLAIN, **changes)
    assert [each["share"] for each in recorded(run)][1] > 0
    assert steps(run)[-1]["ssa/token_loss"] > 0
    for split, metrics in record(run)["results"]["metrics"].items():
        assert evaluate(load_run(run), split)["metrics"] == metrics
    if "training__label_smoothing" in changes:
        for entry in steps(run):
            parts = entry["ssa/task_loss"] + entry["ssa/token_weight"] * entry["ssa/token_loss"]
            assert entry["loss"] == pytest.approx(parts, rel=1e-4)


def test_candidates_one_by_one_and_whole_lists_are_refused(encoder, tmp_path):
    write_collection(tmp_path / "papers")

    def recipe(loss, **ssa):
        task = {
            "name": "retrieval",
            "collection": "papers",
            "stage": "bm25",
            "negatives": 2,
            "validation_candidates": 4,
            "loss": loss,
        }
        return check_recipe(small(encoder, task=task, guides={}, ssa=ssa, data__max_length=40), "test")

    train(recipe("pairs", precision="fp32"), RunPaths(tmp_path / "run", tmp_path, cache=tmp_path / "cache"))
    assert recorded(tmp_path / "run")[1]["right"] > 0.2
    assert recorded(tmp_path / "run")[1]["share"] > 0
    with pytest.raises(InputError, match=r"^test: ssa asks .* use loss: pairs\.$"):
        recipe("list", precision="fp32")
    assert recipe("list", aug_loss_weight=0).supervision is not None  # harmless


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_mistakes_are_reported_and_leave_nothing_behind(headwise, write_recipe, pairs, tmp_path):
    data = write_data(tmp_path / "data", "sentences")
    table = rows(40, 0, "sentences")
    table[7][0] = "\N{SOFT HYPHEN}"  # which the tokenizer drops
    write_table(data / "train.tsv", table)
    no_text = ("example 6 (from 0) of the training set has no token of text", "remove it")
    for folder, changes, parts in (
        (pairs, {"ssa": {"cls_wieght": 0.5}}, ("cls_wieght", "cls_weight")),
        (pairs, {"ssa": {"use_saved": "nowhere"}}, ("nowhere",)),
        (data, {"task": "sentences", "ssa": SOFT, "guides": {}, "head": "mean"}, no_text),
    ):
        result = headwise("train", write_recipe(**changes), "--data", folder, "--output", tmp_path / "run")
        assert_one_sentence(result, *parts)
        assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("default::headwise.errors.HeadwiseWarning")
def test_without_an_accepted_probe_there_is_a_warning_and_the_run_continues(headwise, write_recipe, ran, tmp_path):
    data = write_data(tmp_path / "data", "pairs-regression")
    changes = {"task": "pairs-regression", "ssa": {"regression_tolerance": 1e-9}, "guides": {}}
    code, _, err = headwise("train", write_recipe(**changes), "--data", data, "--output", tmp_path / "one")
    assert code == 0, err
    (line,) = [line for line in err.splitlines() if "no token labels" in line]
    assert "epoch 1 (from 0): 0 of 40 predictions were right" in line
    with pytest.warns(HeadwiseWarning, match="no token labels for epoch 1"):
        run = ran("two", data, **changes)
    assert [each["share"] for each in recorded(run)] == [0, 0]
    assert outcome(run) == outcome(tmp_path / "one")
