"""The runs of a sweep along one of its axes: of every system and every point, the seeds that are there."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.dimensions import choose_dimensions
from headwise.experiments.comparison.gather import Gathered, gather
from headwise.experiments.comparison.grouping import Group, Seeds, group
from headwise.experiments.comparison.manifest import SEED
from headwise.experiments.comparison.scores import choose_metrics, choose_split
from headwise.experiments.comparison.seeds import progress_note
from headwise.experiments.comparison.worlds import check_worlds
from headwise.experiments.story.found_sweeps import FoundSweep


@dataclass(frozen=True)
class Lines:
    """What belongs into one plot."""

    where: str
    """The labels that all of it has in common, for its title."""
    metric: str
    systems: dict[str, dict[str, Seeds]] = field(default_factory=dict)
    """System -> label on the axis -> runs by seed; the one system of a sweep without systems has no name."""


@dataclass(frozen=True)
class AxisRuns:
    """A sweep along one of its axes."""

    sweep: FoundSweep
    axis: str
    split: str
    lines: tuple[Lines, ...]
    notes: tuple[str, ...]
    """What is missing."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the points on the axis."""
        return self.sweep.manifest.axes[self.axis].labels


def runs_along(sweep: FoundSweep, axis: str) -> AxisRuns:
    """Put the runs of a sweep where they belong; refuses, as `headwise compare` does, runs that differ otherwise.

    Args:
        sweep: which.
        axis: the one to go along. The others tell systems apart, if the sweep compares by them or says nothing, or
            plots.
    """
    manifest = sweep.manifest
    others = [name for name in manifest.axes if name not in (SEED, axis)]
    systems = [name for name in others if not manifest.by or name in manifest.by]
    plots = [name for name in others if name not in systems]
    asked = Asked(
        sweep=manifest.name,
        by=tuple(systems) or (axis,),
        within=tuple([*plots, axis] if systems else plots),
    )
    gathered, groups = grouped(sweep, asked)
    split = choose_split([run for each in groups for run in each.runs], None)
    found: dict[tuple[str, str], Lines] = {}
    for each, (metric,) in zip(groups, choose_metrics(groups, split, asked), strict=True):
        where = ", ".join(f"{name} {each.within[name]}" for name in plots)
        lines = found.setdefault((where, metric), Lines(where, metric))
        for label, seeds in each.systems.items():
            system, point = (label, each.within[axis]) if systems else ("", label)
            lines.systems.setdefault(system, {})[point] = seeds
    return AxisRuns(sweep, axis, split, tuple(found.values()), tuple(missing_notes(gathered)))


def grouped(sweep: FoundSweep, asked: Asked) -> tuple[Gathered, list[Group]]:
    """The runs of a sweep in blocks; refuses those that differ in what nobody named."""
    gathered = gather([sweep.folder], sweep.manifest.name)
    dimensions = choose_dimensions(gathered, asked)
    groups = group(gathered, dimensions, asked)
    check_worlds(groups, dimensions, ())
    return gathered, groups


def missing_notes(gathered: Gathered) -> list[str]:
    """How many runs are still to come, and how many of these failed."""
    progress, failed = progress_note(gathered), len(gathered.failed)
    notes = [] if progress is None else [progress]
    return notes + ([f"{failed} failed {'run is' if failed == 1 else 'runs are'} left out."] if failed else [])
