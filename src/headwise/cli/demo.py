"""`headwise demo`: guiding by marked words beside plain training and its control, without any download."""

from __future__ import annotations

import importlib.util
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

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
from headwise.experiments.comparison.comparison import compare
from headwise.experiments.comparison.gather import CompareOptions
from headwise.experiments.comparison.verdicts import Verdict
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import check_output, train
from headwise.experiments.token_scores import head_summary, view
from headwise.heads import HeadSummary
from headwise.reports import heatmap, projection
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs
from headwise.training import Listener, load_classifier_folder

ARMS = ("plain", "guided", "shuffled")
PAIR = ("plain", "guided")
"""The two models of the first seed that the pictures and the report show."""
# Examples for the statistics of heads: enough for two digits, a few seconds.
SAMPLE = 150
# Examples for the importance of heads, whose gradients cost more.
IMPORTANCE = 100
# Validation examples whose heads are recorded during training, and how often.
WATCHED, LOOKS = 32, 3
REPORT = "report.html"
PICTURES = ("heatmap", "heads")
# Rows of the table, which are means over the seeds, and the digits of their numbers.
MEASURES = {
    "accuracy on test": ("accuracy", 4),
    "  smallest and largest": ("range", 4),
    "attention received by the marked words": ("deciding_share", 3),
    "  that over an even share": ("deciding_lift", 2),
    "mean head similarity": ("head_similarity", 3),
    "seconds per step": ("seconds_per_step", 3),
}


@dataclass(frozen=True)
class _Run:
    """One arm with one seed."""

    arm: str
    seed: int
    folder: Path
    recipe: Any

    @property
    def trained(self) -> bool:
        return (self.folder / NAME).is_file()


def run_demo(output: Path, *, examples: int, epochs: int, seeds: int, as_json: bool) -> None:
    """Train every arm with every seed, compare and draw them, and print a command for data of the user."""
    if importlib.util.find_spec("matplotlib") is None:  # else it would turn out after minutes of training
        raise InputError("the demo draws with matplotlib: install it by pip install 'headwise[demo]'.")
    runs = [
        _Run(arm, seed, output / arm / f"seed{seed}", _recipe(arm, examples, epochs, seed))
        for seed in range(1, seeds + 1)
        for arm in ARMS
    ]
    for run in runs:
        check_output(run.recipe, RunPaths(run.folder), resume=run.trained)
    if output.is_dir() and not holds_nothing(output):
        pictures = (f"{name}.{ending}" for name in PICTURES for ending in ("png", "pdf", "svg"))
        own = {output / name for name in (*ARMS, "data", "own", REPORT, *pictures)}
        others = {each for folder in (output, *map(output.joinpath, ARMS)) for each in folder.glob("[!.]*")} - own
        others = {each for each in others if each.parent == output or not each.name.startswith("seed")}
        if others:
            other = min(others).relative_to(output)
            raise InputError(f"{output} holds other files ({other}): choose another folder with --output.")
    with folder_lock(output):
        _train_and_show(output, runs, as_json=as_json)


def _recipe(arm: str, examples: int, epochs: int, seed: int) -> Any:
    changes = [
        f"data.limit.train={examples}",
        f"training.num_train_epochs={epochs}",
        f"training.snapshots={WATCHED}",
        f"seed={seed}",
        f"name=demo-{arm}",
    ]
    guides = {"plain": ["guides={}"], "shuffled": ["guides.rationale.shuffle=true"]}
    recipe = read_recipe("demo", changes + guides.get(arm, []))
    every = max(1, round(examples * epochs / recipe.training.per_device_train_batch_size / LOOKS))
    training = recipe.training.model_copy(update={"eval_steps": every})
    return recipe.model_copy(update={"training": training})


def _train_and_show(output: Path, runs: list[_Run], *, as_json: bool) -> None:
    measured: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    views = {}
    task = build_task("course", runs[0].recipe.only.options)
    test = task.read("test", None)
    with keeping(lambda: kept_in(output)), progress() as shown:
        for run in runs:
            shown.log(f"{run.arm}, seed {run.seed}")
            result = train(
                run.recipe, RunPaths(run.folder), resume=run.trained, command=tuple(command_line()), progress=shown
            )
            if result.interrupted:
                typer.echo("headwise: stopped and saved; the same command resumes", err=True)
                raise typer.Exit(INTERRUPTED)
            model, tokenizer = load_classifier_folder(run.folder, run.recipe.head)
            longest = run.recipe.data.max_length
            sample = test.subset(range(min(SAMPLE, len(test))))
            measured[run.arm].append(
                _measures(result.record["results"], head_summary(model, tokenizer, sample, max_length=longest))
            )
            if run.seed == runs[0].seed and run.arm in PAIR:
                shown.log(f"{run.arm}: looking at the heads")
                views[run.arm] = view(model, tokenizer, test, _short_example(test), max_length=longest)
                _analyze_once(run.folder, shown)
        shown.log("comparing")
        (verdict,) = compare([run.folder for run in runs], CompareOptions(by=("guides",))).verdicts
    rows = {arm: _means(each) for arm, each in measured.items()}
    pictures = heatmap({arm: views[arm].mean_map for arm in PAIR}, views[PAIR[0]].tokens, output / PICTURES[0])
    pictures += projection(
        {arm: views[arm].points for arm in PAIR},
        views[PAIR[0]].layers,
        output / PICTURES[1],
        explained={arm: views[arm].explained for arm in PAIR},
    )
    report = output / REPORT  # the demo's own file, so a new demo in the same folder replaces it
    plain, guided = (next(run.folder for run in runs if run.arm == arm) for arm in PAIR)
    page = build_page(gather_runs(guided, plain), title="headwise demo: plain, and guided by marked words")
    save_content(report, page.html())
    _write_files(output / "data", task)
    words = [*program(), "train", "marked", "--data", str(output / "data"), "--output", str(output / "own")]
    line, files = shlex.join(words), [str(path) for path in pictures]
    # Measures in rows, arms in columns: that fits any terminal.
    cells = [[name, *(_cell(row[key], digits) for row in rows.values())] for name, (key, digits) in MEASURES.items()]
    examples = runs[0].recipe.data.limit["train"]
    sentence = _sentence(verdict, rows, seeds=len(measured[PAIR[0]]), examples=examples)
    show(
        as_json,
        {"rows": rows, "verdict": sentence, "pictures": files, "report": str(report), "next": line},
        text_table(("", *rows), cells),
        sentence,
        f"models in {output}, pictures: {', '.join(files)}",
        f"report of {guided} beside {plain}, head by head: open {report} in a browser",
        f"your own texts (a folder with train.marks.jsonl, validation.tsv, test.tsv; this one works as it is):\n{line}",
    )


def _analyze_once(folder: Path, shown: Listener) -> None:
    try:
        read_analysis(folder)
    except InputError:  # there is none yet
        settings = AnalysisSettings(limit=SAMPLE, importance=IMPORTANCE)
        with new_analysis(folder, None, overwrite=True):
            analyze_tasks(load_tasks(folder), settings, progress=shown)


def _measures(results: dict[str, Any], heads: HeadSummary) -> dict[str, float | None]:
    of_heads = heads.as_dict()
    return {
        "accuracy": results["metrics"]["test"]["accuracy"],
        "head_similarity": of_heads["similarity"],
        "deciding_share": of_heads["deciding_share"],
        "deciding_lift": of_heads["deciding_lift"],
        "seconds_per_step": results["seconds_per_step"],
    }


def _means(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and the smallest and the largest accuracy."""
    known = {name: [run[name] for run in runs if run[name] is not None] for name in runs[0]}
    accuracies = known["accuracy"]
    means = {name: fmean(values) if values else None for name, values in known.items()}
    return {**means, "range": [min(accuracies), max(accuracies)], "accuracies": accuracies}


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, list):
        return " to ".join(f"{each:.{digits}f}" for each in value)
    return "–" if value is None else f"{value:.{digits}f}"


def _sentence(verdict: Verdict, rows: dict[str, dict[str, Any]], *, seeds: int, examples: int) -> str:
    """What the demo shows: all scores, and the verdict of `headwise compare`."""
    plain, guided, shuffled = (f"{100 * rows[arm]['accuracy']:.1f} %" for arm in ARMS)
    return (
        f"With {examples} marked notes and {seeds} {'seed' if seeds == 1 else 'seeds'}, plain training reaches {plain} "
        f"of the test notes, guiding by the marked words {guided}, and its control with random words {shuffled}: "
        f"{verdict.sentence()} The notes are made up so that one sentence of several decides; real texts gain less."
    )


def _short_example(test: Split) -> int:
    """An example that fits the picture: the first one at the lower quartile of lengths."""
    lengths = [len(" ".join(texts).split()) for texts in test.texts]
    return lengths.index(sorted(lengths)[len(lengths) // 4])


def _write_files(folder: Path, task: Any) -> None:
    """The demo's data as files, so that the line at the end has something to run on."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in task.splits:
        data = task.read(split, None)
        rows = zip((text for (text,) in data.texts), (task.labels[label] for label in data.labels), strict=True)
        if split == "train":  # as `headwise mark` writes them
            marks = ([[start, end] for _, start, end in spans] for spans in data.spans)
            lines = [
                json.dumps({"sentence": text, "label": label, "marks": each})
                for (text, label), each in zip(rows, marks, strict=True)
            ]
            save_content(folder / "train.marks.jsonl", "\n".join(lines) + "\n")
        else:
            lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)]
            save_content(folder / f"{split}.tsv", "\n".join(lines) + "\n")
