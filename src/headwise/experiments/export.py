"""A run as a plain classifier of transformers, with nothing of headwise in it."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headwise.disk import disk_errors, draft_prefix, folder_lock, holds_nothing, ordinary_modes
from headwise.errors import InputError
from headwise.experiments.apply import Loaded, load_run
from headwise.ssa import remove_supervision, supervision_of
from headwise.training import save_classifier


def export(run: Path, target: Path, task: str | None = None) -> dict[str, Any]:
    """Write the classifier of a run, or of one of its tasks, to a new folder; all of it or nothing.

    What a plain classifier cannot compute is refused: the pooling of the hybrid model, and the ReLU head.
    """
    _check_target(target)
    with folder_lock(target):
        _check_target(target)  # the last holder of the lock may have written it
        return _export(run, target, task)


def _check_target(target: Path) -> None:
    if (target.exists() and not target.is_dir()) or not holds_nothing(target):
        raise InputError(f"--output {target} exists already: choose another folder.")


def _export(run: Path, target: Path, task: str | None) -> dict[str, Any]:
    with _writing(target):
        for left in target.parent.glob(f"{draft_prefix(target)}*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=draft_prefix(target)))
    try:
        loaded = load_run(run, task)
        _check(loaded, run)
        removed = supervision_of(loaded.model) is not None
        if removed:
            remove_supervision(loaded.model)
        with _writing(target):
            save_classifier(loaded.model, loaded.tokenizer, fresh, "pooler")
            ordinary_modes(fresh)
            fresh.chmod(target.stat().st_mode & 0o777)  # mkdtemp's are for the user alone
            for left in target.iterdir():  # the lock: a folder can take the place of an empty one only
                left.unlink()
            fresh.replace(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return {"run": str(run), "output": str(target), "token_head_removed": removed}


def _writing(target: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one sentence."""
    return disk_errors(f"{target} could not be written", "make room, or choose another folder.", SafetensorError)


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
