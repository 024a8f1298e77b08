"""Several processes that write the same output: one does, the others are refused and say who does."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import jobs
from campaign.commands import Answer, Fork, command, fresh_box
from campaign.jobs import JOBS, PATIENCE, Job, job, wrong_result

# These share the work instead: every process comes to its end, and no run is made twice.
SHARED = ("sweep", "tune")
WRITERS: tuple[Job, ...] = (
    *(each for each in JOBS if each.words[0] not in SHARED),
    job("export", "export plain --output out"),
    job("report", "report guided --baseline plain -o page/out.html", "page"),
    job("predict", "predict plain --input texts.tsv --output page/out.tsv", "page"),
    *(each for each in JOBS if each.words[0] in SHARED),
)
# What a process is refused with that comes after the other one has finished.
FINISHED = re.compile(r"exists already|--overwrite|holds a finished run")


def reference(number: int, benches: Path, place: Path) -> dict[str, Any]:
    """A job that is alone: its outcome, and how long it takes."""
    each = WRITERS[number]
    box = fresh_box(benches, place / "box", each.needs)
    return jobs.reference(number, each, box, command(each.words, box, place / "logs").answer(PATIENCE))


def attempt(number: int, seed: int, benches: Path, place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Start a job two to four times on one output, and look at what each says and at what is there."""
    chance = random.Random(f"{seed}/writers/{number}")
    each = WRITERS[number % len(WRITERS)]
    box = fresh_box(benches, place / "box", each.needs)
    count = 2 if each.workers else chance.randint(2, 4)
    forks: list[Fork] = []
    for writer in range(count):
        forks.append(command(each.words, box, place / f"logs{writer}"))
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.5 * known[each.name]["seconds"]))))
    answers = [fork.answer(PATIENCE) for fork in forks]
    pids = [fork.pid for fork in forks]
    complaints = wrong_answers(answers, pids, shared=each.words[0] in SHARED)
    complaints += wrong_result(each, box, known[each.name]["outcome"])
    return {
        "number": number,
        "job": each.name,
        "command": each.words[0],
        "processes": count,
        "named": sum(_names(answer, pids) for answer in answers),
        "codes": [answer.code for answer in answers],
        "complaints": complaints,
        "stderr": [answer.err[-300:] for answer in answers] if complaints else None,
    }


def wrong_answers(answers: Sequence[Answer], pids: Sequence[int], *, shared: bool = False) -> list[str]:
    """What is wrong with the answers of several processes that wrote one output."""
    finished, expected = sum(answer.code == 0 for answer in answers), len(answers) if shared else 1
    found = [] if finished == expected else [f"{finished} processes finished instead of {expected}"]
    for answer in answers:
        if answer.code not in (0, 2):
            found.append(f"exit code {answer.code}")
        elif answer.code == 2 and not _names(answer, pids) and not FINISHED.search(answer.err):
            found.append("refused without the number of the process that writes")
        if "Traceback (most recent" in answer.err or ("unexpected" in answer.err and not shared):
            found.append("a traceback")
    return found


def _names(answer: Answer, pids: Sequence[int]) -> bool:
    """Whether a process that was refused says which one is at work."""
    return answer.code == 2 and any(re.search(rf"\b{pid}\b", answer.err) for pid in pids)


def summary(rows: Sequence[dict[str, Any]], known: Mapping[str, Any]) -> dict[str, Any]:
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
