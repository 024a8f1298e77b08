"""Which heads follow a pattern already: how much of their attention lies where the pattern wants it.

For a pattern with target T, a row q with a target, and attention A:

    mass(q)  = sum of A[q,k] over the keys with T[q,k] > 0
    share    = mean over examples of the mean of mass(q) over the rows with a target
    even     = the same, if every row were spread evenly over the tokens of its example
    lift     = share / even

Examples without a row that has a target are left out. Everything is computed in float64 on the CPU, a layer at a time,
so neither the size of a batch nor the length that it was padded to changes a result.

Shapes: B batch, n recorded heads of a layer, M recorded heads of all layers, P patterns, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.attention import AttentionRecord
from headwise.errors import InputError, StateError, choices
from headwise.heads.similarity import TINY, check_kind
from headwise.notebook import table_html
from headwise.patterns.base import Pattern, Tokens


class HeadScore(NamedTuple):
    """How well one head follows a pattern. Layers and heads count from 0."""

    layer: int
    head: int
    share: float
    lift: float


@dataclass(frozen=True)
class PatternScore:
    """How well the heads follow one pattern. All but `examples` is None if no example had a target."""

    examples: int
    """How many examples had a row with a target; each counts once."""
    even: float | None
    """The share that even attention would have."""
    share: float | None
    """The mean of all heads' shares."""
    share_by_head: list[list[float]] | None
    """For each head of each layer, the share of its attention that lies where the pattern wants it."""
    lift_by_head: list[list[float]] | None
    """These shares over `even`: 1 if the head does no better than even attention."""


@dataclass(frozen=True)
class PatternSummary:
    """What `PatternScores` found."""

    examples: int
    """How many examples were seen."""
    layers: list[int]
    """The layers, one for each row of the tables by head."""
    heads: list[list[int]]
    """The heads of each layer."""
    patterns: dict[str, PatternScore]
    """What was found of each pattern, by its name."""

    def strongest(self, pattern: str, count: int = 3) -> list[HeadScore]:
        """The heads with the largest shares, largest first; fewer if there are fewer, none without a target."""
        if pattern not in self.patterns:
            raise InputError(f"no scores of pattern {pattern!r} were taken: {choices(pattern, self.patterns)}.")
        found = self.patterns[pattern]
        if found.share_by_head is None or found.lift_by_head is None:
            return []
        scores = [
            HeadScore(layer, *score)
            for layer, *rows in zip(self.layers, self.heads, found.share_by_head, found.lift_by_head, strict=True)
            for score in zip(*rows, strict=True)
        ]
        return sorted(scores, key=lambda score: -score.share)[:count]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """For notebooks: the heads that follow each pattern most."""
        rows = [[name, *score] for name in self.patterns for score in self.strongest(name)]
        title = f"Heads that follow a pattern, over {self.examples} examples"
        return table_html(title, ["pattern", "layer", "head", "share", "lift"], rows)


class PatternScores:
    """Collects batch by batch what `PatternSummary` tells; keeps a few sums, no attention.

        scores = PatternScores([First(), Next()])
        with hw.capture(model, what="map") as record:
            for batch in batches:
                model(**batch)
                scores.add(record, Tokens(valid=record.valid))
        scores.result().strongest("next")

    An example that is added twice counts twice. Where a model lets a token see its neighbours only, as some layers of
    ModernBERT do, even attention is still that over all tokens.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        """Nothing seen yet.

        Args:
            patterns: what to look for, each name once.
        """
        self._patterns = {pattern.name: pattern for pattern in patterns}
        if not patterns or len(self._patterns) < len(patterns):
            names = ", ".join(pattern.name for pattern in patterns) or "none"
            raise InputError(f"patterns {names}: expected one or more, each name once; take a PatternScores for each.")
        self._heads: dict[int, tuple[int, ...]] | None = None
        self._seen = 0
        self._examples = torch.zeros(len(patterns), dtype=torch.long)  # [P]
        self._even = torch.zeros(len(patterns), dtype=torch.float64)  # [P]
        self._shares = torch.zeros(0)  # [M,P]

    def add(self, record: AttentionRecord, tokens: Tokens) -> None:
        """Count the examples of one forward pass.

        Args:
            record: what="map", of the same heads each time.
            tokens: the same batch, with the marks and the knowledge that the patterns ask for.
        """
        check_kind(record, "map")
        self._check_heads(record)
        valid = _checked_valid(record, tokens)
        weights = torch.stack([_weights(pattern, tokens) for pattern in self._patterns.values()], 3)  # [B,Q,K,P]
        shares = torch.cat([_shares(record[layer], valid, weights) for layer in record.heads])  # [M,P]
        per_row = weights.sum(2) / valid.sum(1).clamp_min(1)[:, None, None]  # [B,Q,P] of even attention
        self._heads = dict(record.heads)
        self._seen += len(valid)
        self._examples += (weights > 0).any(2).any(1).sum(0)
        self._even += per_row.sum((0, 1))
        self._shares = shares if not self._shares.numel() else self._shares + shares

    def result(self) -> PatternSummary:
        """The means over all examples so far."""
        if self._heads is None:
            raise StateError(
                "no batch was added yet: call add(record, tokens) after a forward pass, then ask for the result."
            )
        return PatternSummary(
            examples=self._seen,
            layers=list(self._heads),
            heads=[list(heads) for heads in self._heads.values()],
            patterns={name: self._score(place) for place, name in enumerate(self._patterns)},
        )

    def _score(self, place: int) -> PatternScore:
        examples = int(self._examples[place])
        if not examples:
            return PatternScore(examples=0, even=None, share=None, share_by_head=None, lift_by_head=None)
        even, shares = self._even[place] / examples, self._shares[:, place] / examples  # [], [M]
        return PatternScore(
            examples=examples,
            even=float(even),
            share=float(shares.mean()),
            share_by_head=self._by_layer(shares),
            lift_by_head=self._by_layer(shares / even.clamp_min(TINY)),
        )

    def _check_heads(self, record: AttentionRecord) -> None:
        if self._heads is not None and self._heads != record.heads:
            raise InputError(
                f"this record has the heads {record.heads}, the ones before it {self._heads}: "
                "take a PatternScores for each choice of heads."
            )

    def _by_layer(self, values: Tensor) -> list[list[float]]:
        sizes = [len(heads) for heads in (self._heads or {}).values()]
        return [part.tolist() for part in values.split(sizes)]


def _checked_valid(record: AttentionRecord, tokens: Tokens) -> Tensor:
    """[B,K], the same for both."""
    valid = record.valid.cpu()
    if tokens.valid.shape != valid.shape or not torch.equal(tokens.valid.cpu(), valid):
        raise InputError(
            f"the tokens {list(tokens.valid.shape)} are not those of the record {list(valid.shape)}: "
            "give Tokens(valid=record.valid) of the same forward pass."
        )
    return valid


def _weights(pattern: Pattern, tokens: Tokens) -> Tensor:
    """[B,Q,K] 1 / (rows with a target) where the pattern wants attention, 0 elsewhere.

    The sum of attention times this is the share of one example.
    """
    target = pattern.target(tokens)
    wanted = (target.rows.cpu() > 0) & target.present.cpu().unsqueeze(2)
    rows = target.present.cpu().sum(1).clamp_min(1)
    return wanted.double() / rows[:, None, None]


def _shares(maps: Tensor, valid: Tensor, weights: Tensor) -> Tensor:
    """[n,P] the sum over examples of the shares of one layer's maps [B,n,Q,K]."""
    attention = maps.detach().cpu().double()
    attention = attention.masked_fill(~(valid.unsqueeze(1) & valid.unsqueeze(2)).unsqueeze(1), 0.0)
    broken = ~attention.flatten(1).isfinite().all(1)  # [B]
    if bool(broken.any()):
        raise InputError(f"the attention of example {int(broken.nonzero()[0])} is not finite: has training diverged?")
    return (attention.flatten(2) @ weights.flatten(1, 2)).sum(0)
