"""Measuring a model by its gradients without leaving a trace on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def no_trace(model: nn.Module, *, freeze: bool = False) -> Iterator[None]:
    """Evaluation mode with gradients; afterwards all is as it was, whatever happened: modes, requires_grad, chance.

    Args:
        model: the model to measure.
        freeze: no gradients for its parameters, only for what the caller adds, such as gates.
    """
    modes = {module: module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad] if freeze else []
    random = torch.get_rng_state()  # a DataLoader draws a number each time it begins
    try:
        model.eval()
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_rng_state(random)
        for parameter in frozen:
            parameter.requires_grad_(True)
        for module, mode in modes.items():
            module.training = mode
