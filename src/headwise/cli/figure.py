"""`headwise figure`: one figure from what runs left on disk, as one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headwise.cli.figure_maps import draw_heatmap, draw_pca
from headwise.cli.figure_names import Drawn
from headwise.cli.figure_plots import draw_curves, draw_dissociation, draw_layers, draw_sizes
from headwise.disk import check_new_file, new_file
from headwise.errors import InputError, choices
from headwise.reports.files import check_ending, save_as

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
