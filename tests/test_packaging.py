"""What a user meets before any model is loaded: a quick import, a quick --help, and versions that agree."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import headwise

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = [line for line in LINES if line and not line.startswith("#")]

# Written to stderr, because stdout belongs to the command.
REPORT = "print(sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_import_leaves_torch_and_transformers_alone():
    done = python("-c", f"import sys, headwise; {REPORT}")
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


def test_help_is_quick():
    resource = pytest.importorskip("resource", reason="CPU time of children is a POSIX notion")
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = python("-m", "headwise", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert "doctor" in done.stdout
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The least of three: a busy machine can only add to what the command itself needs.
    assert min(seconds) < 0.5


def test_the_two_versions_agree():
    assert PROJECT["version"] == headwise.__version__


def test_constraints_are_exact_and_name_no_machine():
    assert "torch==2.13.0" in PINS
    assert [pin for pin in PINS if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []


def test_every_direct_dependency_is_pinned():
    wanted = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    names = {re.match(r"[A-Za-z0-9-]+", requirement)[0].lower() for requirement in wanted}
    assert names - {pin.partition("==")[0] for pin in PINS} == set()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A Python with the wheel of this checkout; its dependencies are those of the Python that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", folder, ROOT], check=True)
    (wheel,) = folder.glob("headwise-*.whl")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    # Not the editable checkout, which is a .pth file of its own there: only what is installed as folders.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    return folder / "venv" / "bin" / "python"


@pytest.mark.slow
def test_the_wheel_works_without_the_checkout(installed, finished, tmp_path):
    def run(*words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([installed, *words], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(installed.parents[1]) in run("-c", "import headwise; print(headwise.__file__)")
    guide = (
        "import headwise as hw, transformers as t;"
        "config = t.BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8);"
        "model = hw.guide(t.BertForSequenceClassification(config), 'mdg');"
        "print(list(hw.guides.guidance(model).state_dict()))"
    )
    run("-c", guide)
    assert "--examples" in run("-m", "headwise", "demo", "--help")
    assert "mdg" in run("-m", "headwise", "list", "guides")
    shutil.copytree(finished, tmp_path / "run")
    run("-m", "headwise", "analyze", "run", "--limit", "4", "--keep", "2")
    run("-m", "headwise", "report", "run", "-o", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 100_000
