"""Every file that a command reads, damaged in every way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.bad_bytes import KINDS, damage, verdict_of
from campaign.commands import fresh_box
from campaign.inputs import row_of, try_case
from campaign.orders import ORDERS, Case

# Commands that read the same files by the same code as one of the others.
LEFT_OUT = ("demo", "sweep-dry", "tune-dry", "explore", "mark", "data-check-model")


def plan(benches: Path) -> list[tuple[str, str, str]]:
    """Order, file and kind of damage, of all that are tried; locks and notes for people are left out."""
    found = []
    for order in ORDERS:
        if order.name not in LEFT_OUT:
            runs = (f"{run}/*" for run in order.runs)
            patterns = [*order.reads, *order.tables, *runs, *([order.recipe] if order.recipe else [])]
            paths = {path for pattern in patterns for path in benches.glob(pattern) if path.is_file()}
            names = sorted(
                path.relative_to(benches).as_posix() for path in paths if path.suffix not in (".lock", ".md")
            )
            found += [(order.name, name, kind) for name in names for kind in KINDS]
    return found


def attempt(
    number: int, seed: int, benches: Path, place: Path, known: tuple[Sequence[tuple[str, str, str]], Mapping[str, str]]
) -> dict[str, Any]:
    """Damage one file and run the command; `known` has the plan, and the result of every order."""
    planned, valid = known
    order_name, name, kind = planned[number]
    order = next(each for each in ORDERS if each.name == order_name)
    path = fresh_box(benches, place / "box", order.needs) / name
    damage(path, kind, random.Random(f"{seed}/damage/{number}"))
    case = Case(order.words, f"{name}: {kind}", verdict_of(order, path, kind))
    answer, complaints = try_case(order, case, place, valid=valid[order.name])
    return row_of(number, order, case, answer, complaints, file=name, kind=kind)


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
