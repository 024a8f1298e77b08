"""The commands that show finished runs side by side: compare, figure."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import WIDTH, show, text_table
from headwise.errors import InputError, choices

if TYPE_CHECKING:
    from headwise.experiments.comparison import CompareOptions, Comparison
    from headwise.reports.comparison_text import Style, TextTable

FORMATS = {".txt": "table", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}

Names = list[str] | None


@dataclass(frozen=True)
class Systems:
    """What is compared with what, and by which test."""

    by: Annotated[
        Names,
        typer.Option(help="Axis or recipe key that separates the systems; default that of the sweep, or what differs."),
    ] = None
    within: Annotated[Names, typer.Option(help="Axis or recipe key with a separate table for each value.")] = None
    baseline: Annotated[str | None, typer.Option(help="System that the others are compared with.")] = None
    only: opt.Only = None
    sweep: opt.SweepName = None
    metric: Annotated[
        str | None, typer.Option(help="Metric, or TASK/METRIC for several tasks; default the main one.")
    ] = None
    all_metrics: Annotated[bool, typer.Option("--all-metrics", help="Show all metrics, with tests for each.")] = False
    split: Annotated[str | None, typer.Option(help="test or validation; default test if all runs have it.")] = None
    ignore: Annotated[
        Names, typer.Option(metavar="KEY", help="Allow runs to differ in this: a recipe key, torch, threads, ...")
    ] = None
    common_seeds: Annotated[bool, typer.Option("--common-seeds", help="Leave out seeds that not all systems have.")] = (
        False
    )
    stars: Annotated[str, typer.Option(help="p-values behind the stars: holm (corrected) or raw.")] = "holm"
    resamples: Annotated[int, typer.Option(min=100, help="Resamples of the bootstrap.")] = 9999

    @property
    def options(self) -> CompareOptions:
        """The same for the library."""
        from headwise.experiments.comparison import CompareOptions

        labels: dict[str, tuple[str, ...]] = {}
        for each in self.only or ():
            name, equals, values = each.partition("=")
            if not equals or not name.strip():
                raise InputError(f"--only {each!r}: expected AXIS=LABEL, such as set=sick.")
            labels[name.strip()] = (*labels.get(name.strip(), ()), *(label.strip() for label in values.split(",")))
        names = {
            name: tuple(dict.fromkeys(opt.names(",".join(getattr(self, name) or ()))))
            for name in ("by", "within", "ignore")
        }
        return CompareOptions(**{**vars(self), "only": labels, **names})


@opt.grouped
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folder of `headwise sweep`; or files of runs, or folders of `headwise train`.")
    ],
    systems: Systems,
    times: Annotated[bool, typer.Option("--times", help="Show the seconds per epoch.")] = False,
    percent: Annotated[bool, typer.Option("--percent/--no-percent", help="Show scores times 100.")] = True,
    form: Annotated[
        str | None, typer.Option("--format", help="table, markdown, csv, latex or json; default table.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write; its ending (.md .csv .tex .json .txt) decides the format.")
    ] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.AsJson = False,
) -> None:
    """Compare systems over seeds: means, intervals, paired tests by seed and by example, corrected by Holm."""
    from headwise.disk import new_file, save_content
    from headwise.experiments import comparison
    from headwise.reports.comparison_text import Style

    if form is not None and form not in FORMATS.values():
        raise InputError(f"--format {form}: {choices(form, FORMATS.values())}.")
    if as_json and output is None and form not in (None, "json"):
        raise InputError(f"--json and --format {form}: leave one of them out, or write a file by --output.")
    if output is not None and form is None and output.suffix not in FORMATS and not output.is_dir():
        raise InputError(f"--output {output}: expected a name that ends in {', '.join(FORMATS)}, or --format.")
    options, style = systems.options, Style(percent, times)
    with ExitStack() as stack:
        if output is not None:
            stack.enter_context(new_file(output, "--output", replace=overwrite, example="comparison.md"))
        result = comparison.compare(runs, options)
        if output is not None:
            save_content(output, _as_text(result, form or FORMATS[output.suffix], style))
    if output is not None and not as_json:
        typer.echo(f"saved in {output}")
    else:
        typer.echo(_as_text(result, "json" if as_json else form or "table", style), nl=False)


def _as_text(comparison: Comparison, form: str, style: Style) -> str:
    from headwise.reports import comparison_text

    if form == "json":
        return json.dumps(comparison.as_data(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "csv":
        return comparison_text.comparison_csv(comparison)
    if form == "markdown":
        return comparison_text.comparison_markdown(comparison, style)
    return comparison_text.comparison_latex(comparison, style) if form == "latex" else _as_tables(comparison, style)


def _as_tables(comparison: Comparison, style: Style) -> str:
    """Tables as wide as the terminal, then notes and legend; a table that is too wide becomes two: scores and tests."""
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    from headwise.reports.comparison_text import text_tables, words_of

    def rich(grid: TextTable, columns: Sequence[int]) -> Table:
        """Some columns of a table."""
        first, *headings = (grid.headings[column] for column in columns)
        rows = ([str(row[column]) for column in columns] for row in grid.rows)
        return text_table([first], rows, numbers=headings, title=grid.title, whole=True)

    width = Console().width if sys.stdout.isatty() else WIDTH
    console = Console(file=StringIO(), width=width, highlight=False, color_system=None)
    wide = console.options.update(max_width=10_000)
    for each in text_tables(comparison, style):
        for line in each.verdicts:
            console.print(escape(line), soft_wrap=not sys.stdout.isatty())
        whole = range(len(each.headings))
        parts: list[Sequence[int]] = [whole]
        needed = Measurement.get(console, wide, rich(each, whole)).maximum
        if each.tests and needed > width:
            parts = [whole[: -each.tests], [0, *whole[-each.tests :]]]
        for part in parts:
            console.print(rich(each, part))
            console.print()
    for line in words_of(comparison, style):
        console.print(escape(line), soft_wrap=not sys.stdout.isatty())
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def figure(
    kind: Annotated[str, typer.Argument(help="heatmap, pca, layers, sizes, curves or dissociation.")],
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Folders of `headwise train`; for layers and sizes, results of `headwise sweep`."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf.")],
    example: Annotated[
        str | None,
        typer.Option(help="Example: its number in the split, or e0, e1 ... as kept; default the first one kept."),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Layer, from 0; with --head, the map of one head.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Head of --layer, from 0; default the mean of all.")] = None,
    task: opt.OneTask = None,
    sweep: opt.SweepName = None,
    baseline: Annotated[Path | None, typer.Option(metavar="RUN", help="Run to show before the others.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the figure; '' for none; default its kind.")] = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Draw a figure from the files of RUN; several runs become several panels.

    heatmap: who looks at whom, of two runs also the difference. pca: heads as points. layers, sizes: scores over guided
    layers and sizes of the training set. curves: losses, guides and scores by step. dissociation: who is hurt by losing
    whose heads.
    """
    from headwise.disk import new_file
    from headwise.reports.figures import check_ending, save_as
    from headwise.reports.run_figures import KINDS, check_figure, draw_figure

    folders = [*([] if baseline is None else [baseline]), *runs]
    options = {"example": example, "layer": layer, "head": head, "task": task, "sweep": sweep}
    if baseline is not None and kind in ("layers", "sizes"):
        kinds = ", ".join(each for each in KINDS if each not in ("layers", "sizes"))
        raise InputError(f"--baseline has no meaning for {kind}, only for {kinds}: leave it out.")
    check_ending(output)
    with new_file(output, "--output", replace=force, by="--force"):
        check_figure(kind, folders, options)
        drawn, notes = draw_figure(kind, folders, title=title, **options)
        save_as(drawn, output)
    for note in notes if not as_json else ():
        typer.echo(note, err=True)
    content = {"kind": kind, "file": str(output), "runs": [str(folder) for folder in folders], "notes": notes}
    show(as_json, content, f"saved in {output}")
