"""`headwise analyze`: what the heads of a run do, as arrays that pages and figures are drawn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress import progress
from headwise.experiments.analysis import AnalysisSettings, analyze
from headwise.experiments.analysis.analyze import Written
from headwise.experiments.analysis.store import mean_over_heads, new_analysis
from headwise.experiments.apply import Source
from headwise.experiments.run_tasks import load_tasks
from headwise.training.quiet import quiet_libraries


def run_analyze(
    folder: Path, settings: AnalysisSettings, source: Source, *, task: str | None, overwrite: bool, as_json: bool
) -> None:
    """Look at the heads, write what was found, and print the means over all heads."""
    with new_analysis(folder, task, overwrite=overwrite, by="--overwrite"):
        quiet_libraries()
        tasks = load_tasks(folder, [] if task is None else [task])
        with progress() as shown:
            found = analyze(tasks, settings, source, shown)
    if as_json:
        answer = {name: _summary(each) for name, each in found.items()}
        typer.echo(json.dumps({"run": str(folder), "tasks": answer}, indent=2))
        return
    for name, each in found.items():
        Console().print(_table(name, each.content))
    typer.echo(f"saved in {', '.join(str(each.paths[-1]) for each in found.values())}")
    for name in found:
        chosen = f" --task {name}" if tasks.joint else ""
        typer.echo(f"open it: headwise report {folder}{chosen} -o report.html")


def _summary(found: Written) -> dict[str, Any]:
    content = found.content
    return {
        "split": content["split"],
        "examples": content["examples"],
        "means": {name: mean_over_heads(grid) for name, grid in content["statistics"].items()},
        "files": [str(path) for path in found.paths],
    }


def _table(name: str, content: dict[str, Any]) -> Table:
    title = (
        f"{name}: {content['examples']} examples of {content['split']}, {content['layers']} x {content['heads']} heads"
    )
    table = Table("statistic", "mean", "lowest head", "highest head", box=None, title=title, title_justify="left")
    for statistic, grid in content["statistics"].items():
        values = {(layer, head): value for layer, row in enumerate(grid["mean"]) for head, value in enumerate(row)}
        ends = (
            _head(min(values, key=lambda key: values[key]), values),
            _head(max(values, key=lambda key: values[key]), values),
        )
        table.add_row(statistic, f"{mean_over_heads(grid):.4g}", *ends)
    return table


def _head(place: tuple[int, int], values: dict[tuple[int, int], float]) -> str:
    return f"{values[place]:.4g} (layer {place[0]} head {place[1]})"
