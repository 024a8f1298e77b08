"""Start from a classifier that was fine-tuned before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headwise.errors import InputError
from headwise.training.loading import load


def start_from(model: nn.Module, folder: str) -> list[str]:
    """Take every weight that fits from a saved classifier (the authors' use_saved); returns the names that did not.

    The whole encoder has to fit. Where the authors take encoder and pooler, we take the classifier as well, if it has
    the same labels: a model that is to label its own tokens has to know the task.
    """
    saved: Any = load(Path(folder))
    theirs, mine = saved.state_dict(), model.state_dict()
    fits = {name: value for name, value in theirs.items() if name in mine and value.shape == mine[name].shape}
    inner: Any = model
    missing = sorted(name for name in mine if name not in fits)
    lost = [name for name in missing if name.startswith(f"{inner.base_model_prefix}.") and "pooler" not in name]
    if lost:
        raise InputError(
            f"ssa.use_saved {folder}: {len(lost)} weights of the encoder are missing there or of another size, "
            f"{lost[0]} first; name a classifier that was fine-tuned from the same model."
        )
    model.load_state_dict(fits, strict=False)
    return missing
