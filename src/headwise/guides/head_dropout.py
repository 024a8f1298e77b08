"""Dropout of whole heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import Family, Inputs, select
from headwise.attention.dropout import kept_heads, mix
from headwise.attention.passes import Selection
from headwise.errors import InputError
from headwise.guides.base import Regulariser, check_choice, register_guide
from headwise.guides.weights import Auto, Piecewise, checked_weight


@register_guide("head_dropout")
class HeadDropout(Regulariser):
    """DropHead: silence random heads while the model trains (Zhou et al. 2020, arXiv 2004.13342).

    In training, head h of a layer has the output g_h O_h instead of O_h, where for each example

        g_h = k_h n / sum_j k_j,   k_h = 0 with probability p, else 1

    and j runs over the n chosen heads of the layer. As in the paper, the heads that stay are scaled by n / (number
    kept) and not by 1 / (1 - p), so the mean of every g_h is exactly 1. In evaluation all g_h are 1. Where all would be
    silent, one random head stays. With p = 0 nothing changes.

    It is no loss, so it has no weight and is not among the logged losses. No maps are stored, and a step takes as
    long as without it.

    In a Trainer with `hw.GuideCallback`, and in `headwise train`, the choice depends on the seed, the step, the layer
    and the tokens of the example, and not on how batches are split. Elsewhere torch's generator decides.

    The paper raises and lowers p in the course of training: `p=hw.guides.piecewise((0, 0.2), (500, 0.0), (1000, 0.2))`
    gives any such schedule over optimiser steps, in a recipe `p: {points: [[0, 0.2], [500, 0.0]]}`.
    """

    positional: ClassVar[tuple[str, ...]] = ("p",)
    kind: ClassVar[str] = "gates"

    p: float | Piecewise = 0.1
    """Probability that a head is silenced: a number of 0 or more and below 1, or a schedule."""
    per: Literal["example", "batch"] = "example"
    """Whether each example loses its own heads, or all examples of a batch the same."""
    layers: Any = "all"
    """Layers whose heads may be silenced, in the forms of every guide."""
    heads: Any = "all"
    """Heads of these layers that may be silenced; the others stay as they are."""

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "p", _checked_rate(self.p))
        check_choice(self, "per", ("example", "batch"))

    def rate(self, step: int) -> float:
        """The probability at an optimiser step."""
        return self.p.at(step) if isinstance(self.p, Piecewise) else self.p

    def gates(
        self, step: int, chosen: Mapping[int, tuple[int, ...]], shape: tuple[int, int], inputs: Inputs, seed: Tensor
    ) -> dict[int, Tensor]:
        """What to multiply the outputs of heads with: [B,H] for each layer, [1,H] for a whole batch.

        Args:
            step: optimiser steps so far.
            chosen: the heads that may be silenced, by layer.
            shape: layers and heads of the model.
            inputs: of the batch.
            seed: of this pass.
        """
        examples = self._examples(inputs)
        gates = {}
        for layer, heads in chosen.items():
            kept = kept_heads(self.rate(step), heads, seed + layer, examples).float()  # [B,n]
            gate = torch.ones(len(examples), shape[1], device=examples.device)
            gate[:, list(heads)] = kept * (len(heads) / kept.sum(1, keepdim=True))
            gates[layer] = gate
        return gates

    def _examples(self, inputs: Inputs) -> Tensor:
        """[B] a number per example."""
        ids, mask = inputs.input_ids, inputs.attention_mask
        known = ids if ids is not None else mask
        if known is None:
            raise InputError("head_dropout does not know the batch: call the model with input_ids or attention_mask.")
        if self.per == "batch":
            return torch.zeros(1, dtype=torch.int64, device=known.device)
        numbers, _ = inputs.examples()
        return torch.arange(len(known), device=known.device) if numbers is None else numbers


class HeadMasks:
    """The heads of one model that `head_dropout` may silence."""

    def __init__(self, rules: Sequence[HeadDropout], family: Family, *, needed: bool = False) -> None:
        """Resolve the choices of layers and heads; `needed` adds a rule with its defaults where there is none."""
        if needed and rules and all(rule.p == 0 for rule in rules):
            raise InputError("consistency(by='heads') beside head_dropout(p=0) compares equal passes: set p above 0.")
        self.implied = needed and not rules
        """Whether the rule is there for consistency alone."""
        self._shape = family.shape
        self._rules: list[tuple[HeadDropout, Selection]] = []
        taken: set[tuple[int, int]] = set()
        for rule in rules or [HeadDropout()] * needed:
            left: Selection = {}
            for layer, heads in select(rule.layers, rule.heads, family.shape).items():
                left[layer] = tuple(head for head in heads if head in family.left[layer])
                for pair in ((layer, head) for head in heads):
                    if pair in taken:
                        raise InputError(
                            f"head_dropout is given twice for head {pair[1]} of layer {layer}: choose other layers or "
                            "heads for one of them."
                        )
                    taken.add(pair)
            self._rules.append((rule, {layer: heads for layer, heads in left.items() if heads}))

    def gates(self, step: int, inputs: Inputs, seed: Tensor | None, *, again: bool) -> dict[int, Tensor]:
        """The gates of one forward pass; `again` for the further pass of a step with two, which has other ones."""
        rules = [(rule, chosen) for rule, chosen in self._rules if rule.rate(step) > 0]
        gates: dict[int, Tensor] = {}
        if not rules:
            return gates
        seed = torch.randint(2**62, ()) if seed is None else seed
        for number, (rule, chosen) in enumerate(rules):
            own = mix(seed + (2 * number + again))
            for layer, gate in rule.gates(step, chosen, self._shape, inputs, own).items():
                gates[layer] = gates[layer] * gate if layer in gates else gate
        return gates


def _checked_rate(value: Any) -> float | Piecewise:
    """A probability as a number or a schedule, also as plain data."""
    wrong = InputError(
        f"head_dropout(p={value!r}): expected a number of 0 or more and below 1, or a schedule of such numbers: "
        "piecewise((step, p), ...), in a recipe {points: [[step, p], ...]}."
    )
    try:
        rate = checked_weight(value, "head_dropout")
    except InputError:
        raise wrong from None
    if isinstance(rate, Auto):
        raise wrong
    numbers = [number for _, number in rate.points] if isinstance(rate, Piecewise) else [rate]
    if max(numbers) >= 1:
        raise wrong
    return rate
