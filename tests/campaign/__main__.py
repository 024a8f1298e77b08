"""`python -m campaign`: progress on stderr, one JSON object on stdout; exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign import bench, damage, disk, figures, inputs, kills, writers
from campaign.commands import preload
from campaign.orders import ORDERS, uncovered
from campaign.workers import all_attempts, cores

PARTS = ("inputs", "kills", "writers", "disk", "damage")


def main() -> int:
    """Run the parts that are chosen."""
    asked = _arguments()
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[name] = "1"
    # A backtrace of the tokenizers' Rust would hide the sentence that follows it.
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    if missing := uncovered():
        print(f"no order in orders.py for: {', '.join(missing)}", file=sys.stderr)
        return 2
    own = asked.work is None
    work = Path(tempfile.mkdtemp(prefix="campaign-")) if own else asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    work.chmod(0o755)
    preload()
    try:
        if asked.replay is not None:
            return _replay(asked, work)
        content = _campaign(asked, work)
    finally:
        if own and asked.replay is None:
            shutil.rmtree(work, ignore_errors=True)
    if asked.write:
        figures.write(content)
    print(json.dumps(content, indent=1, ensure_ascii=False))
    return 1 if content["failures"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="bad inputs")
    parser.add_argument("--kills", type=int, default=200, help="commands that are killed, once or several times")
    parser.add_argument("--writers", type=int, default=40, help="outputs that several processes write")
    parser.add_argument("--disks", type=int, default=100, help="commands on a full disk")
    parser.add_argument("--damage", type=int, help="damaged files; default all of them")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts only")
    parser.add_argument("--seed", type=int, default=1, help="decides what is drawn")
    parser.add_argument("--workers", type=int, default=cores(), help="processes; default one per core")
    parser.add_argument("--work", type=Path, help="folder to work in: the same one again continues the campaign")
    parser.add_argument("--write", action="store_true", help="write studies/results/reliability.json and its figures")
    parser.add_argument("--replay", type=int, metavar="N", help="put input N into a folder and print its command")
    parser.add_argument("--json", action="store_true", help="as always: one JSON object on stdout")
    return parser.parse_args()


def _campaign(asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    chosen = asked.only or PARTS
    benches = bench.build(work / "bench")
    parts: dict[str, Any] = {}
    broken: list[dict[str, Any]] = []

    def attempts(what: str, numbers: Sequence[int], attempt: Callable[..., dict[str, Any]], *more: Any) -> Any:
        def one(number: int, place: Path) -> dict[str, Any]:
            return attempt(number, *((asked.seed, benches, place, *more) if more else (benches, place)))

        return all_attempts(what, numbers, one, work, workers=asked.workers)

    def references(what: str, count: int, attempt: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = attempts(what, range(count), attempt)
        if wrong := [complaint for row in rows for complaint in row["complaints"]]:
            raise SystemExit(f"the campaign cannot judge: {'; '.join(wrong)}")
        return rows

    def keep(part: str, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        parts[part] = summary
        broken.extend(figures.failures(part, rows))

    if "inputs" in chosen or "damage" in chosen:
        valid = {row["order"]: row["result"] for row in references("orders", len(ORDERS), inputs.valid_order)}
    if "inputs" in chosen:
        rows = attempts("inputs", range(asked.inputs), inputs.attempt, valid)
        keep("inputs", rows, inputs.summary(rows))
    for part, module, count, jobs in (
        ("kills", kills, asked.kills, len(kills.JOBS)),
        ("writers", writers, asked.writers, min(asked.writers, len(writers.WRITERS))),  # attempt N is of job N
        ("disk", disk, asked.disks, min(asked.disks, len(disk.JOBS))),
    ):
        if part in chosen:
            known = {row["job"]: row for row in references(f"{part}-references", jobs, module.reference)}
            rows = attempts(part, range(count), module.attempt, known)
            keep(part, rows, module.summary(rows, known))
    if "damage" in chosen:
        planned = damage.plan(benches)
        step = 1 if asked.damage is None else max(1, len(planned) // asked.damage)  # spread over all of them
        rows = attempts("damage", range(0, len(planned), step), damage.attempt, (planned, valid))
        keep("damage", rows, damage.summary(rows))
    return {"seed": asked.seed, "world": _world(), "parts": parts, "failures": broken}


def _replay(asked: argparse.Namespace, work: Path) -> int:
    """Write input N into a folder, to look at."""
    benches = bench.build(work / "bench")
    box = work / f"input-{asked.replay}"
    family, order, case = inputs.draw(asked.replay, asked.seed, benches, box)
    shown = {"folder": str(box), "family": family, "order": order.name, "what": case.what, "words": case.words}
    print(json.dumps(shown))
    return 0


def _world() -> dict[str, Any]:
    from headwise import __version__

    return {
        "headwise": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": cores(),
        "date": datetime.now(UTC).date().isoformat(),
    }


if __name__ == "__main__":
    sys.exit(main())
