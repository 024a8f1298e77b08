"""Commands that only read files do not import torch, and neither does the refusal of a bad file."""

import subprocess
import sys

import pytest
import small_heads
import small_results

CODE = """
import sys
import headwise.cli.main as main
code = 0
try: main.run()
except SystemExit as end: code = end.code or 0
print(code, *(name for name in ("torch", "transformers", "numpy", "matplotlib") if name in sys.modules))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory, two_runs):
    """Runs with an analysis and D-scores, and results of a sweep."""
    root = tmp_path_factory.mktemp("files")
    (root / "TRAINED").symlink_to(two_runs / "guided")
    run = small_heads.bare_run(root / "RUN", evaluations=[{"step": 3, "eval_accuracy": 0.5}])
    small_heads.write_heads(run)
    small_heads.write_analysis(run, [small_heads.view(number, seed=1) for number in range(3)])
    axes = {"system": small_results.SYSTEMS, "size": {"1": {"data__fraction": 1.0}, "2": {"data__fraction": 0.5}}}
    compare = {"by": ["system"], "baseline": "plain", "within": ["size"]}
    small_results.sweep(root / "SWEEP", axes, compare=compare, name="sizes")
    return root


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        ("--help", []),
        ("list sweeps", []),
        ("compare SWEEP --resamples 100", ["numpy"]),
        ("figure sizes SWEEP -o OUT.svg", ["numpy", "matplotlib"]),
        ("figure curves RUN -o OUT.svg", ["numpy", "matplotlib"]),
        ("figure dissociation RUN -o OUT.svg", ["numpy", "matplotlib"]),
        ("figure pca RUN -o OUT.svg", ["numpy", "matplotlib"]),
        ("report TRAINED -o OUT.html", ["numpy"]),
    ],
)
def test_reading_files_does_not_import_torch(files, tmp_path, words, loaded):
    places = {name: str(files / name) for name in ("RUN", "SWEEP", "TRAINED")}
    words = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in words.split()]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["0", *loaded], done.stderr


def test_marking_does_not_import_torch(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\na b,c\n")
    serve = "from headwise.cli import mark_server; mark_server.run_until_interrupt = lambda: None\n"
    words = ["mark", str(tmp_path / "rows.csv"), "--no-browser"]
    done = subprocess.run([sys.executable, "-c", serve + CODE, *words], capture_output=True, text=True)
    assert "http://127.0.0.1:" in done.stdout, done.stderr
    assert set(done.stdout.splitlines()[-1].split()) <= {"0", "numpy"}, done.stdout


@pytest.mark.parametrize("command", ["train", "sweep", "tune", "knowledge build"])
def test_yaml_that_is_too_deep_is_refused_before_torch_is_imported(tmp_path, command):
    path = tmp_path / "deep.yaml"
    path.write_text("task: " + "[" * 2000 + "]" * 2000, encoding="utf-8")
    words = [*command.split(), str(path)]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.stdout.split() == ["2"], done.stderr
    assert "nested deeper than 50 levels" in done.stderr
