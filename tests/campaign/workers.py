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
    what: str, numbers: Sequence[int], attempt: Attempt, work: Path, *, workers: int
) -> list[dict[str, Any]]:
    """Make every attempt that has no result yet; returns the results of all, in their order.

    Args:
        what: names the file of results and the lines of progress.
        numbers: of the attempts.
        attempt: makes one, in a folder that it may use.
        work: folder of the campaign.
        workers: processes.
    """
    file = work / f"{what}.jsonl"
    begun = reported = time.monotonic()
    at_first = len(read(file))

    def start(place: int) -> Fork | None:
        """A process that makes the attempts of a place; none if they are all made."""
        done, own = read(file), work / f"{what}-{place}"
        left = [number for number in numbers if number % workers == place and number not in done]
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o755)

        def target() -> None:
            for number in left:
                row = attempt(number, own)
                with file.open("a", encoding="utf-8") as results:
                    results.write(json.dumps(row) + "\n")

        return Fork(target, own / "worker", cwd=None) if left else None

    def report() -> None:
        done, seconds = read(file), time.monotonic() - begun
        failures = sum(bool(row["complaints"]) for row in done.values())
        rate = (len(done) - at_first) / seconds if seconds else 0.0
        line = f"{what}: {len(done)} of {len(numbers)}, {failures} failures, {rate:.1f} per second"
        print(line, file=sys.stderr, flush=True)

    forks = {place: fork for place in range(workers) if (fork := start(place)) is not None}
    try:
        while forks:
            time.sleep(0.2)
            for place, fork in list(forks.items()):
                if (code := fork.poll()) is None:
                    continue
                del forks[place]
                if (again := start(place)) is not None:  # a kill of the group may end the worker as well
                    if code in (0, 1):
                        again.send(signal.SIGKILL, group=True)
                        raise RuntimeError(f"a worker of {what} failed: {fork.err.read_text()}")
                    forks[place] = again
            if time.monotonic() - reported > PAUSE:
                reported = time.monotonic()
                report()
    finally:
        for fork in forks.values():
            fork.send(signal.SIGKILL, group=True)
    report()
    done = read(file)
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


def cores() -> int:
    """How many processes may work at a time."""
    return len(os.sched_getaffinity(0))
