"""The engines by name."""

from __future__ import annotations

import os
from typing import Protocol

from headwise.errors import InputError, choices
from headwise.experiments.engines.board import Board

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
