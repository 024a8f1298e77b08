"""The record of a run, headwise.json: what was asked, what happened, in which world."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import __version__, documents
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments.record_schema import RunRecord

if TYPE_CHECKING:
    from headwise.experiments.joint_recipe import JointRecipe
    from headwise.experiments.recipe import Recipe

NAME = "headwise.json"
FORMAT = 1
AGAIN = "train again"
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy", "scikit-learn")


def asked(
    recipe: Recipe | JointRecipe,
    data_root: Path | None,
    fingerprint: str,
    command: list[str],
    *,
    knowledge: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What decides the run; the fingerprint is that of its examples, the knowledge that of each guide that has some."""
    known = {"knowledge": knowledge} if knowledge else {}
    return {
        "recipe": recipe.as_data(),
        "data": None if data_root is None else str(data_root.expanduser().resolve()),
        "examples": fingerprint,
        **known,
        "seed": recipe.seed,
        "command": command,
    }


def world() -> dict[str, Any]:
    """Where the run happens: versions and hardware, by kind and not by name."""
    import torch  # those who only read records need neither torch nor the Trainer

    from headwise.training import distributed as processes

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "headwise": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes.count(),
        "accelerator": device,
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def compose(asked: dict[str, Any], happened: dict[str, Any] | None) -> dict[str, Any]:
    """A record; `happened` is None while the run is going on."""
    return {"format": FORMAT, "asked": asked, "happened": happened, "world": world()}


def write(folder: Path, content: dict[str, Any]) -> None:
    """Write a record."""
    text = json.dumps(documents.finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / NAME, text + "\n")


def read(folder: Path) -> dict[str, Any]:
    """The record of a run."""
    path = folder / NAME
    if not path.is_file():
        raise InputError(
            f"{folder} is not a run of headwise: it has no {NAME}; give the folder that `headwise train` made."
        )
    content = documents.read(path, AGAIN)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else content
        raise InputError(f"{path} has format {found!r:.60}: this headwise reads format {FORMAT}.")
    return documents.check(content, RunRecord, path, AGAIN)


def any_recipe_of(content: dict[str, Any], folder: Path) -> Recipe | JointRecipe:
    """The recipe of the record of a run in a folder."""
    from headwise.experiments.joint_recipe import check_any_recipe

    try:
        return check_any_recipe(content["asked"]["recipe"], "asked.recipe")
    except InputError as error:
        raise InputError(f"{folder / NAME}: {str(error).rstrip('.')}; correct it, or train again.") from error


def recipe_of(content: dict[str, Any], folder: Path, task: str | None = None) -> Recipe:
    """The recipe of a record; of a run on several tasks that of one, which must be named."""
    from headwise.experiments.joint_recipe import JointRecipe, chosen_task

    recipe = any_recipe_of(content, folder)
    if isinstance(recipe, JointRecipe):
        return recipe.single(chosen_task(recipe, task))
    if task is not None:
        raise InputError(f"--task {task}: this run has one task only ({recipe.task.name}); leave --task out.")
    return recipe


def finished(content: dict[str, Any]) -> bool:
    """Whether the run came to its end."""
    return content["happened"] is not None
