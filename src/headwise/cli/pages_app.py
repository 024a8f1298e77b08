"""The commands that make and show pages: analyze, report, explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.allow_code import AllowCode

Run = Annotated[Path, typer.Argument(help="Folder that `headwise train` made.", show_default=False)]
OneTask = Annotated[
    str | None, typer.Option("--task", help="Of a run on several tasks, which one.", show_default=False)
]
Baseline = Annotated[
    Path | None, typer.Option(help="The run to compare with, such as the same one without guides.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
ExampleFile = Annotated[
    Path | None,
    typer.Option("--examples", help="File with the task's text columns, whose rows are shown.", show_default=False),
]
Also = Annotated[
    list[Path] | None,
    typer.Option(help="One more run beside them, such as one with MDG alone; may be repeated.", show_default=False),
]
Results = Annotated[
    Path | None,
    typer.Option(help="Folder of `headwise sweep`: its plots and tests over seeds join the page.", show_default=False),
]


def add_pages(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(analyze)
    app.command()(report)
    app.command()(explore)


def analyze(
    run: Run,
    split: Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")] = "test",
    task: OneTask = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many examples.", show_default=False)] = None,
    keep: Annotated[int, typer.Option(min=1, max=200, help="Examples to keep with all their maps.")] = 20,
    pick: Annotated[
        list[int] | None, typer.Option(help="Keep this example too, by its place from 0.", show_default=False)
    ] = None,
    examples: ExampleFile = None,
    importance: Annotated[
        int, typer.Option(min=0, help="Also the importance of heads, over so many labelled examples.")
    ] = 0,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Hold heads against this pattern, such as next or '{name: pmi, window: 5}'; by default the one that "
            "the run was guided to, if any.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the task's files.", show_default=False)] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Examples at a time.", show_default=False)] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Allow the network for models and data that are not here.")
    ] = False,
    allow_code: AllowCode = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the analysis that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at what every head of RUN does on a split, and save it for report, explore and figure."""
    from headwise.cli.pages_output import run_analyze
    from headwise.experiments.analysis.analyze import AnalysisSettings, read_pattern
    from headwise.experiments.apply import Source

    settings = AnalysisSettings(
        split, limit, keep, tuple(pick or ()), examples, importance, batch, read_pattern("--pattern", pattern)
    )
    run_analyze(run, settings, Source(data, download), task=task, overwrite=overwrite, as_json=as_json)


def report(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    baseline: Baseline = None,
    also: Also = None,
    results: Results = None,
    examples: ExampleFile = None,
    task: OneTask = None,
    exact: Annotated[
        list[int] | None,
        typer.Option(help="Show this example with whole maps, by its place in the split; may be repeated."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a page that is there.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that shows what the heads of RUN do; run `headwise analyze` on each run before."""
    from headwise.cli.pages_output import Sources, run_report

    sources = Sources(run, baseline, tuple(also or ()), results, examples, task, tuple(exact or ()))
    run_report(sources, output, title=title, force=force, as_json=as_json)


def explore(
    run: Run,
    baseline: Baseline = None,
    also: Also = None,
    results: Results = None,
    examples: ExampleFile = None,
    task: OneTask = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Serve the page of `headwise report` on this machine, with a box for sentences of your own."""
    from headwise.cli.pages_output import Sources, run_explore

    sources = Sources(run, baseline, tuple(also or ()), results, examples, task)
    run_explore(sources, port=port, browser=browser, as_json=as_json)
