"""Name our attention in the config of one model without touching other models made from the same config object."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn
from transformers import PreTrainedModel


def switch(model: PreTrainedModel, implementation: str) -> tuple[Any, Any]:
    """Give a model a config of its own that names this attention; returns the shared and the private config."""
    shared, private = model.config, copy.copy(model.config)
    private._attn_implementation_internal = implementation
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.__dict__["config"] = private
    return shared, private


def switch_back(model: nn.Module, shared: Any, private: Any) -> None:
    """Give the shared config back, with whatever the model noted in its own meanwhile (such as the problem type)."""
    implementation = shared._attn_implementation_internal
    shared.__dict__.update(private.__dict__)
    shared._attn_implementation_internal = implementation
    for module in model.modules():
        if getattr(module, "config", None) is private:
            module.__dict__["config"] = shared
