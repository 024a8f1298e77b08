"""The sweeps of the package: all runs valid, missing files named, and some small twins trained for two steps."""

import random

import pytest
from small_collection import write_collection
from small_sweeps import results
from tiny_runs import SIGNS, sentence, write_table

from headwise.experiments.sweeps.jobs import JobSettings, run_job
from headwise.experiments.sweeps.sweep_file import plan_sweep, scales_of, shipped_sweeps
from headwise.training import Silence

NAMES = ("figure3", "figure6", "iap", "iat", "ssa-glue", "table1", "table2", "table3", "table4")
ENCODERS = {
    "bert-base-uncased",
    "roberta-base",
    "albert-base-v2",
    "dmis-lab/biobert-v1.1",
    "emilyalsentzer/Bio_ClinicalBERT",
    "ttumyche/bluebert",
    "nfliu/scibert_basevocab_uncased",
}
SICK = ("ENTAILMENT", "CONTRADICTION", "NEUTRAL")


def test_every_run_is_valid_and_says_where_it_comes_from():
    assert tuple(shipped_sweeps()) == NAMES
    for name in NAMES:
        assert scales_of(name) == ("small",)
        full, small = plan_sweep(name), plan_sweep(name, scale="small")
        assert full.sweep.title
        assert "arXiv" in full.sweep.source
        assert full.sweep.compare is not None
        assert small.sweep.compare is not None
        assert {run.recipe.model for run in small.runs} == {"builtin:minilm-l6"}
        assert len({run.recipe.seed for run in small.runs}) == 3  # seeds are never cut
        assert len({run.recipe.seed for run in full.runs}) >= 3


def test_settings_of_the_paper():
    runs = plan_sweep("table1").runs
    assert {run.recipe.model for run in runs} == ENCODERS
    epochs = {run.point["set"]: run.recipe.training.num_train_epochs for run in runs}
    assert epochs == {"multinli": 5, "mednli": 20, "cross-genre": 5}
    assert {run.recipe.training.learning_rate for run in runs} == {1e-5}
    assert {run.recipe.data.max_length for run in runs} == {256}
    batches = {(run.recipe.model, run.recipe.training.per_device_train_batch_size) for run in runs}
    assert batches == {(model, 56 if model.startswith("albert") else 64) for model in ENCODERS}
    assert list(plan_sweep("figure3").axes["layer"]) == list(map(str, range(12)))
    assert list(plan_sweep("figure6").axes["size"]) == ["0.2", "0.4", "0.6", "0.8", "1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files in the layouts of SICK and SST-2, and SciFact as a small collection."""
    root, chance = tmp_path_factory.mktemp("files"), random.Random(5)
    signs = list(SIGNS.values())

    def pair(kind):
        return sentence(chance, signs[kind]), sentence(chance, signs[kind])

    for name, count in (("SICK_train.txt", 60), ("SICK_trial.txt", 30), ("SICK_test_annotated.txt", 30)):
        rows = [(row, *pair(row % 3), 3, SICK[row % 3]) for row in range(count)]
        header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
        write_table(root / "sick" / name, [list(map(str, row)) for row in (header, *rows)])
    for name, count in (("train.tsv", 200), ("dev.tsv", 30)):
        rows = [[sentence(chance, signs[row % 2]), str(row % 2)] for row in range(count)]
        write_table(root / "SST-2" / name, [["sentence", "label"], *rows])
    judgements = write_collection(root / "scifact") / "qrels"
    (judgements / "test.tsv").rename(judgements / "validation.tsv")
    return root


# A tiny encoder, two steps, few examples; the encoder has two layers.
FEW = ("training.max_steps=2", "data.max_length=24", "training.per_device_eval_batch_size=16")
LIMITS = {"single": "data.limit={train: 24, validation: 8, test: 8}", "joint": "data.limit={train: 24}"}


# One for each kind of run: guides and a re-ranker, knowledge, SSA, measures of heads, IAT.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1", "table2", "ssa-glue", "iap", "iat"])
def test_every_system_of_a_small_twin_trains(name, tmp_path, encoder, files, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    whole = plan_sweep(name, scale="small", seeds=[1])
    joint = whole.runs[0].recipe.several
    changes = (*FEW, LIMITS["joint" if joint else "single"], f"model={encoder}")
    plan = plan_sweep(name, scale="small", seeds=[1], only=_some(name, whole.axes), changes=changes)
    settings = JobSettings(tmp_path / "out", files)
    for planned in plan.unique:
        result = run_job(settings.job(planned.recipe, planned.name, then=plan.sweep.then or None), Silence())
        assert result.state == "finished", (planned.name, result.message)
    found = results(tmp_path / "out")
    assert set(found) == {planned.key for planned in plan.runs}
    assert all(run["results"]["steps"] == 2 for run in found.values())
    assert all(run["results"]["outputs"] for run in found.values())


def _some(name, axes):
    """Every system, but not every layer and size; the tiny encoder knows no full stop, and iap and iat share sets."""
    kept = {"layer": ("0",), "size": ("0.2", "1")}
    kept |= {"set": ("clinic-twice",)} if name == "iap" else {"set": ("sst2-sick",)} if name == "iat" else {}
    wanted = {name: kept.get(name, [label for label in labels if label != "period"]) for name, labels in axes.items()}
    return [f"{axis}={','.join(labels)}" for axis, labels in wanted.items()]
