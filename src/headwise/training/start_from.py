"""Start from a classifier that was fine-tuned before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headwise.errors import InputError
from headwise.ssa.supervise import TOKEN_HEAD
from headwise.training.loading import load_trained


def start_from(model: nn.Module, folder: str) -> list[str]:
    """Take every weight that fits from a saved classifier (the authors' use_saved); returns the names that did not.

    Encoder and classifier have to fit, and the labels have to be the same; a token head is taken where both have one.
    The authors take encoder and pooler alone, and let what is missing pass in silence: but a model that is to label its
    own tokens from the first epoch on has to know the task.
    """
    try:
        saved: Any = load_trained(Path(folder))
    except InputError as error:
        raise InputError(f"ssa.use_saved: {error}") from error
    _check_labels(folder, _labels(saved), _labels(model))
    theirs, mine = saved.state_dict(), model.state_dict()
    fits = {name: value for name, value in theirs.items() if name in mine and value.shape == mine[name].shape}
    lost = sorted(name for name in {*theirs, *mine} - set(fits) if not name.startswith(f"{TOKEN_HEAD}."))
    if lost:
        raise InputError(
            f"ssa.use_saved {folder}: {len(lost)} weights are missing there or here, or of another size, {lost[0]} "
            "first; name a classifier that was fine-tuned from the same model."
        )
    model.load_state_dict(fits, strict=False)
    return sorted(name for name in mine if name not in fits)


def _labels(model: Any) -> list[str]:
    return [str(label) for _, label in sorted(model.config.id2label.items())]


def _check_labels(folder: str, theirs: list[str], ours: list[str]) -> None:
    """Labels without names of their own (LABEL_0) may be any, as long as there are as many."""
    named = not any(label.startswith("LABEL_") for label in (*theirs, *ours))
    if len(theirs) != len(ours) or (named and theirs != ours):
        raise InputError(
            f"ssa.use_saved {folder}: its classifier tells {', '.join(theirs)} apart, and this task {', '.join(ours)}; "
            "name one that was fine-tuned on the same labels."
        )
