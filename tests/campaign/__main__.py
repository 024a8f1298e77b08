"""`python -m campaign`: progress on stderr, one JSON object on stdout; exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign import bench, damage, disk, figures, inputs, kills, writers
from campaign.commands import preload
from campaign.orders import ORDERS, uncovered
from campaign.workers import all_attempts, cores

PARTS = ("inputs", "kills", "writers", "disk", "damage")


def main() -> int:
    """Run the parts that were asked for."""
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
    attempts = functools.partial(all_attempts, work=work, workers=asked.workers)
    parts: dict[str, Any] = {}
    broken: list[dict[str, Any]] = []

    def keep(part: str, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        parts[part] = summary
        broken.extend(figures.failures(part, rows))

    if "inputs" in chosen or "damage" in chosen:
        valid = _valid(attempts("orders", range(len(ORDERS)), lambda n, place: inputs.valid_order(n, benches, place)))
    if "inputs" in chosen:
        make = lambda n, place: inputs.attempt(n, asked.seed, benches, place, valid)  # noqa: E731
        rows = attempts("inputs", range(asked.inputs), make)
        keep("inputs", rows, inputs.summary(rows))
    for part, module, count, seconds in (
        ("kills", kills, asked.kills, kills.JOBS),
        ("writers", writers, asked.writers, writers.WRITERS),
        ("disk", disk, asked.disks, disk.JOBS),
    ):
        if part in chosen:
            known = _references(attempts, part, module, benches, len(seconds))
            rows = attempts(part, range(count), _attempt(module, asked.seed, benches, known))
            keep(part, rows, disk.summary(rows, known) if part == "disk" else module.summary(rows))
    if "damage" in chosen:
        planned = damage.plan(benches)
        numbers = range(len(planned))
        if asked.damage is not None:  # spread over all of them
            numbers = range(0, len(planned), max(1, len(planned) // asked.damage))
        make = lambda n, place: damage.attempt(n, asked.seed, benches, place, planned, valid)  # noqa: E731
        rows = attempts("damage", numbers, make)
        keep("damage", rows, damage.summary(rows))
    return {
        "seed": asked.seed,
        "world": _world(),
        "parts": parts,
        "failures": broken,
    }


def _attempt(module: Any, seed: int, benches: Path, known: dict[str, Any]) -> Callable[[int, Path], dict[str, Any]]:
    return lambda number, place: module.attempt(number, seed, benches, place, known)


def _valid(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The results of valid orders; without them nothing can be judged."""
    if wrong := [complaint for row in rows for complaint in row["complaints"]]:
        raise SystemExit(f"the campaign cannot judge: {'; '.join(wrong)}")
    return {row["order"]: row["result"] for row in rows}


def _references(attempts: Any, part: str, module: Any, benches: Path, count: int) -> dict[str, Any]:
    rows = attempts(f"{part}-references", range(count), lambda n, place: module.reference(n, benches, place))
    if wrong := [complaint for row in rows for complaint in row["complaints"]]:
        raise SystemExit(f"the campaign cannot judge: {'; '.join(wrong)}")
    return {row["job"]: row for row in rows}


def _replay(asked: argparse.Namespace, work: Path) -> int:
    """Write input N into a folder, to look at."""
    benches = bench.build(work / "bench")
    box = work / f"input-{asked.replay}"
    family, order, case = inputs.draw(asked.replay, asked.seed, benches, box)
    print(
        json.dumps({"folder": str(box), "family": family, "order": order.name, "what": case.what, "words": case.words})
    )
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
