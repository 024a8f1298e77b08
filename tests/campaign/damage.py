"""Every file that a command reads, damaged in every way."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import bench
from campaign.bad_bytes import KINDS, damage, verdict_of
from campaign.commands import SECONDS, command
from campaign.inputs import stop_when_serving
from campaign.judge import judge, snapshot
from campaign.orders import ORDERS, Order

# Commands that read the same files by the same code as one of the others.
LEFT_OUT = ("demo", "sweep-dry", "tune-dry", "explore", "data-check-model")


def plan(benches: Path) -> list[tuple[str, str, str]]:
    """Order, file and kind of damage, of all that are tried."""
    found = []
    for order in ORDERS:
        if order.name in LEFT_OUT:
            continue
        for name in _files(order, benches):
            found += [(order.name, name, kind) for kind in KINDS]
    return found


def _files(order: Order, benches: Path) -> list[str]:
    """Files that an order reads, without locks and notes for people."""
    patterns = [*order.reads, *order.tables, *(f"{run}/*" for run in order.runs)]
    patterns += [order.recipe] if order.recipe is not None else []
    paths = {path for pattern in patterns for path in benches.glob(pattern) if path.is_file()}
    return sorted(path.relative_to(benches).as_posix() for path in paths if path.suffix not in (".lock", ".md"))


def attempt(
    number: int,
    seed: int,
    benches: Path,
    place: Path,
    planned: Sequence[tuple[str, str, str]],
    valid: Mapping[str, str],
) -> dict[str, Any]:
    """Damage one file and run the command."""
    order_name, name, kind = planned[number]
    order = next(each for each in ORDERS if each.name == order_name)
    box = place / "box"
    for folder in (box, place / "cache", place / "tmp"):
        shutil.rmtree(folder, ignore_errors=True)
    box.mkdir(parents=True)
    bench.put(benches, box, order.needs)
    damage(box / name, kind, random.Random(f"{seed}/damage/{number}"))
    before = snapshot(box)
    process = command(order.words, box, place / "logs", work=SECONDS)
    if order.serves:
        stop_when_serving(process)
    answer = process.answer()
    verdict = verdict_of(order, box / name, kind)
    complaints = judge(order, verdict, answer, before, snapshot(box), valid=valid[order.name], box=box)
    return {
        "number": number,
        "order": order.name,
        "command": " ".join(order.command),
        "file": name,
        "kind": kind,
        "code": answer.code,
        "complaints": complaints,
        "stderr": answer.err[-600:] if complaints else None,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Figures of damaged files."""
    codes = Counter(row["code"] for row in rows if not row["complaints"])
    return {
        "damaged_files": len(rows),
        "files": len({(row["order"], row["file"]) for row in rows}),
        "kinds_of_damage": len({row["kind"] for row in rows}),
        "refused": codes[2],
        "made_no_difference": codes[0],
        "failures": sum(bool(row["complaints"]) for row in rows),
    }
