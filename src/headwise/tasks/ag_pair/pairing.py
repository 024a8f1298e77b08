"""Which news meets which: rounds in which every news has one partner.

The generator of Li et al. (2023) was not published; this procedure was found from their test file. In every round and
for every topic about half of the news are paired within the topic, and the others evenly with those of other topics.

Where we differ: in their pairs of different topics the lower topic stands first, so that the topic of one slot alone
tells the label of 66.6 % of the pairs. We swap the slots at random and shuffle the rows; `reference` keeps their order.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwise.errors import InputError, choices
from headwise.tasks.ag_pair.news import News, topics_of
from headwise.tasks.ag_pair.rounds import Drawn, draw_round

SLOT_ORDERS = ("random", "reference")
FEWEST = 4  # of which two are paired within their topic
_DRAWS = 200  # of a round, before we give up; files of more than some dozen news never need a second one
_SWAPS = 50  # of a pair that is already there


class Pair(NamedTuple):
    """Two news, by their places in the list of all."""

    first: int
    second: int


def make_pairs(news: Sequence[News], *, seed: int = 0, rounds: int = 2, slot_order: str = "random") -> tuple[Pair, ...]:
    """Pairs in which every news occurs `rounds` times; the same for the same news and seed.

    No two pairs read the same, in whatever order, and no pair has two texts that read the same: duplicates among the
    news count as one text, though each is used as often as any other.

    Args:
        news: At least two topics with four news each; the topics may be of different sizes.
        seed: Decides everything.
        rounds: How often every news occurs.
        slot_order: `random`, or `reference` for the authors' order: same before different in every round, topic by
            topic, and the lower topic first.
    """
    if slot_order not in SLOT_ORDERS:
        raise InputError(f"slot order {slot_order!r} is not known: {choices(slot_order, SLOT_ORDERS)}.")
    groups = _groups(news)
    _check_enough(groups, len(news), rounds)
    chance = random.Random(seed)
    maker = _Maker(news, chance)
    pairs = [Pair(drawn.first, drawn.second) for number in range(rounds) for drawn in maker.round(groups, number)]
    if slot_order == "random":
        pairs = [pair if chance.random() < 0.5 else Pair(pair.second, pair.first) for pair in pairs]
        chance.shuffle(pairs)
    return tuple(pairs)


def _groups(news: Sequence[News]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {topic: [] for topic in topics_of(news)}
    for place, each in enumerate(news):
        groups[each.topic].append(place)
    return groups


def _check_enough(groups: Mapping[str, Sequence[int]], total: int, rounds: int) -> None:
    if rounds < 1:
        raise InputError(f"rounds: expected at least 1, got {rounds}; every news occurs once in each.")
    if len(groups) < 2:
        only = f"only the topic {next(iter(groups))!r}" if groups else "no news"
        raise InputError(f"pairs of news need at least two topics, got {only}: give a file with more.")
    topic = min(groups, key=lambda topic: len(groups[topic]))
    if len(groups[topic]) < FEWEST:
        raise InputError(
            f"topic {topic!r} has {len(groups[topic])} news: expected at least {FEWEST} of each topic; add some, or "
            "leave the topic out."
        )
    if total * rounds % 2:
        raise InputError(
            f"{total} news in {rounds} rounds are an odd number, so that one would have no partner: leave one out, or "
            "take an even number of rounds."
        )


class _Maker:
    """Draws rounds, and remembers what was drawn."""

    def __init__(self, news: Sequence[News], chance: random.Random) -> None:
        self._chance = chance
        first_places: dict[tuple[str, str], int] = {}
        # Of every news the place of the first one that reads the same.
        self._reads = [first_places.setdefault((each.title, each.description), n) for n, each in enumerate(news)]
        self._taken: set[tuple[int, int]] = set()
        self._spare = chance.randrange(len(news)) if len(news) % 2 else None

    def round(self, groups: Mapping[str, Sequence[int]], number: int) -> list[Drawn]:
        """The pairs of a round, in the authors' order."""
        present = {topic: self._present(places, number) for topic, places in groups.items()}
        for _ in range(_DRAWS):
            drawn = draw_round(present, self._chance)
            if self._mend(drawn):
                self._taken.update(map(self._key, drawn))
                return drawn
        raise InputError(
            f"round {number + 1}: found no pairs that are new and of two different texts, in {_DRAWS} tries; take "
            "fewer rounds, or news with fewer duplicates."
        )

    def _present(self, places: Sequence[int], number: int) -> list[int]:
        """An odd number of news has no pairing: one of them rests in every other round, and comes twice in the next."""
        if self._spare is None or self._spare not in places:
            return list(places)
        return [place for place in places if place != self._spare] + [self._spare] * (2 * (number % 2))

    def _key(self, drawn: Drawn) -> tuple[int, int]:
        one, other = sorted((self._reads[drawn.first], self._reads[drawn.second]))
        return one, other

    def _mend(self, drawn: Sequence[Drawn]) -> bool:
        """Swap partners until no pair is there twice, or was there before, or has two texts that read the same."""
        now = Counter(map(self._key, drawn))
        blocks = defaultdict(list)
        for each in drawn:
            blocks[each.block].append(each)
        return all(self._swapped(each, blocks[each.block], now) for each in drawn)

    def _swapped(self, pair: Drawn, block: Sequence[Drawn], now: Counter[tuple[int, int]]) -> bool:
        """Whether the pair is good, if need be after it swapped partners with another one of its block."""
        if self._good(self._key(pair)) and now[self._key(pair)] == 1:
            return True
        for _ in range(_SWAPS):
            other = self._chance.choice(block)
            if other is pair:
                continue
            before = [self._key(pair), self._key(other)]
            now.subtract(before)
            pair.second, other.second = other.second, pair.second
            after = [self._key(pair), self._key(other)]
            if after[0] != after[1] and all(self._good(key) and not now[key] for key in after):
                now.update(after)
                return True
            pair.second, other.second = other.second, pair.second
            now.update(before)
        return False

    def _good(self, key: tuple[int, int]) -> bool:
        return key[0] != key[1] and key not in self._taken
