"""Weights where training would have put them in memory."""

from __future__ import annotations

from torch import nn

# What torch's own allocator gives, in bytes.
ALIGNED = 64


def align(model: nn.Module) -> nn.Module:
    """Move weights that a file left at an odd address; returns the model.

    Loading maps the file into memory, where a tensor may begin anywhere. On some processors a product of a matrix and
    a vector, such as a classifier of one output, has other last bits there, so that a saved model would not answer to
    the last digit as it did when it was trained.
    """
    for parameter in model.parameters():
        if parameter.data_ptr() % ALIGNED:
            parameter.data = parameter.data.clone()
    return model
