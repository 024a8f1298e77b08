"""Who asks to see or touch attention: captures, gates, guidances."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.attention.passes import Gates, Inputs, Request


class Customer:
    """Somebody who wants to see or touch attention during forward passes."""

    def requests(self) -> tuple[Request, ...]:
        """What to look at in the coming pass."""
        return ()

    def gates(self) -> Gates:
        """What to multiply the heads' outputs with in the coming pass."""
        return {}

    def before(self, inputs: Inputs) -> None:
        """Called before a pass in which this customer sees or touches something; may refuse the inputs."""

    def after(self, seen: list[dict[int, Tensor]], valid: Tensor, inputs: Inputs, output: Any) -> Any:
        """Called after it with what was seen (one mapping from layer to tensor per request); returns the output."""
        return output

    def idle(self, output: Any) -> None:
        """Called after a pass in which this customer saw and touched nothing."""


# A customer with what it wants to see and to touch.
Order = tuple[Customer, tuple[Request, ...], Gates]
