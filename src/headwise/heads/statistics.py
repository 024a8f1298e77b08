"""Statistics of each head over a data set, from its maps but without keeping any: a few numbers per head and example.

For an example of T tokens, a head's attention A (every row sums to one), and rows q of tokens:

    entropy   = mean over q of  -sum_k A[q,k] log A[q,k] / log T      1 evenly spread, 0 all on one token
    sink      = mean over q of  the sum of A[q,k] over special tokens k, such as [CLS] and [SEP]
    distance  = mean over q of  sum_k A[q,k] |q - k|                  in tokens
    cross     = mean over q in a text of the sum of A[q,k] over the tokens k of the other text
    match     = mean over q with a target of the sum of A[q,k] over the tokens k that are targets of q in a pattern
    similarity = mean cosine, over all other heads, between what the tokens receive from this head and from that one

Each is a mean over examples, every example counting once, and has a standard error over examples. `cross` is over the
examples that are pairs, `match` over those in which a pattern has a target; there is none where no example is one.
A text of one token has entropy 1.

Maps are digested layer by layer while the model runs (`capture(..., digest=...)`), in single precision; the sums over
examples are in double precision. Neither the size of a batch nor padding changes a result but for rounding.

Shapes: B batch, n heads of a layer, M heads of all layers, Q queries, K keys, S statistics of a map.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.attention import AttentionRecord
from headwise.errors import StateError
from headwise.heads.similarity import HeadSums, check_finite, similarity_to_others

OF_MAPS = ("entropy", "sink", "distance", "cross", "match")
NAMES = (*OF_MAPS, "similarity")
# Below any attention that counts: its logarithm is finite, and times a weight of zero it is nothing.
LEAST = 1e-30


@dataclass(frozen=True)
class Marks:
    """What is known of the tokens of a batch."""

    valid: Tensor
    """[B,K] True at tokens."""
    special: Tensor
    """[B,K] True at tokens that frame the texts."""
    texts: Tensor
    """[B,K] the number of the text of each token, -1 for special tokens and padding."""
    pattern: Tensor | None = None
    """[B,Q,K] True at the targets of a pattern; None if there is no pattern."""

    def targets(self) -> Tensor | None:
        """[B,Q,K] the targets between tokens."""
        if self.pattern is None:
            return None
        return self.pattern & self.valid.unsqueeze(1) & self.valid.unsqueeze(2)


@dataclass(frozen=True)
class HeadStatistic:
    """One number for every head."""

    name: str
    examples: int
    mean: dict[tuple[int, int], float]
    """By layer and head."""
    error: dict[tuple[int, int], float | None]
    """Standard error of the mean over examples; None where there is one example only."""


class MapStatistics(HeadSums):
    """Collects the statistics of the heads batch by batch.

    statistics = MapStatistics()
    with hw.capture(model, what="map", digest=statistics.digest) as record:
        for batch, marks in batches:
            statistics.begin(marks)
            model(**batch)
            statistics.add(record)
    statistics.result()
    """

    def __init__(self) -> None:
        """Start with no example."""
        self._marks: Marks | None = None
        self._weights: _Weights | None = None
        self._counts = dict.fromkeys(NAMES, 0)  # examples that have the statistic
        self._sums = torch.zeros(0)  # [M, S+1]
        self._squares = torch.zeros(0)

    def begin(self, marks: Marks) -> None:
        """Set the tokens of the coming batch."""
        self._marks, self._weights = marks, None

    def digest(self, layer: int, rows: slice, maps: Tensor) -> Tensor:
        """[B,n,S+K]: the statistics of the maps of one layer, and behind them what each key received."""
        if self._weights is None:
            self._weights = _Weights.of(self._known_marks(), maps.device)
        weights, attention = self._weights, maps.detach().float()
        size, heads, queries, keys = attention.shape
        logarithms = attention.clamp_min(LEAST).log_().mul_(attention)
        entropy = (weights.entropy[rows] @ logarithms).sum(3)  # [B,n,1]
        gathered = weights.rows[rows] @ attention  # [B,n,4,K]
        sink, cross, back, _ = (gathered * weights.keys[rows]).sum(3).unbind(2)  # [B,n]
        cells = attention.reshape(size, heads, queries * keys) @ weights.cells[rows].transpose(1, 2)  # [B,n,1 or 2]
        match = cells[..., 1] if cells.shape[2] > 1 else torch.zeros_like(sink)
        statistics = torch.stack([entropy[..., 0], sink, cells[..., 0], cross + back, match], 2)
        return torch.cat([statistics, gathered[:, :, 0]], 2)

    def add(self, record: AttentionRecord) -> None:
        """Count the examples of one forward pass."""
        marks = self._known_marks()
        digest = record.stacked().detach().cpu().double()  # [B,M,S+K]
        check_finite(digest)
        self._check_heads(record)
        if self._heads is None:
            self._heads = dict(record.heads)
            self._sums, self._squares = torch.zeros(2, digest.shape[1], len(NAMES), dtype=torch.float64)
        valid, pairs = marks.valid.cpu(), ((marks.texts == 0).any(1) & (marks.texts == 1).any(1)).cpu()  # [B,K], [B]
        digest[..., 0] = torch.where((valid.sum(1) > 1)[:, None], digest[..., 0], 1.0)
        digest[..., 3] *= pairs[:, None]
        received = digest[..., len(OF_MAPS) :].masked_fill(~valid[:, None, :], 0.0)
        values = torch.cat([digest[..., : len(OF_MAPS)], similarity_to_others(received).unsqueeze(2)], 2)
        targets = marks.targets()
        counts = {"cross": int(pairs.sum()), "match": 0 if targets is None else int(targets.flatten(1).any(1).sum())}
        for name in NAMES:
            self._counts[name] += counts.get(name, len(values))
        self._sums += values.sum(0)
        self._squares += values.square().sum(0)

    def result(self) -> list[HeadStatistic]:
        """The means over all examples; `cross` only if some are pairs, `match` only if some have a target."""
        heads = [(layer, head) for layer, heads in self._known_heads().items() for head in heads]
        statistics = []
        for number, (name, count) in enumerate(self._counts.items()):
            if not count:
                continue
            mean = self._sums[:, number] / count
            error: list[float | None] = [None] * len(heads)
            if count > 1:
                variance = (self._squares[:, number] / count - mean.square()).clamp_min(0) * count / (count - 1)
                error = list((variance / count).sqrt().tolist())
            means, errors = dict(zip(heads, mean.tolist(), strict=True)), dict(zip(heads, error, strict=True))
            statistics.append(HeadStatistic(name, count, means, errors))
        return statistics

    def _known_marks(self) -> Marks:
        if self._marks is None:
            raise StateError("the tokens of the batch are not known: call begin(marks) before the model runs.")
        return self._marks


@dataclass(frozen=True)
class _Weights:
    """What maps are multiplied with, computed once for all layers of a batch.

    A map is read as seldom as possible: one product gathers what several kinds of rows give to each key, and only what
    depends on row and key at once needs a product with all of it.
    """

    rows: Tensor
    """[B,1,4,Q] how much each query counts among all, in the first text and in the second; the last is nothing, since
    four rows at once are multiplied faster than three."""
    keys: Tensor
    """[B,1,4,K] which keys count for each of these: the special ones, the second text, the first text."""
    entropy: Tensor
    """[B,1,1,Q] how much each query counts, over minus the largest entropy."""
    cells: Tensor
    """[B,1 or 2,QK] such that a map, as one long row, times this is distance and match of the example; each in one
    piece, which products read fastest."""

    @classmethod
    def of(cls, marks: Marks, device: torch.device) -> _Weights:
        valid = marks.valid.float()
        rows = valid / valid.sum(1, keepdim=True).clamp_min(1)  # [B,Q]
        largest = valid.sum(1).clamp_min(2).log()  # [B]
        first, second = (marks.texts == 0).float(), (marks.texts == 1).float()
        length = (first + second).sum(1, keepdim=True).clamp_min(1)
        nothing = torch.zeros_like(rows)
        index = torch.arange(rows.shape[1], device=rows.device)
        cells = [rows[:, :, None] * (index[:, None] - index[None, :]).abs().float()]
        if (targets := marks.targets()) is not None:
            some = targets.any(2).float()  # [B,Q]
            cells.append((some / some.sum(1, keepdim=True).clamp_min(1)).unsqueeze(2) * targets.float())
        return cls(
            torch.stack([rows, first / length, second / length, nothing], 1).unsqueeze(1).to(device),
            torch.stack([(marks.special & marks.valid).float(), second, first, nothing], 1).unsqueeze(1).to(device),
            (-rows / largest[:, None])[:, None, None, :].to(device),
            torch.stack(cells, 1).flatten(2).to(device),
        )
