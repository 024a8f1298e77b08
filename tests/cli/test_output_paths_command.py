"""An output that cannot be written is refused in one sentence before the work begins, by every command that has one."""

import shutil

import pytest
from small_sweeps import write_sweep
from tiny_runs import assert_one_sentence

# Words, and the first function of the work. OUT is the output, without an ending where that is not part of it.
FOLDERS = {
    "train": (["train", "RECIPE", "--data", "DATA", "--output", "OUT"], "headwise.experiments.run.prepare"),
    "export": (["export", "RUN", "--output", "OUT"], "headwise.experiments.apply.load_run"),
    "importance": (
        ["heads", "importance", "RUN", "--output", "OUT"],
        "headwise.experiments.head_studies.head_importance.load_tasks",
    ),
    "similarity": (
        ["heads", "similarity", "RUN", "--output", "OUT"],
        "headwise.experiments.head_studies.head_similarity.load_tasks",
    ),
    "prune-curve": (
        ["heads", "prune-curve", "RUN", "--output", "OUT"],
        "headwise.experiments.head_studies.prune_curve.load_tasks",
    ),
    "dissociation": (
        ["heads", "dissociation", "RUN", "--output", "OUT"],
        "headwise.experiments.head_studies.head_dissociation.find_curve",
    ),
    "sweep": (["sweep", "SWEEP", "--data", "DATA", "--output", "OUT"], "headwise.experiments.sweeps.sweep.run_jobs"),
    "tune": (
        ["tune", "RECIPE", "--data", "DATA", "--vary", "training.learning_rate=[1e-3]", "--output", "OUT"],
        "headwise.experiments.sweeps.tune.Storage",
    ),
    "demo": (["demo", "--output", "OUT"], "headwise.cli.demo.train"),
}
FILES = {
    "predict": (
        ["predict", "RUN", "--input", "DATA/test.tsv", "--output", "OUT.tsv"],
        "headwise.experiments.apply.load_run",
    ),
    "tokens": (["tokens", "RUN", "--text", "a", "--html", "OUT.html"], "headwise.experiments.apply.load_run"),
    "report": (["report", "RUN", "-o", "OUT.html"], "headwise.reports.report_runs.gather_runs"),
    "figure": (["figure", "heatmap", "RUN", "-o", "OUT.svg"], "headwise.reports.run_figures._views"),
    "compare": (["compare", "RUN", "RUN", "--output", "OUT.md"], "headwise.experiments.comparison.compare"),
    "score": (["score", "a.trec", "--qrels", "q", "--per-query", "OUT.json"], "headwise.retrieval.evaluate.read_qrels"),
    "retrieve": (["retrieve", "papers", "--output", "OUT.trec"], "headwise.retrieval.search.retrieve"),
    "retrieve --per-query": (["retrieve", "papers", "--per-query", "OUT.json"], "headwise.retrieval.search.retrieve"),
    "rerank": (
        ["rerank", "RUN", "--candidates", "c.trec", "--output", "OUT.trec"],
        "headwise.retrieval.rerank.read_candidates",
    ),
    "ag-pair": (["data", "ag-pair", "--news", "n.csv", "--out", "OUT.tsv"], "headwise.data.ag_pair.read_news"),
}


@pytest.fixture
def refused(headwise, write_recipe, encoder, pairs, finished, tmp_path, monkeypatch):
    """Type a command with an output; it must end in one sentence, and not call the function."""

    def type_in(words, work, output):
        named = {"RUN": finished, "DATA": pairs, "OUT": output}
        if "RECIPE" in words:
            named["RECIPE"] = write_recipe()
        if "SWEEP" in words:
            named["SWEEP"] = write_sweep(tmp_path / "sweep.yaml", encoder)
        for name, value in named.items():
            words = [word.replace(name, str(value)) for word in words]

        def begun(*arguments, **options):
            raise AssertionError("the work has begun")

        monkeypatch.setattr(work, begun)
        before = sorted(tmp_path.rglob("*"))
        result = headwise(*words)
        assert_one_sentence(result)
        assert sorted(tmp_path.rglob("*")) == before
        return result[2]

    return type_in


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(refused, tmp_path, name):
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} " in refused(*FOLDERS[name], tmp_path / "file")
    assert f"{tmp_path / 'file'} is a file" in refused(*FOLDERS[name], tmp_path / "file" / "below")
    assert "/proc/headwise" in refused(*FOLDERS[name], "/proc/headwise/out")


@pytest.mark.parametrize("name", FILES)
def test_files(refused, tmp_path, name):
    (tmp_path / "file").touch()
    assert f"there is no folder {tmp_path / 'file'}" in refused(*FILES[name], tmp_path / "file" / "below")
    assert f"there is no folder {tmp_path / 'gone'}" in refused(*FILES[name], tmp_path / "gone" / "out")
    assert "/proc/headwise" in refused(*FILES[name], "/proc/headwise")


def test_the_folder_of_an_analysis(refused, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "analysis").touch()
    assert "analysis is a file" in refused(["analyze", "OUT"], "headwise.experiments.apply.load_tasks", run)
