"""Statistics of heads: how alike they are, and where their attention goes, for one example and over many.

`head_vectors`, `mean_map` and `principal_components` describe one example. `HeadStatistics` collects means over
examples from received attention, in float64 on the CPU, over the tokens of an example and never over its padding.

`MapStatistics` collects them from whole maps without keeping any. For an example of T tokens, a head's attention A
(every row sums to one), and rows q of tokens:

    entropy   = mean over q of  -sum_k A[q,k] log A[q,k] / log T      1 evenly spread, 0 all on one token
    sink      = mean over q of  the sum of A[q,k] over special tokens k, such as [CLS] and [SEP]
    distance  = mean over q of  sum_k A[q,k] |q - k|                  in tokens
    cross     = mean over q in a text of the sum of A[q,k] over the tokens k of the other text
    match     = mean over q with a target of the sum of A[q,k] over the tokens k that are targets of q in a pattern
    similarity = mean cosine, over all other heads, between what the tokens receive from this head and from that one

Each is a mean over examples, every example counting once, and has a standard error over examples. `cross` is over the
examples that are pairs, `match` over those in which a pattern has a target. A text of one token has entropy 1. Maps are
reduced layer by layer while the model runs (`capture(..., digest=...)`), in single precision; the sums over examples
are in double precision. Neither the size of a batch nor padding changes a result but for rounding.

Shapes: B batch, n heads of a layer, M recorded heads of all layers, Q queries, K keys, T tokens of an example, S
statistics of a map.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwise.attention import AttentionRecord
from headwise.errors import InputError, StateError
from headwise.text_formats import grid_html

TINY = torch.finfo(torch.float64).tiny
# Entries of an axis this near to the largest count as equal to it: rounding must not decide between them.
TIE = 1 - 1e-6
OF_MAPS = ("entropy", "sink", "distance", "cross", "match")
NAMES = (*OF_MAPS, "similarity")
# Below any attention that counts: its logarithm is finite, and times a weight of zero it is nothing.
LEAST = 1e-30

# -- one example -----------------------------------------------------------------------------------------------------


def head_vectors(record: AttentionRecord, example: int) -> Tensor:
    """[M,T]: how each head's attention is shared out over the tokens of one example; every row sums to one."""
    received, tokens = _of_example(record, "received", example)
    received = received[:, tokens]
    return received / received.sum(1, keepdim=True).clamp_min(TINY)


def mean_map(record: AttentionRecord, example: int) -> Tensor:
    """[T,T]: the mean of all recorded maps of one example; rows are the tokens that look, columns those looked at."""
    maps, tokens = _of_example(record, "map", example)
    return maps.mean(0)[tokens][:, tokens]


def _of_example(record: AttentionRecord, what: str, example: int) -> tuple[Tensor, Tensor]:
    """[M,K] or [M,Q,K] of one example, and [K] True at its tokens."""
    check_kind(record, what)
    size = record.valid.shape[0]
    if not 0 <= example < size:
        raise InputError(f"example {example} is not in the record: it holds 0 to {size - 1}.")
    # Layer by layer, so that the batch is not copied for one example.
    attention = torch.cat([record[layer][example].detach().cpu().double() for layer in record.heads])
    return attention, record.valid[example].cpu()


def principal_components(vectors: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """The vectors as points on the axes along which they differ most.

    The sign of such an axis is arbitrary, so a rule sets it: its largest entry, the first of equals, is positive.

    Args:
        vectors: [M,T] one row per point.
        count: how many axes; those that the points do not have stay zero.

    Returns:
        coordinates [M,count], and the share of the variance that each axis explains, [count].
    """
    if vectors.dim() != 2 or 0 in vectors.shape or count < 1:
        raise InputError(f"expected vectors [M,T] and a count of 1 or more, not {list(vectors.shape)} and {count}.")
    values = vectors.detach().cpu().double()
    left, lengths, axes = torch.linalg.svd(values - values.mean(0), full_matrices=False)
    size = axes.abs()
    largest = (size >= TIE * size.amax(1, keepdim=True)).byte().argmax(1, keepdim=True)
    signs = axes.gather(1, largest).squeeze(1).sign()
    explained = lengths.square() / lengths.square().sum().clamp_min(TINY)
    missing = (0, max(0, count - len(lengths)))
    coordinates = left * (lengths * signs)
    return functional.pad(coordinates[:, :count], missing), functional.pad(explained[:count], missing)


# -- sums over many examples -----------------------------------------------------------------------------------------


def check_kind(record: AttentionRecord, what: str) -> None:
    """Refuse a record of the other kind."""
    if record.what != what:
        raise InputError(f"the record holds {record.what!r}: capture it with what={what!r}.")


def check_finite(attention: Tensor) -> None:
    """Refuse attention [B,...] that is not finite."""
    broken = ~attention.flatten(1).isfinite().all(1)  # [B]
    if bool(broken.any()):
        raise InputError(f"the attention of example {int(broken.nonzero()[0])} is not finite: has training diverged?")


class HeadSums:
    """The base of classes that add up values of the same heads, batch by batch."""

    def __init__(self) -> None:
        """Start with no batch."""
        self._heads: dict[int, tuple[int, ...]] | None = None
        self._sums: dict[str, Tensor] = {}

    def _add(self, record: AttentionRecord, **values: Tensor) -> None:
        """Add values [M,...] of the record's heads to the sums of their names."""
        if self._heads is not None and self._heads != record.heads:
            raise InputError(
                f"this record has the heads {record.heads}, the ones before it {self._heads}: "
                f"take a {type(self).__name__} for each choice of heads."
            )
        self._heads = dict(record.heads)
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def _known_heads(self) -> dict[int, tuple[int, ...]]:
        if self._heads is None:
            raise StateError("no batch was added yet: call add after a forward pass, then result.")
        return self._heads

    def _by_layer(self, values: Tensor) -> list[list[float]]:
        """[M] as a list of heads for each layer."""
        return [part.tolist() for part in values.split([len(heads) for heads in self._known_heads().values()])]


@dataclass(frozen=True)
class HeadSummary:
    """The result of `HeadStatistics`. Every example counts once, whatever its length."""

    examples: int
    """How many examples were added."""
    similarity: float
    """Mean cosine between the received attention of two different heads: 1 if all heads are alike."""
    entropy: float
    """Mean entropy of received attention over its largest value: 1 if evenly spread, 0 if all on one token."""
    deciding_examples: int
    """How many examples had a token that decides the label; the next two are means over these."""
    deciding_share: float | None
    """Share of all attention that the deciding tokens receive; None if there were none."""
    deciding_lift: float | None
    """That share over the tokens' share of positions: 1 if they receive as much as any other token."""
    special_examples: int
    """How many examples had a token known to be special, such as [CLS]."""
    special_share: float | None
    """Share of all attention that special tokens receive; None if the special tokens are unknown."""
    special_lift: float | None
    """That share over the tokens' share of positions."""
    layers: list[int]
    """The layers, one for each row of the three tables below."""
    heads: list[list[int]]
    """The heads of each layer."""
    similarity_by_head: list[list[float]]
    """For each head of each layer, its mean cosine with all other heads of all layers."""
    entropy_by_head: list[list[float]]
    """For each head of each layer, its mean normalised entropy."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        title = f"Similarity of each head to all others, mean over {self.examples} examples"
        return grid_html(title, self.similarity_by_head, [f"mean {self.similarity:.4g}, entropy {self.entropy:.4g}"])


class HeadStatistics(HeadSums):
    """Collects batch by batch what `HeadSummary` reports; keeps a few sums, no attention.

        statistics = HeadStatistics()
        with hw.capture(model) as record:
            for batch in batches:
                model(**batch)
                statistics.add(record, deciding)
        statistics.result().similarity

    An example that is added twice counts twice.
    """

    def __init__(self) -> None:
        """Start with no example."""
        super().__init__()
        self._examples = 0
        # Of the examples that have such a token: their number, and the sums of its share of attention and of its lift.
        self._shares: dict[str, list[float]] = {"deciding": [0, 0.0, 0.0], "special": [0, 0.0, 0.0]}

    def add(self, record: AttentionRecord, deciding: Tensor | None = None) -> None:
        """Count the examples of one forward pass.

        Args:
            record: what="received", of the same heads each time.
            deciding: [B,K] True at the tokens that decide the label; None if that is not known.
        """
        check_kind(record, "received")
        valid = record.valid.cpu()
        received = record.stacked().detach().cpu().double().masked_fill(~valid.unsqueeze(1), 0.0)  # [B,M,K]
        check_finite(received)
        similarity, total = similarity_to_others(received), received.sum(2).clamp_min(TINY)  # [B,M]
        shares, count = received / total.unsqueeze(2), valid.sum(1, keepdim=True).double()  # [B,M,K], [B,1]
        # Over that of an even spread; a single token is an even spread.
        entropy = -torch.xlogy(shares, shares).sum(2) / count.clamp_min(2).log()
        entropy = torch.where(count > 1, entropy, 1.0)
        if deciding is not None and (deciding.dtype != torch.bool or deciding.shape != valid.shape):
            got = f"{str(deciding.dtype).removeprefix('torch.')} {list(deciding.shape)}"
            raise InputError(f"deciding is {got}: expected a bool mask {list(valid.shape)}, like the batch.")
        self._add(record, similarity=similarity.sum(0), entropy=entropy.sum(0))
        self._examples += received.shape[0]
        for name, marked in (("deciding", deciding), ("special", record.special)):
            if marked is None:
                continue
            mask = marked.cpu() & valid
            some, sums = mask.any(1), self._shares[name]  # [B]
            share = ((received * mask.unsqueeze(1)).sum(2) / total).mean(1)[some]
            sums[0] += int(some.sum())
            sums[1] += float(share.sum())
            sums[2] += float((share * valid.sum(1)[some] / mask.sum(1)[some]).sum())

    def result(self) -> HeadSummary:
        """The means over all examples so far."""
        heads = self._known_heads()
        similarity, entropy = (self._sums[name] / self._examples for name in ("similarity", "entropy"))  # [M]
        shares: dict[str, Any] = {}
        for name, (count, share, lift) in self._shares.items():
            shares[f"{name}_examples"] = count
            shares[f"{name}_share"] = share / count if count else None
            shares[f"{name}_lift"] = lift / count if count else None
        return HeadSummary(
            examples=self._examples,
            similarity=float(similarity.mean()),
            entropy=float(entropy.mean()),
            **shares,
            layers=list(heads),
            heads=[list(each) for each in heads.values()],
            similarity_by_head=self._by_layer(similarity),
            entropy_by_head=self._by_layer(entropy),
        )


def similarity_to_others(received: Tensor) -> Tensor:
    """[B,M]: mean cosine of each map with all others. The sum of all stands for them, so no M x M matrix is needed."""
    maps = received.shape[1]
    if maps < 2:
        raise InputError("only one head was recorded: similarity needs two or more.")
    unit = functional.normalize(received, dim=2, eps=TINY)
    others = unit.sum(1, keepdim=True) - unit  # [B,M,K]
    return (unit * others).sum(2) / (maps - 1)


# -- statistics of maps ------------------------------------------------------------------------------------------------


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
        super().__init__()
        self._marks: Marks | None = None
        self._weights: tuple[Tensor, ...] | None = None
        self._counts = dict.fromkeys(NAMES, 0)  # examples that have the statistic

    def begin(self, marks: Marks) -> None:
        """Set the tokens of the coming batch."""
        self._marks, self._weights = marks, None

    def digest(self, layer: int, rows: slice, maps: Tensor) -> Tensor:
        """[B,n,S+K]: the statistics of the maps of one layer, and behind them what each key received."""
        if self._weights is None:
            self._weights = tuple(each.to(maps.device) for each in _weights(self._known_marks()))
        row_weights, key_weights, entropy_weights, cell_weights = (each[rows] for each in self._weights)
        attention = maps.detach().float()
        size, heads, queries, keys = attention.shape
        logarithms = attention.clamp_min(LEAST).log_().mul_(attention)
        entropy = (entropy_weights @ logarithms).sum(3)  # [B,n,1]
        gathered = row_weights @ attention  # [B,n,4,K]
        sink, cross, back, _ = (gathered * key_weights).sum(3).unbind(2)  # [B,n]
        cells = attention.reshape(size, heads, queries * keys) @ cell_weights.transpose(1, 2)  # [B,n,1 or 2]
        match = cells[..., 1] if cells.shape[2] > 1 else torch.zeros_like(sink)
        statistics = torch.stack([entropy[..., 0], sink, cells[..., 0], cross + back, match], 2)
        return torch.cat([statistics, gathered[:, :, 0]], 2)

    def add(self, record: AttentionRecord) -> None:
        """Count the examples of one forward pass."""
        marks = self._known_marks()
        digest = record.stacked().detach().cpu().double()  # [B,M,S+K]
        check_finite(digest)
        valid, pairs = marks.valid.cpu(), ((marks.texts == 0).any(1) & (marks.texts == 1).any(1)).cpu()  # [B,K], [B]
        digest[..., 0] = torch.where((valid.sum(1) > 1)[:, None], digest[..., 0], 1.0)
        digest[..., 3] *= pairs[:, None]
        received = digest[..., len(OF_MAPS) :].masked_fill(~valid[:, None, :], 0.0)
        values = torch.cat([digest[..., : len(OF_MAPS)], similarity_to_others(received).unsqueeze(2)], 2)
        self._add(record, values=values.sum(0), squares=values.square().sum(0))  # [M,S+1]
        targets = marks.targets()
        counts = {"cross": int(pairs.sum()), "match": 0 if targets is None else int(targets.flatten(1).any(1).sum())}
        for name in NAMES:
            self._counts[name] += counts.get(name, len(values))

    def result(self) -> dict[str, dict[str, Any]]:
        """By the name of each statistic: its examples, and for every head of each layer its mean and standard error.

        `cross` is there only if some examples are pairs, `match` only if some have a target. Errors are None where
        there is one example only.
        """
        self._known_heads()
        statistics = {}
        for number, (name, count) in enumerate(self._counts.items()):
            if not count:
                continue
            mean, squares = (self._sums[part][:, number] / count for part in ("values", "squares"))
            variance = (squares - mean.square()).clamp_min(0) * count / max(count - 1, 1)
            errors: Any = self._by_layer((variance / count).sqrt())
            if count == 1:
                errors = [[None] * len(layer) for layer in errors]
            statistics[name] = {"examples": count, "mean": self._by_layer(mean), "error": errors}
        return statistics

    def _known_marks(self) -> Marks:
        if self._marks is None:
            raise StateError("the tokens of the batch are not known: call begin(marks) before the model runs.")
        return self._marks


def _weights(marks: Marks) -> tuple[Tensor, ...]:
    """What maps are multiplied with, computed once for all layers of a batch.

    A map is read as seldom as possible: one product gathers what several kinds of rows give to each key, and only what
    depends on row and key at once needs a product with all of it.

    Returns:
        rows [B,1,4,Q]: how much each query counts among all, in the first text and in the second; the last is zero,
            since four rows at once are multiplied faster than three.
        keys [B,1,4,K]: which keys count for each of these: the special ones, the second text, the first text.
        entropy [B,1,1,Q]: how much each query counts, over minus the largest entropy.
        cells [B,1 or 2,QK]: a map, as one long row, times this is distance and match of the example.
    """
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
    return (
        torch.stack([rows, first / length, second / length, nothing], 1).unsqueeze(1),
        torch.stack([(marks.special & marks.valid).float(), second, first, nothing], 1).unsqueeze(1),
        (-rows / largest[:, None])[:, None, None, :],
        torch.stack(cells, 1).flatten(2),
    )
