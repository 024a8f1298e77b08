"""Which runs wait, which are at work, and which are over: the same book-keeping for every engine."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headwise.errors import InputError, StateError, choices
from headwise.experiments.sweeps.perform import BUSY, INTERRUPTED, Assignment, Report, fail

# How often a run is begun again after whoever worked on it has died.
RETRIES = 2
# Seconds until it is looked again whether somebody else has finished a run.
LOOK_AGAIN = 1.0


@dataclass(frozen=True)
class Monitor:
    """How an engine tells what goes on, and hears that it should stop."""

    over: Callable[[Report], None]
    """A run is over, one way or another."""
    going_on: Callable[[str, str], None]
    """Key of a run, and how far it is."""
    stops: Callable[[], int]
    """How often somebody asked to stop: once means after the running step, twice at once."""


@dataclass
class Board:
    """The runs of a sweep that are to be made."""

    assignments: Sequence[Assignment]
    monitor: Monitor
    _waiting: deque[Assignment] = field(default_factory=deque)
    _elsewhere: list[tuple[float, Assignment]] = field(default_factory=list)
    """Runs that somebody else is at, and when to look again."""
    _working: dict[str, Assignment] = field(default_factory=dict)
    _lost: dict[str, int] = field(default_factory=dict)
    stopping: bool = False

    def __post_init__(self) -> None:
        """All wait."""
        self._waiting.extend(self.assignments)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do or to wait for."""
        rest = [] if self.stopping else [*self._waiting, *self._elsewhere]
        return not self._working and not rest

    def take(self) -> Assignment | None:
        """A run that can be begun now, if there is one."""
        if self.stopping:
            return None
        now = time.monotonic()
        for place, (when, assignment) in enumerate(self._elsewhere):
            if when <= now:
                del self._elsewhere[place]
                self._waiting.append(assignment)
                break
        if not self._waiting:
            return None
        assignment = self._waiting.popleft()
        self._working[assignment.key] = assignment
        return assignment

    def report(self, report: Report) -> None:
        """What became of a run that was taken."""
        assignment = self._working.pop(report.key)
        if report.state == BUSY:
            self._elsewhere.append((time.monotonic() + LOOK_AGAIN, assignment))
        else:
            self.monitor.over(report)

    def lost(self, key: str, reason: str) -> None:
        """Whoever worked on a run has died: it is begun again, unless that has happened too often."""
        assignment = self._working.pop(key)
        self._lost[key] = self._lost.get(key, 0) + 1
        if self.stopping:
            self.monitor.over(Report(key, INTERRUPTED))
        elif self._lost[key] <= RETRIES:
            self._waiting.appendleft(assignment)  # what is begun is finished first
        else:
            times = self._lost[key]
            self.monitor.over(fail(assignment, StateError(f"whoever worked on it died {times} times, last: {reason}.")))


# The engines by name.


ENGINES = ("local", "ray")


class Engine(Protocol):
    """Something that makes runs."""

    @property
    def name(self) -> str:
        """Its name, for the record."""

    def run(self, board: Board) -> None:
        """Make all runs of a board, or stop when asked to."""


def choose_engine(name: str, *, workers: int | None = None, threads: int = 1, address: str | None = None) -> Engine:
    """An engine by its name; what it needs and is not there is told now.

    Args:
        name: local or ray.
        workers: runs at a time; for local one per core if not given, for ray as many as the cluster has room for.
        threads: of each run. More change the last bits, so results are compared at the same number.
        address: of a Ray cluster; a small one is started on this machine if not given.
    """
    if name == "local":
        if address is not None:
            raise InputError(f"--address {address} is for --engine ray: add that, or leave --address out.")
        from headwise.experiments.engines.local import LocalEngine

        return LocalEngine(workers or max(1, _cores() // threads), threads)
    if name == "ray":
        from headwise.experiments.engines.ray_cluster import RayEngine

        return RayEngine.reach(address, workers, threads)
    raise InputError(f"unknown engine {name!r}: {choices(name, ENGINES)}.")


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
