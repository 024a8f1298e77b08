"""`headwise explore`: the page of `headwise report` with a box for one's own sentences, answered by the models."""

from __future__ import annotations

import json
import webbrowser

import typer

from headwise.cli.explore_server import LONGEST, Explorer, serve
from headwise.cli.progress import progress
from headwise.cli.report import Sources, gathered
from headwise.cli.stopping import sentence
from headwise.experiments.analysis.wanted import pattern_of_analysis
from headwise.experiments.apply import load_run
from headwise.reports.explorer.report import build_page
from headwise.training.quiet import quiet_libraries


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
