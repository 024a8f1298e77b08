"""`headwise demo`: plain and guided training side by side, on data and an encoder that need no download."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import Any

import numpy
import typer

from headwise.cli.console import show, text_table
from headwise.cli.progress_bar import INTERRUPTED, keeping, kept_in, progress
from headwise.cli.train_commands import command_line, program
from headwise.data import Split, build_task
from headwise.disk import folder_lock, holds_nothing, save_content
from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks, new_analysis
from headwise.experiments.apply import load_tasks
from headwise.experiments.outputs import read_outputs
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import check_output, train
from headwise.experiments.token_scores import head_summary, view
from headwise.metrics.resampling import bootstrap_scores
from headwise.reports import heatmap, projection
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs
from headwise.training import load_classifier_folder

VARIANTS = ("plain", "guided")
# Examples for the statistics of heads: enough for two digits, a few seconds.
SAMPLE = 300
# Examples for the importance of heads, whose gradients cost more.
IMPORTANCE = 100
# Validation examples whose heads are recorded during training, and how often.
WATCHED, LOOKS = 32, 6
REPORT = "report.html"
PICTURES = ("heatmap", "heads")
# Rows of the table, and the digits of their numbers.
MEASURES = {
    "accuracy": ("accuracy", 4),
    "macro F1": ("macro_f1", 4),
    "mean head similarity": ("head_similarity", 3),
    "attention received by the deciding tokens": ("deciding_share", 3),
    "  that over an even share": ("deciding_lift", 2),
    "seconds per step": ("seconds_per_step", 3),
}


def run_demo(output: Path, *, examples: int, epochs: int, seed: int, as_json: bool) -> None:
    """Train both models, compare and draw them, and print a command for data of the user."""
    if importlib.util.find_spec("matplotlib") is None:  # else it would turn out after minutes of training
        raise InputError("the demo draws with matplotlib: install it by pip install 'headwise[demo]'.")
    recipes = {variant: _recipe(variant, examples, epochs, seed) for variant in VARIANTS}
    resumed = {variant: (output / variant / NAME).is_file() for variant in VARIANTS}
    for variant, recipe in recipes.items():
        check_output(recipe, RunPaths(output / variant), resume=resumed[variant])
    if output.is_dir() and not holds_nothing(output):
        pictures = (f"{name}.{ending}" for name in PICTURES for ending in ("png", "pdf", "svg"))
        own = {*VARIANTS, "data", "own", REPORT, *pictures}
        others = sorted(
            each.name for each in output.iterdir() if each.name not in own and not each.name.startswith(".")
        )
        if others:
            raise InputError(f"{output} holds other files ({others[0]}): choose another folder with --output.")
    with folder_lock(output):
        _train_and_show(output, recipes, resumed, as_json=as_json)


def _recipe(variant: str, examples: int, epochs: int, seed: int) -> Any:
    changes = [
        f"task.sizes.train={examples}",
        f"task.seed={seed}",
        f"training.num_train_epochs={epochs}",
        f"training.snapshots={WATCHED}",
        f"seed={seed}",
        f"name=demo-{variant}",
    ]
    recipe = read_recipe("demo", changes + (["guides={}"] if variant == "plain" else []))
    every = max(1, round(examples * epochs / recipe.training.per_device_train_batch_size / LOOKS))
    training = recipe.training.model_copy(update={"eval_steps": every})
    return recipe.model_copy(update={"training": training})


def _train_and_show(output: Path, recipes: dict[str, Any], resumed: dict[str, bool], *, as_json: bool) -> None:
    rows: dict[str, dict[str, Any]] = {}
    views = {}
    with keeping(lambda: kept_in(output)), progress() as shown:
        for variant, recipe in recipes.items():
            folder = output / variant
            result = train(
                recipe, RunPaths(folder), resume=resumed[variant], command=tuple(command_line()), progress=shown
            )
            if result.interrupted:
                typer.echo("headwise: stopped and saved; the same command resumes", err=True)
                raise typer.Exit(INTERRUPTED)
            model, tokenizer = load_classifier_folder(folder, recipe.head)
            test = build_task("clinic", recipe.only.options).read("test", None)
            shown.log(f"{variant}: looking at the heads")
            sample, longest = test.subset(range(min(SAMPLE, len(test)))), recipe.data.max_length
            heads = head_summary(model, tokenizer, sample, max_length=longest).as_dict()
            views[variant] = view(model, tokenizer, test, _short_example(test), max_length=longest)
            try:
                read_analysis(folder)
            except InputError:  # there is none yet
                settings = AnalysisSettings(limit=SAMPLE, importance=IMPORTANCE)
                with new_analysis(folder, None, overwrite=True):
                    analyze_tasks(load_tasks(folder), settings, progress=shown)
            results = result.record["results"]
            rows[variant] = {
                "accuracy": results["metrics"]["test"]["accuracy"],
                "macro_f1": results["metrics"]["test"]["macro_f1"],
                "head_similarity": heads["similarity"],
                "deciding_share": heads["deciding_share"],
                "deciding_lift": heads["deciding_lift"],
                "seconds_per_step": results["seconds_per_step"],
                "gradient_share": {name: guide["share"] for name, guide in results["guides"].items()},
            }
    first = views[VARIANTS[0]]
    pictures = heatmap({name: each.mean_map for name, each in views.items()}, first.tokens, output / PICTURES[0])
    pictures += projection(
        {name: each.points for name, each in views.items()},
        first.layers,
        output / PICTURES[1],
        explained={name: each.explained for name, each in views.items()},
    )
    report = output / REPORT  # the demo's own file, so a new demo in the same folder replaces it
    page = build_page(gather_runs(output / "guided", output / "plain"), title="headwise demo: plain and guided")
    save_content(report, page.html())
    _write_files(output / "data", recipes["plain"].only.options)
    words = [*program(), "train", "pairs", "--data", str(output / "data"), "--output", str(output / "own")]
    line, files = shlex.join(words), [str(path) for path in pictures]
    cells = []  # measures in rows, models in columns: that fits any terminal
    for name, (key, digits) in MEASURES.items():
        values = (row[key] for row in rows.values())
        cells.append([name, *("–" if value is None else f"{value:.{digits}f}" for value in values)])
    for guide in dict.fromkeys(name for row in rows.values() for name in row["gradient_share"]):
        shares = (row["gradient_share"].get(guide) for row in rows.values())
        cells.append([f"gradient share of {guide}", *("–" if share is None else f"{share:.3f}" for share in shares)])
    verdict = _verdict(output)
    show(
        as_json,
        {"rows": rows, "verdict": verdict, "pictures": files, "report": str(report), "next": line},
        text_table(("", *rows), cells),
        verdict,
        f"models in {output / 'plain'} and {output / 'guided'}, pictures: {', '.join(files)}",
        f"report of both, head by head: open {report} in a browser",
        f"your own pairs (a folder with train.tsv, validation.tsv, test.tsv; this one works as it is):\n{line}",
    )


def _verdict(output: Path) -> str:
    """What the demo shows, in one sentence: the difference on the same test pairs with its interval."""
    plain, guided = (read_outputs(output / variant)["test"] for variant in VARIANTS)
    answers, labels = numpy.array([plain["predictions"], guided["predictions"]]), numpy.array(plain["gold"])
    scores = 100 * (answers == labels).mean(1)
    draws = 100 * bootstrap_scores("accuracy", answers, labels)
    low, high = numpy.quantile(draws[:, 1] - draws[:, 0], [0.025, 0.975])
    change = scores[1] - scores[0]
    shown = "shows no difference" if low <= 0 <= high else "shows a difference on these pairs"
    return (
        f"Guided {scores[1]:.1f} %, plain {scores[0]:.1f} % of {len(labels)} test pairs: {change:+.1f} points (95 % "
        f"interval {low:+.1f} to {high:+.1f}), which {shown}; both runs have the same data, order and dropout, and one "
        "seed."
    )


def _short_example(test: Split) -> int:
    """An example that fits the picture: the first one at the lower quartile of lengths."""
    lengths = [len(" ".join(texts).split()) for texts in test.texts]
    return lengths.index(sorted(lengths)[len(lengths) // 4])


def _write_files(folder: Path, options: dict[str, Any]) -> None:
    """The demo's data as files, so that the line at the end has something to run on."""
    folder.mkdir(parents=True, exist_ok=True)
    clinic = build_task("clinic", options)
    for split in clinic.splits:
        data = clinic.read(split, None)
        lines = ["sentence1\tsentence2\tlabel"]
        for texts, label in zip(data.texts, data.labels, strict=True):
            lines.append("\t".join([*texts, clinic.labels[int(label or 0)]]))
        save_content(folder / f"{split}.tsv", "\n".join(lines) + "\n")
