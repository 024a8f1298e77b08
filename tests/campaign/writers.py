"""Several processes that write the same output: one does, the others are refused and say who does."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import bench
from campaign.commands import Answer, Fork, command
from campaign.jobs import JOBS, Job, differences, outcome
from campaign.judge import drafts, snapshot

PATIENCE = 300.0
# These share the work instead: every process comes to its end, and no run is made twice.
SHARED = ("sweep", "tune")
ALONE: tuple[Job, ...] = (
    *(job for job in JOBS if job.words[0] not in SHARED),
    Job("export", ("export", "plain", "--output", "out"), ("plain",), "out"),
    Job(
        "report",
        ("report", "guided", "--baseline", "plain", "-o", "page/out.html"),
        ("guided", "plain", "page"),
        "page",
    ),
    Job(
        "predict",
        ("predict", "plain", "--input", "texts.tsv", "--output", "page/out.tsv"),
        ("plain", "texts.tsv", "page"),
        "page",
    ),
)
WRITERS: tuple[Job, ...] = (*ALONE, *(job for job in JOBS if job.words[0] in SHARED))
# What a process is refused with that comes after the other one has finished.
FINISHED = re.compile(r"exists already|--overwrite|holds a finished run")


def reference(number: int, benches: Path, place: Path) -> dict[str, Any]:
    """A job that is alone: its outcome, and how long it takes."""
    job = WRITERS[number]
    box = _fresh(job, benches, place / "box")
    answer = command(job.words, box, place / "logs").answer(PATIENCE)
    complaints = [] if answer.code == 0 else [f"{job.name} ended with {answer.code}: {answer.err[-300:]}"]
    return {
        "number": number,
        "job": job.name,
        "outcome": dict(outcome(job, box)),
        "seconds": answer.seconds,
        "complaints": complaints,
    }


def attempt(number: int, seed: int, benches: Path, place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Start a job two to four times on one output, and look at what each says and at what is there."""
    chance = random.Random(f"{seed}/writers/{number}")
    job = WRITERS[number % len(WRITERS)]
    box = _fresh(job, benches, place / "box")
    count = 2 if job.workers else chance.randint(2, 4)
    forks: list[Fork] = []
    for each in range(count):
        forks.append(command(job.words, box, place / f"logs{each}"))
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.5 * known[job.name]["seconds"]))))
    answers = [fork.answer(PATIENCE) for fork in forks]
    pids = [fork.pid for fork in forks]
    complaints = _shared(answers) if job.words[0] in SHARED else _alone(answers, pids)
    complaints += [
        f"differs from the reference: {name}" for name in differences(outcome(job, box), known[job.name]["outcome"])
    ]
    complaints += [f"left behind: {name}" for name in drafts(snapshot(box))][:1]
    return {
        "number": number,
        "job": job.name,
        "command": job.words[0],
        "processes": count,
        "named": sum(_names(answer, pids) for answer in answers),
        "codes": [answer.code for answer in answers],
        "complaints": complaints,
        "stderr": [answer.err[-300:] for answer in answers] if complaints else None,
    }


def _alone(answers: Sequence[Answer], pids: Sequence[int]) -> list[str]:
    found = []
    finished = sum(answer.code == 0 for answer in answers)
    if finished != 1:
        found.append(f"{finished} processes finished instead of one")
    for answer in answers:
        if answer.code not in (0, 2):
            found.append(f"exit code {answer.code}")
        elif answer.code == 2 and not _names(answer, pids) and not FINISHED.search(answer.err):
            found.append("refused without the number of the process that writes")
        if "Traceback (most recent" in answer.err or "unexpected" in answer.err:
            found.append("a traceback")
    return found


def _shared(answers: Sequence[Answer]) -> list[str]:
    found = [f"exit code {answer.code}" for answer in answers if answer.code != 0]
    return found + ["a traceback" for answer in answers if "Traceback (most recent" in answer.err]


def _names(answer: Answer, pids: Sequence[int]) -> bool:
    """Whether a process that was refused says which one is at work."""
    return answer.code == 2 and any(re.search(rf"\b{pid}\b", answer.err) for pid in pids)


def _fresh(job: Job, benches: Path, box: Path) -> Path:
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    bench.put(benches, box, [name for name in job.needs if name != "page"])
    if "page" in job.needs:
        (box / "page").mkdir()
    return box


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Figures of many writers."""
    return {
        "outputs": len(rows),
        "processes": sum(row["processes"] for row in rows),
        "finished": sum(code == 0 for row in rows for code in row["codes"]),
        "refused": sum(code == 2 for row in rows for code in row["codes"]),
        "refused_with_the_process": sum(row["named"] for row in rows),
        "commands": sorted({row["command"] for row in rows}),
        "failures": sum(bool(row["complaints"]) for row in rows),
    }
