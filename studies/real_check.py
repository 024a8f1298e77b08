"""Does guiding help? SICK with every setting and three seeds, then the chosen setting on RTE.

The recipes are `sick` and `rte` of the package. Settings: plain, and MDG, PDG or both with automatic weights of share
0.01, 0.03 or 0.1. The guided setting is chosen by the mean accuracy on validation over the seeds; the test set is only
reported. Runs that are finished are not repeated, so the program can be stopped.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish, progress, put_between

from headwise.errors import HeadwiseError
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import train

KINDS = {"MDG": ("mdg",), "PDG": ("pdg",), "both": ("mdg", "pdg")}
SHARES = (0.01, 0.03, 0.1)
START, END = "<!-- results -->", "<!-- /results -->"
Row = dict[str, Any]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of SICK and RTE")
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sick", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe sick")
    parser.add_argument("--rte", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe rte")
    parser.add_argument("--sick-only", action="store_true", help="leave RTE for later, to share seeds among processes")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--quick", action="store_true", help="60 examples, 1 epoch, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def settings() -> dict[str, str]:
    """Name of a setting -> value of the recipe's key `guides`."""
    found = {"plain": "{}"}
    for kind, guides in KINDS.items():
        for share in SHARES:
            found[f"{kind} {share:g}"] = (
                "{" + ", ".join(f"{name}: {{weight: {{share: {share}}}}}" for name in guides) + "}"
            )
    return found


def run(recipe: str, setting: str, seed: int, changes: list[str], options: argparse.Namespace) -> Row:
    name = f"{recipe}-{setting.replace(' ', '-')}".lower()
    asked = read_recipe(recipe, [f"guides={settings()[setting]}", f"seed={seed}", f"name={name}", *changes])
    folder = options.work / f"{name}-seed{seed}"
    result = train(asked, RunPaths(folder, options.data), resume=(folder / NAME).is_file(), command=("real_check.py",))
    if result.interrupted:
        raise KeyboardInterrupt
    happened = result.record["results"]
    row = row_of(happened, setting, seed) | {
        "task": recipe,
        "seconds_per_step": happened["seconds_per_step"],
        "weights": {guide: each["weight"] for guide, each in happened["guides"].items()},
    }
    progress(f"{name} seed {seed}: validation {row['validation']:.4f}, test {row['test']:.4f}")
    return row


def row_of(happened: Row, setting: str, seed: int) -> Row:
    """What is told of every run."""
    return {
        "setting": setting,
        "seed": seed,
        "validation": happened["metrics"]["validation"]["accuracy"],
        "test": happened["metrics"]["test"]["accuracy"],
        "test_macro_f1": happened["metrics"]["test"]["macro_f1"],
        "examples": happened["examples"],
        "shares": {guide: each["share"] for guide, each in happened["guides"].items()},
    }


def choose(rows: list[Row]) -> str:
    """The guided setting that did best on validation, over the seeds; the weaker one of equals."""
    names = [name for name in dict.fromkeys(row["setting"] for row in rows) if name != "plain"]
    return max(names, key=lambda name: (mean(values(rows, name, "validation")), -names.index(name)))


def values(rows: list[Row], setting: str, what: str) -> list[float]:
    return [row[what] for row in rows if row["setting"] == setting]


def table(rows: list[Row], chosen: str) -> list[str]:
    lines = [
        "| setting | validation | test | test by seed | minus plain, same seed | macro F1 | measured share |",
        "|---|---:|---:|---|---:|---:|---|",
    ]
    plain = values(rows, "plain", "test")
    for name in dict.fromkeys(row["setting"] for row in rows):
        test = values(rows, name, "test")
        seeds = ", ".join(f"{100 * value:.2f}" for value in test)
        gaps = [ours - theirs for ours, theirs in zip(test, plain, strict=True)]
        gap = "–" if name == "plain" else spread(gaps)
        label = f"**{name}** (chosen)" if name == chosen else name
        validation, f1 = spread(values(rows, name, "validation")), spread(values(rows, name, "test_macro_f1"))
        lines.append(f"| {label} | {validation} | {spread(test)} | {seeds} | {gap} | {f1} | {measured(rows, name)} |")
    return lines


def measured(rows: list[Row], setting: str) -> str:
    """The gradient shares that were measured in training, as means over the seeds."""
    shares = [row["shares"] for row in rows if row["setting"] == setting]
    return ", ".join(f"{guide} {mean(each[guide] for each in shares):.3f}" for guide in shares[0]) or "–"


def spread(numbers: list[float]) -> str:
    deviation = f" ± {100 * stdev(numbers):.2f}" if len(numbers) > 1 else ""
    return f"{100 * mean(numbers):.2f}{deviation}"


def page(rows: dict[str, list[Row]], chosen: str) -> str:
    parts = []
    for task, found in rows.items():
        counts = found[0]["examples"]
        sizes = f"{counts['train']} training, {counts['validation']} validation, {counts['test']} test examples"
        seeds = len({row["seed"] for row in found})
        parts += ["", f"### {task.upper()}", "", f"{sizes}; mean ± standard deviation over {seeds} seeds.", ""]
        parts += table(found, chosen)
    return "\n".join([START, *parts, END])


def main() -> int:
    options = read_options()
    if options.quick:
        options.seeds = options.seeds[:1]
        small = ["training.num_train_epochs=1", "data.limit={train: 60, validation: 40, test: 40}"]
        options.sick, options.rte = [*options.sick, *small], [*options.rte, *small]
    try:
        sick = [run("sick", name, seed, options.sick, options) for name in settings() for seed in options.seeds]
        chosen = choose(sick)
        names = [] if options.sick_only else ["plain", chosen]
        rte = [run("rte", name, seed, options.rte, options) for name in names for seed in options.seeds]
    except HeadwiseError as error:
        sys.stderr.write(f"real_check: {error}\n")
        return 2
    if options.markdown:
        put_between(options.markdown, START, END, page({"sick": sick} | ({"rte": rte} if rte else {}), chosen))
    return finish({"rows": [*sick, *rte], "chosen": chosen, "bars": []}, options.check)


if __name__ == "__main__":
    sys.exit(main())
