"""Under which conditions a run trains; all undone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def deterministic() -> Iterator[None]:
    """The same bits for the same work, whatever else the machine does; undone afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # costs time and changes no result of ours
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fill


@contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """For bf16, accelerate replaces the model's forward; afterwards the model computes as it will once it is saved."""
    before = model.__dict__.get("forward")
    try:
        yield
    finally:
        # With this mark accelerate would leave the model alone the next time, and that training would be in fp32.
        for name in ("_original_forward", "forward", "_is_accelerate_prepared"):
            model.__dict__.pop(name, None)
        if before is not None:
            model.__dict__["forward"] = before
