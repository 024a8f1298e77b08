"""A disk that is full: a small tmpfs, or a limit on the size of files where nothing can be mounted."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import jobs
from campaign.commands import Answer, command, fresh_box, put
from campaign.jobs import PATIENCE, Job, job, wrong_end, wrong_result
from campaign.judge import drafts, snapshot
from campaign.orders import RATES

ROOM = 64 * 2**20
NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS of unshare(2)
# Every command that writes something: its name, and what is typed.
COMMANDS = f"""
train: train long.yaml --data pairs --output disk/out
train with SSA: train long-ssa.yaml --data pairs --output disk/out
train on several tasks: train long-joint.yaml --data several --output disk/out
sweep: sweep sweep.yaml --data pairs --output disk/out --workers 1
tune: tune recipe.yaml --data pairs --output disk/out {RATES}
rerank: rerank reranker --candidates candidates.trec --collection papers --output disk/run.trec
retrieve: retrieve papers --output disk/run.trec --per-query disk/claims.json
index: retrieve papers --cache disk/cache --output run.trec --overwrite
knowledge: knowledge build knowing.yaml --data pairs --cache disk/cache --workers 1
score: score candidates.trec bm25.trec --qrels qrels.txt --per-query disk/claims.json
predict: predict plain --input texts.tsv --output disk/out.tsv
tokens: tokens supervised --text cat --pair dog --html disk/out.html
export: export plain --output disk/out
analyze: analyze disk/bare-plain --keep 8
heads importance: heads importance joint --output disk/heads
heads prune-curve: heads prune-curve joint --percent 25 --random 1 --output disk/heads
report: report guided -o disk/out.html
compare: compare plain guided --by guides --resamples 100 --output disk/out.md
figure: figure curves plain -o disk/out.png
data ag-pair: data ag-pair --news news.csv --out disk/out.tsv
"""
JOBS: tuple[Job, ...] = tuple(
    job(name, typed, "disk/out" if typed.split()[0] in ("train", "sweep", "tune") else "disk")
    for name, typed in (line.split(": ", 1) for line in COMMANDS.strip().splitlines())
)
ON_DISK = {"analyze": ("bare-plain",)}  # what these write to


@dataclass
class Disk:
    """A folder with little room."""

    place: Path
    mounted: bool

    @staticmethod
    def of(place: Path) -> Disk:
        """Mount one, seen by this process and its children only, if that is allowed."""
        place.mkdir(parents=True, exist_ok=True)
        mounted = os.geteuid() == 0 and _own_namespace() and _mount(place, f"size={ROOM}")
        return Disk(place, mounted)

    def limit(self, free: int) -> Callable[[], None] | None:
        """Leave so many bytes free; where nothing is mounted, a limit for the process instead."""
        if not self.mounted:
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (free, free))
        used = os.statvfs(self.place)
        taken = (used.f_blocks - used.f_bfree) * used.f_frsize
        _mount(self.place, f"remount,size={taken + free}")
        return None

    def enlarge(self) -> None:
        """Make room."""
        if self.mounted:
            _mount(self.place, f"remount,size={ROOM}")

    def remove(self) -> None:
        """Take it away."""
        if self.mounted:
            subprocess.run(["umount", str(self.place)], check=False, capture_output=True)
        shutil.rmtree(self.place, ignore_errors=True)


def _own_namespace() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACE) != 0:
        return False
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return private.returncode == 0


def _mount(place: Path, options: str) -> bool:
    kind = [] if options.startswith("remount") else ["-t", "tmpfs"]
    done = subprocess.run(["mount", *kind, "-o", options, "tmpfs", str(place)], capture_output=True, check=False)
    return done.returncode == 0


def _fresh(each: Job, benches: Path, place: Path) -> tuple[Path, Disk]:
    box = place / "box"
    if (box / "disk").exists():
        Disk(box / "disk", True).remove()
    fresh_box(benches, box, each.needs)
    disk = Disk.of(box / "disk")
    put(benches, box / "disk", ON_DISK.get(each.name, ()))
    return box, disk


def reference(number: int, benches: Path, place: Path) -> dict[str, Any]:
    """A job with all the room it needs."""
    each = JOBS[number]
    box, disk = _fresh(each, benches, place)
    before = _taken(disk.place)
    answer = command(each.words, box, place / "logs").answer(PATIENCE)
    row = jobs.reference(number, each, box, answer, bytes=_taken(disk.place) - before, mounted=disk.mounted)
    disk.remove()
    return row


def attempt(number: int, seed: int, benches: Path, place: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job with too little room, then make room and run it again."""
    chance = random.Random(f"{seed}/disk/{number}")
    each = JOBS[number % len(JOBS)]
    whole = known[each.name]
    free = int(chance.uniform(0, 0.95) * whole["bytes"]) // 4096 * 4096
    box, disk = _fresh(each, benches, place)
    before = snapshot(box)
    answer = command(each.words, box, place / "logs", before=disk.limit(free)).answer(PATIENCE)
    complaints = _refusal(answer)
    if answer.code == 2:
        after = snapshot(box)
        complaints += [f"changed: {name}" for name, content in before.items() if after.get(name) != content][:1]
        # What a run keeps to be resumed is no draft.
        kept = [name for name in drafts(after) if "unfinished/" not in name and ".partial" not in name]
        complaints += [f"left behind: {name}" for name in kept][:1]
    disk.enlarge()
    last = command(each.again(box), box, place / "logs").answer(PATIENCE)
    if answer.code == 0:
        complaints += wrong_result(each, box, whole["outcome"])
    else:
        complaints += wrong_end(each, box, last, whole["outcome"])
    disk.remove()
    return {
        "number": number,
        "job": each.name,
        "command": " ".join(each.words[: 2 if each.words[0] in ("heads", "data", "knowledge") else 1]),
        "free": free,
        "full": answer.code != 0,
        "code": answer.code,
        "complaints": complaints,
        "stderr": [answer.err[-400:], last.err[-400:]] if complaints else None,
    }


def _refusal(answer: Answer) -> list[str]:
    """What is wrong with how a full disk is reported; nothing, where it was not full after all."""
    found = [word for word in ("Traceback (most recent", "unexpected") if word in answer.err]
    if answer.code not in (0, 2) and not (answer.code == 1 and "failed" in answer.out):
        found.append(f"exit code {answer.code}")
    lines = [line for line in answer.err.splitlines() if line.strip()]
    if answer.code == 2 and not (lines and lines[-1].startswith("headwise: ")):
        found.append("the last line is not of headwise")
    if answer.code == 2 and sum(line.startswith("headwise: ") for line in lines) > 1:
        found.append("more than one line")
    return found


def _taken(place: Path) -> int:
    """Bytes of all files, in whole pages."""
    sizes = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
    return sum(-(-size // 4096) * 4096 + 4096 for size in sizes)


def summary(rows: Sequence[dict[str, Any]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of full disks."""
    return {
        "attempts": len(rows),
        "disk_was_full": sum(row["full"] for row in rows),
        "how": "a small file system" if all(each["mounted"] for each in known.values()) else "a limit on file sizes",
        "commands": sorted({row["command"] for row in rows}),
        "failures": sum(bool(row["complaints"]) for row in rows),
    }
