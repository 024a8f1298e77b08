"""Several forward passes taken as one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.errors import StateError


class Gathered:
    """The guides' values in the forward passes that one loss is made of."""

    def __init__(self) -> None:
        """Start empty."""
        self._passes: list[tuple[dict[str, Tensor], int]] = []

    def add(self, raw: Mapping[str, Tensor], examples: int) -> None:
        """Keep what the guides said of one pass, and of how many examples."""
        self._passes.append((dict(raw), examples))

    def mean(self) -> dict[str, Tensor]:
        """Per guide, the mean of its values v over the passes p with n examples each: sum(n_p v_p) / sum(n_p).

        For a guide that is a mean over examples this is its value on all of them in one batch. Passes without
        gradients, of which a loss may make some to choose its examples, teach nothing and do not count.
        """
        counted = [each for each in self._passes if not torch.is_grad_enabled() or _teaches(each[0])]
        if self._passes and not counted:
            raise StateError(
                "this loss calls the model without gradients and once more in the backward pass (a gradient cache), "
                "where no guide can be added: take the same loss without a cache (without Cached in its name) and "
                "smaller batches."
            )
        if len(counted) == 1:
            return counted[0][0]
        examples = sum(count for _, count in counted)
        names = counted[0][0] if counted else {}
        return {name: torch.stack([raw[name] * (count / examples) for raw, count in counted]).sum() for name in names}


def _teaches(raw: Mapping[str, Tensor]) -> bool:
    return any(value.requires_grad for value in raw.values())
