"""`headwise list`: what there is to choose from."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.errors import InputError, choices

if TYPE_CHECKING:
    from headwise.attention.doctor import Diagnosis

# `headwise doctor`: show a diagnosis.


def show_diagnosis(model: str, *, batch: int, length: int, download: bool, as_json: bool) -> None:
    """Examine a model and print what was found; exit code 1 if it is not supported."""
    if model.startswith("builtin:"):
        from headwise.training.encoders import builtin_folder

        model = str(builtin_folder(model))
    from headwise.attention.doctor import diagnose

    diagnosis = diagnose(model, batch=batch, length=length, download=download)
    if as_json:
        typer.echo(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        Console().print(_table(diagnosis))
    if diagnosis.route == "unsupported":
        raise typer.Exit(1)


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in _rows(diagnosis):
        table.add_row(name, value)
    return table


def _rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    rows = [
        ("model", diagnosis.model),
        ("family", diagnosis.family),
        ("route", f"{diagnosis.route}{': ' + diagnosis.reason if diagnosis.reason else ''}"),
    ]
    if diagnosis.layers is not None:
        rows.append(("layers x heads", f"{diagnosis.layers} x {diagnosis.heads}"))
        if diagnosis.pruned:
            rows.append(("pruned heads", _pruned(diagnosis)))
        rows.append(("attention seen", "yes, every layer and head, in a forward pass just now"))
    if diagnosis.map_bytes is not None and diagnosis.received_bytes is not None:
        size = f"batch {diagnosis.batch} x {diagnosis.length} tokens"
        rows.append((f"maps, {size}", _megabytes(diagnosis.map_bytes)))
        rows.append((f"received, {size}", _megabytes(diagnosis.received_bytes)))
    rows.append(("loads offline", "yes" if diagnosis.loads_offline else "no"))
    rows += [(name, version) for name, version in diagnosis.versions.items()]
    return rows


def _pruned(diagnosis: Diagnosis) -> str:
    """The heads that are missing, layer by layer."""
    layers = (f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in diagnosis.pruned.items())
    total = (diagnosis.layers or 0) * (diagnosis.heads or 0)
    return f"{sum(map(len, diagnosis.pruned.values()))} of {total} ({'; '.join(layers)})"


def _megabytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


# What the table shows of each kind; --json shows all.
COLUMNS = {
    "guides": ("name", "minimises", "options"),
    "models": ("name", "description", "install"),
    "recipes": ("name", "task", "guides", "ssa", "description"),
    "sweeps": ("name", "runs", "scales", "title"),
    "tasks": ("name", "kind", "labels", "primary", "description"),
}


def show(kind: str, *, as_json: bool) -> None:
    """Print what there is of a kind, from catalogue.json, so that nothing heavy is imported.

    `python tests/list_catalogue.py --write` writes that file from the registries, and a test compares the two.
    """
    if kind not in COLUMNS:
        raise InputError(f"list {kind!r}: {choices(kind, COLUMNS)}.")
    text = resources.files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8")
    rows = json.loads(text)[kind]
    if as_json:
        typer.echo(json.dumps({kind: rows}, indent=2, ensure_ascii=False))
        return
    columns = COLUMNS[kind]
    table = Table(*columns, box=None)
    for row in rows:
        cells = (row[name] for name in columns)
        table.add_row(*(escape(", ".join(map(str, cell)) if isinstance(cell, list) else str(cell)) for cell in cells))
    Console().print(table)
