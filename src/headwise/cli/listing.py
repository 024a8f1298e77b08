"""`headwise list`: what there is to choose from."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.attention.doctor import Diagnosis, diagnose
from headwise.errors import InputError, choices

# `headwise doctor`: show a diagnosis.


def show_diagnosis(model: str, *, batch: int, length: int, download: bool, as_json: bool) -> None:
    """Examine a model and print what was found; exit code 1 if it is not supported."""
    if model.startswith("builtin:"):
        from headwise.training.encoders import builtin_folder

        model = str(builtin_folder(model))
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
    """Print what there is of a kind."""
    if kind not in COLUMNS:
        raise InputError(f"list {kind!r}: {choices(kind, COLUMNS)}.")
    rows = {"guides": _guides, "models": _models, "recipes": _recipes, "sweeps": _sweeps, "tasks": _tasks}[kind]()
    if as_json:
        typer.echo(json.dumps({kind: rows}, indent=2, ensure_ascii=False))
        return
    columns = COLUMNS[kind]
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(escape(_cell(row[name])) for name in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    return ", ".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)


def _guides() -> list[dict[str, Any]]:
    from dataclasses import fields

    from headwise.guides import GUIDES

    return [
        {
            "name": name,
            "minimises": (kind.__doc__ or "").strip().splitlines()[0],
            "options": [field.name for field in fields(kind)],
        }
        for name, kind in GUIDES.items()
    ]


def _models() -> list[dict[str, Any]]:
    from headwise.training.encoders import BUILTIN

    return [
        {"name": name, "description": entry.description, "install": entry.install} for name, entry in BUILTIN.items()
    ]


def _recipes() -> list[dict[str, Any]]:
    from headwise.experiments.recipe_files import bundled, read_any_recipe

    return [{"name": name, **_about(read_any_recipe(name))} for name in bundled()]


def _about(recipe: Any) -> dict[str, Any]:
    """What a recipe does; of one for several tasks, which have no guides and no SSA, their names."""
    several = hasattr(recipe, "tasks")
    return {
        "task": ", ".join(recipe.tasks) if several else recipe.task.name,
        "guides": [] if several else list(recipe.guides),
        "ssa": "" if several or recipe.supervision is None else recipe.supervision.model,
        "description": recipe.description,
    }


def _sweeps() -> list[dict[str, Any]]:
    from headwise.experiments.sweeps.plan import plan_sweep
    from headwise.experiments.sweeps.sweep_file import scales_of, shipped_sweeps

    found = []
    for name in shipped_sweeps():
        scales = scales_of(name)
        plans = {scale: plan_sweep(name, scale=scale) for scale in (None, *scales)}
        whole = plans[None].sweep
        found.append(
            {
                "name": name,
                "runs": len(plans[None].unique),
                "scales": [f"{scale}: {len(plans[scale].unique)} runs" for scale in scales],
                "title": whole.title,
                "source": whole.source,
            }
        )
    return found


def _tasks() -> list[dict[str, Any]]:
    import headwise.retrieval  # noqa: F401 (adds its task to the table)
    from headwise.data import TASKS

    return [TASKS[name].describe() for name in TASKS]
