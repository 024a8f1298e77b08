"""Does self-supervised attention help? RTE and SST-2 with three seeds, by the recipes `ssa/rte/*` and `ssa/sst2/*`.

Beside plain training (only_bert) there are two controls: mean-pool blends the mean of all tokens with [CLS] and has no
token loss; random-labels deals the labels anew and throws them among the tokens. SSA says something about tokens only
if it is better than both. Nothing is tuned; the test set is only reported. Runs that are finished are not repeated, so
the program can be stopped, and several may share tasks and seeds among them.
"""

import argparse
import math
import sys
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish_study, progress
from real_check import spread, values
from table2 import half_width

from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import train

SETTINGS = ("plain", "hybrid", "hybrid-reference", "cotraining", "mean-pool", "random-labels")
# What each question is about: the first minus the second, with the same seed.
QUESTIONS = (
    ("hybrid", "plain"),
    ("hybrid", "mean-pool"),
    ("hybrid", "random-labels"),
    ("hybrid-reference", "mean-pool"),
    ("cotraining", "plain"),
)
TASKS = {"rte": "RTE", "sst2": "SST-2"}
START, END = "<!-- ssa -->", "<!-- /ssa -->"
Row = dict[str, Any]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folders RTE and SST-2 of GLUE")
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of all recipes")
    parser.add_argument("--output", type=Path, help="write the rows into this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument(
        "--quick", action="store_true", help="24 examples of one task, 2 epochs, 1 seed: tries the program only"
    )
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def run(task: str, setting: str, seed: int, options: argparse.Namespace) -> Row:
    recipe = read_recipe(f"ssa/{task}/{setting}", [f"seed={seed}", *options.set])
    folder = options.work / f"{recipe.name}-seed{seed}"
    result = train(recipe, RunPaths(folder, options.data), resume=(folder / NAME).is_file(), command=("ssa_check.py",))
    if result.interrupted:
        raise KeyboardInterrupt
    happened = result.record["results"]
    row = row_of(happened, task, setting, seed)
    progress(f"{recipe.name} seed {seed}: validation {row['validation']:.4f}, test {row['test']:.4f}")
    return row


def row_of(happened: Row, task: str, setting: str, seed: int) -> Row:
    """What is told of every run; of the labels, what those of the last epoch were like."""
    last = (happened.get("ssa") or [{}])[-1]
    return {
        "task": task,
        "setting": setting,
        "seed": seed,
        "validation": happened["metrics"]["validation"]["accuracy"],
        "test": happened["metrics"]["test"]["accuracy"],
        "examples": happened["examples"],
        "seconds_per_epoch": happened["seconds_per_epoch"],
        "labelling_seconds": [round(each["seconds"], 1) for each in happened.get("ssa", [])],
        "labels": {name: last[name] for name in ("share", "acceptance", "base_rate", "kept") if name in last},
    }


def difference(rows: list[Row], first: str, second: str) -> str:
    """Test accuracy of the first minus the second, with the half of the 95 % interval over seeds."""
    pairs = zip(values(rows, first, "test"), values(rows, second, "test"), strict=True)
    gaps = [one - other for one, other in pairs]
    width = half_width(gaps)
    return f"{100 * mean(gaps):+.2f}" + ("" if math.isnan(width) else f" ± {100 * width:.2f}")


def label_cells(rows: list[Row], setting: str) -> list[str]:
    found = [row["labels"] for row in rows if row["setting"] == setting]
    names = ("share", "acceptance", "base_rate", "kept")
    return [
        f"{mean(each[name] for each in found):.2f}" if all(name in each for each in found) else "–" for name in names
    ]


def tables(rows: list[Row], task: str) -> list[str]:
    mine = [row for row in rows if row["task"] == task]
    counts, seeds = mine[0]["examples"], len({row["seed"] for row in mine})
    sizes = f"{counts['train']} training, {counts['validation']} validation, {counts['test']} test examples"
    there = list(dict.fromkeys(row["setting"] for row in mine))
    lines = [
        f"**{TASKS[task]}**: {sizes}; accuracy, mean ± standard deviation over {seeds} seeds. Labels are as in "
        "the last epoch.",
        "",
        "| recipe | validation | test | examples labelled | acceptance | base rate | kept tokens |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in there:
        numbers = [spread(values(mine, name, what)) for what in ("validation", "test")]
        lines.append(f"| {name} | {' | '.join([*numbers, *label_cells(mine, name)])} |")
    lines += ["", "| difference, same seed | test (95 % interval) |", "|---|---:|"]
    asked = [pair for pair in QUESTIONS if set(pair) <= set(there)]
    lines += [f"| {first} minus {second} | {difference(mine, first, second)} |" for first, second in asked]
    return [*lines, ""]


def page(rows: list[Row]) -> str:
    tasks = dict.fromkeys(row["task"] for row in rows)
    return "\n".join([START, "", *(line for task in tasks for line in tables(rows, task)), END])


def main() -> int:
    options = read_options()
    if options.quick:
        options.seeds, options.tasks = options.seeds[:1], options.tasks[-1:]
        options.set = [*options.set, "training.num_train_epochs=2", "data.limit={train: 24, validation: 16, test: 16}"]
    wanted = [(task, seed, setting) for task in options.tasks for seed in options.seeds for setting in options.settings]

    def rows() -> list[Row]:
        return [run(task, setting, seed, options) for task, seed, setting in wanted]

    return finish_study("ssa_check", options, rows, page, (START, END))


if __name__ == "__main__":
    sys.exit(main())
