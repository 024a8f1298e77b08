"""What a task hands over: texts and labels, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwise.errors import InputError

Label = int | float | None
Spans = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Split:
    """Examples of one part of a data set, such as its training part.

    Each example has one or two texts and a label: the index of a class, a number, or None where it is not known.
    Spans say which characters decide the label, as (sentence, start, end).
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[Label, ...]
    spans: tuple[Spans, ...] | None = None
    groups: tuple[str, ...] | None = None
    """Of each example what it belongs to, such as the claim whose candidates are ranked; one's stand together."""

    def __post_init__(self) -> None:
        """Refuse parts of different lengths."""
        spans = len(self.texts) if self.spans is None else len(self.spans)
        if not len(self.texts) == len(self.labels) == spans:
            raise InputError(
                f"a split of {len(self.texts)} texts, {len(self.labels)} labels and {spans} spans: "
                "expected as many of each; give every example one."
            )
        if self.groups is not None and len(self.groups) != len(self.texts):
            raise InputError(
                f"a split of {len(self.texts)} texts and {len(self.groups)} groups: expected as many of each; give "
                "every example one."
            )

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.texts)

    def subset(self, indices: Iterable[int]) -> Split:
        """The examples at these places, in this order."""
        places = [int(index) for index in indices]
        spans = None if self.spans is None else tuple(self.spans[place] for place in places)
        groups = None if self.groups is None else tuple(self.groups[place] for place in places)
        texts = tuple(self.texts[place] for place in places)
        return Split(texts, tuple(self.labels[place] for place in places), spans, groups)

    @property
    def labelled(self) -> bool:
        """Whether every example has a label."""
        return all(label is not None for label in self.labels)
