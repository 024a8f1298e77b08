"""The rows of `headwise list`, from the registries; `--write` writes the file of the package."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.data import TASKS
from headwise.experiments.recipe_files import bundled, read_recipe
from headwise.experiments.sweeps.sweep_file import plan_sweep, scales_of, shipped_sweeps
from headwise.guides import GUIDES
from headwise.training.encoders import BUILTIN

FILE = Path(headwise.__file__).parent / "cli" / "catalogue.json"


def guides() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "minimises": (kind.__doc__ or "").strip().splitlines()[0],
            "options": [field.name for field in fields(kind)],
        }
        for name, kind in GUIDES.items()
    ]


def recipes() -> list[dict[str, Any]]:
    rows = []
    for name in bundled():
        recipe = read_recipe(name)
        rows.append(
            {
                "name": name,
                "task": ", ".join(recipe.tasks or [recipe.only.name]),
                "guides": list(recipe.guides),
                "ssa": "" if recipe.supervision is None else recipe.supervision.model,
                "description": recipe.description,
            }
        )
    return rows


def sweeps() -> list[dict[str, Any]]:
    rows = []
    for name in shipped_sweeps():
        scales = scales_of(name)
        plans = {scale: plan_sweep(name, scale=scale) for scale in (None, *scales)}
        whole = plans[None].sweep
        rows.append(
            {
                "name": name,
                "runs": len(plans[None].unique),
                "scales": [f"{scale}: {len(plans[scale].unique)} runs" for scale in scales],
                "title": whole.title,
                "source": whole.source,
            }
        )
    return rows


def catalogue() -> dict[str, Any]:
    """All rows by kind, as JSON has them."""
    models = [
        {"name": name, "description": entry.description, "install": entry.install} for name, entry in BUILTIN.items()
    ]
    tasks = [TASKS[name].describe() for name in TASKS]
    rows = {"guides": guides(), "models": models, "recipes": recipes(), "sweeps": sweeps(), "tasks": tasks}
    return json.loads(json.dumps(rows))


def text() -> str:
    return json.dumps(catalogue(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__" and "--write" in sys.argv:
    FILE.write_text(text(), encoding="utf-8")
