"""The command `headwise compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Names = list[str] | None


def add_compare(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(compare)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="A folder of `headwise sweep`; or files of runs, or folders of `headwise train`."),
    ],
    by: Annotated[
        Names,
        typer.Option(help="Axis or recipe key that tells the systems apart; default what the sweep says, or differs."),
    ] = None,
    within: Annotated[Names, typer.Option(help="Axis or recipe key whose values are compared by themselves.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The system that the others are compared with.", show_default=False)
    ] = None,
    only: Annotated[
        Names, typer.Option(metavar="AXIS=LABEL", help="Look at these labels only; several with commas.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Which sweep, if the folder holds several.", show_default=False)
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric; default the main one; TASK/METRIC for several tasks.", show_default=False),
    ] = None,
    all_metrics: Annotated[bool, typer.Option("--all-metrics", help="All metrics, with tests for each.")] = False,
    split: Annotated[
        str | None, typer.Option(help="test or validation; default test if all runs have it.", show_default=False)
    ] = None,
    ignore: Annotated[
        Names, typer.Option(metavar="KEY", help="Let runs differ in this: a recipe key, torch, threads, ...")
    ] = None,
    common_seeds: Annotated[
        bool, typer.Option("--common-seeds", help="Leave out seeds that not all systems have.")
    ] = False,
    stars: Annotated[str, typer.Option(help="Stars by p-values corrected by holm, or raw.")] = "holm",
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap.")] = 9999,
    times: Annotated[bool, typer.Option("--times", help="Show the seconds of an epoch.")] = False,
    percent: Annotated[bool, typer.Option("--percent/--no-percent", help="Show scores times 100.")] = True,
    form: Annotated[
        str | None,
        typer.Option("--format", help="table, markdown, csv, latex or json; default table.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write; its ending (.md .csv .tex .json .txt) says the format.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Compare systems over seeds: means, intervals, paired tests by seed and by example, corrected by Holm."""
    from headwise.cli.compare import Output, run_compare
    from headwise.experiments.comparison import Asked
    from headwise.reports.comparison import Style

    asked = Asked(
        by=_names(by),
        within=_names(within),
        baseline=baseline,
        sweep=sweep,
        only=_labels(only),
        metric=metric,
        all_metrics=all_metrics,
        split=split,
        ignore=_names(ignore),
        common_seeds=common_seeds,
        stars=stars,
        resamples=resamples,
    )
    run_compare(runs, asked, Output(form, output, overwrite, as_json, Style(percent, times)))


def _names(given: Names) -> tuple[str, ...]:
    """Names by themselves, or with commas between them; each once."""
    return tuple(dict.fromkeys(name.strip() for each in given or () for name in each.split(",") if name.strip()))


def _labels(given: Names) -> dict[str, tuple[str, ...]]:
    from headwise.errors import InputError

    found: dict[str, tuple[str, ...]] = {}
    for each in given or ():
        name, equals, labels = each.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--only {each!r}: expected AXIS=LABEL, such as set=sick.")
        found[name.strip()] = (*found.get(name.strip(), ()), *(label.strip() for label in labels.split(",")))
    return found
