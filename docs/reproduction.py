"""Writes docs/reproduction.md: the papers' tables and figures, the commands, and what was measured.

    python docs/reproduction.py           write the page
    python docs/reproduction.py --check   exit 1 if the page is not what would be written

The words come from docs/reproduction.yaml, the figures of the papers from studies/results/paper.json, axes and runs
from the sweeps of the package. What we measured comes from studies/results/sweeps.json, by the name of the sweep, with
/small for its small version:

    {"table1/small": {"machine": "2 cores, ...", "minutes": 9.5, "rows": [
        {"block": {"encoder": "minilm-l6", "set": "clinic"}, "system": "ag", "metric": "accuracy", "seeds": 3,
         "mean": 0.7, "sd": 0.01, "difference": 0.002, "interval": [-0.01, 0.014], "p": 0.6}]}}

(studies/reproduce.py writes it). Scores are parts of 1; seconds_per_epoch and dissociation stand as they are shown.
p is that of the t-test by seed, corrected by Holm. What is missing stays empty.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from headwise.experiments.sweeps.sweep_file import PlannedRun, SweepPlan, plan_sweep

HERE = Path(__file__).parent
PAGE = HERE / "reproduction.md"
NOTE = "<!-- Written by docs/reproduction.py: change docs/reproduction.yaml and studies/results, not this page. -->"
SMALL = "small"
# By seed, corrected for all tests of a sweep.
P = "p, Holm"
# The sweep that measures time: no other run beside it.
TIMED = "table4"
# Metrics that are no parts of 1, and with how many digits they are shown.
AS_THEY_ARE = {"seconds_per_epoch": 1, "dissociation": 2}


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page."""
    words = yaml.safe_load((HERE / "reproduction.yaml").read_text(encoding="utf-8"))
    title, _, rest = words["opening"].partition("\n")
    parts = [title, "", NOTE, rest.rstrip(), ""]
    check_measured()
    for name, about in words["sweeps"].items():
        parts += [*section(name, about), ""]
    return "\n".join(parts).rstrip() + "\n"


def section(name: str, about: dict[str, Any]) -> Iterator[str]:
    full, small, paper = plan_sweep(name), plan_sweep(name, scale=SMALL), read("paper.json")["sweeps"][name]
    yield f"## {full.sweep.title}\n"
    yield from ["```", *commands(name, full, small), "```", ""]
    yield f"**The paper** ({paper['source']}) and what we measured with its settings. {measured_on(name)}\n"
    if not paper["tables"]:
        yield "No figure of the paper was available.\n"
    for table in paper["tables"]:
        yield f"{table['title']}\n"
        yield from [*paper_table(name, table, full), ""]
    yield f"**The small version.** {measured_on(f'{name}/{SMALL}')}\n"
    yield from [*small_table(name, small, about.get("metrics")), ""]
    yield "What differs:\n"
    yield from (f"- {each}" for each in about["differs"])


def commands(name: str, full: SweepPlan, small: SweepPlan) -> Iterator[str]:
    alone, times = (" --workers 1", " --times") if name == TIMED else ("", "")
    data = "--data FOLDER"
    yield f"headwise sweep {name} {data} --download --output results{alone}    # {len(full.unique)} runs"
    yield f"headwise sweep {name} --scale {SMALL} {data} --output results-small{alone}    # {len(small.unique)} runs"
    yield f"headwise compare results-small --sweep {name}{times}"


def measured_on(key: str) -> str:
    """The machine; or that there is nothing yet."""
    found = measured(key)
    if not found:
        return "Not measured."
    taken = f" Its trainings took {found['minutes']:g} minutes of one core together." if "minutes" in found else ""
    return f"Measured on {found['machine']}.{taken}"


def paper_table(name: str, table: dict[str, Any], plan: SweepPlan) -> Iterator[str]:
    """All that is printed, and of ours the first metric."""
    metric, base = table["metrics"][0], baseline(plan)
    yield row("", *table["columns"], f"ours: {table['columns'][0]}", f"minus {base} (95 % interval)", P)
    yield rule(1, len(table["columns"]) + 3)
    for each in table["rows"]:
        at = dict(each["at"] or {})
        ours = find(name, table["block"] | at, at.get("system"), metric) if at else None
        yield row(each["name"], *each["values"], *cells(ours))


def small_table(name: str, plan: SweepPlan, metrics: list[str] | None) -> Iterator[str]:
    """Every point of the small version, without seeds."""
    axes = [axis for axis in plan.axes if axis != "seed"]
    yield row(*axes, "metric", "mean ± sd", f"minus {baseline(plan)} (95 % interval)", P)
    yield rule(len(axes) + 1, 3)
    for point, planned in without_seeds(plan).items():
        at = dict(zip(axes, point, strict=True))
        for metric in metrics or [primary(planned)]:
            yield row(*point, metric, *cells(find(f"{name}/{SMALL}", at, at["system"], metric)))


def without_seeds(plan: SweepPlan) -> dict[tuple[str, ...], PlannedRun]:
    return {tuple(label for axis, label in each.point.items() if axis != "seed"): each for each in plan.runs}


def primary(planned: PlannedRun) -> str:
    recipe = planned.recipe
    return "mean" if recipe.several else recipe.build_task().primary


def baseline(plan: SweepPlan) -> str:
    return str(plan.sweep.compare.baseline) if plan.sweep.compare else "baseline"


def find(key: str, at: dict[str, str], system: str | None, metric: str) -> dict[str, Any] | None:
    """What was measured at a point: the block of its row has all that the point says."""
    block = {axis: label for axis, label in at.items() if axis != "system"}
    for each in (measured(key) or {"rows": []})["rows"]:
        if each["system"] == system and each["metric"] == metric and block.items() <= each["block"].items():
            return each
    return None


def cells(found: dict[str, Any] | None) -> tuple[str, str, str]:
    """Mean and deviation, difference and interval, p; empty where there is none."""
    if found is None:
        return "", "", ""
    digits = AS_THEY_ARE.get(found["metric"], 2)
    times = 1 if found["metric"] in AS_THEY_ARE else 100
    mean, sd, gap, ends, p = (found.get(name) for name in ("mean", "sd", "difference", "interval", "p"))
    score = f"{times * mean:.{digits}f}" + ("" if sd is None else f" ± {times * sd:.{digits}f}")
    width = "" if ends is None else f" ({times * ends[0]:+.{digits}f} to {times * ends[1]:+.{digits}f})"
    return score, "" if gap is None else f"{times * gap:+.{digits}f}{width}", "" if p is None else f"{p:.3f}"


def check_measured() -> None:
    """Refuse measurements that the page has no place for, rather than pass over them."""
    for key, found in read("sweeps.json").items():
        name, _, scale = key.partition("/")
        points = [planned.point.items() for planned in plan_sweep(name, scale=scale or None).runs]
        for each in found["rows"]:
            at = each["block"] | {"system": each["system"]}
            if not any(at.items() <= point for point in points):
                raise SystemExit(f"sweeps.json: {key} has no point {at}")


def row(*texts: str) -> str:
    return "| " + " | ".join(texts) + " |"


def rule(left: int, right: int) -> str:
    return "|" + "---|" * left + "---:|" * right


def measured(key: str) -> dict[str, Any] | None:
    return read("sweeps.json").get(key)


@cache
def read(name: str) -> dict[str, Any]:
    """A file of studies/results; nothing if it is not there."""
    path = HERE / "../studies/results" / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


if __name__ == "__main__":
    sys.exit(main())
