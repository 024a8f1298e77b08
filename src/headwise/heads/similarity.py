"""How alike the heads are, and which tokens their attention goes to; numbers and arrays only, others draw them.

Everything is computed in float64 on the CPU, over the tokens of an example and never over its padding, so neither the
size of a batch nor the length that it was padded to changes a result.

Shapes: B batch, M maps = recorded heads of all recorded layers, K keys.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwise.attention import AttentionRecord
from headwise.errors import InputError, StateError
from headwise.notebook import grid_html

# The heads of one example as vectors, as points, and as one mean map: what figures are drawn from.


TINY = torch.finfo(torch.float64).tiny
# Entries of an axis this near to the largest count as equal to it: rounding must not choose between them.
TIE = 1 - 1e-6


def head_vectors(record: AttentionRecord, example: int) -> Tensor:
    """[M,T]: how each head's attention is shared out over the tokens of one example; every row sums to one."""
    check_kind(record, "received")
    tokens = _tokens(record, example)
    received = _of_example(record, example)[:, tokens]
    return received / received.sum(1, keepdim=True).clamp_min(TINY)


def mean_map(record: AttentionRecord, example: int) -> Tensor:
    """[T,T]: the mean of all recorded maps of one example; rows are the tokens that look, columns those looked at."""
    check_kind(record, "map")
    tokens = _tokens(record, example)
    return _of_example(record, example).mean(0)[tokens][:, tokens]


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
    return _resized(left * (lengths * signs), count), _resized(explained, count)


def check_kind(record: AttentionRecord, what: str) -> None:
    """Refuse a record of the other kind."""
    if record.what != what:
        raise InputError(f"the record holds {record.what!r}: capture it with what={what!r}.")


def _tokens(record: AttentionRecord, example: int) -> Tensor:
    size = record.valid.shape[0]
    if not 0 <= example < size:
        raise InputError(f"example {example} is not in the record: it holds 0 to {size - 1}.")
    return record.valid[example].cpu()  # [K]


def _of_example(record: AttentionRecord, example: int) -> Tensor:
    """[M,K] or [M,Q,K]; picked layer by layer, so that the batch is not copied for one example."""
    return torch.cat([record[layer][example].detach().cpu().double() for layer in record.heads])


def _resized(values: Tensor, count: int) -> Tensor:
    """The first `count` of the last axis, zeros where it is shorter."""
    return torch.nn.functional.pad(values[..., :count], (0, max(0, count - values.shape[-1])))


@dataclass(frozen=True)
class HeadSummary:
    """What `HeadStatistics` found. Every example counts once, whatever its length."""

    examples: int
    """How many examples were seen."""
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
    """Share of all attention that special tokens receive; None if nobody said which are special."""
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


class HeadStatistics:
    """Collects batch by batch what `HeadSummary` tells; keeps a few sums, no attention.

        statistics = HeadStatistics()
        with hw.capture(model) as record:
            for batch in batches:
                model(**batch)
                statistics.add(record, deciding)
        statistics.result().similarity

    An example that is added twice counts twice.
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._heads: dict[int, tuple[int, ...]] | None = None
        self._examples = 0
        self._similarity = torch.zeros(0)
        self._entropy = torch.zeros(0)
        self._deciding = _Shares()
        self._special = _Shares()

    def add(self, record: AttentionRecord, deciding: Tensor | None = None) -> None:
        """Count the examples of one forward pass.

        Args:
            record: what="received", of the same heads each time.
            deciding: [B,K] True at the tokens that decide the label; None if that is not known.
        """
        received, valid = _received(record), record.valid.cpu()
        similarity, entropy = similarity_to_others(received), _entropy(received, valid)  # [B,M]
        wanted = None if deciding is None else _checked_mask(deciding, valid)
        self._same_heads(record, received.shape[1])
        self._examples += received.shape[0]
        self._similarity += similarity.sum(0)
        self._entropy += entropy.sum(0)
        if wanted is not None:
            self._deciding.add(received, valid, wanted)
        if record.special is not None:
            self._special.add(received, valid, record.special.cpu())

    def result(self) -> HeadSummary:
        """The means over all examples so far."""
        if self._heads is None:
            raise StateError("no batch was added yet: call add(record) after a forward pass, then ask for the result.")
        similarity, entropy = self._similarity / self._examples, self._entropy / self._examples  # [M]
        return HeadSummary(
            examples=self._examples,
            similarity=float(similarity.mean()),
            entropy=float(entropy.mean()),
            deciding_examples=self._deciding.examples,
            deciding_share=self._deciding.mean_share,
            deciding_lift=self._deciding.mean_lift,
            special_examples=self._special.examples,
            special_share=self._special.mean_share,
            special_lift=self._special.mean_lift,
            layers=list(self._heads),
            heads=[list(heads) for heads in self._heads.values()],
            similarity_by_head=self._by_layer(similarity),
            entropy_by_head=self._by_layer(entropy),
        )

    def _same_heads(self, record: AttentionRecord, maps: int) -> None:
        if self._heads is None:
            self._heads = dict(record.heads)
            self._similarity, self._entropy = torch.zeros(2, maps, dtype=torch.float64)
        elif self._heads != record.heads:
            raise InputError(
                f"this record has the heads {record.heads}, the ones before it {self._heads}: "
                "take a HeadStatistics for each choice of heads."
            )

    def _by_layer(self, values: Tensor) -> list[list[float]]:
        sizes = [len(heads) for heads in (self._heads or {}).values()]
        return [part.tolist() for part in values.split(sizes)]


@dataclass
class _Shares:
    """Sums over the examples that have a chosen token."""

    examples: int = 0
    share: float = 0.0
    lift: float = 0.0

    def add(self, received: Tensor, valid: Tensor, chosen: Tensor) -> None:
        chosen = chosen & valid  # [B,K]
        some = chosen.any(1)  # [B]
        total = received.sum(2).clamp_min(TINY)  # [B,M]
        share = ((received * chosen.unsqueeze(1)).sum(2) / total).mean(1)[some]
        self.examples += int(some.sum())
        self.share += float(share.sum())
        self.lift += float((share * valid.sum(1)[some] / chosen.sum(1)[some]).sum())

    @property
    def mean_share(self) -> float | None:
        return self.share / self.examples if self.examples else None

    @property
    def mean_lift(self) -> float | None:
        return self.lift / self.examples if self.examples else None


def _received(record: AttentionRecord) -> Tensor:
    """[B,M,K], exactly zero on padding."""
    check_kind(record, "received")
    received = record.stacked().detach().cpu().double().masked_fill(~record.valid.cpu().unsqueeze(1), 0.0)
    broken = ~received.isfinite().all(2).all(1)  # [B]
    if bool(broken.any()):
        raise InputError(f"the attention of example {int(broken.nonzero()[0])} is not finite: has training diverged?")
    return received


def similarity_to_others(received: Tensor) -> Tensor:
    """[B,M]: mean cosine of each map with all others. The sum of all stands for them, so no M x M matrix is needed."""
    maps = received.shape[1]
    if maps < 2:
        raise InputError("only one head was recorded: similarity needs two or more.")
    unit = functional.normalize(received, dim=2, eps=TINY)
    others = unit.sum(1, keepdim=True) - unit  # [B,M,K]
    return (unit * others).sum(2) / (maps - 1)


def _entropy(received: Tensor, valid: Tensor) -> Tensor:
    """[B,M]: entropy over that of an even spread; a single token is an even spread."""
    shares = received / received.sum(2, keepdim=True).clamp_min(TINY)
    entropy = -torch.xlogy(shares, shares).sum(2)
    count = valid.sum(1, keepdim=True).double()  # [B,1]
    return torch.where(count > 1, entropy / count.clamp_min(2).log(), 1.0)


def _checked_mask(deciding: Tensor, valid: Tensor) -> Tensor:
    if deciding.dtype != torch.bool or deciding.shape != valid.shape:
        found = f"{str(deciding.dtype).removeprefix('torch.')} {list(deciding.shape)}"
        raise InputError(f"deciding is {found}: expected a bool mask {list(valid.shape)}, like the batch.")
    return deciding.cpu()
