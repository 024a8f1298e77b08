"""Sweeps of tiny runs for the tests of engines and commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_runs import small

from headwise.experiments.sweeps.jobs import JobSettings, run_job
from headwise.experiments.sweeps.sweep_file import plan_sweep
from headwise.training import Silence

# Long enough to be caught in the middle, and a checkpoint now and then.
LONG = {
    "recipe__training__steps": 200,
    "recipe__training__checkpoint_every": 20,
    "recipe__training__evaluate_every": 50,
    "recipe__guides": {"mdg": {"weight": 0.1}},
    "recipe__share_every": 0,
    "seeds": [1],
}


def sweep_data(encoder: str, **changes: Any) -> dict[str, Any]:
    """Plain and guided, two seeds; `changes` are keys of the sweep, `recipe__...` keys of its recipe."""
    own = {key.removeprefix("recipe__"): value for key, value in changes.items() if key.startswith("recipe__")}
    rest = {key: value for key, value in changes.items() if not key.startswith("recipe__")}
    return {
        "name": "tiny",
        "recipe": small(encoder, training__epochs=1, **own),
        "grid": {"system": {"plain": {"guides": {}}, "ag": None}},
        "seeds": [1, 2],
        "compare": {"by": "system", "baseline": "plain"},
        **rest,
    }


def write_sweep(path: Path, encoder: str, **changes: Any) -> str:
    path.write_text(yaml.safe_dump(sweep_data(encoder, **changes), sort_keys=False), encoding="utf-8")
    return str(path)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Key -> the JSON of every finished run."""
    found = {path.stem: path for path in (folder / "runs").glob("*.json") if not path.name.endswith(".error.json")}
    return {key: json.loads(path.read_text(encoding="utf-8")) for key, path in found.items()}


def differences(first: Path, second: Path) -> list[str]:
    """Where the results of two folders differ, in recipe or results."""
    one, two = results(first), results(second)
    found = sorted(one.keys() ^ two.keys())
    for key in one.keys() & two.keys():
        for part in ("recipe", "examples", "results"):
            mine, theirs = ({"": each[key][part]} if part == "examples" else each[key][part] for each in (one, two))
            found += [f"{key} {part} {name}" for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    return found


def finished_counts(folder: Path) -> Counter[str]:
    """How often each run was finished, by the folder's log."""
    log = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(line["key"] for line in map(json.loads, log) if line["state"] == "finished")


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    """`headwise WORDS...` as a real process in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "headwise", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 120, *, process: Any = None) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended before: {process.communicate()}")
        if time.monotonic() > end:
            raise AssertionError(f"nothing happened for {seconds} seconds")
        time.sleep(0.02)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "unfinished").glob("*/unfinished/checkpoint-*/headwise-complete.json"))


def keys_at_work(folder: Path, parent: int | None = None) -> dict[int, str]:
    """Process -> the key of the run whose lock it has open; only children of `parent`, if that is given."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdecimal() or (parent is not None and _parent(process) != parent):
                continue
            links = [Path(os.readlink(each)) for each in (process / "fd").iterdir()]
        except OSError:
            continue
        keys = [link.stem for link in links if link.parent == folder / "locks" and link.stem != "folder"]
        found |= {int(process.name): keys[0]} if keys else {}
    return found


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def processes_of(folder: Path) -> list[int]:
    """Processes that are at a run of the folder."""
    return sorted(keys_at_work(folder))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, encoder: str, pairs: str) -> Path:
    """The results of the long runs, made without an engine by a process that nobody disturbed."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = JobSettings(folder / "out", Path(pairs))
    for planned in plan_sweep(write_sweep(folder / "s.yaml", encoder, **LONG)).unique:
        assert run_job(settings.job(planned.recipe, "r"), Silence()).state == "finished"
    return folder / "out"
