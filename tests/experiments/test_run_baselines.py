"""The baselines beside a run: what they are, that they change nothing else, and where they are shown."""

import copy
import json
import shutil
from pathlib import Path

import numpy
import pytest
from tiny_runs import outcome, record, small, small_joint, weights, write_data

from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments import run as run_module
from headwise.experiments.comparison import CompareOptions, compare
from headwise.experiments.outputs import read_outputs
from headwise.experiments.prepare import RunPaths
from headwise.experiments.record import baseline_sentences, below_frozen, read_stored
from headwise.experiments.record import read as read_record
from headwise.experiments.run import train
from headwise.experiments.sweeps.jobs import JobSettings, run_job, run_key
from headwise.metrics import score
from headwise.reports.comparison_text import Style, comparison_markdown
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs
from headwise.training import frozen_probe
from headwise.training.callbacks import Silence
from headwise.training.frozen_probe import rows_of


class Lines(Silence):
    """Keeps what is logged."""

    def __init__(self):
        self.lines = []

    def log(self, message):
        self.lines.append(message)


def fail(*_, **__):
    raise AssertionError("computed again")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# -- nothing else changes ----------------------------------------------------------------------------------------------


def test_a_run_with_baselines_has_the_bits_of_a_run_without(ran, finished, own_cache):
    without = ran("without", baseline=False)
    assert outcome(without) == outcome(finished)
    assert "baselines" not in record(without)["results"]
    assert "Beside it" not in (without / "README.md").read_text()
    assert not own_cache.exists()
    assert "baseline" not in record(finished)["recipe"]
    assert record(without)["recipe"]["baseline"] is False


def test_the_key_says_what_is_not_computed_and_does_not_make_another_run(encoder):
    recipes = [check_recipe(small(encoder, **changes), "test") for changes in ({}, {"baseline": False})]
    assert run_key(recipes[0]) == run_key(recipes[1])
    with pytest.raises(InputError, match="baseline"):
        check_recipe(small(encoder, baseline="no"), "test")


def test_arms_and_seeds_share_one_probe(ran, own_cache, monkeypatch):
    first = record(ran("one", guides={}))["results"]["baselines"]["pairs"]
    monkeypatch.setattr(frozen_probe, "encoder_features", fail)
    for name, changes in (("arm", {}), ("seed", {"seed": 2, "guides": {}})):
        other = record(ran(name, **changes))["results"]["baselines"]["pairs"]
        for split, systems in other["metrics"].items():
            assert systems["frozen"] == first["metrics"][split]["frozen"]
    assert len(list(own_cache.glob("probes/*/probe.json"))) == 1


# -- what they are -----------------------------------------------------------------------------------------------------


def test_baselines_of_a_run_on_one_task(finished):
    results, outputs = record(finished)["results"], read_outputs(finished)
    each = results["baselines"]["pairs"]
    assert each["primary"] == "accuracy"
    assert each["examples"] == each["of"] == {"train": 40, "validation": 24, "test": 21}
    assert each["C"] > 0
    for split, systems in each["metrics"].items():
        assert list(systems) == ["majority", "frozen", "fine_tuned"]
        assert systems["fine_tuned"] == results["metrics"][split]
        gold = outputs[split]["gold"]  # 14, 13 and 13 of 40 in train: the first class is the most frequent
        assert systems["majority"]["accuracy"] == gold.count(0) / len(gold)
    assert each["metrics"]["validation"]["frozen"]["accuracy"] > 0.5  # three classes, and a word that decides


def test_baselines_of_several_tasks_with_a_regression_and_a_control(with_iat):
    content = record(with_iat)
    found = content["results"]["baselines"]
    assert list(found) == ["agree", "type", "score"]
    assert list(found["type"]["metrics"]["test"]) == ["majority", "frozen", "fine_tuned"]
    assert list(found["score"]["metrics"]["test"]) == ["mean", "fine_tuned"]  # no probe of numbers
    assert found["score"]["metrics"]["test"]["mean"]["pearson"] == 0
    control = record(with_iat / "control")["results"]["baselines"]
    assert control["agree"]["metrics"]["test"]["frozen"] == found["agree"]["metrics"]["test"]["frozen"]
    named = {f"type/{name}": value for name, value in control["type"]["metrics"]["test"]["fine_tuned"].items()}
    assert named.items() <= record(with_iat / "control")["results"]["metrics"]["test"].items()
    assert "| score | test (9 of 9) | pearson | – | 0.0000 | – |" in (with_iat / "README.md").read_text()


def test_a_linear_run_and_a_reranker_have_no_probe(tmp_path, encoder, several, analysed_reranker):
    recipe = check_recipe(small_joint(encoder, among=["agree"], linear=True), "test")
    content = train(recipe, RunPaths(tmp_path / "run", Path(several))).record
    assert list(content["results"]["baselines"]["agree"]["metrics"]["test"]) == ["majority", "fine_tuned"]
    assert "baselines" not in record(analysed_reranker)["results"]


def test_a_short_run_uses_a_seeded_part_and_all_are_scored_on_it(ran, tmp_path):
    data = write_data(tmp_path / "data", sizes=(240, 120, 90))
    run = ran(data=data, training__steps=2, guides={})
    each, outputs = record(run)["results"]["baselines"]["pairs"], read_outputs(run)
    assert each["of"] == {"train": 240, "validation": 120, "test": 90}
    assert each["examples"] == {"train": 64, "validation": 64, "test": 64}
    for split in ("validation", "test"):
        rows = rows_of(each["of"][split], 64)
        gold, answers = (numpy.array(outputs[split][name])[rows] for name in ("gold", "predictions"))
        assert each["metrics"][split]["fine_tuned"] == score(list(each["metrics"][split]["frozen"]), answers, gold)
    (sentence,) = baseline_sentences(record(run)["results"])
    assert sentence.endswith("(a seeded choice: learned from 64 of 240 examples, all scored on 64 of 90)")
    assert "pairs: the logistic regression learned from 64 of 240 training examples." in (run / "README.md").read_text()
    longer = record(ran("longer", data=data, training__epochs=12, guides={}))["results"]["baselines"]["pairs"]
    assert longer["examples"] == longer["of"]


def test_a_test_set_without_labels_is_left_out(ran, tmp_path):
    data = write_data(tmp_path / "data")
    lines = [line.rpartition("\t")[0] for line in (data / "test.tsv").read_text().splitlines()]
    (data / "test.tsv").write_text("\n".join(lines) + "\n")
    each = record(ran(data=data))["results"]["baselines"]["pairs"]
    assert list(each["metrics"]) == ["validation"]
    assert " on validation: " in baseline_sentences({"baselines": {"pairs": each}})[0]


# -- interrupted runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["the probe", "training"])
def test_a_stopped_run_is_resumed_and_the_probe_is_computed_once(
    encoder, pairs, finished, tmp_path, monkeypatch, own_cache, where
):
    recipe, paths = check_recipe(small(encoder), "test"), RunPaths(tmp_path / "run", Path(pairs))

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((frozen_probe, "pooled", stop) if where == "the probe" else (run_module, "fit", stop)))
        with pytest.raises(KeyboardInterrupt):
            train(recipe, paths)
    assert not list(own_cache.glob("probes/*.draft"))
    if where == "training":
        shutil.rmtree(own_cache)  # what the run has kept is enough
        monkeypatch.setattr(frozen_probe, "encoder_features", fail)
    content = train(recipe, paths, resume=True).record
    assert content["results"]["baselines"] == record(finished)["results"]["baselines"]
    assert weights(paths.output) == weights(finished)


def test_damaged_baselines_of_an_unfinished_run_are_computed_again(encoder, pairs, finished, tmp_path, monkeypatch):
    recipe, paths = check_recipe(small(encoder), "test"), RunPaths(tmp_path / "run", Path(pairs))

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "fit", stop)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, paths)
    path = paths.output / run_module.WORK / run_module.BASELINES
    text = path.read_text()
    for damage in ("", "[]", text[:40], text.replace('"majority": 0', '"majority": 1')):
        path.write_text(damage)
        with monkeypatch.context() as patch:
            patch.setattr(run_module, "fit", stop)
            with pytest.raises(KeyboardInterrupt):
                train(recipe, paths, resume=True)
        assert path.read_text() == text


# -- the warning -------------------------------------------------------------------------------------------------------


def test_a_run_below_the_probe_warns_once_and_says_what_to_try(encoder, pairs, tmp_path):
    for rate, epochs, warned in ((1e-9, 1, True), (3e-3, 25, False)):
        lines = Lines()
        recipe = small(encoder, guides={}, training__learning_rate=rate, training__epochs=epochs)
        paths = RunPaths(tmp_path / str(epochs), Path(pairs))
        content = train(check_recipe(recipe, "test"), paths, progress=lines).record
        scores = content["results"]["baselines"]["pairs"]["metrics"]["validation"]
        assert (scores["fine_tuned"]["accuracy"] < scores["frozen"]["accuracy"]) is warned  # else it proves nothing
        warnings = [line for line in lines.lines if line.startswith("warning:")]
        assert len(warnings) == warned
        assert ("below the" in (paths.output / "README.md").read_text()) is warned
        if warned:
            (line,) = warnings
            for part in (
                *(f"{scores[system]['accuracy']:.4f}" for system in ("fine_tuned", "frozen")),
                "training.learning_rate, now 1e-09",
                "training.num_train_epochs, now 1",
                "head, now cls",
            ):
                assert part in line


def test_the_same_score_is_no_reason_to_warn(finished):
    content = copy.deepcopy(read_record(finished))
    systems = content["results"]["baselines"]["pairs"]["metrics"]["validation"]
    systems["fine_tuned"] = dict(systems["frozen"])
    assert below_frozen(content) == []
    systems["fine_tuned"]["accuracy"] -= 0.01
    assert len(below_frozen(content)) == 1
    content["recipe"]["training"] |= {"max_steps": 7}
    assert "training.max_steps, now 7" in below_frozen(content)[0]
    del content["results"]["baselines"]
    assert below_frozen(content) == baseline_sentences(content["results"]) == []


# -- records -----------------------------------------------------------------------------------------------------------


def changed_record(finished, folder, change):
    shutil.copytree(finished, folder)
    content = record(folder)
    change(content["results"])
    (folder / "headwise.json").write_text(json.dumps(content))
    return folder


DAMAGED = [
    (lambda each: each.pop("primary"), "primary"),
    (lambda each: each["metrics"].pop("validation"), "metrics.validation is missing"),
    (lambda each: each["metrics"]["test"].pop("fine_tuned"), "metrics.test.fine_tuned is missing"),
    (lambda each: each["metrics"]["test"]["frozen"].pop("accuracy"), "metrics.test.frozen"),
    (lambda each: each["of"].pop("train"), "of.train is missing"),
    (lambda each: each["metrics"]["test"].update(other={}), "other"),
    (lambda each: each["metrics"]["test"]["frozen"].update(accuracy="high"), "accuracy"),
]


def test_damaged_baselines_of_a_record_end_in_one_sentence(finished, tmp_path):
    for number, (damage, words) in enumerate(DAMAGED):
        run = changed_record(finished, tmp_path / str(number), lambda results: damage(results["baselines"]["pairs"]))  # noqa: B023
        with pytest.raises(InputError) as raised:
            read_record(run)
        assert words in str(raised.value)


def test_runs_of_a_sweep_keep_them_and_old_ones_are_read_without(encoder, pairs, tmp_path, finished):
    settings = JobSettings(tmp_path / "results", data=Path(pairs))
    job = settings.job(check_recipe(small(encoder), "test"), "run")
    assert run_job(job, Silence()).state == "finished"
    path = tmp_path / "results" / "runs" / f"{job.key}.json"
    assert read_stored(path).baselines == record(finished)["results"]["baselines"]
    content = json.loads(path.read_text())
    del content["results"]["baselines"]
    path.write_text(json.dumps(content))
    assert read_stored(path).baselines == {}


# -- compare -----------------------------------------------------------------------------------------------------------


def test_a_comparison_shows_them_below_the_systems(ran, finished, tmp_path):
    plain = ran("plain", guides={}, name="plain")
    comparison = compare([plain, finished], CompareOptions(by=("guides",), all_metrics=True, resamples=200))
    (accuracy, *others) = comparison.tables
    scores = record(plain)["results"]["baselines"]["pairs"]["metrics"]["test"]
    assert accuracy.metric == "accuracy"
    assert accuracy.references == {
        "most frequent class": scores["majority"]["accuracy"],
        "logistic regression on frozen features": scores["frozen"]["accuracy"],
    }
    assert all(table.references["most frequent class"] == scores["majority"][table.metric] for table in others)
    text = comparison_markdown(comparison, Style())
    shown = f"| logistic regression on frozen features | – | {100 * scores['frozen']['accuracy']:.2f} | – |"
    assert shown in text
    assert any(line.startswith("Below the systems: what takes no fine-tuning") for line in comparison.legend)
    below = [row.system for row in accuracy.rows if row.scores.mean < scores["frozen"]["accuracy"]]
    notes = [note for note in comparison.notes if note.startswith("below logistic regression")]
    assert any(f"in accuracy: {', '.join(below)};" in note for note in notes) is bool(below)
    old = changed_record(finished, tmp_path / "old", lambda results: results.pop("baselines"))
    for other in (old, ran("without", baseline=False)):  # which is no difference between systems
        comparison = compare([plain, other], CompareOptions(by=("guides",), resamples=200))
        assert all(not table.references for table in comparison.tables)
        assert not any("fine-tuning" in line for line in comparison.legend)
        assert "frozen" not in comparison_markdown(comparison, Style())


def test_a_comparison_of_several_tasks_has_the_mean_where_all_have_one(ran_tasks):
    runs = [ran_tasks(name, sampling=name) for name in ("proportional", "square_root")]
    comparison = compare(
        runs, CompareOptions(by=("sampling",), baseline="proportional", all_metrics=True, resamples=200)
    )
    tables = {table.metric: table.references for table in comparison.tables}
    found = record(runs[0])["results"]["baselines"]
    frozen = [found[task]["metrics"]["test"]["frozen"]["accuracy"] for task in ("agree", "type")]
    name = "logistic regression on frozen features"
    assert tables["agree/accuracy"][name] == frozen[0]
    assert tables["mean"][name] == pytest.approx(sum(frozen) / 2)


@pytest.fixture
def ran_tasks(tmp_path, encoder, several):
    def run(name, **changes):
        recipe = check_recipe(small_joint(encoder, among=["agree", "type"], **changes), "test")
        train(recipe, RunPaths(tmp_path / name, Path(several)))
        return tmp_path / name

    return run


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_summary_of_a_report_has_them_beside_the_score(two_runs, analysed_reranker):
    runs = gather_runs(two_runs / "guided", two_runs / "plain")
    tables = build_page(runs).payload["views"]["summary"]["tables"]
    (table,) = (each for each in tables if each["title"] == "Scores beside baselines")
    names = ["most frequent class", "logistic regression on frozen features", "fine-tuned"]
    assert table["columns"] == ["model", "task", "split", "metric", *names]
    assert len(table["rows"]) == 4  # two models, two splits
    for row in table["rows"]:
        each = record(two_runs / row[0])["results"]["baselines"]["pairs"]
        split = row[2].split()[0]
        values = [each["metrics"][split][system]["accuracy"] for system in ("majority", "frozen", "fine_tuned")]
        assert row[1:] == [
            "pairs",
            f"{split} ({each['of'][split]} of {each['of'][split]})",
            "accuracy",
            *(f"{value:.4f}" for value in values),
        ]
    warned = [name for name in ("plain", "guided") if below_frozen(record(two_runs / name))]
    assert [note.split(":")[0] for note in table["notes"]] == warned
    tables = build_page(gather_runs(analysed_reranker)).payload["views"]["summary"]["tables"]
    assert "Scores beside baselines" not in [each["title"] for each in tables]  # as of records without baselines
