"""Figures of single examples, from the arrays that `headwise analyze` keeps: who looks at whom, and heads as points.

Shapes: M = layers times heads, T tokens of the example.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.cli.figure_names import Drawn, names_of
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.analysis import Analysis, ExampleView, read_analysis
from headwise.experiments.analysis.store import check_heads
from headwise.heads.similarity import principal_components
from headwise.reports.heatmap import TITLE as MEAN_TITLE
from headwise.reports.heatmap import build_heatmap
from headwise.reports.projection import TITLE as PCA_TITLE
from headwise.reports.projection import build_projection

MOST_TOKENS = 24  # of a heat map; more cannot be read
MOST_NAMED = 8  # examples in a message


def draw_heatmap(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    example: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    task: str | None = None,
) -> Drawn:
    """The mean map of an example, or that of one head, a panel for each run; of two also the difference."""
    analyses, views = _views(folders, example, task)
    if layer is None or head is None:
        maps = [view.mean_map for view in views]
        about = MEAN_TITLE
    else:
        maps = [view.head_map(layer, head) for view in views]
        about = f"Attention of layer {layer}, head {head}"
    names = names_of(folders, [each.name for each in analyses])
    tokens = views[0].tokens
    notes = []
    if len(tokens) > MOST_TOKENS:
        notes.append(f"the first {MOST_TOKENS} of {len(tokens)} tokens are shown")
    if layer is not None and any(view.maps.keys is not None for view in views):
        notes.append(
            "of texts as long as this one only the largest weights of each row are kept; others are drawn as 0"
        )
    shown: dict[str, Any] = dict(zip(names, maps, strict=True))
    chosen = f"{about}: {views[0].title}" if title is None else title
    return build_heatmap(shown, tokens, first=MOST_TOKENS, title=chosen), notes


def draw_pca(
    folders: Sequence[Path], *, title: str | None = None, example: str | None = None, task: str | None = None
) -> Drawn:
    """Heads as points, on axes that all runs have in common."""
    analyses, views = _views(folders, example, task)
    _check_shapes(folders, analyses)
    for folder, each in zip(folders, analyses, strict=True):
        check_heads(folder, each, task)
    vectors = np.stack([np.asarray(view.vectors, dtype=np.float64) for view in views])  # [R,M,T]
    there = (vectors.sum(2) > 0).all(0)  # pruned heads look at nothing: they are no points
    if not there.any():
        raise InputError("no head is there in all of these runs: draw each by itself.")
    points, explained = principal_components(torch.from_numpy(vectors[:, there].reshape(-1, vectors.shape[2])))
    names = names_of(folders, [each.name for each in analyses])
    parts = points.numpy().reshape(len(views), -1, 2)
    layers = np.repeat(np.arange(analyses[0].layers), analyses[0].heads)[there]
    figure = build_projection(
        dict(zip(names, parts.tolist(), strict=True)),
        layers.tolist(),
        explained={name: explained.tolist() for name in names},
        title=f"{PCA_TITLE}: {views[0].title}" if title is None else title,
    )
    missing = int((~there).sum())
    return figure, [f"{missing} heads are left out, which not all runs have"] if missing else []


def _views(folders: Sequence[Path], example: str | None, task: str | None) -> tuple[list[Analysis], list[ExampleView]]:
    """The same example in every run."""
    analyses = []
    for folder in folders:
        record.read(folder)  # says it if the folder is no run
        analyses.append(read_analysis(folder, task))
    views = [_chosen(folder, each, example) for folder, each in zip(folders, analyses, strict=True)]
    for folder, view in zip(folders, views, strict=True):
        if view.tokens != views[0].tokens:
            raise InputError(
                f"{folders[0]} and {folder} have different tokens in {views[0].title} and {view.title}: they can be "
                "laid beside each other only for the same text and tokenizer; choose another --example, or runs of one "
                "task and encoder."
            )
    return analyses, views


def _chosen(folder: Path, analysis: Analysis, example: str | None) -> ExampleView:
    """By its place in the split, by its place among those that are kept (e0, e1, ...), or by its title."""
    if not analysis.examples:
        raise InputError(
            f"the analysis of {folder} keeps no example: make it again with `headwise analyze {folder} --overwrite`."
        )
    if example is None:
        return analysis.examples[0]
    for number, view in enumerate(analysis.examples):
        place = number if view.place is None else view.place
        if example in (str(place), f"e{number}", view.title):
            return view
    known = [str(number if view.place is None else view.place) for number, view in enumerate(analysis.examples)]
    more = ", ..." if len(known) > MOST_NAMED else ""
    raise InputError(
        f"--example {example} is not among those that the analysis of {folder} keeps: expected one of "
        f"{', '.join(known[:MOST_NAMED])}{more}, or e0 to e{len(known) - 1}; keep others with `headwise analyze "
        "--overwrite`."
    )


def _check_shapes(folders: Sequence[Path], analyses: Sequence[Analysis]) -> None:
    first = analyses[0]
    for folder, each in zip(folders, analyses, strict=True):
        if (each.layers, each.heads) != (first.layers, first.heads):
            raise InputError(
                f"{folders[0]} has {first.layers} layers of {first.heads} heads and {folder} {each.layers} of "
                f"{each.heads}: draw runs of different encoders by themselves."
            )
