"""One round: every news meets another, about half of them within their topic.

With T topics of n news each, m = 2 floor(n / 4) of every topic are paired within it. Any two topics share
floor((n - m) / (T - 1)) pairs, and what is left is paired greedily, always from the two topics that have most left.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass
class Drawn:
    """A pair, and the two topics whose pairs it may swap partners with."""

    block: tuple[str, str]
    first: int
    second: int


def draw_round(groups: Mapping[str, Sequence[int]], chance: random.Random) -> list[Drawn]:
    """One round: pairs within the topics, then between them."""
    within = _within({topic: len(places) for topic, places in groups.items()})
    same, rest = [], {}
    for topic, places in groups.items():
        shuffled = chance.sample(places, len(places))
        half, rest[topic] = shuffled[: within[topic]], shuffled[within[topic] :]
        same += [Drawn((topic, topic), *couple) for couple in zip(half[::2], half[1::2], strict=True)]
    return same + _between(rest)


def _within(sizes: Mapping[str, int]) -> dict[str, int]:
    """How many news of each topic are paired within it: about half, and always an even number.

    Of a topic that would keep more than half of all the others, so many more that the rest can find partners: then
    more pairs are the same than different.
    """
    within = {topic: 2 * (size // 4) for topic, size in sizes.items()}
    left = {topic: sizes[topic] - within[topic] for topic in sizes}
    largest = max(left, key=lambda topic: left[topic])
    within[largest] += max(0, 2 * left[largest] - sum(left.values()))
    return within


def _between(rest: dict[str, list[int]]) -> list[Drawn]:
    """Pairs of different topics: the same number for every two topics, then of those that have most left."""
    quota = _quota([len(places) for places in rest.values()])
    pairs = []
    for block in combinations(rest, 2):
        pairs += [Drawn(block, rest[block[0]].pop(), rest[block[1]].pop()) for _ in range(quota)]
    order = {topic: place for place, topic in enumerate(rest)}
    while any(rest.values()):
        most = sorted(rest, key=lambda topic: (-len(rest[topic]), order[topic]))[:2]
        one, other = sorted(most, key=lambda topic: order[topic])
        pairs.append(Drawn((one, other), rest[one].pop(), rest[other].pop()))
    return pairs


def _quota(sizes: Sequence[int]) -> int:
    """How many pairs any two topics can have, so that none is left with more than half of what then remains.

    With T topics and k = quota (T - 1) news used of each, the largest one, of size m, must not keep more than all
    others: m - k <= (sum - m) - (T - 1) k.
    """
    others = len(sizes) - 1
    quota = min(sizes) // others
    if others > 1:
        quota = min(quota, (sum(sizes) - 2 * max(sizes)) // (others * (others - 1)))
    return quota
