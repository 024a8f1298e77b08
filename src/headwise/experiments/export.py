"""A run as a plain classifier of transformers, with nothing of headwise in it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headwise.errors import DiskError, InputError
from headwise.experiments.apply import Loaded, load_run
from headwise.ssa import remove_supervision, supervision_of
from headwise.training import save_classifier


def export(run: Path, target: Path, task: str | None = None) -> dict[str, Any]:
    """Write the classifier of a run, or of one of its tasks, to a new folder; all of it or nothing.

    What a plain classifier cannot compute is refused: the pooling of the hybrid model, and the ReLU head.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"--output {target} exists already: choose another folder.")
    loaded = load_run(run, task)
    _check(loaded, run)
    removed = supervision_of(loaded.model) is not None
    if removed:
        remove_supervision(loaded.model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            save_classifier(loaded.model, loaded.tokenizer, fresh, "pooler")
            fresh.chmod(0o755)  # mkdtemp's are for the user alone
            fresh.replace(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise DiskError(f"{target} could not be written ({' '.join(str(error).split())}): make room.") from error
    return {"run": str(run), "output": str(target), "token_head_removed": removed}


def _check(loaded: Loaded, run: Path) -> None:
    supervision = supervision_of(loaded.model)
    if supervision is not None and supervision.pools:
        raise InputError(
            f"{run} is a hybrid model of SSA, whose classifier reads pooled tokens (cls_weight "
            f"{supervision.options.cls_weight:g}): plain transformers would give other answers; load it with "
            "headwise.load, or train with `ssa: {model: cotraining}`."
        )
    if loaded.recipe.head != "pooler":
        raise InputError(
            f"{run} has the head {loaded.recipe.head!r}, which no classifier of transformers has: use `headwise "
            "predict`, or train with head: pooler."
        )
