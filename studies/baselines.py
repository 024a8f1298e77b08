"""How good is plain training? The recipes sick, sst2, mqp and rte without guides, beside two simple baselines.

    python studies/baselines.py --data FOLDER --work runs/baselines
    python studies/baselines.py --data FOLDER --work runs/baselines --markdown docs/results.md     # and the table
    python studies/baselines.py --markdown docs/results.md --tables                                # the table alone

The runs are the sweeps in studies/baselines. Every run also reports the most frequent class and a logistic regression
on frozen features of the same encoder. A finished run becomes a row of studies/results/baselines.json at once and is
not repeated, so the program can be stopped, and FOLDER and the runs can be deleted between two calls.
"""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from sweep_rows import Row, add_options, interval, put_part, run_study, spread

from headwise.experiments.sweeps.sweep_file import SweepPlan, plan_sweep
from headwise.metrics.significance import paired_by_seed

HERE = Path(__file__).parent
# The accuracy on test that plain training is to reach, in percent.
GOALS = {"sick": 83, "sst2": 85, "mqp": 72, "rte": 60}
QUICK = ("data.limit={train: 80, validation: 40, test: 40}", "training.num_train_epochs=1")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=tuple(GOALS), default=list(GOALS))
    add_options(parser, HERE / "results/baselines.json", Path("runs/baselines"))
    return parser.parse_args()


def row_of(name: str, point: Any, content: Row) -> Row:
    results = content["results"]
    (beside,) = results["baselines"].values()
    return {
        "set": name,
        "examples": results["examples"],
        "seed": content["recipe"]["seed"],
        "key": content["key"],
        "seconds": content["environment"]["times"]["seconds"],
        "validation": results["metrics"]["validation"]["accuracy"],
        "test": results["metrics"]["test"]["accuracy"],
        # All systems on the same test examples; the regression learns from so many of the training examples.
        "baselines": {system: metrics["accuracy"] for system, metrics in beside["metrics"]["test"].items()},
        "learned_from": beside["examples"]["train"],
    }


def in_order(row: Row) -> tuple[Any, ...]:
    return list(GOALS).index(row["set"]), row["seed"]


def plan(name: str, options: argparse.Namespace) -> SweepPlan:
    changes = list(QUICK) if options.quick else []
    return plan_sweep(str(HERE / f"baselines/{name}.yaml"), seeds=options.seeds, changes=changes)


def percent(rows: Iterable[Row], system: str) -> list[float]:
    return [100 * row["baselines"][system] for row in rows]


def table(rows: list[Row]) -> list[str]:
    lines = [
        "| recipe | train | seeds | test | goal | most frequent class | frozen regression | plain minus regression "
        "| seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, goal in GOALS.items():
        if not (mine := [row for row in rows if row["set"] == name]):
            continue
        frozen, tuned = (percent(mine, system) for system in ("frozen", "fine_tuned"))
        seconds = sorted(row["seconds"] for row in mine)
        cells = [name, f"{mine[0]['examples']['train']:,}", str(len(mine)), spread(100 * row["test"] for row in mine)]
        cells += [str(goal), spread(percent(mine, "majority")), spread(frozen)]
        cells += [interval(paired_by_seed(frozen, tuned), 1), f"{seconds[0]:.0f} to {seconds[-1]:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    options = read_options()

    def write_page(rows: list[Row]) -> None:
        put_part(options.markdown, "baselines", table(rows))

    plans = [
        (name, partial(plan, name, options), options.work / ("quick" if options.quick else name))
        for name in options.sets
    ]
    return run_study(options, row_of, in_order, plans, write_page)


if __name__ == "__main__":
    sys.exit(main())
