"""`headwise report`: one HTML file that shows what the heads of one run do, or of two side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import typer

from headwise.cli.progress import progress
from headwise.disk import new_file, save_content
from headwise.errors import InputError
from headwise.experiments.analysis import view_examples
from headwise.experiments.analysis.analyze import read_examples
from headwise.experiments.analysis.wanted import pattern_of_analysis
from headwise.experiments.apply import load_run
from headwise.reports.explorer.report import build_page
from headwise.reports.explorer.runs import ReportRun, gather_runs, with_examples
from headwise.training.quiet import quiet_libraries

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
            found.append(view_examples(loaded, split, titles, [None] * len(split), wanted=wanted))
    return with_examples(runs, found)
