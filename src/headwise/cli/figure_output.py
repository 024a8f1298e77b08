"""`headwise figure`: one figure from what runs left on disk, as one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from headwise.disk import check_new_file, new_file
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.analysis import Analysis, ExampleView, read_analysis
from headwise.experiments.analysis.analysis_files import check_heads
from headwise.experiments.plots import dissociation_matrices, layer_plots, size_plots, training_curves
from headwise.experiments.plots.training_curves import names_apart
from headwise.heads.similarity import principal_components
from headwise.reports.figures import check_ending, save_as
from headwise.reports.heatmap import TITLE as MEAN_TITLE
from headwise.reports.heatmap import build_heatmap, build_matrices
from headwise.reports.lines import TITLE as CURVES_TITLE
from headwise.reports.lines import build_curves, build_line_panels, build_lines
from headwise.reports.projection import TITLE as PCA_TITLE
from headwise.reports.projection import build_projection

# What all kinds of figures have in common: what comes out, and what runs are called in it.


# A figure of matplotlib, which only reports know by name, and what must be told about it.
Drawn = tuple[Any, list[str]]


def names_of(folders: Sequence[Path], own: Sequence[str] = ()) -> list[str]:
    """Different names: their own if all differ, else as much of the ends of their paths as tells them apart."""
    if own and len(set(own)) == len(own):
        return list(own)
    return names_apart(folders)


# Figures of single examples, from the arrays that `headwise analyze` keeps: who looks at whom, and heads as points.


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


# Figures of whole runs and sweeps: scores over layers and sizes, training curves, dissociation.


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


# Kind -> how it is drawn, and the options that only some kinds have.
KINDS: dict[str, tuple[Callable[..., Drawn], tuple[str, ...]]] = {
    "heatmap": (draw_heatmap, ("example", "layer", "head", "task", "baseline")),
    "pca": (draw_pca, ("example", "task", "baseline")),
    "layers": (draw_layers, ("sweep",)),
    "sizes": (draw_sizes, ("sweep",)),
    "curves": (draw_curves, ("baseline",)),
    "dissociation": (draw_dissociation, ("baseline",)),
}


@dataclass(frozen=True)
class FigureOrder:
    """What was typed."""

    kind: str
    runs: tuple[Path, ...]
    output: Path
    example: str | None = None
    layer: int | None = None
    head: int | None = None
    task: str | None = None
    sweep: str | None = None
    baseline: Path | None = None
    title: str | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """All runs, the baseline first."""
        return (*(() if self.baseline is None else (self.baseline,)), *self.runs)

    def options(self) -> dict[str, Any]:
        """The options that only some kinds have, as far as they were given."""
        names = ("example", "layer", "head", "task", "sweep", "baseline")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check(self, force: bool) -> None:
        """Refuse, before any work, what cannot be drawn or written."""
        if self.kind not in KINDS:
            raise InputError(f"there is no figure {self.kind!r}: {choices(self.kind, KINDS)}.")
        for name in self.options():
            if name not in KINDS[self.kind][1]:
                kinds = ", ".join(kind for kind, (_, known) in KINDS.items() if name in known)
                raise InputError(f"--{name} has no meaning for {self.kind}, only for {kinds}: leave it out.")
        if (self.layer is None) != (self.head is None):
            raise InputError("--layer and --head choose one head together: give both, or none for the mean of all.")
        check_ending(self.output)
        check_new_file(self.output, "--output", replace=force, by="--force")
        self._check_folders()

    def _check_folders(self) -> None:
        seen: set[Path] = set()
        for folder in self.folders:
            if not folder.is_dir():
                raise InputError(f"there is no folder {folder}: give one that headwise made.")
            if folder.resolve() in seen:
                raise InputError(f"{folder} is given twice: give each run once.")
            seen.add(folder.resolve())


def run_figure(order: FigureOrder, *, force: bool, as_json: bool) -> None:
    """Draw and write a figure, and say where it is."""
    order.check(force)
    options = {name: value for name, value in order.options().items() if name != "baseline"}
    with new_file(order.output, "--output", replace=force, by="--force"):
        figure, notes = KINDS[order.kind][0](order.folders, title=order.title, **options)
        save_as(figure, order.output)
    if as_json:
        folders = [str(folder) for folder in order.folders]
        told = {"kind": order.kind, "file": str(order.output), "runs": folders, "notes": notes}
        typer.echo(json.dumps(told, ensure_ascii=False))
        return
    for note in notes:
        typer.echo(note, err=True)
    typer.echo(f"saved in {order.output}")
