"""What a model is called with, read and checked before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from headwise.attention.family import Family
from headwise.attention.passes import Inputs
from headwise.attention.tracing import untraced
from headwise.errors import InputError

# What a batch may carry for headwise alone.
NOT_FOR_THE_MODEL = ("special_tokens_mask", "knowledge")


@untraced
def read(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Find the tensors that matter among the arguments of a forward pass."""
    special = kwargs.get("special_tokens_mask")
    knowledge = kwargs.get("knowledge")
    if knowledge is not None and not isinstance(knowledge, Mapping):
        raise InputError(
            f"knowledge={type(knowledge).__name__}: expected tensors by name, as KnowledgeCollator puts into a batch."
        )
    knowledge = {} if knowledge is None else knowledge
    given = {name: value for name, value in kwargs.items() if name not in NOT_FOR_THE_MODEL}
    try:
        arguments = inspect.signature(type(model).forward).bind_partial(model, *args, **given).arguments
    except TypeError:  # a wrong call: let the model itself say so
        return Inputs(None, None, special, knowledge)
    return Inputs(arguments.get("input_ids"), arguments.get("attention_mask"), special, knowledge)


def keep_from_model(model: nn.Module, kwargs: dict[str, Any]) -> None:
    """Take out what the batch carries for headwise alone, unless the model asks for it by name (one with SSA does)."""
    carried = [name for name in NOT_FOR_THE_MODEL if name in kwargs]
    known = inspect.signature(type(model).forward).parameters if carried else {}
    for name in carried:
        if name not in known:
            del kwargs[name]


def check(inputs: Inputs, family: Family) -> None:
    """Refuse what would give wrong attention, or an error that nobody understands."""
    ids, mask, longest = inputs.input_ids, inputs.attention_mask, family.longest
    if ids is not None and longest is not None and ids.shape[-1] > longest:
        raise InputError(
            f"the batch is {ids.shape[-1]} tokens long; {family.name} here takes at most {longest}: "
            f"tokenize with truncation=True, max_length={longest}."
        )
    if mask is not None and mask.dim() == 2:
        empty = (mask != 0).sum(1) == 0
        if bool(empty.any()):
            raise InputError(
                f"example {int(empty.nonzero()[0])} of the batch is fully masked (its attention_mask is all 0): "
                "leave empty texts out of the batch."
            )
