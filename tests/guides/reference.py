"""The guides as the paper writes them: explicit maps, plain loops over examples and maps, every matrix really built.

Shapes: B batch, S maps, Q queries, K keys. Slow on purpose: what is compared with it must be fast and equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

import headwise as hw
from headwise.attention import AttentionRecord, Inputs, Request
from headwise.patterns.base import Knowledge

SLOW = "slow-guide-reference"


# -- the two guides ----------------------------------------------------------------------------------------------------


def slow_mdg(
    maps: Tensor,
    valid: Tensor,
    positions: Tensor | None = None,
    *,
    layer_of: Sequence[int] | None = None,
    tau: float = 1.0,
    reduction: str = "mean",
    reduce: str = "received",
) -> Tensor:
    """Eq. 10-11; `layer_of` gives the layer of each map if only maps of one layer are contrasted."""
    examples = []
    for vectors in _vectors(maps, valid, positions, reduce):
        unit = [vector / vector.norm() for vector in vectors]
        losses = []
        for i, own in enumerate(unit):
            rivals = [j for j in range(len(unit)) if layer_of is None or layer_of[j] == layer_of[i]]
            scores = torch.stack([own @ unit[j] / tau for j in rivals])
            losses.append(-torch.log(torch.softmax(scores, 0)[rivals.index(i)]))
        total = sum(losses)
        examples.append(total / len(losses) if reduction == "mean" else total)
    return torch.stack(examples).mean()


def slow_pdg(
    maps: Tensor,
    valid: Tensor,
    positions: Tensor | None = None,
    *,
    normalise: bool = True,
    standardise: bool = False,
    reduction: str = "mean",
    reduce: str = "received",
) -> Tensor:
    """Eq. 12, with the K x K matrix: products of positions, or their correlations across maps."""
    examples = []
    for vectors in _vectors(maps, valid, positions, reduce):
        rows = [vector / vector.norm() if normalise and not standardise else vector for vector in vectors]
        matrix = torch.stack(rows)  # [S,K]
        keys = matrix.shape[1]
        if standardise:
            columns = [(column - column.mean()) / column.std(correction=0) for column in matrix.T]
            matrix = torch.stack(columns, 1) / len(rows) ** 0.5
        distance = matrix.T @ matrix - torch.eye(keys, dtype=matrix.dtype)  # [K,K]
        # the released code sums the squares over one axis and averages over the other: that is the mean
        squares = distance.square().sum(0)
        examples.append(squares.mean() if reduction == "mean" else squares.sum())
    return torch.stack(examples).mean()


def _vectors(maps: Tensor, valid: Tensor, positions: Tensor | None, reduce: str) -> list[list[Tensor]]:
    """The vector of every map of every example, cut to the positions that count."""
    positions = valid if positions is None else positions
    return [
        [
            _given(one, tokens)[counted] if reduce == "given" else _received(one, tokens)[counted]
            for one in example  # [Q,K]
        ]
        for example, tokens, counted in zip(maps, valid, positions, strict=True)
    ]


def _received(one: Tensor, tokens: Tensor) -> Tensor:
    """How much each key is attended to: the sum over the queries that are tokens."""
    return sum((row for row, is_token in zip(one, tokens, strict=True) if is_token), torch.zeros_like(one[0]))


def _given(one: Tensor, tokens: Tensor) -> Tensor:
    """The released code's mean over the keys, which is 1/K for every query."""
    return torch.stack([row[tokens].mean() for row in one])


# -- maps by another way than headwise's -------------------------------------------------------------------------------


def slow_maps(model: PreTrainedModel, batch: dict[str, Tensor], *, eager: bool) -> Tensor:
    """[B,S,Q,K] of a model that headwise does not touch, with their graph."""
    if eager:
        model.set_attn_implementation("eager")
        return torch.cat(model(**batch, output_attentions=True).attentions, 1)
    seen: list[Tensor] = []
    AttentionInterface.register(SLOW, _attention_that_fills(seen))
    AttentionMaskInterface.register(SLOW, sdpa_mask)
    model.set_attn_implementation(SLOW)
    model(**batch)
    return torch.cat(seen, 1)


def _attention_that_fills(seen: list[Tensor]) -> Any:
    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = query @ key.transpose(-1, -2) * scale
        may_see = torch.ones_like(scores, dtype=torch.bool) if attention_mask is None else attention_mask
        # Padding outside every window sees nothing: let it see all, so that nothing is NaN, then blank its row.
        blind = ~may_see.any(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(~(may_see | blind), -torch.inf), -1).masked_fill(blind, 0.0)
        seen.append(weights)
        return (weights @ value).transpose(1, 2), None

    return attend


# -- headwise's way ----------------------------------------------------------------------------------------------------


def seen_by(model: PreTrainedModel, guide: hw.Guide, batch: dict[str, Tensor]) -> Tensor:
    """The guide's value for one forward pass of the model, whatever mode it is in."""
    with hw.capture(model, guide.layers, guide.heads, guide.what, after_dropout=guide.dropout == "after") as record:
        model(**batch)
    return guide(record, inputs_of(guide, batch))


def inputs_of(guide: hw.Guide, batch: dict[str, Tensor]) -> Inputs:
    """The batch with marks and knowledge that are functions of its ids, so that they move along with the tokens."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    marks = {"separator": ids % 2 == 0, "full-stop": ids % 3 > 0}
    known = (((ids.unsqueeze(1) + ids.unsqueeze(2)) % 5) * mask.unsqueeze(1) * mask.unsqueeze(2)).float()  # [B,K,K]
    pattern = getattr(guide, "pattern", None)
    knowledge = {}
    if isinstance(pattern, Knowledge):
        knowledge = {pattern.entry("map"): known, pattern.entry("received"): known.sum(1)}
    return Inputs(ids, mask, batch.get("special_tokens_mask"), knowledge, marks, batch.get("rationale_mask"))


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The gradient on every parameter, zeros where there is none; the graph stays."""
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


def assert_same_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    """Equal to `tolerance` of the largest entry; and the largest entry must be something."""
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 1e-6
    for name, gradient in expected.items():
        torch.testing.assert_close(
            actual[name], gradient, rtol=0, atol=tolerance * largest, msg=lambda text, n=name: n + text
        )


def record_of(maps: Tensor, valid: Tensor, *, layers: int = 1, what: str = "received", special=None) -> AttentionRecord:
    """A record made by hand: maps [B,S,Q,K] of `layers` layers, masked and reduced like the seam does it."""
    chunks = (maps * valid[:, None, :, None]).chunk(layers, 1)
    seen = {layer: chunk if what == "map" else chunk.sum(2) for layer, chunk in enumerate(chunks)}
    request = Request.of(what, {layer: tuple(range(chunk.shape[1])) for layer, chunk in enumerate(chunks)})
    return AttentionRecord(request).fill(seen, valid, special)


NO_INPUTS = Inputs(None, None, None)


def random_maps(valid: Tensor, maps: int = 6) -> Tensor:
    """Random distributions over the valid keys, [B,S,Q,K] in float64, with a gradient."""
    keys = valid.shape[1]
    scores = torch.randn(valid.shape[0], maps, keys, keys, dtype=torch.float64) * 2
    return scores.masked_fill(~valid[:, None, None], -torch.inf).softmax(-1).requires_grad_()
