"""SIGKILL at random moments and at steps of writing files; afterwards the same command must come to the same end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from campaign import jobs
from campaign.commands import Fork, command, fresh_box
from campaign.jobs import JOBS, KILLED, PATIENCE, Job, wrong_end

ATTEMPTS = 8  # to meet a process before it ends
ORPHANS = 30.0  # seconds after which nobody may be at work any more
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "sqlite3.connect"}


def reference(number: int, benches: Path, place: Path) -> dict[str, Any]:
    """A job that nobody disturbs: its outcome, how long it takes, and how many steps of writing it has."""
    job = JOBS[number]
    box, counts = fresh_box(benches, place / "box", job.needs), place / "counts"
    counts.unlink(missing_ok=True)
    answer = command(job.words, box, place / "logs", before=lambda: _watch(box, counts=counts)).answer(PATIENCE)
    steps = len(counts.read_text()) if counts.is_file() else 0
    return jobs.reference(number, job, box, answer, steps=steps)


def attempt(number: int, seed: int, benches: Path, place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Kill a job once or several times, let it come to its end, and compare."""
    chance = random.Random(f"{seed}/kill/{number}")
    # Every command in turn, and of train every kind in turn.
    same = [job for job in JOBS if job.words[0] == KILLED[number % len(KILLED)]]
    job = same[number // len(KILLED) % len(same)]
    box = fresh_box(benches, place / "box", job.needs)
    whole, kills = known[job.name], []
    planned = 1 + (chance.random() < 0.3) + (chance.random() < 0.1)
    for _ in range(ATTEMPTS):
        if len(kills) == planned:
            break
        how = _kill_once(job, box, place, chance, whole)
        if how is not None:
            kills.append(how)
        elif kills:  # it came to its end before
            break
        else:
            box = fresh_box(benches, place / "box", job.needs)
    complaints = [] if kills else ["no moment to kill it"]
    answer = command(job.again(box), box, place / "logs").answer(PATIENCE)
    complaints += wrong_end(job, box, answer, whole["outcome"])
    return {
        "number": number,
        "job": job.name,
        "command": job.words[0],
        "kills": kills,
        "complaints": complaints,
        "stderr": answer.err[-600:] if complaints else None,
    }


def _kill_once(job: Job, box: Path, place: Path, chance: random.Random, whole: Mapping[str, Any]) -> str | None:
    """Start the job and kill it; returns how, or None if it came to its end before."""
    words, logs = job.again(box), place / "logs"
    shutil.rmtree(place / "tmp", ignore_errors=True)
    if chance.random() < 0.5 and whole["steps"]:
        step = chance.randint(1, whole["steps"])
        delay = chance.choice((0.0, 0.0, chance.uniform(0, 0.004)))
        half = chance.random() < 0.5
        process = command(words, box, logs, before=lambda: _watch(box, step=step, delay=delay, half=half))
        how = f"at step {step} of writing"
    else:
        process = command(words, box, logs)
        moment = chance.uniform(0, whole["seconds"])
        process.wait(moment)
        target = chance.choice(("main", "worker", "all")) if job.workers else "main"
        how = f"{target} after {moment:.2f} s"
        _kill(process, target)
    process.wait(PATIENCE)
    _wait_for_orphans(place)
    return how if process.poll() == -signal.SIGKILL or "worker" in how else None


def _kill(process: Fork, target: str) -> None:
    children = []
    if target != "main" and process.poll() is None:
        children = sorted(psutil.Process(process.pid).children(), key=lambda child: child.pid)
    if target != "worker":
        process.send(signal.SIGKILL)
    for child in children[: 1 if target == "worker" else None]:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _wait_for_orphans(place: Path) -> None:
    """Wait until the processes that a killed one had started have ended, as they must without help."""
    end, own = time.monotonic() + ORPHANS, str(place / "tmp")
    while any((each.info["environ"] or {}).get("TMPDIR") == own for each in psutil.process_iter(["environ"])):
        if time.monotonic() > end:
            raise RuntimeError(f"processes are still at work {ORPHANS:.0f} seconds after the kill of their parent")
        time.sleep(0.05)


# -- in the process ----------------------------------------------------------------------------------------------------


def _watch(
    box: Path, *, counts: Path | None = None, step: int | None = None, delay: float = 0.0, half: bool = False
) -> None:
    """Count the steps of writing, or end the process at one of them."""
    done: list[str] = []
    mine = os.getpid()

    def note(what: str, end_half: Callable[[], None] | None = None) -> None:
        if os.getpid() != mine:
            return
        done.append(what)
        if counts is not None:
            descriptor = os.open(counts, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, b".")
            os.close(descriptor)
        if len(done) == step:
            if half and end_half is not None:
                end_half()
            if delay:
                threading.Timer(delay, os.kill, (mine, signal.SIGKILL)).start()
            else:
                os.kill(mine, signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes | os.PathLike) or not (flags or 0) & WRITES:
                return
        elif event in EVENTS:
            path = arguments[0]
        else:
            return
        name = os.path.abspath(os.fsdecode(path)) if not isinstance(path, int) else ""
        if name.startswith(str(box)):
            note(event)

    sys.addaudithook(hook)
    _watch_writers(note)


def _watch_writers(note: Callable[..., None]) -> None:
    """Writers that are not of Python, and so unknown to audit hooks."""
    import safetensors.torch
    import torch
    import transformers.modeling_utils

    def watched(module: Any, name: str, place: int) -> None:
        original = getattr(module, name)

        def write(*args: Any, **options: Any) -> Any:
            def end_half() -> None:
                original(*args, **options)
                target = args[place]
                if isinstance(target, str | os.PathLike):
                    os.truncate(target, os.path.getsize(target) // 2)

            note(name, end_half)
            return original(*args, **options)

        setattr(module, name, write)

    watched(torch, "save", 1)
    watched(safetensors.torch, "save_file", 1)
    if hasattr(transformers.modeling_utils, "safe_save_file"):
        watched(transformers.modeling_utils, "safe_save_file", 1)
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        note("fsync")
        fsync(descriptor)

    os.fsync = noted


def summary(rows: Sequence[dict[str, Any]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of many kills."""
    by_command: Counter[str] = Counter()
    for row in rows:
        by_command[row["command"]] += len(row["kills"])
    hows = [how for row in rows for how in row["kills"]]
    return {
        "kills": len(hows),
        "at_steps_of_writing": sum("writing" in how for how in hows),
        "interrupted_commands": len(rows),
        "killed_more_than_once": sum(len(row["kills"]) > 1 for row in rows),
        "by_command": dict(by_command),
        "failures": sum(bool(row["complaints"]) for row in rows),
    }
