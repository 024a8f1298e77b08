"""`headwise demo`: plain and guided training side by side, on data and an encoder that need no download."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress_bar import INTERRUPTED, keeping, kept_in, progress
from headwise.cli.train_commands import command, program
from headwise.data import Split, build_task
from headwise.disk import folder_lock, holds_nothing, save_content
from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks, new_analysis
from headwise.experiments.apply import load_tasks
from headwise.experiments.prepare import Place
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import check_output, train
from headwise.experiments.token_scores import View, head_summary, view
from headwise.reports import heatmap, projection
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs
from headwise.training import Listener, load_classifier_folder
from headwise.training.encoders import quiet_libraries

VARIANTS = ("plain", "guided")
# Examples for the statistics of heads: enough for two digits, a few seconds.
SAMPLE = 300
# Examples for the importance of heads, whose gradients cost more.
IMPORTANCE = 100
# Validation examples on which the heads are looked at while training goes on, and how often that is.
WATCHED, LOOKS = 32, 6
REPORT = "report.html"
PICTURES = ("heatmap", "heads")


def run_demo(output: Path, *, examples: int, epochs: int, seed: int, as_json: bool) -> None:
    """Train both, compare, draw, and say how to go on."""
    quiet_libraries()
    if importlib.util.find_spec("matplotlib") is None:  # else it would turn out after minutes of training
        raise InputError("the demo draws with matplotlib: install it by pip install 'headwise[demo]'.")
    recipes = {variant: _recipe(variant, examples, epochs, seed) for variant in VARIANTS}
    going_on = {variant: (output / variant / NAME).is_file() for variant in VARIANTS}
    for variant, recipe in recipes.items():
        check_output(recipe, Place(output / variant), resume=going_on[variant])
    _check_folder(output)
    with folder_lock(output):
        _train_and_show(output, recipes, going_on, as_json=as_json)


def _check_folder(output: Path) -> None:
    """Refuse a folder with files of somebody else, before minutes of training."""
    if not output.is_dir() or holds_nothing(output):
        return
    pictures = (f"{name}.{ending}" for name in PICTURES for ending in ("png", "pdf", "svg"))
    own = {*VARIANTS, "data", "own", REPORT, *pictures}
    others = sorted(path.name for path in output.iterdir() if path.name not in own and not path.name.startswith("."))
    if others:
        raise InputError(f"{output} holds other files ({others[0]}): choose another folder with --output.")


def _train_and_show(output: Path, recipes: dict[str, Any], going_on: dict[str, bool], *, as_json: bool) -> None:
    records, heads, views = {}, {}, {}
    with keeping(lambda: kept_in(output)), progress() as shown:
        for variant, recipe in recipes.items():
            folder = output / variant
            result = train(recipe, Place(folder), resume=going_on[variant], command=tuple(command()), listener=shown)
            if result.interrupted:
                typer.echo("headwise: stopped and saved; the same command resumes", err=True)
                raise typer.Exit(INTERRUPTED)
            records[variant] = result.record
            model, tokenizer = load_classifier_folder(folder, recipe.head)
            test = build_task("clinic", recipe.only.options).read("test", None)
            shown.log(f"{variant}: looking at the heads")
            sample = test.subset(range(min(SAMPLE, len(test))))
            longest = recipe.data.max_length
            heads[variant] = head_summary(model, tokenizer, sample, max_length=longest)
            views[variant] = view(model, tokenizer, test, _short_example(test), max_length=longest)
            _analyse(folder, shown)
    rows = {variant: _row(records[variant], heads[variant].as_dict()) for variant in VARIANTS}
    pictures = _draw(views, output)
    report = _write_report(output)
    folder = _write_files(output / "data", records["plain"]["recipe"]["task"])
    line = shlex.join([*program(), "train", "pairs", "--data", str(folder), "--output", str(output / "own")])
    if as_json:
        typer.echo(json.dumps(_answer(rows, pictures, report, line), indent=2))
        return
    Console().print(_table(rows))
    typer.echo(
        f"models in {output / 'plain'} and {output / 'guided'}, pictures: {', '.join(str(path) for path in pictures)}"
    )
    typer.echo(f"report of both, head by head: open {report} in a browser")
    typer.echo("one run each with one seed: a difference of a point or two is noise")
    typer.echo(f"your own pairs (a folder with train.tsv, validation.tsv, test.tsv; this one works as it is):\n{line}")


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


def _analyse(folder: Path, listener: Listener) -> None:
    """Unless that was done before."""
    try:
        read_analysis(folder)
    except InputError:
        with new_analysis(folder, None, overwrite=True):
            analyze_tasks(load_tasks(folder), AnalysisSettings(limit=SAMPLE, importance=IMPORTANCE), listener=listener)


def _write_report(output: Path) -> Path:
    """The page of both models; it is the demo's own file, so a new demo in the same folder replaces it."""
    path = output / REPORT
    page = build_page(gather_runs(output / "guided", output / "plain"), title="headwise demo: plain and guided")
    save_content(path, page.html())
    return path


def _answer(rows: dict[str, Any], pictures: list[Path], report: Path, line: str) -> dict[str, Any]:
    return {"rows": rows, "pictures": [str(path) for path in pictures], "report": str(report), "next": line}


def _row(record: dict[str, Any], heads: dict[str, Any]) -> dict[str, Any]:
    happened = record["results"]
    return {
        "accuracy": happened["metrics"]["test"]["accuracy"],
        "macro_f1": happened["metrics"]["test"]["macro_f1"],
        "head_similarity": heads["similarity"],
        "deciding_share": heads["deciding_share"],
        "deciding_lift": heads["deciding_lift"],
        "seconds_per_step": happened["seconds_per_step"],
        "gradient_share": {name: guide["share"] for name, guide in happened["guides"].items()},
    }


def _table(rows: dict[str, dict[str, Any]]) -> Table:
    """Measures in rows, models in columns: that fits any terminal."""
    table = Table("", *rows, box=None)
    found = rows.values()
    table.add_row("accuracy", *(f"{row['accuracy']:.4f}" for row in found))
    table.add_row("macro F1", *(f"{row['macro_f1']:.4f}" for row in found))
    table.add_row("mean head similarity", *(f"{row['head_similarity']:.3f}" for row in found))
    table.add_row("attention received by the deciding tokens", *(f"{row['deciding_share']:.3f}" for row in found))
    table.add_row("  that over an even share", *(f"{row['deciding_lift']:.2f}" for row in found))
    table.add_row("seconds per step", *(_seconds(row["seconds_per_step"]) for row in found))
    for guide in dict.fromkeys(name for row in found for name in row["gradient_share"]):
        shares = (row["gradient_share"].get(guide) for row in found)
        table.add_row(f"gradient share of {guide}", *("–" if share is None else f"{share:.3f}" for share in shares))
    return table


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _draw(views: dict[str, View], output: Path) -> list[Path]:
    first = views[VARIANTS[0]]
    pictures = heatmap({name: each.mean_map for name, each in views.items()}, first.tokens, output / "heatmap")
    return pictures + projection(
        {name: each.points for name, each in views.items()},
        first.layers,
        output / "heads",
        explained={name: each.explained for name, each in views.items()},
    )


def _short_example(test: Split) -> int:
    """An example that fits the picture: the first one at the lower quartile of lengths."""
    lengths = sorted(len(" ".join(texts).split()) for texts in test.texts)
    wanted = lengths[len(lengths) // 4]
    return next(index for index, texts in enumerate(test.texts) if len(" ".join(texts).split()) == wanted)


def _write_files(folder: Path, task: dict[str, Any]) -> Path:
    """The demo's data as files, so that the line at the end has something to run on."""
    folder.mkdir(parents=True, exist_ok=True)
    clinic = build_task("clinic", {key: value for key, value in task.items() if key != "name"})
    for split in clinic.splits:
        data = clinic.read(split, None)
        lines = ["sentence1\tsentence2\tlabel"]
        for texts, label in zip(data.texts, data.labels, strict=True):
            lines.append("\t".join([*texts, clinic.labels[int(label or 0)]]))
        save_content(folder / f"{split}.tsv", "\n".join(lines) + "\n")
    return folder
