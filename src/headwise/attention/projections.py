"""The parameters that decide where attention goes: the query and key projections, by their names in each family."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor, nn

# bert, roberta, albert, electra, ernie, mobilebert: query, key; distilbert: q_lin, k_lin; deberta-v2: query_proj,
# key_proj; mpnet: q, k. Adapters (LoRA) sit one level below the projection and keep its name in theirs.
_SEPARATE = re.compile(r"(^|\.)(query|key|q_lin|k_lin|query_proj|key_proj|q_proj|k_proj|q|k)\.")
# modernbert and its kin: one matrix whose first two thirds are query and key.
_TOGETHER = re.compile(r"(^|\.)(Wqkv|qkv_proj|qkv)\.")


@dataclass(frozen=True)
class Projection:
    """A trainable parameter of a query or key projection."""

    parameter: nn.Parameter
    share: float
    """The leading share of its rows that belongs to query and key."""

    def part(self, gradient: Tensor) -> Tensor:
        """The rows of a gradient that belong to query and key."""
        return gradient[: round(self.share * gradient.shape[0])]


def query_key_projections(model: nn.Module) -> list[Projection]:
    """Every trainable matrix of the query and key projections."""
    found = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or parameter.dim() != 2 or "attn" not in name and "attention" not in name:
            continue
        if _SEPARATE.search(name):
            found.append(Projection(parameter, 1.0))
        elif _TOGETHER.search(name):
            found.append(Projection(parameter, 2 / 3))
    return found
