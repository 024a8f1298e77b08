"""Commands that take long enough to be killed, stopped by a full disk, or started twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from campaign.judge import content_of
from campaign.orders import RANKING

# Twenty steps with dropout and automatic weights; evaluations and checkpoints fall apart.
LONG = {
    "training__batch": 4,
    "training__checkpoint_every": 3,
    "training__evaluate_every": 5,
    "share_every": 4,
    "training__snapshots": 3,
}
PIECES = 30  # claims of the collection for re-ranking


@dataclass(frozen=True)
class Job:
    """A command, what it needs, and where its result is."""

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...]
    output: str
    record: str | None = None
    """With this file in its output it is continued by --resume; other commands are just typed again."""
    workers: bool = False
    """It starts processes that do the work."""

    def again(self, box: Path) -> list[str]:
        """The words that continue what a kill interrupted."""
        if self.record is not None and (box / self.output / self.record).is_file():
            return [*self.words, "--resume"]
        return list(self.words)


def _train(name: str, recipe: str, data: str) -> Job:
    words = ("train", f"{recipe}.yaml", "--data", data, "--output", "out")
    return Job(name, words, (f"{recipe}.yaml", "encoder", data), "out", record="headwise.json")


JOBS: tuple[Job, ...] = (
    _train("train", "long", "pairs"),
    _train("train with SSA", "long-ssa", "pairs"),
    _train("train on several tasks", "long-joint", "several"),
    Job(
        "sweep",
        ("sweep", "long-sweep.yaml", "--data", "pairs", "--output", "out", "--workers", "2"),
        ("long-sweep.yaml", "encoder", "pairs"),
        "out",
        workers=True,
    ),
    Job(
        "rerank",
        RANKING,
        ("reranker", "many.trec", "library", "out"),
        "out",
    ),
    Job("analyze", ("analyze", "bare-plain", "--keep", "8", "--importance", "16"), ("bare-plain",), "bare-plain"),
    Job(
        "tune",
        ("tune", "quick.yaml", "--data", "pairs", "--output", "out", "--vary", "training.learning_rate=[3e-3, 1e-3]"),
        ("quick.yaml", "encoder", "pairs"),
        "out",
    ),
)
# The commands of which the promises name each: train counts as one, with one task, several, or SSA.
KILLED = ("train", "sweep", "rerank", "analyze", "tune")


def write_inputs(folder: Path) -> None:
    """Put what the jobs need into the bench."""
    from small_collection import write_collection
    from small_sweeps import sweep_data
    from small_tunes import QUICK
    from tiny_runs import IAT, small, small_joint

    def write(name: str, content: Any) -> None:
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    write("long", small("encoder", **LONG))
    write("long-ssa", small("encoder", **{**LONG, "guides": {}, "ssa": {"attention_threshold": 0.5}}))
    write("long-joint", small_joint("encoder", iat=IAT))
    sweep = sweep_data("encoder", seeds=[1])
    sweep["recipe"] = small("encoder", **LONG)
    write("long-sweep", sweep)
    write("quick", small("encoder", **{**QUICK, "training__checkpoint_every": 4}))
    write_collection(folder / "library", train=2, test=PIECES)
    documents = [json.loads(line)["_id"] for line in (folder / "library" / "corpus.jsonl").read_text().splitlines()]
    lines = [
        f"v{claim} Q0 {document} {rank} {1000 - rank} t\n"
        for claim in range(PIECES)
        for rank, document in enumerate(documents, 1)
    ]
    (folder / "many.trec").write_text("".join(lines), encoding="utf-8")
    (folder / "out").mkdir()


def outcome(job: Job, box: Path) -> Mapping[str, Any]:
    """All that must not depend on how often a command was interrupted, file by file."""
    folder = box / job.output
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.suffix == ".lock" or path.name.startswith("study.db"):
            continue
        if path.name == "log.jsonl":
            if job.record is not None:  # a log of steps; those of sweeps say when which process did what
                found[name] = _steps(path)
        elif path.name == "trials.csv":  # trials that a kill interrupted have other numbers
            found[name] = "a table"
        else:
            found[name] = content_of(path, box)
    return found


def _steps(path: Path) -> list[Any]:
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [entry for entry in entries if "loss" in entry]


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Files that are missing in one of two outcomes, or differ."""
    return sorted(name for name in {**first, **second} if first.get(name) != second.get(name))
