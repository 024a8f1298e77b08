"""Which heads follow a pattern: how much of their attention lies on the targets of the pattern.

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
from headwise.errors import InputError, choices
from headwise.heads.statistics import TINY, HeadSums, check_finite, check_kind
from headwise.patterns.base import Pattern, Tokens
from headwise.text_formats import table_html


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
    """For each head of each layer, the share of its attention that lies on the targets."""
    lift_by_head: list[list[float]] | None
    """These shares over `even`: 1 if the head does no better than even attention."""


@dataclass(frozen=True)
class PatternSummary:
    """The result of `PatternScores`."""

    examples: int
    """How many examples were added."""
    layers: list[int]
    """The layers, one for each row of the tables by head."""
    heads: list[list[int]]
    """The heads of each layer."""
    patterns: dict[str, PatternScore]
    """The score of each pattern, by its name."""

    def strongest(self, pattern: str, count: int = 3) -> list[HeadScore]:
        """The heads with the largest shares, largest first; fewer if there are fewer, none without a target."""
        if pattern not in self.patterns:
            raise InputError(f"no scores of pattern {pattern!r} were taken: {choices(pattern, self.patterns)}.")
        tables = self.patterns[pattern]
        if tables.share_by_head is None or tables.lift_by_head is None:
            return []
        scores = [
            HeadScore(layer, *score)
            for layer, *rows in zip(self.layers, self.heads, tables.share_by_head, tables.lift_by_head, strict=True)
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


class PatternScores(HeadSums):
    """Collects batch by batch what `PatternSummary` reports; keeps a few sums, no attention.

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
        """Start with no example.

        Args:
            patterns: what to look for, each name once.
        """
        super().__init__()
        self._patterns = {pattern.name: pattern for pattern in patterns}
        if not patterns or len(self._patterns) < len(patterns):
            names = ", ".join(pattern.name for pattern in patterns) or "none"
            raise InputError(f"patterns {names}: expected one or more, each name once; take a PatternScores for each.")
        self._total = 0
        self._examples = torch.zeros(len(patterns), dtype=torch.long)  # [P] those with a target
        self._even = torch.zeros(len(patterns), dtype=torch.float64)  # [P]

    def add(self, record: AttentionRecord, tokens: Tokens) -> None:
        """Count the examples of one forward pass.

        Args:
            record: what="map", of the same heads each time.
            tokens: the same batch, with the marks and the knowledge that the patterns need.
        """
        check_kind(record, "map")
        valid = record.valid.cpu()
        if tokens.valid.shape != valid.shape or not torch.equal(tokens.valid.cpu(), valid):
            raise InputError(
                f"the tokens {list(tokens.valid.shape)} are not those of the record {list(valid.shape)}: "
                "give Tokens(valid=record.valid) of the same forward pass."
            )
        weights = torch.stack([_weights(pattern, tokens) for pattern in self._patterns.values()], 3)  # [B,Q,K,P]
        both = (valid.unsqueeze(1) & valid.unsqueeze(2)).unsqueeze(1)  # [B,1,Q,K]
        layers = []
        for layer in record.heads:
            attention = record[layer].detach().cpu().double().masked_fill(~both, 0.0)  # [B,n,Q,K]
            check_finite(attention)
            layers.append((attention.flatten(2) @ weights.flatten(1, 2)).sum(0))  # [n,P]
        self._add(record, shares=torch.cat(layers))  # [M,P]
        per_row = weights.sum(2) / valid.sum(1).clamp_min(1)[:, None, None]  # [B,Q,P] of even attention
        self._total += len(valid)
        self._examples += (weights > 0).any(2).any(1).sum(0)
        self._even += per_row.sum((0, 1))

    def result(self) -> PatternSummary:
        """The means over all examples so far."""
        heads, patterns = self._known_heads(), {}
        for number, name in enumerate(self._patterns):
            examples = int(self._examples[number])
            if not examples:
                patterns[name] = PatternScore(0, None, None, None, None)
                continue
            even, shares = self._even[number] / examples, self._sums["shares"][:, number] / examples  # [], [M]
            patterns[name] = PatternScore(
                examples=examples,
                even=float(even),
                share=float(shares.mean()),
                share_by_head=self._by_layer(shares),
                lift_by_head=self._by_layer(shares / even.clamp_min(TINY)),
            )
        return PatternSummary(self._total, list(heads), [list(each) for each in heads.values()], patterns)


def _weights(pattern: Pattern, tokens: Tokens) -> Tensor:
    """[B,Q,K] 1 / (rows with a target) at the targets of the pattern, 0 elsewhere.

    The sum of attention times this is the share of one example.
    """
    target = pattern.target(tokens)
    present = target.present.cpu()  # [B,Q]
    cells = (target.rows.cpu() > 0) & present.unsqueeze(2)
    return cells.double() / present.sum(1).clamp_min(1)[:, None, None]
