"""Ctrl-C in every command: one sentence about what was kept, exit code 130, no traceback, nothing half-written."""

import importlib
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import time

import pytest
import small_results
from small_collection import write_collection
from small_sweeps import write_sweep
from tiny_runs import Process, slowly

from headwise.cli.main import app

NOTHING = "headwise: stopped; nothing was written"


@pytest.fixture(scope="module")
def place(tmp_path_factory, two_runs, supervised_run, joint, encoder):
    """All that the commands below read."""
    root = tmp_path_factory.mktemp("stopped")
    for name, run in {"guided": two_runs / "guided", "plain": two_runs / "plain", "ssa": supervised_run}.items():
        shutil.copytree(run, root / name)
    shutil.copytree(joint, root / "joint")
    write_collection(root / "papers")
    small_results.sweep(root / "results")
    write_sweep(root / "sweep.yaml", encoder)
    (root / "texts.tsv").write_text("sentence1\tsentence2\tlabel\nthe cat\ta dog\tagree\n", encoding="utf-8")
    (root / "found.trec").write_text("v0 Q0 v0-yes 1 2.0 t\n", encoding="utf-8")
    (root / "encoder").symlink_to(encoder)
    return root


@pytest.fixture
def press(monkeypatch, headwise, place, write_recipe, pairs, tmp_path):
    """Type a command, and press Ctrl-C when it calls a function."""

    def type_in(words, function):
        monkeypatch.chdir(place)
        monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
        recipe = write_recipe(guides={"pmi": {}})
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a shell
        if function is not None:
            pkgutil.resolve_name(function)  # else there would be nothing to replace
            monkeypatch.setattr(function, lambda *_, **__: signal.raise_signal(signal.SIGINT))
        try:
            return headwise(*words.format(recipe=recipe, data=pairs, new=tmp_path / "new").split())
        finally:
            signal.signal(signal.SIGINT, before)

    return type_in


# Command -> a function that it calls on its way.
COMMANDS = {
    "train {recipe} --data {data} --output {new}": "headwise.experiments.run.check_output",
    "init texts.tsv --yes --output {new}.yaml": "headwise.experiments.file_recipe.file_recipe",
    "push guided someone/model": "headwise.experiments.hub.prepare_upload",
    "evaluate guided": "headwise.experiments.apply.predict_logits",
    "predict guided --input texts.tsv --output {new}.tsv": "headwise.experiments.apply.predict_logits",
    "tokens ssa --text cat --pair dog --html {new}.html": "headwise.experiments.token_scores.token_scores",
    "export guided --output {new}": "headwise.experiments.apply.save_classifier",
    "list tasks": "headwise.cli.listing.files",
    "demo --output {new}": "headwise.cli.demo.check_output",
    "doctor encoder": "headwise.attention.doctor.diagnose",
    "score found.trec --collection papers": "headwise.retrieval.evaluate.read_run",
    "rerank guided --candidates found.trec --output {new}.trec --collection papers": (
        "headwise.retrieval.rerank.read_candidates"
    ),
    "sweep sweep.yaml --data {data} --output {new}": "headwise.experiments.sweeps.worker_pool.choose_engine",
    "tune {recipe} --vary data.max_length=[24] --data {data} --output {new}": "headwise.experiments.sweeps.tune.tune",
    "compare guided plain --output {new}.md": "headwise.experiments.comparison.compare",
    "figure heatmap guided -o {new}.png": "headwise.reports.run_figures.build_heatmap",
    "report guided -o {new}.html": "headwise.reports.report_page.build_page",
    "explore guided": "headwise.reports.report_page.build_page",
    "mark texts.tsv --output {new}.jsonl --no-browser": "headwise.data.marking.read_rows",
    "data check texts.tsv --task pairs": "headwise.data.checks.check_files",
    "data ag-pair --news texts.tsv --out {new}.tsv": "headwise.data.ag_pair.write_pairs",
    "heads patterns guided": "headwise.experiments.head_studies.head_patterns.load_run",
    "heads importance guided --output {new}": "headwise.experiments.head_studies.head_importance.labelled_examples",
    "heads prune-curve guided --output {new}": "headwise.experiments.head_studies.prune_curve.measure_curve",
    "heads dissociation joint --output {new}": "headwise.experiments.head_studies.head_dissociation.measure_curve",
    "heads similarity joint --output {new}": "headwise.experiments.head_studies.head_importance.measure_similarity",
    "knowledge build {recipe} --data {data}": "headwise.experiments.splits.read_splits",
    "knowledge show {recipe} --data {data}": "headwise.experiments.splits.read_splits",
}
# Those that keep something, or find it again.
KEEPING = {
    "analyze joint": (
        "headwise.experiments.analysis.analyze.capture",
        "nothing was written, and the same command begins the analysis of joint again",
    ),
    "retrieve papers --output {new}.trec": (
        "headwise.retrieval.search.retrieve",
        "begins again with what the cache has",
    ),
    "search guided cat --collection papers": ("headwise.experiments.searcher.open_searcher", "with what the cache has"),
}


@pytest.mark.parametrize("words", [*COMMANDS, *KEEPING])
def test_one_sentence_and_nothing_is_written(press, tmp_path, words):
    function, said = KEEPING.get(words) or (COMMANDS[words], NOTHING)
    code, out, err = press(words, function)
    assert (code, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith("headwise: stopped; ")
    assert last.endswith(said)
    assert "Traceback" not in err
    assert not [*tmp_path.glob("new*"), *tmp_path.glob(".new*")]


def test_every_command_is_among_them():
    def names(group, before=()):
        for name, command in group.commands.items():
            yield from names(command, (*before, name)) if hasattr(command, "commands") else [" ".join((*before, name))]

    import typer

    tested = [*COMMANDS, *KEEPING]
    for name in names(typer.main.get_command(app)):
        assert any(words.startswith(f"{name} ") for words in tested), name


def test_finished_tasks_of_several_are_kept(monkeypatch, press, place):
    module = importlib.import_module("headwise.experiments.analysis.analyze")
    original, calls = module._analyse, []

    def second_is_stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(module, "_analyse", second_is_stopped)
    shutil.rmtree(place / "joint" / "analysis", ignore_errors=True)
    code, _, err = press("analyze joint --limit 2 --keep 1", None)
    assert code == 130
    assert err.splitlines()[-1].startswith("headwise: stopped; the analysis of signs is kept, and ")
    assert [path.name for path in (place / "joint" / "analysis").iterdir()] == ["signs"]


def test_the_curve_of_a_stopped_dissociation_is_kept(press, tmp_path):
    words = "heads dissociation joint --percent 50 --random 0 --examples 4 --limit 4 --output {new}"
    code, out, err = press(words, "headwise.experiments.head_studies.head_dissociation.dissociate")
    assert (code, out) == (130, "")
    kept = f"headwise: stopped; {tmp_path / 'new' / 'prune-curve'}.json is kept, and the same command uses it"
    assert err.splitlines()[-1] == kept
    assert (tmp_path / "new" / "prune-curve.json").is_file()
    assert not (tmp_path / "new" / "dissociation.json").exists()


def test_existing_results_are_kept(press, tmp_path):
    (tmp_path / "new").mkdir()
    code, _, err = press(
        "sweep sweep.yaml --data {data} --output {new}", "headwise.experiments.sweeps.worker_pool.choose_engine"
    )
    assert code == 130
    assert err.splitlines()[-1] == (
        f"headwise: stopped; what is finished in {tmp_path / 'new'} is kept, and the same command resumes"
    )


def test_a_library_that_turns_it_into_an_error_changes_nothing(monkeypatch, press):
    """As importing NumPy's C code does."""

    def broken(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("numpy.core.multiarray failed to import") from None

    monkeypatch.setattr("headwise.cli.listing.files", broken)
    code, out, err = press("list tasks", None)
    assert (code, out, err) == (130, "", f"{NOTHING}\n")


def test_of_several_processes_only_the_first_says_it_and_handlers_are_restored(monkeypatch, press):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("RANK", "1")
    code, _, err = press("list tasks", "headwise.cli.listing.files")
    assert (code, err) == (130, "")
    assert signal.getsignal(signal.SIGINT) is before


# -- real processes ----------------------------------------------------------------------------------------------------


def test_train_that_is_stopped_at_once_says_how_to_resume(write_recipe, pairs, tmp_path):
    words = ["train", write_recipe(), "--data", pairs, "--output", tmp_path / "run"]
    step = ("headwise.training.callbacks.Clock.on_step_end", 6, signal.SIGINT, signal.SIGINT)
    code, out, err = Process(tmp_path / "p", *words, at=step).result()
    assert (code, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith(f"headwise: stopped; what was saved in {tmp_path / 'run'} is kept; resume with: headwise ")
    assert last.endswith(" --resume")
    assert "Traceback" not in err
    assert json.loads((tmp_path / "run" / "headwise.json").read_text())["results"] is None


# Seconds after the start, while Python, typer, torch and transformers are being loaded one after the other.
MOMENTS = (0.3, slowly(0.1), slowly(0.9), slowly(1.8))


@pytest.mark.parametrize("seconds", MOMENTS)
def test_ctrl_c_while_libraries_are_loaded(place, seconds):
    """From the moment that headwise is there: before, it is Python that loads itself."""
    script = (
        "import sys; from headwise.__main__ import main; sys.stdout.write('!'); sys.stdout.flush(); "
        "sys.argv = ['headwise', 'evaluate', sys.argv[1]]; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(place / "guided")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.read(1) == "!"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.skip("this machine was done before the signal came")
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == NOTHING
