"""Guiding by marked words: plain, guided and shuffled training on data sets with rationales.

    python studies/guiding.py --data FOLDER --work runs/guiding
    python studies/guiding.py --data FOLDER --work runs/guiding --markdown docs/results.md     # and the table
    python studies/guiding.py --markdown docs/results.md --tables                              # the table alone
    python studies/guiding.py --figure docs/images/marks.png --tables                          # scores by examples

The runs are the sweeps in studies/guiding, with controls: arms of a seed have the same training examples, order, first
weights and dropped attention weights. The shuffled arm marks as many random tokens of the same text. The files have all
settings, the same for all arms. A finished run becomes a row of studies/results/guiding.json at once and is not
repeated, so the program can be stopped, and FOLDER and the runs can be deleted between two calls.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rationale_sets import prepared
from sweep_rows import Row, add_options, interval, put_part, run_study, scores, spread

from headwise.experiments.sweeps.sweep_file import SweepPlan, plan_sweep
from headwise.metrics.significance import SeedScores, SeedTest, holm, paired_by_seed
from headwise.reports.lines import build_line_panels

Matrix = NDArray[np.float64]
HERE = Path(__file__).parent
SETS = tuple(sorted(each.stem for each in (HERE / "guiding").glob("*.yaml")))
ARMS = {"plain": "plain", "recipe": "guided", "shuffled": "shuffled"}
# Cells with fewer seeds are not in the table: a difference without an interval says nothing.
LEAST_SEEDS = 3
RESAMPLES = 2000
QUICK = ("data.limit={train: 40, validation: 20, test: 20}", "training.num_train_epochs=1")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--figure", type=Path, help="draw the scores of the sets that have several numbers of examples")
    add_options(parser, HERE / "results/guiding.json", Path("runs/guiding"))
    return parser.parse_args()


def row_of(name: str, point: Any, content: Row) -> Row:
    results = content["results"]
    return {
        "set": name,
        "examples": results["examples"],
        "arm": ARMS[point["arm"]],
        "seed": content["recipe"]["seed"],
        "key": content["key"],
        "seconds": content["environment"]["times"]["seconds"],
        "validation": results["metrics"]["validation"]["accuracy"],
        "test": results["metrics"]["test"]["accuracy"],
        "marked": results.get("targets", {}).get("rationale"),
    }


def in_order(row: Row) -> tuple[Any, ...]:
    return row["set"], row["examples"]["train"], row["seed"], row["arm"]


def plan(name: str, options: argparse.Namespace) -> SweepPlan:
    changes = list(QUICK) if options.quick else []
    return plan_sweep(str(HERE / f"guiding/{name}.yaml"), seeds=options.seeds, changes=changes)


# -- the table ---------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> list[str]:
    """A line for each data set and size: the arms, and guided against the other two."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=in_order):
        cells.setdefault((row["set"], row["examples"]["train"]), []).append(row)
    tests: dict[tuple[str, int, str], SeedTest] = {}
    for (name, size), group in cells.items():
        by_arm = {arm: scores(group, arm) for arm in ARMS.values()}
        seeds = sorted(set.intersection(*(set(each) for each in by_arm.values())))
        if len(seeds) >= LEAST_SEEDS:
            guided = [by_arm["guided"][seed] for seed in seeds]
            for other in ("plain", "shuffled"):
                tests[name, size, other] = paired_by_seed([by_arm[other][seed] for seed in seeds], guided)
    corrected = dict(zip(tests, holm([test.t_test_p or 0.0 for test in tests.values()]), strict=True)) if tests else {}
    lines = [
        "| data | n | seeds | plain | guided | shuffled | guided - plain | p | guided - shuffled | p | detectable |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, size), group in cells.items():
        if (name, size, "plain") not in tests:
            continue
        plain, shuffled = (tests[name, size, other] for other in ("plain", "shuffled"))
        parts = [name, str(size), str(plain.seeds), *(spread(scores(group, arm).values()) for arm in ARMS.values())]
        for other, test in (("plain", plain), ("shuffled", shuffled)):
            parts += [interval(test, 1), f"{corrected[name, size, other]:.3f}"]
        parts.append("–" if plain.detectable is None else f"{plain.detectable:.1f}")
        lines.append(f"| {' | '.join(parts)} |")
    return lines


# -- how many unmarked examples a marked one is worth ------------------------------------------------------------------


def as_many(plain: Matrix, guided: Matrix, sizes: Sequence[int]) -> Matrix:
    """The number of examples with which plain training scores as guided training does with each of the sizes.

    Both scores are means over seeds. Plain scores lie on straight lines over the logarithm of the number of examples,
    and rise with it: where they fall by chance, the highest score so far counts. Above the last size it is infinite.

    Args:
        plain: [S,N] accuracy by seed and size.
        guided: [S,N] the same of guided training.
        sizes: [N] rising.
    """
    curve = np.maximum.accumulate(plain.mean(0))  # [N]
    found = np.exp(np.interp(guided.mean(0), curve, np.log(sizes)))
    return np.where(guided.mean(0) > curve[-1], np.inf, found)


def worth(rows: Sequence[Row]) -> list[str]:
    """A line for each size of the sets with learning curves; intervals by resampling seeds."""
    lines = [
        "| data | marked examples | seeds | guided | plain training needs | 95 % interval |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        by_arm = {
            arm: {
                (row["examples"]["train"], row["seed"]): 100 * row["test"]
                for row in rows
                if row["set"] == name and row["arm"] == arm
            }
            for arm in ("plain", "guided")
        }
        sizes = sorted({size for size, _ in by_arm["plain"]} & {size for size, _ in by_arm["guided"]})
        seeds = sorted(
            seed
            for seed in {seed for _, seed in by_arm["plain"]}
            if all((size, seed) in each for each in by_arm.values() for size in sizes)
        )
        if len(sizes) < 3 or len(seeds) < LEAST_SEEDS:
            continue
        plain, guided = (np.array([[by_arm[arm][size, seed] for size in sizes] for seed in seeds]) for arm in by_arm)
        drawn = np.random.default_rng(0).integers(0, len(seeds), (RESAMPLES, len(seeds)))
        draws = np.array([as_many(plain[each], guided[each], sizes) for each in drawn])  # [R,N]
        low, high = np.quantile(draws, (0.025, 0.975), axis=0, method="nearest")
        for at, value in enumerate(as_many(plain, guided, sizes)):
            cells = (name, f"{sizes[at]:,}", str(len(seeds)), spread(guided[:, at]), count(value, sizes[-1]))
            lines.append(f"| {' | '.join(cells)} | {count(low[at], sizes[-1])} to {count(high[at], sizes[-1])} |")
    return lines


def count(value: float, most: int) -> str:
    return f"over {most:,}" if np.isinf(value) else f"{value:,.0f}"


# -- the figure --------------------------------------------------------------------------------------------------------


def curves(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each data set with several numbers of training examples the accuracy of every arm."""
    plots = []
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = [row for row in rows if row["set"] == name]
        sizes = sorted({row["examples"]["train"] for row in mine})
        series = []
        for arm in ARMS.values():
            by_size = {size: scores([row for row in mine if row["examples"]["train"] == size], arm) for size in sizes}
            known = {size: SeedScores.of(list(each.values())) for size, each in by_size.items() if each}
            ends = {end: [getattr(each, end) for each in known.values()] for end in ("mean", "low", "high")}
            series.append({"name": arm, "x": [sizes.index(size) for size in known], **ends})
        if len(sizes) > 1:
            note = "Bars are 95 % t intervals of the mean over seeds."
            axes = {"x": "training examples", "y": "accuracy, %", "categories": sizes}
            plots.append({"title": name, **axes, "series": series, "notes": [note]})
    return plots


def main() -> int:
    options = read_options()

    def write_page(rows: list[Row]) -> None:
        if options.markdown:
            put_part(options.markdown, "guiding", table(rows))
            put_part(options.markdown, "worth", worth(rows))
        if options.figure and (plots := curves(rows)):
            build_line_panels(plots).savefig(options.figure, dpi=120)

    def data_of(name: str) -> Path | None:
        return options.data and prepared(name, options.data, options.work / "data")

    plans = [
        (name, partial(plan, name, options), options.work / ("quick" if options.quick else name))
        for name in options.sets
    ]
    return run_study(options, row_of, in_order, plans, write_page, data_of)


if __name__ == "__main__":
    sys.exit(main())
