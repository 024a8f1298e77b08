"""`headwise list`: what there is to choose from."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.errors import InputError, choices

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
    from headwise.experiments.files import bundled, read_any_recipe

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
    from headwise.tasks import TASKS

    return [TASKS[name].describe() for name in TASKS]
