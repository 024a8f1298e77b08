"""The command `headwise figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_figure(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(figure)


def figure(
    kind: Annotated[
        str,
        typer.Argument(help="heatmap, pca, layers, sizes, curves or dissociation.", show_default=False),
    ],
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of `headwise train`; for layers and sizes, results of `headwise sweep`.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf.", show_default=False)
    ],
    example: Annotated[
        str | None,
        typer.Option(help="Which example: its number in the split, or e0, e1 ... as kept.", show_default=False),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, help="With --head: the map of one head, from 0.", show_default=False)
    ] = None,
    head: Annotated[int | None, typer.Option(min=0, help="See --layer.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="Of a run on several tasks, which one.", show_default=False)] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Which sweep, if the folder holds several.", show_default=False)
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run to put before the others.", show_default=False)
    ] = None,
    title: Annotated[str | None, typer.Option(help="Above the figure; '' for none.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a sentence.")] = False,
) -> None:
    """Draw a figure from what RUN left on disk; several runs become several panels.

    heatmap: who looks at whom, of two runs also the difference. pca: heads as points. layers, sizes: scores over guided
    layers and sizes of the training set. curves: losses, guides and scores by step. dissociation: who is hurt by losing
    whose heads.
    """
    from headwise.cli.figure import FigureOrder, run_figure

    order = FigureOrder(
        kind=kind,
        runs=tuple(runs),
        output=output,
        example=example,
        layer=layer,
        head=head,
        task=task,
        sweep=sweep,
        baseline=baseline,
        title=title,
    )
    run_figure(order, force=force, as_json=as_json)
