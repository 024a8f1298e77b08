"""torch.compile is to trace the model, not our bookkeeping around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Keep torch.compile out of a function and of all that it calls."""
    return cast(Function, torch.compiler.disable(function))


def skipped(function: Function) -> Function:
    """Keep torch.compile out of a function, but not out of what it calls: the model."""
    return cast(Function, torch.compiler.disable(function, recursive=False))
