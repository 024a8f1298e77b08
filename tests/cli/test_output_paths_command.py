"""An output that cannot be written is refused in one sentence before the work begins, by every command that has one."""

import shutil

import pytest
from small_sweeps import write_sweep
from tiny_runs import assert_one_sentence

# Words, and the first function of the work. OUT is the output, without an ending where that is not part of it.
STUDIES = "headwise.experiments.head_studies"
FOLDERS = {
    "train RECIPE --data DATA --output OUT": "headwise.experiments.run.prepare",
    "export RUN --output OUT": "headwise.experiments.apply.load_run",
    "heads importance RUN --output OUT": "headwise.experiments.apply.load_tasks",
    "heads similarity RUN --output OUT": "headwise.experiments.apply.load_tasks",
    "heads prune-curve RUN --output OUT": "headwise.experiments.apply.load_tasks",
    "heads dissociation RUN --output OUT": f"{STUDIES}.head_dissociation.find_curve",
    "sweep SWEEP --data DATA --output OUT": "headwise.experiments.sweeps.sweep.run_jobs",
    "tune RECIPE --data DATA --vary data.max_length=[24] --output OUT": "headwise.experiments.sweeps.tune.Storage",
    "demo --output OUT": "headwise.cli.demo.train",
}
FILES = {
    "predict RUN --input DATA/test.tsv --output OUT.tsv": "headwise.experiments.apply.load_run",
    "tokens RUN --text a --html OUT.html": "headwise.experiments.apply.load_run",
    "report RUN -o OUT.html": "headwise.reports.report_runs.gather_runs",
    "figure heatmap RUN -o OUT.svg": "headwise.reports.run_figures._views",
    "compare RUN RUN --output OUT.md": "headwise.experiments.comparison.compare",
    "score a.trec --qrels q --per-query OUT.json": "headwise.retrieval.evaluate.read_qrels",
    "retrieve papers --output OUT.trec": "headwise.retrieval.search.retrieve",
    "retrieve papers --per-query OUT.json": "headwise.retrieval.search.retrieve",
    "rerank RUN --candidates c.trec --output OUT.trec": "headwise.retrieval.rerank.read_candidates",
    "data ag-pair --news n.csv --out OUT.tsv": "headwise.data.ag_pair.read_news",
}


@pytest.fixture
def refused(headwise, write_recipe, encoder, pairs, finished, tmp_path, monkeypatch):
    """Type a command with an output; it must end in one sentence, and not call the function."""

    def type_in(typed, work, output):
        named = {"RUN": finished, "DATA": pairs, "OUT": output}
        if "RECIPE" in typed:
            named["RECIPE"] = write_recipe()
        if "SWEEP" in typed:
            named["SWEEP"] = write_sweep(tmp_path / "sweep.yaml", encoder)
        words = typed.split()
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


@pytest.mark.parametrize("words", FOLDERS, ids=str.lower)
def test_folders(refused, tmp_path, words):
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} " in refused(words, FOLDERS[words], tmp_path / "file")
    assert f"{tmp_path / 'file'} is a file" in refused(words, FOLDERS[words], tmp_path / "file" / "below")
    assert "/proc/headwise" in refused(words, FOLDERS[words], "/proc/headwise/out")


@pytest.mark.parametrize("words", FILES, ids=str.lower)
def test_files(refused, tmp_path, words):
    (tmp_path / "file").touch()
    assert f"there is no folder {tmp_path / 'file'}" in refused(words, FILES[words], tmp_path / "file" / "below")
    assert f"there is no folder {tmp_path / 'gone'}" in refused(words, FILES[words], tmp_path / "gone" / "out")
    assert "/proc/headwise" in refused(words, FILES[words], "/proc/headwise")
    ending = words.rpartition("OUT")[2].partition(" ")[0]
    taken = tmp_path / f"taken{ending}"
    taken.write_text("precious")
    replace = "--force" if words.startswith(("report", "figure")) else "--overwrite"
    said = refused(words, FILES[words], tmp_path / "taken")
    assert f"{taken} exists already: choose another name, or add {replace}." in said
    assert taken.read_text() == "precious"


def test_the_folder_of_an_analysis(refused, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "analysis").touch()
    assert "analysis is a file" in refused("analyze OUT", "headwise.experiments.apply.load_tasks", run)
