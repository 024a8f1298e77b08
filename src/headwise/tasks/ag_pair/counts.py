"""What pairs of news owe, and what they look like in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import InputError
from headwise.tasks.ag_pair.news import News, topics_of
from headwise.tasks.ag_pair.pairing import Pair

LABELS = ("same", "different")


def label_of(news: Sequence[News], pair: Pair) -> str:
    """The label of a pair: whether the two topics are equal."""
    return LABELS[news[pair.first].topic != news[pair.second].topic]


@dataclass(frozen=True)
class PairCounts:
    """Pairs of news in numbers."""

    rows: int
    same: int
    different: int
    topics: dict[str, int]
    """News of each topic."""
    occurrences: dict[int, int]
    """Times that a news occurs -> how many news occur so often."""
    slots: dict[str, tuple[dict[str, int], dict[str, int]]]
    """Label -> of the first and of the second slot, how often it holds each topic."""
    shortcut: float
    """Share of the pairs whose label is guessed right by who knows the topic of one slot only, the better one."""
    chance: float
    """Share of the commoner label, which is guessed right by who knows nothing."""

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def count_pairs(news: Sequence[News], pairs: Sequence[Pair]) -> PairCounts:
    """Count labels, topics and slots."""
    topics = topics_of(news)
    labels = Counter(label_of(news, pair) for pair in pairs)
    seen = Counter((label_of(news, pair), slot, news[place].topic) for pair in pairs for slot, place in enumerate(pair))
    uses = Counter(place for pair in pairs for place in pair)
    times = Counter(uses[place] for place in range(len(news)))
    guessed = [sum(max(seen[label, slot, topic] for label in LABELS) for topic in topics) for slot in (0, 1)]
    return PairCounts(
        rows=len(pairs),
        same=labels["same"],
        different=labels["different"],
        topics=dict(sorted(Counter(each.topic for each in news).items(), key=lambda item: topics.index(item[0]))),
        occurrences=dict(sorted(times.items())),
        slots={
            label: (
                {topic: seen[label, 0, topic] for topic in topics},
                {topic: seen[label, 1, topic] for topic in topics},
            )
            for label in LABELS
        },
        shortcut=max(guessed) / len(pairs),
        chance=max(labels.values()) / len(pairs),
    )


def check_pairs(news: Sequence[News], pairs: Sequence[Pair], *, rounds: int = 2) -> PairCounts:
    """Refuse pairs that are not what AG-Pair promises; their counts, if they are.

    Every news occurs `rounds` times, no pair occurs twice or has two texts that read the same, and if all topics have
    equally many news, a multiple of four, half of the pairs are the same.
    """
    counts = count_pairs(news, pairs)
    if set(counts.occurrences) != {rounds}:
        raise InputError(f"pairs: expected every news {rounds} times, got times -> news {counts.occurrences}.")
    texts = [(each.title, each.description) for each in news]
    keys = Counter(tuple(sorted((texts[pair.first], texts[pair.second]))) for pair in pairs)
    if any(one == other for one, other in keys):
        raise InputError("pairs: expected two different texts in each, got one twice.")
    if max(keys.values()) > 1:
        raise InputError("pairs: expected every pair once, got one again.")
    sizes = set(counts.topics.values())
    if len(sizes) == 1 and not sizes.pop() % 4 and counts.same != counts.different:
        raise InputError(f"pairs: expected half of them the same, got {counts.same} of {counts.rows}.")
    return counts
