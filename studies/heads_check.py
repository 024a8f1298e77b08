"""Do tasks need heads of their own? SST-2, RTE and SICK on one MiniLM-L6 with three seeds, by the recipe `heads/check`.

Each seed trains the three tasks together, then goes on from the same step twice: with important heads only (IAT), and
as before (its control). On both models the most important heads of each task are silenced, and all tasks are tested. On
the control the same is done with random heads, with random heads of the same layers, and with the least important
ones: a D-score says something about specialisation only if it is larger than these. Nothing is tuned; the test sets are
only reported. What is finished is not repeated, so the program can be stopped, and several may share seeds among them.
"""

import argparse
import json
import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

import numpy as np
from harness import finish_study, progress

from headwise.experiments.apply import RunTasks, Source, load_tasks
from headwise.experiments.head_studies.curve_masks import ASCENDING, DESCENDING, CurveSettings
from headwise.experiments.head_studies.head_dissociation import dissociate
from headwise.experiments.head_studies.head_importance import ImportanceSettings, measure_similarity
from headwise.experiments.head_studies.prune_curve import PruneCurve, find_curve, measure_curve, write_curve
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import train
from headwise.heads.dissociation import dissociation
from headwise.metrics.significance import SeedScores
from headwise.training import Silence

ARMS = {"control": "control", "iat": "."}
VARIANTS = ("row", "column", "reference")
CONTROLS = {"random": "random heads", "layer_matched": "random, same layers", "ascending": "least important"}
START, END = "<!-- heads -->", "<!-- /heads -->"
Row = dict[str, Any]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the folders SST-2, RTE and sick")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder for the runs; default: runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--percent", type=float, nargs="+", default=[20.0, 30.0, 40.0])
    parser.add_argument("--examples", type=int, default=2000, help="of each task, for its importance")
    parser.add_argument("--resamples", type=int, default=1000, help="of the test examples")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe")
    parser.add_argument("--output", type=Path, help="write the rows into this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument(
        "--rows", type=Path, nargs="+", metavar="FILE", help="run nothing: join the rows of these files of --output"
    )
    parser.add_argument("--quick", action="store_true", help="32 examples of each task, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def run(seed: int, options: argparse.Namespace) -> Row:
    recipe = read_recipe("heads/check", [f"seed={seed}", *options.set])
    folder = options.work / f"seed{seed}"
    result = train(
        recipe, RunPaths(folder, options.data), resume=(folder / NAME).is_file(), command=("heads_check.py",)
    )
    if result.interrupted:
        raise KeyboardInterrupt
    happened = result.record["results"]
    progress(f"seed {seed}: trained, {happened['steps']} steps")
    arms = {arm: look(folder / place, arm, options) for arm, place in ARMS.items()}
    return {
        "seed": seed,
        "examples": {task: each["examples"] for task, each in happened["tasks"].items()},
        "steps": happened["steps"],
        "iat_step": happened["iat"]["step"],
        "chosen": {task: int(np.sum(each["heads"])) for task, each in happened["iat"]["tasks"].items()},
        "test": {"control": happened["control"]["last"]["test"], "iat": happened["last"]["test"]},
        **arms,
    }


def look(folder: Path, arm: str, options: argparse.Namespace) -> Row:
    """The curve and the D-scores of one model; of the control also its controls and the likeness of its tasks."""
    tasks = load_tasks(folder)
    curve = curve_of(tasks, arm, options)
    found = dissociate(curve, resamples=options.resamples)
    row: Row = {
        "curve": {name: curve.as_dict()[name] for name in ("percents", "counts", "base", "matrix", "random")},
        "layer_matched": curve.as_dict()["layer_matched"],
        "stability": {task: each.as_dict()["stability"] for task, each in curve.importance.items() if each.stability},
        "dissociation": {name: found[name] for name in ("tasks", "steps", "mean")},
    }
    if arm == "control":
        settings = ImportanceSettings(examples=options.examples)
        alike = measure_similarity(tasks, settings, Source(options.data), folder=folder / "heads", progress=Silence())
        row["similarity"] = {name: part for name, part in alike.items() if name != "run"}
    progress(f"{folder}: D {found['mean']['row']['mean']:.2f}")
    return row


def curve_of(tasks: RunTasks, arm: str, options: argparse.Namespace) -> PruneCurve:
    settings = CurveSettings(percent=tuple(options.percent), examples=options.examples, split="test")
    if arm == "iat":  # its null is that of the control
        settings = replace(settings, controls=False)
    folder, names = tasks.folder / "heads", tuple(tasks.runs)
    asked = {name: getattr(settings, name) for name in ("percent", "examples", "split", "controls")}
    curve = find_curve(folder, tasks.folder, names, asked)
    if curve is None:
        curve = measure_curve(tasks, settings, Source(options.data), progress=Silence())
        write_curve(folder, curve)
    return curve


def saved(files: list[Path]) -> list[Row]:
    rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
    return sorted(rows, key=lambda row: row["seed"])


def spread(numbers: list[float]) -> str:
    deviation = f" ± {100 * stdev(numbers):.2f}" if len(numbers) > 1 else ""
    return f"{100 * mean(numbers):.2f}{deviation}"


def over_seeds(values: list[float]) -> str:
    """Mean with the half of the 95 % interval over seeds."""
    summary = SeedScores.of(values)
    return f"{summary.mean:+.2f}" + ("" if summary.high is None else f" ± {summary.high - summary.mean:.2f}")


def accuracy_table(rows: list[Row], tasks: list[str]) -> list[str]:
    lines = ["| task | control | IAT | IAT minus control, same seed (95 % interval) |", "|---|---:|---:|---:|"]
    for name in [*(f"{task}/accuracy" for task in tasks), "mean"]:
        both = {arm: [row["test"][arm][name] for row in rows] for arm in ARMS}
        gaps = [100 * (one - other) for one, other in zip(both["iat"], both["control"], strict=True)]
        cells = [name.partition("/")[0], spread(both["control"]), spread(both["iat"]), over_seeds(gaps)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def curve_table(rows: list[Row], tasks: list[str]) -> list[str]:
    """Test accuracy of the control with heads silenced, as a mean over seeds."""
    first = rows[0]["control"]["curve"]
    lines = [f"| heads silenced | of | {' | '.join(tasks)} |", "|---|---|" + "---:|" * len(tasks)]
    lines.append(line("none", "", np.mean([row["control"]["curve"]["base"] for row in rows], 0)))
    for step, percent in enumerate(first["percents"]):
        heads = f"{percent:g} % ({first['counts'][step]})"
        for order, words in ((DESCENDING, "most important"), (ASCENDING, "least important")):
            matrix = np.mean([row["control"]["curve"]["matrix"][order][step] for row in rows], 0)  # [S,T]
            lines += [line(f"{heads} {words}", task, matrix[place]) for place, task in enumerate(tasks)]
        matched = np.mean([row["control"]["layer_matched"][step] for row in rows], (0, 2))  # [S,T]
        lines += [line(f"{heads} random, same layers", task, matched[place]) for place, task in enumerate(tasks)]
        lines.append(
            line(f"{heads} random", "", np.mean([row["control"]["curve"]["random"][step] for row in rows], (0, 1)))
        )
    return lines


def line(heads: str, task: str, values: Any) -> str:
    return f"| {heads} | {task} | {' | '.join(f'{100 * value:.1f}' for value in values)} |"


def scores_table(rows: list[Row], tasks: list[str]) -> list[str]:
    """D-scores, mean over percentages."""
    lines = [
        "| D-score | model | " + " | ".join([*tasks, "mean"]) + " |",
        "|---|---|" + "---:|" * (len(tasks) + 1),
    ]
    for variant in VARIANTS:
        for arm in ARMS:
            found = [row[arm]["dissociation"]["mean"] for row in rows]
            cells = [over_seeds([each[variant]["tasks"][task] for each in found]) for task in tasks]
            cells.append(over_seeds([each[variant]["mean"] for each in found]))
            lines.append(f"| {variant} | {arm} | {' | '.join(cells)} |")
    for variant in VARIANTS:
        for name, words in CONTROLS.items():
            found = [control_of(row["control"]["dissociation"]["mean"], name) for row in rows]
            cells = [over_seeds([each[variant]["tasks"][task] for each in found]) for task in tasks]
            cells.append(over_seeds([each[variant]["mean"] for each in found]))
            # Random masks are given to the tasks in every way, so that these means are 0 whatever the masks do.
            if name == "random" and variant != "reference":
                cells[0 if variant == "column" else -1 :] = ["0"] * (len(cells) if variant == "column" else 1)
            lines.append(f"| {variant}, {words} | control | {' | '.join(cells)} |")
    return lines


def control_of(found: Row, name: str) -> Row:
    """The D-scores of a control: of random masks their mean."""
    part: Row = found["ascending"] if name == "ascending" else found["null"][name]["mean"]
    return part


def seeds_table(rows: list[Row], _: list[str]) -> list[str]:
    """The mean D-score of each seed, with what other test examples and other heads would do to it."""
    lines = [
        "| seed | control (95 %, bootstrap) | IAT (bootstrap) | random heads, middle 95 % | of the same layers |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        found = {arm: row[arm]["dissociation"]["mean"] for arm in ARMS}
        cells = [f"{each['row']['mean']:.2f} ({between(each['interval'])})" for each in found.values()]
        cells += [between(found["control"]["null"][name]) for name in ("random", "layer_matched")]
        lines.append(f"| {row['seed']} | {' | '.join(cells)} |")
    return lines


def between(part: Row) -> str:
    low, high = (part[name]["row"]["mean"] for name in ("low", "high"))
    return f"{low:.2f} to {high:.2f}"


def pairs_table(rows: list[Row], tasks: list[str]) -> list[str]:
    """How alike each two tasks are, and how far they come apart."""
    lines = [
        "| tasks | importance, Spearman | gradient cosine | D-score of the two | by seed (largest of random heads of "
        "the same layers) | double dissociation |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for number, (one, other) in enumerate(combinations(range(len(tasks)), 2)):
        alike = [row["control"]["similarity"]["pairs"][number] for row in rows]
        retained = [np.array(row["control"]["dissociation"]["mean"]["retained"]) for row in rows]
        scores = [of_two(each, one, other) for each in retained]
        matched = [largest_matched(row["control"], one, other) for row in rows]
        steps = [
            step["double_dissociation"][number]["holds"]
            for row in rows
            for step in row["control"]["dissociation"]["steps"]
        ]
        cells = [f"{tasks[one]}, {tasks[other]}"]
        cells += [f"{mean(each[name] for each in alike):.2f}" for name in ("spearman", "gradient_cosine")]
        cells.append(over_seeds(scores))
        cells.append("; ".join(f"{score:.1f} ({most:.1f})" for score, most in zip(scores, matched, strict=True)))
        cells += [f"{sum(map(bool, steps))} of {len(steps)}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def of_two(retained: Any, one: int, other: int) -> float:
    """The mean D-score of two tasks, as if there were no others; from [T,T]."""
    part: float = dissociation(retained[np.ix_([one, other], [one, other])], [1.0, 1.0]).means["row"]
    return part


def largest_matched(control: Row, one: int, other: int) -> float:
    """The largest D-score of two tasks under layer-matched masks, with any repeat for either; mean over percentages."""
    matched = np.array(control["layer_matched"]) / np.array(control["curve"]["base"])  # [K,S,R,T]
    repeats = range(matched.shape[2])
    found = []
    for first, second in product(repeats, repeats):
        retained = matched[:, :, 0].copy()  # [K,S,T]
        retained[:, one], retained[:, other] = matched[:, one, first], matched[:, other, second]
        found.append(of_two(retained.mean(0), one, other))
    return max(found)


def page(rows: list[Row]) -> str:
    tasks = rows[0]["control"]["dissociation"]["tasks"]
    parts = [table(rows, tasks) for table in (accuracy_table, curve_table, scores_table, seeds_table, pairs_table)]
    return "\n".join([START, "", *(text for part in parts for text in [*part, ""]), END])


def main() -> int:
    options = read_options()
    if options.quick:
        small = "data.limit={train: 32, validation: 16, test: 16}"
        options.seeds = options.seeds[:1]
        options.percent, options.examples, options.resamples = options.percent[:1], 16, 50
        per_task = [f"tasks.{task}.{small}" for task in ("sst2", "rte", "sick")]
        options.set = [*options.set, "training.num_train_epochs=2", "iat.start=0.5", *per_task]

    def rows() -> list[Row]:
        return saved(options.rows) if options.rows else [run(seed, options) for seed in options.seeds]

    return finish_study("heads_check", options, rows, page, (START, END))


if __name__ == "__main__":
    sys.exit(main())
