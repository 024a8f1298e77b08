"""What tells systems apart, and blocks: axes of a sweep, or keys of recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwise.errors import InputError, choices
from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.differences import MISSING, differing
from headwise.experiments.comparison.gather import Gathered, Placed
from headwise.experiments.comparison.labels import differing_groups, label_runs, value_of
from headwise.experiments.comparison.manifest import SEED
from headwise.experiments.sweeps.plan import WORDS


@dataclass(frozen=True, eq=False)
class Dimension:
    """An axis, or a key of recipes, with a label for every run."""

    name: str
    keys: tuple[str, ...]
    """The keys of recipes that may differ along it."""
    order: tuple[str, ...]
    """All labels."""
    by_identity: Mapping[str, str] | None = None
    """Of a key, the label of every run; of an axis the points say it."""

    def label(self, placed: Placed) -> str:
        """The label of a run."""
        return placed.point[self.name] if self.by_identity is None else self.by_identity[placed.run.identity]


@dataclass(frozen=True, eq=False)
class Dimensions:
    """All that was chosen."""

    by: tuple[Dimension, ...]
    within: tuple[Dimension, ...]
    only: tuple[Dimension, ...]
    baseline: str | None
    """The label that was asked for, or that the sweep names."""

    def keys(self, dimensions: Sequence[Dimension]) -> tuple[str, ...]:
        """All keys along some of the dimensions."""
        return tuple(key for dimension in dimensions for key in dimension.keys)


def choose_dimensions(gathered: Gathered, asked: Asked) -> Dimensions:
    """What the user asked for, else what the sweep says, else the only thing in which the runs differ."""
    manifest = gathered.manifest
    by = asked.by or (manifest.by if manifest else ()) or _only_choice(gathered)
    within = asked.within or tuple(name for name in (manifest.within if manifest else ()) if name not in by)
    if SEED in by:
        raise InputError("--by seed: seeds are what is averaged over; name what tells the systems apart.")
    own = manifest is not None and set(by) == set(manifest.by)
    return Dimensions(
        by=tuple(_dimension(name, gathered, "--by") for name in by),
        within=tuple(_dimension(name, gathered, "--within") for name in within),
        only=tuple(_dimension(name, gathered, "--only") for name in asked.only),
        baseline=asked.baseline or (manifest.baseline if manifest and own else None),
    )


def _only_choice(gathered: Gathered) -> tuple[str, ...]:
    if gathered.manifest is not None:
        names = tuple(name for name in gathered.manifest.axes if name != SEED)
        where = f"the sweep {gathered.manifest.name} does not say what to compare, and has the axes"
    else:
        names = differing_groups(placed.run for placed in gathered.placed)
        where = "the runs differ in"
    if len(names) > 1:
        raise InputError(
            f"{where} {', '.join(names)}: say with --by what tells the systems apart, and with --within what is "
            "compared by itself."
        )
    if not names:
        raise InputError("the runs differ in nothing but their seed, so there is one system only: add runs of another.")
    return names


def _dimension(name: str, gathered: Gathered, option: str) -> Dimension:
    axes = gathered.manifest.axes if gathered.manifest else {}
    if name in axes:
        return Dimension(name, axes[name].keys, axes[name].labels)
    runs = [placed.run for placed in gathered.placed]
    if name in WORDS or all(value_of(run, name) is MISSING for run in runs):
        known = choices(name, dict.fromkeys((*axes, *differing(runs))))
        raise InputError(f"{option} {name}: there is no such axis, and no such key in the recipes; {known}.")
    labels = label_runs(name, runs)
    return Dimension(name, (name,), tuple(sorted(set(labels.values()), key=_natural)), labels)


def _natural(label: str) -> tuple[str, float, str]:
    """Numbers by their size, words by the alphabet."""
    name, _, number = label.rpartition("=")
    try:
        return name, float(number), label
    except ValueError:
        return label, 0.0, label
