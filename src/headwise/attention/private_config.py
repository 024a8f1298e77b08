"""Name our attention in the config of one model without touching other models made from the same config object."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn
from transformers import PreTrainedModel

Configs = list[tuple[Any, Any]]


def switch(model: PreTrainedModel, implementation: str) -> Configs:
    """Give a model configs of its own that name this attention; returns pairs of a shared and its private config.

    A model has one config object as a rule; a classifier put on another model's encoder has two.
    """
    pairs: dict[int, tuple[Any, Any]] = {}
    for module in model.modules():
        shared = getattr(module, "config", None)
        if shared is None or not hasattr(shared, "_attn_implementation_internal"):
            continue
        if id(shared) not in pairs:
            private = copy.copy(shared)
            private._attn_implementation_internal = implementation
            pairs[id(shared)] = (shared, private)
        module.__dict__["config"] = pairs[id(shared)][1]
    return list(pairs.values())


def switch_back(model: nn.Module, configs: Configs) -> None:
    """Give the shared configs back, with whatever the model noted in its own meanwhile (such as the problem type)."""
    back = {}
    for shared, private in configs:
        implementation = shared._attn_implementation_internal
        shared.__dict__.update(private.__dict__)
        shared._attn_implementation_internal = implementation
        back[id(private)] = shared
    for module in model.modules():
        config = module.__dict__.get("config")
        if id(config) in back:
            module.__dict__["config"] = back[id(config)]
