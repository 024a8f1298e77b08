"""Commands that take long enough to be killed, stopped by a full disk, or started twice."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from campaign.commands import Answer
from campaign.judge import content_of, drafts, snapshot
from campaign.orders import RANKING, RATES, named_parts

# Twenty steps with dropout and automatic weights; evaluations and checkpoints fall apart.
LONG = {
    "training__batch": 4,
    "training__checkpoint_every": 3,
    "training__evaluate_every": 5,
    "share_every": 4,
    "training__snapshots": 3,
}
PIECES = 30  # claims of the collection for re-ranking
PATIENCE = 300.0  # seconds of waiting for one job
ALREADY = re.compile(r"exists already|--overwrite|already analy[sz]ed")


@dataclass(frozen=True)
class Job:
    """A command, what it needs, and where its result is."""

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...]
    output: str

    @property
    def workers(self) -> bool:
        """Whether it starts processes that do the work."""
        return self.words[-2:] == ("--workers", "2")

    @property
    def trains(self) -> bool:
        """Whether it is one run, which is continued by --resume; other commands are just typed again."""
        return self.words[0] == "train"

    def again(self, box: Path) -> list[str]:
        """The words that continue what a kill interrupted."""
        resume = self.trains and (box / self.output / "headwise.json").is_file()
        return [*self.words, *(["--resume"] if resume else [])]


def job(name: str, typed: str, output: str = "out") -> Job:
    """A job from its words."""
    words = tuple(shlex.split(typed))
    return Job(name, words, named_parts(words), output)


JOBS: tuple[Job, ...] = (
    job("train", "train long.yaml --data pairs --output out"),
    job("train with SSA", "train long-ssa.yaml --data pairs --output out"),
    job("train on several tasks", "train long-joint.yaml --data several --output out"),
    job("sweep", "sweep long-sweep.yaml --data pairs --output out --workers 2"),
    job("rerank", f"{RANKING} out/run.trec"),
    job("analyze", "analyze bare-plain --keep 8 --importance 16", "bare-plain"),
    job("tune", f"tune quick.yaml --data pairs --output out {RATES}"),
)
# The commands of which the promises name each: train counts as one, with one task, several, or SSA.
KILLED = ("train", "sweep", "rerank", "analyze", "tune")


def write_inputs(folder: Path) -> None:
    """Put what the jobs need into the bench."""
    from small_collection import write_collection
    from small_sweeps import sweep_data
    from small_tunes import QUICK
    from tiny_runs import IAT, small, small_joint

    for name, content in {
        "long": small("encoder", **LONG),
        "long-ssa": small("encoder", **{**LONG, "guides": {}, "ssa": {"attention_threshold": 0.5}}),
        "long-joint": small_joint("encoder", iat=IAT),
        "long-sweep": {**sweep_data("encoder", seeds=[1]), "recipe": small("encoder", **LONG)},
        "quick": small("encoder", **{**QUICK, "training__checkpoint_every": 4}),
    }.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    write_collection(folder / "library", train=2, test=PIECES)
    documents = [json.loads(line)["_id"] for line in (folder / "library" / "corpus.jsonl").read_text().splitlines()]
    lines = [
        f"v{claim} Q0 {document} {rank} {1000 - rank} t\n"
        for claim in range(PIECES)
        for rank, document in enumerate(documents, 1)
    ]
    (folder / "many.trec").write_text("".join(lines), encoding="utf-8")
    for name in ("out", "page"):  # for outputs whose folder must be there
        (folder / name).mkdir()


def reference(number: int, each: Job, box: Path, answer: Answer, **more: Any) -> dict[str, Any]:
    """The row of a job that nobody disturbed."""
    wrong = [] if answer.code == 0 else [f"the job {each.name} ended with {answer.code}: {answer.err[-300:]}"]
    row = {"number": number, "job": each.name, "outcome": outcome(each, box), "seconds": answer.seconds}
    return {**row, "complaints": wrong, **more}


def outcome(each: Job, box: Path) -> dict[str, Any]:
    """All that must not depend on how often a command was interrupted, file by file."""
    folder = box / each.output
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.suffix == ".lock" or path.name.startswith("study.db"):
            continue
        if path.name == "log.jsonl":
            if each.trains:  # a log of steps; those of sweeps say when which process did what
                entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                found[name] = [entry for entry in entries if "loss" in entry]
        elif path.name == "trials.csv":  # trials that a kill interrupted have other numbers
            found[name] = "a table"
        else:
            found[name] = content_of(path, box)
    return found


def wrong_result(each: Job, box: Path, whole: Mapping[str, Any]) -> list[str]:
    """Files that are missing, differ from the reference, or should be there only while a command works."""
    found = outcome(each, box)
    names = sorted(name for name in {**found, **whole} if found.get(name) != whole.get(name))
    wrong = [f"differs from the reference: {name}" for name in names]
    return wrong + [f"left behind: {name}" for name in drafts(snapshot(box))][:1]


def wrong_end(each: Job, box: Path, answer: Answer, whole: Mapping[str, Any]) -> list[str]:
    """What is wrong with a job after its last start."""
    done = answer.code == 2 and ALREADY.search(answer.err)  # the kill came after its last step
    if answer.code != 0 and not done:
        return [f"it ended with {answer.code} when it was started again"]
    return wrong_result(each, box, whole) + (["a traceback"] if "Traceback (most recent" in answer.err else [])
