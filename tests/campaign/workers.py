"""Many attempts on all cores, with a file of results that a second start continues."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from campaign.commands import Fork

PAUSE = 15.0  # seconds between two lines of progress

Attempt = Callable[[int, Path], dict[str, Any]]


def all_attempts(
    what: str, numbers: Sequence[int], attempt: Attempt, work: Path, *, workers: int, quiet: bool = False
) -> list[dict[str, Any]]:
    """Make every attempt that has no result yet; returns the results of all, in their order.

    Args:
        what: names the file of results and the lines of progress.
        numbers: of the attempts.
        attempt: makes one, in a folder that it may use.
        work: folder of the campaign.
        workers: processes.
        quiet: no progress.
    """
    file = work / f"{what}.jsonl"
    begun = reported = time.monotonic()
    done = read(file)
    at_first = len(done)
    forks = {place: _start(place, what, numbers, done, attempt, work, workers) for place in range(workers)}
    try:
        while forks:
            time.sleep(0.2)
            for place, fork in list(forks.items()):
                if (code := fork.poll()) is None:
                    continue
                done = read(file)
                del forks[place]
                if any(number % workers == place and number not in done for number in numbers):
                    if code in (0, 1):
                        raise RuntimeError(f"a worker of {what} failed: {fork.err.read_text()}")
                    forks[place] = _start(place, what, numbers, done, attempt, work, workers)
            if not quiet and time.monotonic() - reported > PAUSE:
                reported = time.monotonic()
                _report(what, read(file), len(numbers), at_first, begun)
    finally:
        for fork in forks.values():
            fork.send(signal.SIGKILL, group=True)
    done = read(file)
    if not quiet:
        _report(what, done, len(numbers), at_first, begun)
    return [done[number] for number in numbers]


def read(file: Path) -> dict[int, dict[str, Any]]:
    """Results so far, by number; a line that a kill cut off is none."""
    found: dict[int, dict[str, Any]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["number"]] = row
    return found


def _start(
    place: int,
    what: str,
    numbers: Sequence[int],
    done: dict[int, Any],
    attempt: Attempt,
    work: Path,
    workers: int,
) -> Fork:
    file = work / f"{what}.jsonl"
    own = work / f"{what}-{place}"
    own.mkdir(parents=True, exist_ok=True)
    own.chmod(0o755)

    def target() -> None:
        for number in numbers:
            if number % workers == place and number not in done:
                row = attempt(number, own)
                with file.open("a", encoding="utf-8") as results:
                    results.write(json.dumps(row) + "\n")

    return Fork(target, own / "worker", cwd=None)


def _report(what: str, done: dict[int, dict[str, Any]], total: int, at_first: int, begun: float) -> None:
    failures = sum(bool(row["complaints"]) for row in done.values())
    seconds = time.monotonic() - begun
    rate = (len(done) - at_first) / seconds if seconds else 0.0
    print(f"{what}: {len(done)} of {total}, {failures} failures, {rate:.1f} per second", file=sys.stderr, flush=True)


def cores() -> int:
    """How many processes may work at a time."""
    return len(os.sched_getaffinity(0))
