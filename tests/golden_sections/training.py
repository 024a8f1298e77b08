"""Sections of `headwise train`: every run of RUNS, changed recipes, and runs that are stopped and resumed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from golden_sections.inputs import RUNS, recipe, write_yaml
from golden_sections.lab import Lab, Section, holder, section, summary


def summary_of(name: str) -> Section:
    return lambda lab: summary(lab.train(name), lab.run(name))


for _name in RUNS:
    section(f"train.{_name}")(summary_of(_name))


@section("train.set")
def train_set(lab: Lab) -> Any:
    """--set and --dry-run."""
    file = write_yaml("set.yaml", recipe())
    line = f"train {file} --data pairs --set training.num_train_epochs=1 --set guides.pdg.weight=0.01"
    shown, run = lab.json(f"{line} --dry-run"), lab.json(f"{line} --output set")
    return {"guides": holder(shown, "guides")["guides"], "run": summary(run, "set")}


@contextmanager
def interrupted_after(steps: int) -> Iterator[None]:
    """Ctrl-C at the end of this step of the optimizer."""
    done = 0

    def count(*_: Any) -> None:
        nonlocal done
        done += 1
        if done == steps:
            signal.raise_signal(signal.SIGINT)

    handle = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        handle.remove()


@section("resume")
def resume(lab: Lab) -> Any:
    """Stopped by Ctrl-C, then resumed: the weights, scores and log of the run that was not stopped."""
    found = {}
    for name, stop in (("plain", 7), ("mdg-pdg", 13), ("ssa-hybrid", 30), ("joint-iat", 20), ("list", 4)):
        data, folder = RUNS[name]
        line = f"train {write_yaml('resumed.yaml', data)} --data {folder} --output resumed/{name}"
        with interrupted_after(stop):
            code, _, _ = lab.type(line)
        again = summary(lab.json(f"{line} --resume"), f"resumed/{name}")
        whole = summary(lab.train(name), lab.run(name))
        differ = [key for key in whole if again.get(key) != whole[key]]
        found[name] = {"code": code, "differ": differ, "weights": again["weights"]}
    return found
