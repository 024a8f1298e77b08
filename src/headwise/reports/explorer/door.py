"""`hw.report`: the page of one run, or of several side by side, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwise.reports.explorer.report import Page, build_page
from headwise.reports.explorer.runs import gather_runs


def report(
    run: Path | str,
    baseline: Path | str | None = None,
    *,
    also: Sequence[Path | str] = (),
    results: Path | str | None = None,
    task: str | None = None,
    title: str | None = None,
) -> Page:
    """Put what `hw.analyze` or `headwise analyze` found on a page; show it in a notebook, or `.save("report.html")`.

    Args:
        run: a folder of `headwise train`.
        baseline: the run to compare with, such as the same one without guides.
        also: more runs beside them.
        results: a folder of `headwise sweep`, for plots and tests over seeds.
        task: of runs on several tasks, which one.
        title: of the page.
    """
    runs = gather_runs(Path(run), None if baseline is None else Path(baseline), [Path(each) for each in also], task)
    return build_page(runs, results=None if results is None else Path(results), title=title)
