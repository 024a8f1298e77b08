"""Table 2 in small: every guide on SICK with three seeds, by the recipes `table2/*` of the package.

All guides have the automatic weight of their recipe (share 0.03), so that none is tuned; the test set is only reported.
Runs that are finished are not repeated, so the program can be stopped, and several may share the seeds among them.
"""

import argparse
import math
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish_study, progress
from real_check import row_of, spread, values
from scipy import stats

from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import bundled, read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import train

FAMILY = "table2/"
START, END = "<!-- table 2 -->", "<!-- /table 2 -->"
Row = dict[str, Any]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of SICK")
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs and the knowledge")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of all recipes")
    parser.add_argument("--output", type=Path, help="write the rows into this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--quick", action="store_true", help="60 examples, 1 epoch, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def settings() -> list[str]:
    """The recipes of the family by their own names, the one without guides first."""
    names = [name.removeprefix(FAMILY) for name in bundled() if name.startswith(FAMILY)]
    return ["plain", *(name for name in names if name != "plain")]


def run(setting: str, seed: int, options: argparse.Namespace) -> Row:
    recipe = read_recipe(FAMILY + setting, [f"seed={seed}", *options.set])
    folder = options.work / f"{recipe.name}-seed{seed}"
    paths = RunPaths(folder, options.data, cache=options.work / "knowledge")
    result = train(recipe, paths, resume=(folder / NAME).is_file(), command=("table2.py",))
    if result.interrupted:
        raise KeyboardInterrupt
    happened = result.record["results"]
    row = row_of(happened, setting, seed) | {"targets": happened.get("targets", {})}
    progress(f"{recipe.name} seed {seed}: validation {row['validation']:.4f}, test {row['test']:.4f}")
    return row


def gaps(rows: list[Row], setting: str) -> list[float]:
    """Test accuracy minus that of plain training with the same seed."""
    return [
        ours - theirs for ours, theirs in zip(values(rows, setting, "test"), values(rows, "plain", "test"), strict=True)
    ]


def half_width(numbers: list[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t; unknown (nan) for a single number."""
    if len(numbers) < 2:
        return math.nan
    return float(stats.t.ppf(0.975, len(numbers) - 1)) * stdev(numbers) / math.sqrt(len(numbers))


def table(rows: list[Row]) -> list[str]:
    lines = [
        "| recipe | validation | test | minus plain, same seed (95 % interval) | macro F1 | measured share |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name in dict.fromkeys(row["setting"] for row in rows):
        difference = gaps(rows, name)
        gap = "–" if name == "plain" else f"{100 * mean(difference):+.2f} ± {100 * half_width(difference):.2f}"
        shares = [row["shares"] for row in rows if row["setting"] == name]
        measured = ", ".join(f"{guide} {mean(each[guide] for each in shares):.3f}" for guide in shares[0]) or "–"
        numbers = (spread(values(rows, name, what)) for what in ("validation", "test", "test_macro_f1"))
        validation, test, f1 = numbers
        lines.append(f"| {name} | {validation} | {test} | {gap} | {f1} | {measured} |")
    return lines


def page(rows: list[Row]) -> str:
    counts, seeds = rows[0]["examples"], len({row["seed"] for row in rows})
    sizes = f"{counts['train']} training, {counts['validation']} validation, {counts['test']} test examples"
    return "\n".join([START, "", f"{sizes}; mean ± standard deviation over {seeds} seeds.", "", *table(rows), END])


def main() -> int:
    options = read_options()
    if options.quick:
        options.seeds = options.seeds[:1]
        options.set = [*options.set, "training.num_train_epochs=1", "data.limit={train: 60, validation: 40, test: 40}"]

    def rows() -> list[Row]:
        return [run(setting, seed, options) for seed in options.seeds for setting in settings()]

    return finish_study("table2", options, rows, page, (START, END))


if __name__ == "__main__":
    sys.exit(main())
