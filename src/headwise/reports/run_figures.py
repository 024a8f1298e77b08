"""Figures from the files of runs and sweeps, by kind; no model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.comparison.run_plots import dissociation_matrices, names_apart, training_curves
from headwise.experiments.comparison.sweep_plots import layer_plots, size_plots
from headwise.reports.heatmap import TITLE as HEATMAP_TITLE
from headwise.reports.heatmap import build_heatmap, build_matrices
from headwise.reports.lines import TITLE as CURVES_TITLE
from headwise.reports.lines import build_curves, build_line_panels, build_lines
from headwise.reports.projection import TITLE as PCA_TITLE
from headwise.reports.projection import build_projection

if TYPE_CHECKING:
    from headwise.experiments.analysis.analysis_files import Analysis, ExampleView

# Tokens of a heat map; more cannot be read.
MOST_TOKENS = 24
# Examples that a message names.
MOST_NAMED = 8

# A figure of matplotlib, and notes about it.
Drawn = tuple[Any, list[str]]


def draw_figure(kind: str, folders: Sequence[Path], *, title: str | None = None, **options: Any) -> Drawn:
    """Draw one figure of several runs or sweeps, each in a panel or as a line.

    Args:
        kind: one of KINDS.
        folders: runs; for layers and sizes, results of sweeps.
        title: above the figure; one that says what it shows if left out.
        options: those of the kind, such as example="e0" for a heat map.
    """
    check_figure(kind, folders, options)
    return KINDS[kind][0](folders, title, **{name: value for name, value in options.items() if value is not None})


def check_figure(kind: str, folders: Sequence[Path], options: dict[str, Any]) -> None:
    """Refuse, before any work, a figure that cannot be drawn."""
    if kind not in KINDS:
        raise InputError(f"there is no figure {kind!r}: {choices(kind, KINDS)}.")
    for name, value in options.items():
        if value is not None and name not in KINDS[kind][1]:
            kinds = ", ".join(each for each, (_, known) in KINDS.items() if name in known)
            raise InputError(f"{name}={value} has no meaning for {kind}, only for {kinds}: leave it out.")
    if (options.get("layer") is None) != (options.get("head") is None):
        raise InputError("layer=... and head=... choose one head together: give both, or none for the mean of all.")
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: give the folder of a run or of a sweep.")
        if folder.resolve() in seen:
            raise InputError(f"{folder} is given twice: give each run once.")
        seen.add(folder.resolve())


def draw_heatmap(
    folders: Sequence[Path],
    title: str | None,
    *,
    example: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    task: str | None = None,
) -> Drawn:
    """The mean map of an example, or that of one head, a panel for each run; of two also the difference."""
    analyses, views = _views(folders, example, task)
    if layer is None or head is None:
        maps, about = [view.mean_map for view in views], HEATMAP_TITLE
    else:
        maps, about = [view.head_map(layer, head) for view in views], f"Attention of layer {layer}, head {head}"
    tokens, notes = views[0].tokens, []
    if len(tokens) > MOST_TOKENS:
        notes.append(f"the first {MOST_TOKENS} of {len(tokens)} tokens are shown")
    if layer is not None and any(view.maps.keys is not None for view in views):
        notes.append(
            "of texts as long as this one only the largest weights of each row are kept; others are drawn as 0"
        )
    panels: dict[str, Any] = dict(zip(names_of(folders, [each.name for each in analyses]), maps, strict=True))
    title = f"{about}: {views[0].title}" if title is None else title
    return build_heatmap(panels, tokens, first=MOST_TOKENS, title=title), notes


def draw_pca(
    folders: Sequence[Path], title: str | None, *, example: str | None = None, task: str | None = None
) -> Drawn:
    """Heads as points, on axes that all runs have in common."""
    from headwise.reports.report_views import principal_components

    analyses, views = _views(folders, example, task)
    first = analyses[0]
    for folder, each in zip(folders, analyses, strict=True):
        if (each.layers, each.heads) != (first.layers, first.heads):
            raise InputError(
                f"{folders[0]} has {first.layers} layers of {first.heads} heads and {folder} {each.layers} of "
                f"{each.heads}: draw runs of different encoders in separate figures."
            )
    vectors = np.stack([np.asarray(view.vectors, dtype=np.float64) for view in views])  # [runs,heads,tokens]
    there = (vectors.sum(2) > 0).all(0)  # pruned heads look at nothing: they are no points
    if not there.any():
        raise InputError("no head is there in all of these runs: draw each in a separate figure.")
    points, explained = principal_components(vectors[:, there].reshape(-1, vectors.shape[2]))
    names = names_of(folders, [each.name for each in analyses])
    figure = build_projection(
        dict(zip(names, points.reshape(len(views), -1, 2).tolist(), strict=True)),
        np.repeat(np.arange(first.layers), first.heads)[there].tolist(),
        explained={name: explained.tolist() for name in names},
        title=f"{PCA_TITLE}: {views[0].title}" if title is None else title,
    )
    missing = int((~there).sum())
    return figure, [f"{missing} heads are left out, which not all runs have"] if missing else []


def _views(folders: Sequence[Path], example: str | None, task: str | None) -> tuple[list[Analysis], list[ExampleView]]:
    """The same example in every run."""
    from headwise.experiments.analysis.analysis_files import read_analysis

    analyses = []
    for folder in folders:
        record.read(folder)  # refuses a folder that is no run
        analyses.append(read_analysis(folder, task))
    views = [_example(folder, each, example) for folder, each in zip(folders, analyses, strict=True)]
    for folder, view in zip(folders, views, strict=True):
        if view.tokens != views[0].tokens:
            raise InputError(
                f"{folders[0]} and {folder} have different tokens in {views[0].title} and {view.title}: they can stand "
                "side by side only for the same text and tokenizer; choose another example=..., or runs of one task "
                "and encoder."
            )
    return analyses, views


def _example(folder: Path, analysis: Analysis, example: str | None) -> ExampleView:
    """By its position in the split, by its position among those that are kept (e0, e1, ...), or by its title."""
    if not analysis.examples:
        raise InputError(f"the analysis of {folder} keeps no example: analyse it again with overwrite=True.")
    if example is None:
        return analysis.examples[0]
    known = []
    for number, view in enumerate(analysis.examples):
        known.append(str(number if view.place is None else view.place))
        if example in (known[-1], f"e{number}", view.title):
            return view
    more = ", ..." if len(known) > MOST_NAMED else ""
    raise InputError(
        f"example={example} is not among those that the analysis of {folder} keeps: expected one of "
        f"{', '.join(known[:MOST_NAMED])}{more}, or e0 to e{len(known) - 1}; analyse the run again to keep others."
    )


def draw_curves(folders: Sequence[Path], title: str | None) -> Drawn:
    """Losses, scores and guides by step, a line for each run."""
    models = {f"m{number}": name for number, name in enumerate(names_of(folders))}
    series = [each for model, folder in zip(models, folders, strict=True) for each in training_curves(folder, model)]
    return build_curves(series, models, title=CURVES_TITLE if title is None else title), []


def draw_dissociation(folders: Sequence[Path], title: str | None) -> Drawn:
    """Of one run every step, of several their means over steps."""
    matrices = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        record.read(folder)  # refuses a folder that is no run
        found = dissociation_matrices(folder)
        if not found:
            raise InputError(f"{folder} has no D-scores: compute them with `headwise heads dissociation {folder}`.")
        matrices += found if len(folders) == 1 else [{**found[0], "title": f"{name}: {found[0]['title']}"}]
    default = "What is left of each task without the heads of one"
    return build_matrices(matrices, title=default if title is None else title), []


def draw_layers(folders: Sequence[Path], title: str | None, *, sweep: str | None = None) -> Drawn:
    """Scores by guided layer."""
    return _draw_plots(folders, title, sweep, layer_plots, "layers", "figure3")


def draw_sizes(folders: Sequence[Path], title: str | None, *, sweep: str | None = None) -> Drawn:
    """Scores by the size of the training set."""
    return _draw_plots(folders, title, sweep, size_plots, "sizes", "figure6")


def _draw_plots(
    folders: Sequence[Path],
    title: str | None,
    sweep: str | None,
    read: Callable[[Path, str | None], list[dict[str, Any]]],
    what: str,
    shipped: str,
) -> Drawn:
    plots = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        found = read(folder, sweep)
        if not found:
            where = f"the sweep {sweep} of {folder}" if sweep is not None else str(folder)
            raise InputError(f"{where} has no finished runs over {what}: run a sweep over them, such as {shipped}.")
        plots += [{**each, "title": f"{name}: {each['title']}"} for each in found] if len(folders) > 1 else found
    notes = list(dict.fromkeys(note for plot in plots for note in plot["notes"]))
    if len(plots) == 1:
        return build_lines(plots[0], title=title), notes
    return build_line_panels(plots, title=title or ""), notes


def names_of(folders: Sequence[Path], own: Sequence[str] = ()) -> list[str]:
    """Different names: the runs' own if all differ, else as much of the ends of their paths as separates them."""
    return list(own) if own and len(set(own)) == len(own) else names_apart(folders)


# Kind -> how it is drawn, and its options.
KINDS: dict[str, tuple[Callable[..., Drawn], tuple[str, ...]]] = {
    "heatmap": (draw_heatmap, ("example", "layer", "head", "task")),
    "pca": (draw_pca, ("example", "task")),
    "layers": (draw_layers, ("sweep",)),
    "sizes": (draw_sizes, ("sweep",)),
    "curves": (draw_curves, ()),
    "dissociation": (draw_dissociation, ()),
}
