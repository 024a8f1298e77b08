"""Does it help? Every guide, self-supervised attention (SSA) and IAT against plain training.

    python studies/effects.py --data FOLDER --work runs/effects
    python studies/effects.py --data FOLDER --work runs/effects --markdown docs/results.md     # and the tables
    python studies/effects.py --markdown docs/results.md --tables                              # the tables alone

The runs are the sweeps in studies/effects. All arms of a seed have the same training examples, order, first weights and
dropped attention weights. Nothing is tuned on the test set: learning rate, epochs and head are those of the recipes;
every guide has its default share. A finished run becomes a row of studies/results/effects.json at once and is not
repeated, so the program can be stopped, and FOLDER and the runs can be deleted between two calls.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from sweep_rows import Row, add_options, interval, put_part, run_study, scores, spread

from headwise.experiments.sweeps.sweep_file import SweepPlan, plan_sweep
from headwise.metrics.significance import SeedTest, holm, paired_by_seed

HERE = Path(__file__).parent
SWEEPS = ("sick", "sst2", "iat", "sick-300", "sst2-300")
# SSA says something about tokens only if it is better than these.
CONTROLS = ("ssa-random-labels", "ssa-mean-pool")
SSA_ARMS = ("ssa-hybrid", "ssa-cotraining")
# Arms with fewer seeds are not in the tables: a difference without an interval says nothing.
LEAST_SEEDS = 3
QUICK = ("data.limit={train: 60, validation: 40, test: 40}", "training.num_train_epochs=1")
QUICK_IAT = (
    *(f"tasks.{task}.data.limit={{train: 60, validation: 40, test: 40}}" for task in ("sst2", "sick")),
    *("training.num_train_epochs=2", "iat.examples=16"),
)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    parser.add_argument("--only", nargs="+", help="some arms of all sweeps but iat")
    add_options(parser, HERE / "results/effects.json", Path("runs/effects"))
    return parser.parse_args()


def row_of(sweep: str, point: Any, content: Row) -> Row:
    results = content["results"]
    row = {"sweep": sweep, "arm": point.get("arm", "iat"), "seed": content["recipe"]["seed"], "key": content["key"]}
    row["seconds"] = content["environment"]["times"]["seconds"]
    if sweep == "iat":
        examples = {task: each["examples"] for task, each in results["tasks"].items()}
        test = {"control": results["control"]["last"]["test"], "iat": results["last"]["test"]}
        return {**row, "examples": examples, "steps": results["steps"], "test": test}
    labels = (results.get("ssa") or [{}])[-1]
    return {
        **row,
        "examples": results["examples"],
        "validation": results["metrics"]["validation"]["accuracy"],
        "test": results["metrics"]["test"]["accuracy"],
        "shares": {guide: each["share"] for guide, each in results["guides"].items() if each["share"] is not None},
        "targets": results.get("targets", {}),
        "labels": {name: labels[name] for name in ("share", "acceptance", "base_rate", "kept") if name in labels},
    }


def in_order(row: Row) -> tuple[Any, ...]:
    return SWEEPS.index(row["sweep"]), row["seed"], row["arm"]


def plan(sweep: str, options: argparse.Namespace) -> SweepPlan:
    only = []
    if sweep != "iat" and (options.only or options.quick):
        only = ["arm=" + ",".join(["plain", "mdg"] if options.quick else options.only)]
    changes = list(QUICK_IAT if sweep == "iat" else QUICK) if options.quick else []
    return plan_sweep(str(HERE / f"effects/{sweep}.yaml"), only=only, seeds=options.seeds, changes=changes)


# -- tables ------------------------------------------------------------------------------------------------------------


def compared(first: dict[int, float], second: dict[int, float]) -> SeedTest:
    """The second minus the first, over the seeds that both have."""
    seeds = sorted(first.keys() & second.keys())
    return paired_by_seed([first[seed] for seed in seeds], [second[seed] for seed in seeds])


def number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def arms_table(rows: list[Row]) -> list[str]:
    """Every arm against plain training."""
    plain = scores(rows, "plain")
    others = [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != "plain"]
    tests = {arm: compared(plain, scores(rows, arm)) for arm in others if scores(rows, arm).keys() & plain.keys()}
    arms = [arm for arm in tests if tests[arm].seeds >= LEAST_SEEDS]
    known = [arm for arm in arms if tests[arm].t_test_p is not None]
    corrected = dict(zip(known, holm([tests[arm].t_test_p or 0.0 for arm in known]), strict=True)) if known else {}
    lines = [
        "| arm | seeds | test | minus plain (95 % interval) | p, Holm | detectable | measured share |",
        "|---|---:|---:|---:|---:|---:|---|",
        f"| plain | {len(plain)} | {spread(list(plain.values()))} | | | | |",
    ]
    for arm in arms:
        test, mine = tests[arm], [row for row in rows if row["arm"] == arm]
        shares: dict[str, list[float]] = {}
        for guide, share in (pair for row in mine for pair in row["shares"].items()):
            shares.setdefault(guide, []).append(share)
        measured = ", ".join(f"{sum(each) / len(each):.3f}" for each in shares.values())
        cells = [arm, str(test.seeds), spread(list(scores(rows, arm).values())), interval(test)]
        cells += [number(corrected.get(arm), 3), number(test.detectable, 2), measured]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def controls_table(rows: list[Row]) -> list[str]:
    """SSA against its controls."""
    lines = ["| difference, same seed | test (95 % interval) |", "|---|---:|"]
    for arm in SSA_ARMS[:1]:
        for control in CONTROLS:
            first, second = scores(rows, control), scores(rows, arm)
            if len(first.keys() & second.keys()) >= LEAST_SEEDS:
                lines.append(f"| {arm} minus {control} | {interval(compared(first, second))} |")
    return lines if len(lines) > 2 else []


def iat_table(rows: list[Row]) -> list[str]:
    """IAT against training on from the same step."""
    names = [*(f"{task}/accuracy" for task in rows[0]["examples"]), "mean"]
    lines = ["| task | control | IAT | IAT minus control (95 % interval) | detectable |", "|---|---:|---:|---:|---:|"]
    for name in names:
        control, iat = ([100 * row["test"][arm][name] for row in rows] for arm in ("control", "iat"))
        test = paired_by_seed(control, iat)
        cells = [name.partition("/")[0], spread(control), spread(iat), interval(test), number(test.detectable, 2)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def sizes(counts: Row) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items()) + " examples"


def page(sweep: str, rows: list[Row]) -> list[str]:
    """The part of the page about a sweep."""
    if sweep == "iat":
        counts = "; ".join(f"{task}: {sizes(each)}" for task, each in rows[0]["examples"].items())
        return [f"{counts}; {len(rows)} seeds, accuracy in percent.", "", *iat_table(rows)]
    controls = controls_table(rows)
    parts = [f"{sizes(rows[0]['examples'])}; accuracy in percent.", "", *arms_table(rows)]
    return [*parts, *(["", *controls] if controls else [])]


def main() -> int:
    options = read_options()

    def write_page(rows: list[Row]) -> None:
        for sweep in options.sweeps:
            if part := [row for row in rows if row["sweep"] == sweep]:
                put_part(options.markdown, f"effects {sweep}", page(sweep, part))

    folder = options.work / ("quick" if options.quick else "runs")
    plans = [(sweep, partial(plan, sweep, options), folder) for sweep in options.sweeps]
    return run_study(options, row_of, in_order, plans, write_page)


if __name__ == "__main__":
    sys.exit(main())
