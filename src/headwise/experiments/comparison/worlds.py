"""What runs have in common beside their recipes: versions, hardware, examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.comparison.differences import Difference, covered, distinct, flat
from headwise.experiments.comparison.dimensions import Dimensions
from headwise.experiments.comparison.grouping import Group
from headwise.experiments.results import StoredRun

EXAMPLES = "examples"
# Whoever compares these compares other token ids as well.
CHANGES_EXAMPLES = ("task", "tasks", "data", "model")


def _package(name: str) -> Callable[[StoredRun], Any]:
    return lambda run: (run.world.get("packages") or {}).get(name)


WORLD: dict[str, Callable[[StoredRun], Any]] = {
    "headwise": lambda run: run.world.get("headwise"),
    "torch": _package("torch"),
    "transformers": _package("transformers"),
    "accelerator": lambda run: run.world.get("accelerator"),
    "threads": lambda run: run.world.get("threads"),
    "processes": lambda run: run.world.get("processes", 1),  # a batch of each makes one step
    "precision": lambda run: run.world.get("precision"),
}


def check_worlds(groups: Sequence[Group], dimensions: Dimensions, ignore: Sequence[str]) -> list[Difference]:
    """Refuse runs of different worlds, or on other examples; return the differences that were passed over."""
    runs = [run for each in groups for run in each.runs]
    _check_names(runs, ignore)
    passed = []
    for name, value in WORLD.items():
        difference = _difference(name, value, runs)
        if difference is not None and name not in ignore:
            raise InputError(
                f"the runs differ in {difference}, which changes results by itself: run them again in one world, or "
                f"pass over it by --ignore {name}."
            )
        passed += [] if difference is None else [difference]
    return passed + _check_examples(groups, dimensions, ignore)


def _check_examples(groups: Sequence[Group], dimensions: Dimensions, ignore: Sequence[str]) -> list[Difference]:
    """The same seed must have had the same examples, unless they are what is compared."""
    if any(covered(key, CHANGES_EXAMPLES) for key in dimensions.keys(dimensions.by)):
        return []
    for each in groups:
        for seed in dict.fromkeys(run.seed for run in each.runs):
            runs = [run for run in each.runs if run.seed == seed]
            difference = _difference(EXAMPLES, lambda run: run.examples, runs)
            if difference is None:
                continue
            if EXAMPLES in ignore:
                return [difference]
            raise InputError(
                f"{each.title}the runs of seed {seed} had different examples (hash {difference.first} and "
                f"{difference.second}), as after a change of files: run them again on the same, or pass over it by "
                f"--ignore {EXAMPLES}."
            )
    return []


def _difference(name: str, value: Callable[[StoredRun], Any], runs: Iterable[StoredRun]) -> Difference | None:
    values = distinct(value(run) for run in runs)
    return Difference(name, *values[:2]) if len(values) > 1 else None


def _check_names(runs: Iterable[StoredRun], ignore: Sequence[str]) -> None:
    keys = dict.fromkeys(key for run in runs for key in flat(run.recipe))
    for name in ignore:
        if name not in WORLD and name != EXAMPLES and not any(covered(key, [name]) for key in keys):
            known = dict.fromkeys((*WORLD, EXAMPLES, *keys))
            raise InputError(f"--ignore {name}: there is no such key; {choices(name, known)}.")
