"""`headwise list`: what there is to choose from; `headwise doctor`: what headwise can do with a model."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table
from headwise.errors import InputError, choices

# What the table shows of each kind; --json shows all.
COLUMNS = {
    "guides": ("name", "minimises", "options"),
    "models": ("name", "description", "install"),
    "recipes": ("name", "task", "guides", "ssa", "description"),
    "sweeps": ("name", "runs", "scales", "title"),
    "tasks": ("name", "kind", "labels", "primary", "description"),
}


def list_names(
    kind: Annotated[str, typer.Argument(help="guides, tasks, recipes, sweeps or models.")], as_json: opt.AsJson = False
) -> None:
    """List what there is to choose from."""
    if kind not in COLUMNS:
        raise InputError(f"list {kind!r}: {choices(kind, COLUMNS)}.")
    # From a file, so that nothing heavy is imported. `python tests/list_catalogue.py --write` writes it.
    rows = json.loads(files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8"))[kind]
    cells = ([row[name] for name in COLUMNS[kind]] for row in rows)
    texts = ([", ".join(map(str, each)) if isinstance(each, list) else str(each) for each in row] for row in cells)
    show(as_json, {kind: rows}, text_table(COLUMNS[kind], texts))


def doctor(
    model: Annotated[str, typer.Argument(help="Folder of a saved model, or its name on the Hub.")],
    batch: Annotated[int, typer.Option(help="Examples per batch, for the memory estimate.")] = 16,
    length: Annotated[
        int | None,
        typer.Option(help="Tokens per example, for the memory estimate; default 256, or what the model takes at most."),
    ] = None,
    download: opt.Download = False,
    as_json: opt.AsJson = False,
) -> None:
    """Check whether headwise can see the attention of MODEL, by which route, and what that costs."""
    if model.startswith("builtin:"):
        from headwise.training.encoders import builtin_folder

        model = str(builtin_folder(model))
    from headwise.attention.doctor import diagnose

    diagnosis = diagnose(model, batch=batch, length=length, download=download)
    reason = f": {diagnosis.reason}" if diagnosis.reason else ""
    rows = {"model": diagnosis.model, "family": diagnosis.family, "route": diagnosis.route + reason}
    if diagnosis.layers is not None and diagnosis.heads is not None:
        rows["layers x heads"] = f"{diagnosis.layers} x {diagnosis.heads}"
        if diagnosis.pruned:
            layers = (f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in diagnosis.pruned.items())
            count = sum(map(len, diagnosis.pruned.values()))
            rows["pruned heads"] = f"{count} of {diagnosis.layers * diagnosis.heads} ({'; '.join(layers)})"
        if diagnosis.kernel:
            rows["attn_implementation headwise"] = diagnosis.kernel
        rows["attention seen"] = "yes, every layer and head, in a forward pass just now"
    if diagnosis.map_bytes is not None and diagnosis.received_bytes is not None:
        size = f"batch {diagnosis.batch} x {diagnosis.length} tokens"
        rows[f"maps, {size}"] = f"{diagnosis.map_bytes / 2**20:.1f} MiB"
        rows[f"received, {size}"] = f"{diagnosis.received_bytes / 2**20:.1f} MiB"
    rows["loads offline"] = "yes" if diagnosis.loads_offline else "no"
    table = text_table(("", ""), (rows | diagnosis.versions).items())
    table.show_header = False
    show(as_json, diagnosis.as_dict(), table)
    if diagnosis.route == "unsupported":
        raise typer.Exit(1)
