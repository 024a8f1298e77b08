"""Bad inputs, drawn by chance from a seed: number N of a seed is the same input on every machine."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.bad_bytes import damaged_file, damaged_recipe, wrong_zip
from campaign.bad_json import wrong_json
from campaign.bad_models import wrong_model
from campaign.bad_options import combination, missing_word, unknown_option, wrong_value
from campaign.bad_paths import wrong_input, wrong_output
from campaign.bad_rankings import wrong_ranking
from campaign.bad_recipes import wrong_change, wrong_recipe
from campaign.bad_tables import wrong_table
from campaign.bad_yaml import wrong_yaml
from campaign.commands import PATIENCE, SECONDS, Answer, Fork, command, fresh_box, give_up_rights, real
from campaign.judge import drafts, judge, result, snapshot
from campaign.orders import BAD, OPEN, ORDERS, Case, Draw, Order

EVERY_REAL = 100  # one of so many inputs goes to a fresh interpreter


@dataclass(frozen=True)
class Family:
    """A kind of bad input, how often it is drawn, and for which orders it exists."""

    generate: Callable[[Draw], Case | None]
    weight: int
    fits: Callable[[Order], bool] = lambda order: True


FAMILIES: dict[str, Family] = {
    "option values": Family(wrong_value, 12),
    "unknown options": Family(unknown_option, 4),
    "missing words": Family(missing_word, 3),
    "combinations of options": Family(combination, 10, lambda order: order.name not in ("demo", "list")),
    "wrong inputs": Family(wrong_input, 8, lambda order: bool(order.needs)),
    "wrong outputs": Family(wrong_output, 8, lambda order: bool(order.writes)),
    "recipes": Family(wrong_recipe, 14, lambda order: order.recipe is not None),
    "values by --set": Family(wrong_change, 6, lambda order: order.recipe is not None),
    "YAML": Family(wrong_yaml, 7, lambda order: order.recipe is not None),
    "damaged recipes": Family(damaged_recipe, 2, lambda order: order.recipe is not None),
    "data files": Family(wrong_table, 10, lambda order: bool(order.tables)),
    "zip files": Family(wrong_zip, 2, lambda order: any(each.endswith(".zip") for each in order.reads)),
    "rankings and collections": Family(
        wrong_ranking, 6, lambda order: any("papers/" in each or ".trec" in each for each in order.reads)
    ),
    "records and answers": Family(wrong_json, 14, lambda order: bool(order.reads or order.runs)),
    "models": Family(wrong_model, 8, lambda order: bool(order.runs)),
    "damaged files": Family(damaged_file, 8, lambda order: bool(order.reads or order.tables or order.runs)),
}


def draw(number: int, seed: int, benches: Path, box: Path) -> tuple[str, Order, Case]:
    """Put the input with this number into a box."""
    chance = random.Random(f"{seed}/{number}")
    names, weights = list(FAMILIES), [family.weight for family in FAMILIES.values()]
    while True:
        name = chance.choices(names, weights)[0]
        order = chance.choice([each for each in ORDERS if FAMILIES[name].fits(each)])
        fresh_box(benches, box, order.needs)
        case = FAMILIES[name].generate(Draw(chance, order, box))
        if case is None or any("\0" in word for word in case.words) or list(case.words) == list(order.words) == []:
            continue
        if order.name == "demo" and case.verdict != BAD:  # a valid demo trains for minutes
            continue
        return name, order, case


def try_case(order: Order, case: Case, place: Path, *, valid: str | None, fresh: bool = False) -> tuple[Answer, Any]:
    """Type a case in the box of a place, and judge what comes of it.

    Args:
        order: the valid order that the case was made from.
        case: what is typed, and what may come of it.
        place: folder of the box, of caches and of logs.
        valid: the result of the valid order; if it is not known yet, the result is returned instead of complaints.
        fresh: in a fresh interpreter instead of a fork.
    """
    box, logs = place / "box", place / "logs"
    for folder in ("cache", "tmp"):
        shutil.rmtree(place / folder, ignore_errors=True)
    before = snapshot(box)
    if fresh:
        answer = real(case.words, box, logs)
    else:
        rights = give_up_rights if case.without_rights else None
        process = command(case.words, box, logs, before=rights, work=SECONDS)
        if order.serves:
            _stop_when_serving(process)
        answer = process.answer()
    if valid is None:
        return answer, result(order, box, answer)
    complaints = judge(order, case.verdict, answer, before, snapshot(box), valid=valid, box=box)
    complaints += [f"left in the folder for temporary files: {name}" for name in snapshot(place / "tmp")][:1]
    complaints += [f"left in the cache: {name}" for name in drafts(snapshot(place / "cache"))][:1]
    return answer, complaints


def _stop_when_serving(process: Fork) -> None:
    """A page that is served was a valid input: Ctrl-C ends it."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if any("http://" in stream.read_text(errors="replace") for stream in (process.out, process.err)):
            time.sleep(0.2)
            process.send(signal.SIGINT)
            return
        time.sleep(0.02)


def row_of(number: int, order: Order, case: Case, answer: Answer, complaints: list[str], **more: Any) -> dict[str, Any]:
    """The result of a case as a row."""
    return {
        "number": number,
        "order": order.name,
        "command": " ".join(order.command),
        "what": case.what,
        "verdict": case.verdict,
        "code": answer.code,
        "seconds": round(answer.seconds, 3),
        "complaints": complaints,
        "words": [word[:200] for word in case.words] if complaints else None,
        "stderr": answer.err[-600:] if complaints else None,
        **more,
    }


def attempt(number: int, seed: int, benches: Path, place: Path, valid: Mapping[str, str]) -> dict[str, Any]:
    """Draw an input, give it to its command, and judge what comes of it; `valid` has the result of every order."""
    name, order, case = draw(number, seed, benches, place / "box")
    fresh = number % EVERY_REAL == 0 and not (order.serves or case.without_rights)
    answer, complaints = try_case(order, case, place, valid=valid[order.name], fresh=fresh)
    shutil.rmtree(place / "box", ignore_errors=True)
    return row_of(number, order, case, answer, complaints, family=name, real=fresh)


def valid_order(number: int, benches: Path, place: Path) -> dict[str, Any]:
    """Give a valid order twice: it must work, with the same result, or the campaign could not judge the others."""
    order = ORDERS[number]
    row: dict[str, Any] = {"number": number, "order": order.name, "result": "", "complaints": []}
    if order.name == "demo":  # takes minutes; of its bad inputs none may begin to train
        return row
    results = []
    for _ in range(2):
        fresh_box(benches, place / "box", order.needs)
        answer, found = try_case(order, Case(order.words, "", OPEN), place, valid=None)
        if answer.code != 0:
            row["complaints"] = [f"the valid order {order.name} ended with {answer.code}: {answer.err[-300:]}"]
        results.append(found)
    if results[0] != results[1]:
        row["complaints"].append(f"the valid order {order.name} gave two results")
    return {**row, "result": results[0]}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Figures of many inputs."""
    failures = [row for row in rows if row["complaints"]]
    codes = Counter(row["code"] for row in rows if not row["complaints"])
    return {
        "inputs": len(rows),
        "real_processes": sum(row["real"] for row in rows),
        "commands": len({row["command"] for row in rows}),
        "refused": codes[2],
        "still_valid": codes[0],
        "runs_listed_as_failed": codes[1],
        "failures": len(failures),
        "slowest_seconds": max((row["seconds"] for row in rows), default=0.0),
        "by_family": _by(rows, "family"),
        "by_command": _by(rows, "command"),
    }


def _by(rows: Sequence[dict[str, Any]], key: str) -> dict[str, dict[str, int]]:
    groups = {name: [row for row in rows if row[key] == name] for name in sorted({row[key] for row in rows})}
    return {
        name: {
            "inputs": len(group),
            "refused": sum(row["code"] == 2 for row in group),
            "failures": sum(bool(row["complaints"]) for row in group),
        }
        for name, group in groups.items()
    }
