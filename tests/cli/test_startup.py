"""Commands that only read files do not import torch."""

import shutil
import subprocess
import sys

import pytest

CODE = (
    "import sys, headwise.cli.main as main\n"
    "try: main.run()\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "assert 'torch' not in sys.modules, 'torch was imported'"
)


@pytest.fixture(scope="module")
def runs(finished, tmp_path_factory):
    """A finished run with an analysis."""
    from headwise.experiments.analysis.analyze import analyze

    folder = shutil.copytree(finished, tmp_path_factory.mktemp("analysed") / "run")
    analyze(folder, limit=4)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["report", "RUN", "-o", "OUT.html"],
        ["figure", "curves", "RUN", "-o", "OUT.png"],
    ],
    ids=lambda words: words[0],
)
def test_reading_a_run_does_not_import_torch(runs, tmp_path, words):
    words = [word.replace("RUN", str(runs)).replace("OUT", str(tmp_path / "out")) for word in words]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
