"""Commands that only read files start fast: without torch, and figures in less than 1.5 seconds of the processor."""

import subprocess
import sys

import pytest
import small_heads
import small_results

CODE = """
import sys, time
import headwise.cli.main as main
try: main.run()
except SystemExit as end: assert not end.code, end.code
print(*(name for name in ("torch", "matplotlib") if name in sys.modules), time.process_time())
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
        ("compare SWEEP --resamples 100", []),
        ("figure sizes SWEEP -o OUT.svg", ["matplotlib"]),
        ("figure curves RUN -o OUT.svg", ["matplotlib"]),
        ("figure dissociation RUN -o OUT.svg", ["matplotlib"]),
        ("figure pca RUN -o OUT.svg", ["matplotlib"]),
        ("report TRAINED -o OUT.html", []),
    ],
)
def test_reading_files_does_not_import_torch(files, tmp_path, words, loaded):
    places = {name: str(files / name) for name in ("RUN", "SWEEP", "TRAINED")}
    words = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in words.split()]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *names, seconds = done.stdout.splitlines()[-1].split()
    assert names == loaded
    assert words[0] != "figure" or float(seconds) < 1.5
