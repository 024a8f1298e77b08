"""Figures of whole runs and sweeps: scores over layers and sizes, training curves, dissociation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwise.cli.figure_names import Drawn, names_of
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.story import dissociation_matrices, layer_plots, size_plots, training_curves
from headwise.reports.curves_figure import TITLE as CURVES_TITLE
from headwise.reports.curves_figure import build_curves
from headwise.reports.lines import build_line_panels, build_lines
from headwise.reports.matrix import build_matrices

DISSOCIATION_TITLE = "What is left of each task without the heads of one"


def draw_layers(folders: Sequence[Path], *, title: str | None = None, sweep: str | None = None) -> Drawn:
    """Scores by guided layer."""
    return _draw_plots(folders, layer_plots, "layers", "figure3", title, sweep)


def draw_sizes(folders: Sequence[Path], *, title: str | None = None, sweep: str | None = None) -> Drawn:
    """Scores by the size of the training set."""
    return _draw_plots(folders, size_plots, "sizes", "figure6", title, sweep)


def draw_curves(folders: Sequence[Path], *, title: str | None = None) -> Drawn:
    """Losses, scores and guides by step, a line for each run."""
    models = {f"m{number}": name for number, name in enumerate(names_of(folders))}
    series = [each for model, folder in zip(models, folders, strict=True) for each in training_curves(folder, model)]
    return build_curves(series, models, title=CURVES_TITLE if title is None else title), []


def draw_dissociation(folders: Sequence[Path], *, title: str | None = None) -> Drawn:
    """Of one run every step, of several their means over steps."""
    found = [_matrices(folder) for folder in folders]
    matrices = found[0]
    if len(folders) > 1:
        matrices = [
            {**each[0], "title": f"{name}: {each[0]['title']}"}
            for name, each in zip(names_of(folders), found, strict=True)
        ]
    return build_matrices(matrices, title=DISSOCIATION_TITLE if title is None else title), []


def _matrices(folder: Path) -> list[dict[str, Any]]:
    record.read(folder)  # says it if the folder is no run
    found = dissociation_matrices(folder)
    if not found:
        raise InputError(f"{folder} has no D-scores: make them with `headwise heads dissociation {folder}`.")
    return found


def _draw_plots(
    folders: Sequence[Path],
    read: Callable[[Path, str | None], list[dict[str, Any]]],
    what: str,
    such: str,
    title: str | None,
    sweep: str | None,
) -> Drawn:
    plots = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        found = read(folder, sweep)
        if not found:
            where = f"the sweep {sweep} of {folder}" if sweep is not None else str(folder)
            raise InputError(
                f"{where} has no finished runs over {what}: make some with `headwise sweep {such} --output {folder}`."
            )
        plots += [{**each, "title": f"{name}: {each['title']}"} for each in found] if len(folders) > 1 else found
    if len(plots) == 1:
        return build_lines(plots[0], title=title), []
    return build_line_panels(plots, title=title or ""), []
