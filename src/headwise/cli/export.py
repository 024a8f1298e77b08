"""`headwise export`: a run as a plain classifier of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from headwise.experiments.export import export
from headwise.training.quiet import quiet_libraries


def run_export(run: Path, target: Path, *, task: str | None, as_json: bool) -> None:
    """Export, and say where."""
    quiet_libraries()
    answer = export(run, target, task)
    typer.echo(json.dumps(answer, indent=2) if as_json else f"saved in {target}")
