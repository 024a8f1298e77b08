"""`headwise report`: one HTML file that shows what the heads of one run do, or of two side by side."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.explore_server import LONGEST, Explorer, serve
from headwise.cli.progress_bar import progress, sentence
from headwise.disk import new_file, save_content
from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import mean_over_heads
from headwise.experiments.analysis.analyze import (
    AnalysisSettings,
    Written,
    analyze_tasks,
    new_analysis,
    read_examples,
)
from headwise.experiments.analysis.example_views import pattern_of_analysis, view_examples
from headwise.experiments.apply import Source, load_run, load_tasks
from headwise.reports.explorer.report_page import build_page
from headwise.reports.explorer.report_runs import ReportRun, gather_runs, with_examples
from headwise.training.encoders import quiet_libraries

ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class Sources:
    """What a page is made of."""

    run: Path
    baseline: Path | None = None
    also: Sequence[Path] = ()
    results: Path | None = None
    examples: Path | None = None
    task: str | None = None
    exact: Sequence[int] = ()


def new_page(path: Path, *, force: bool) -> AbstractContextManager[None]:
    """Lock the page for the block that writes it; one that cannot be written is refused before any work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"--output {path}: expected a name that ends in .html.")
    return new_file(path, "--output", replace=force, by="--force")


def run_report(sources: Sources, output: Path, *, title: str | None, force: bool, as_json: bool) -> None:
    """Write the page and name it."""
    with new_page(output, force=force):
        page = build_page(gathered(sources), results=sources.results, title=title, exact=sources.exact)
        save_content(output, page.html())
    size = output.stat().st_size
    if as_json:
        typer.echo(json.dumps({"report": str(output), "bytes": size, "views": page.views}, indent=2))
        return
    typer.echo(f"{output}: {size / 1e6:.1f} MB, {len(page.views)} views; open it in a browser, it needs no network")


def gathered(sources: Sources) -> list[ReportRun]:
    """The runs of a page; with a file of examples, the models look at these first."""
    runs = gather_runs(sources.run, sources.baseline, sources.also, sources.task)
    if sources.examples is None:
        return runs
    quiet_libraries()
    found = []
    with progress() as shown:
        for run in runs:
            loaded = load_run(run.folder, sources.task)
            split = read_examples(loaded, sources.examples)
            shown.tell(f"{run.name}: looking at {len(split)} examples of {sources.examples}")
            titles = [f"{sources.examples.name} {number}" for number in range(1, len(split) + 1)]
            wanted = pattern_of_analysis(loaded, run.analysis.content, shown)
            found.append(view_examples(loaded, split, titles, [None] * len(split), expected=wanted))
    return with_examples(runs, found)


# `headwise analyze`: what the heads of a run do, as arrays that pages and figures are drawn from.


def run_analyze(
    folder: Path, settings: AnalysisSettings, source: Source, *, task: str | None, overwrite: bool, as_json: bool
) -> None:
    """Look at the heads, write what was found, and print the means over all heads."""
    with new_analysis(folder, task, overwrite=overwrite):
        quiet_libraries()
        tasks = load_tasks(folder, [] if task is None else [task])
        with progress() as shown:
            found = analyze_tasks(tasks, settings, source, shown)
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


# `headwise explore`: the page of `headwise report` with a box for one's own sentences, answered by the models.


def run_explore(sources: Sources, *, port: int, browser: bool, as_json: bool) -> None:
    """Serve until Ctrl-C."""
    runs = gathered(sources)
    page = build_page(runs, results=sources.results)
    quiet_libraries()
    models = {run.id: load_run(run.folder, sources.task) for run in runs}
    with progress() as shown:
        wanted = {run.id: pattern_of_analysis(models[run.id], run.analysis.content, shown) for run in runs}
    explorer = Explorer(page, models, wanted)
    with serve(explorer, port) as address:
        if as_json:
            typer.echo(json.dumps({"url": address, "longest": LONGEST}))
        else:
            typer.echo(f"open {address} in a browser on this machine; Ctrl-C ends it")
        if browser:
            webbrowser.open(address)
        try:
            explorer.wait()
        except KeyboardInterrupt:
            typer.echo(sentence(), err=True)  # as it is meant to end
