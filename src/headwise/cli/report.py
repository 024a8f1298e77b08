"""The commands that show what heads do: analyze, report, explore."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table
from headwise.cli.progress_bar import progress, sentence
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.reports.report_runs import ReportRun


@opt.grouped
def analyze(
    run: opt.Run,
    source: opt.DataOptions,
    split: opt.Split = "test",
    task: opt.OneTask = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first N examples; default all.")] = None,
    keep: Annotated[int, typer.Option(min=1, max=200, help="Examples to keep with all their maps.")] = 20,
    pick: Annotated[
        list[int] | None, typer.Option(help="Keep this example too, by its position from 0; may be repeated.")
    ] = None,
    examples: opt.ExampleFile = None,
    importance: Annotated[
        int, typer.Option(min=0, help="Labelled examples for the importance of heads; 0 for no importance.")
    ] = 0,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Compare heads with this pattern, such as next or '{name: pmi, window: 5}'; default the one that the "
            "run was guided to, if any."
        ),
    ] = None,
    batch: opt.Batch = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.AsJson = False,
) -> None:
    """Measure what every head of RUN does on a split, and save it for report, explore and figure."""
    from headwise.experiments.analysis.analysis_files import mean_over_heads
    from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks, new_analysis, read_pattern
    from headwise.experiments.apply import load_tasks

    settings = AnalysisSettings(
        split, limit, keep, tuple(pick or ()), examples, importance, batch, read_pattern("--pattern", pattern)
    )
    with new_analysis(run, task, overwrite=overwrite):
        tasks = load_tasks(run, [] if task is None else [task])
        with progress() as shown:
            analyses = analyze_tasks(tasks, settings, source.source, shown)
    summary, tables = {}, []
    for name, each in analyses.items():
        about, rows = each.content, []
        means = {statistic: mean_over_heads(grid) for statistic, grid in about["statistics"].items()}
        files = [str(path) for path in each.paths]
        summary[name] = {"split": about["split"], "examples": about["examples"], "means": means, "files": files}
        for statistic, grid in about["statistics"].items():
            heads = [(value, layer, head) for layer, row in enumerate(grid["mean"]) for head, value in enumerate(row)]
            ends = (min(heads, key=lambda head: head[0]), max(heads, key=lambda head: head[0]))
            cells = (f"{value:.4g} (layer {layer} head {head})" for value, layer, head in ends)
            rows.append([statistic, f"{means[statistic]:.4g}", *cells])
        title = f"{name}: {about['examples']} examples of {about['split']}, {about['layers']} x {about['heads']} heads"
        tables.append(text_table(("statistic", "mean", "lowest head", "highest head"), rows, title=title))
    lines = [f"saved in {', '.join(str(each.paths[-1]) for each in analyses.values())}"]
    for name in analyses:
        option = f" --task {name}" if tasks.joint else ""
        lines.append(f"open it: headwise report {run}{option} -o report.html")
    show(as_json, {"run": str(run), "tasks": summary}, *tables, *lines)


@dataclass(frozen=True)
class PageOptions:
    """The runs of a page."""

    run: opt.Run
    baseline: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run to compare with, such as the same one without guides.")
    ] = None
    also: Annotated[
        list[Path] | None, typer.Option(help="Another run to show, such as one with MDG alone; may be repeated.")
    ] = None
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of `headwise sweep`, whose plots and tests over seeds are added to the page."),
    ] = None
    examples: opt.ExampleFile = None
    task: opt.OneTask = None
    allow_code: opt.AllowCode = False

    def gather(self) -> list[ReportRun]:
        """The runs; with a file of examples, the models look at these first."""
        from headwise.reports.report_runs import gather_runs, with_examples

        runs = gather_runs(self.run, self.baseline, self.also or (), self.task)
        if self.examples is None:
            return runs
        from headwise.experiments.analysis.analyze import read_examples
        from headwise.experiments.analysis.example_views import pattern_of_analysis, view_examples
        from headwise.experiments.apply import load_run

        views = []
        with progress() as shown:
            for each in runs:
                loaded = load_run(each.folder, self.task)
                split = read_examples(loaded, self.examples)
                shown.log(f"{each.name}: looking at {len(split)} examples of {self.examples}")
                titles = [f"{self.examples.name} {number}" for number in range(1, len(split) + 1)]
                pattern = pattern_of_analysis(loaded, each.analysis.content, shown)
                views.append(view_examples(loaded, split, titles, [None] * len(split), expected=pattern))
        return with_examples(runs, views)


@opt.grouped
def report(
    options: PageOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML page to write.")] = Path("report.html"),
    exact: Annotated[
        list[int] | None,
        typer.Option(help="Show this example with whole maps, by its position in the split; may be repeated."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page; default the names of the runs.")] = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write one HTML file that shows what the heads of RUN do; run `headwise analyze` on each run first."""
    from headwise.disk import new_file, save_content
    from headwise.reports.report_page import build_page

    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--output {output}: expected a name that ends in .html.")
    with new_file(output, "--output", replace=force, by="--force"):
        page = build_page(options.gather(), results=options.results, title=title, exact=exact or ())
        save_content(output, page.html())
    size = output.stat().st_size
    content = {"report": str(output), "bytes": size, "views": page.views}
    views = f"{len(page.views)} views; open it in a browser, it needs no network"
    show(as_json, content, f"{output}: {size / 1e6:.1f} MB, {views}")


@opt.grouped
def explore(
    options: PageOptions,
    port: opt.Port = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Serve the page of `headwise report` on this machine, with a box for your own sentences."""
    import json
    import webbrowser

    from headwise.cli.explore_server import LONGEST, Explorer
    from headwise.cli.loopback_server import run_until_interrupt, serve
    from headwise.experiments.analysis.example_views import pattern_of_analysis
    from headwise.experiments.apply import load_run
    from headwise.reports.report_page import build_page

    runs = options.gather()
    page = build_page(runs, results=options.results)
    models = {each.id: load_run(each.folder, options.task) for each in runs}
    with progress() as shown:
        patterns = {each.id: pattern_of_analysis(models[each.id], each.analysis.content, shown) for each in runs}
    explorer = Explorer(page, models, patterns)
    with serve(explorer, port) as address:
        if as_json:
            typer.echo(json.dumps({"url": address, "longest": LONGEST}))  # on one line, for whoever waits for it
        else:
            typer.echo(f"open {address} in a browser on this machine; Ctrl-C ends it")
        if browser:
            webbrowser.open(address)
        run_until_interrupt()
        typer.echo(sentence(), err=True)
