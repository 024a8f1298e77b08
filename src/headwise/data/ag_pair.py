"""AG-Pair: pairs of news from the files of AG News, half of them of the same topic."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from headwise.data.dialects import SUFFIXES, suffix_of
from headwise.data.examples import label_text
from headwise.data.readers import Layout, choose, open_table
from headwise.data.text_files import check_file
from headwise.disk import new_file, save_content
from headwise.errors import InputError, choices

LABELS = ("same", "different")
SLOT_ORDERS = ("random", "reference")
COLUMNS = ("label", "news1-sentence1", "news1-sentence2", "news2-sentence1", "news2-sentence2")
# As published, as others pass it on, and with title and description already in one text.
LAYOUTS = (
    Layout(("title", "description"), "class", columns=("class", "title", "description")),
    Layout(("title", "description"), "class"),
    Layout(("title", "description"), "label"),
    Layout(("Title", "Description"), "Class Index"),
    Layout(("text",), "label", columns=("text", "label")),
    Layout(("text",), "label"),
)
FEWEST = 4  # of which two are paired within their topic
_DRAWS = 200  # of a round, before we give up; files of more than some dozen news never need a second one
_SWAPS = 50  # of a pair that is already there


@dataclass(frozen=True)
class News:
    """One piece of news."""

    topic: str
    """As the file writes it."""
    title: str
    description: str = ""
    """Empty where the file has title and description in one text."""


class Pair(NamedTuple):
    """Two news, by their indices in the list of all."""

    first: int
    second: int


def write_pairs(
    news: Path, out: Path, *, seed: int = 0, rounds: int = 2, slot_order: str = "random", overwrite: bool = False
) -> dict[str, Any]:
    """Make the pairs of a file of news and write them, whole or not at all; the answer describes them in numbers."""
    if out.suffix != ".tsv" and not out.is_dir():
        raise InputError(f"out {out}: pairs are written as TSV; name a file that ends in .tsv.")
    with new_file(out, "out", replace=overwrite, by="overwrite=True", example="train.tsv"):
        pieces = read_news(news)
        pairs = make_pairs(pieces, seed=seed, rounds=rounds, slot_order=slot_order)
        save_content(out, pairs_table(pieces, pairs))
    settings = {"news": str(news), "output": str(out), "seed": seed, "rounds": rounds, "slot_order": slot_order}
    return {**settings, **count_pairs(pieces, pairs)}


def read_news(path: Path) -> tuple[News, ...]:
    """The news of a .csv, .tsv, .jsonl or .parquet file, in its order.

    Tabs and line ends within texts become blanks, as the pairs are written to a TSV; all else, AG's backslashes
    included, stays as it is.
    """
    check_file(path)
    if suffix_of(path) not in SUFFIXES:
        raise InputError(f"{path}: news are read from .csv, .tsv, .jsonl and .parquet files; name or save it as one.")
    table = open_table(path)
    layout = choose(LAYOUTS, table, labelled=True)
    names = (layout.label, *layout.text_columns)
    if not layout.fits(table) or not set(names) <= set(layout.known(table)):
        begin = ", ".join(repr(name[:20]) for name in table.first[:4])
        raise InputError(
            f"{path}: expected news as class, title and description (or text and label), with or without a header "
            f"of these names, got {len(table.first)} columns that begin {begin}; name or order the columns so."
        )

    def refuse(sentence: str) -> NoReturn:
        raise InputError(sentence)

    news = []
    for line, (topic, *texts) in table.rows(names, None if table.named else layout.columns, refuse):
        for name, value in zip(layout.text_columns, texts, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise InputError(
                    f"{path} {table.unit} {line}: expected text in {name!r}, got {value!r}; fill it in, or take the "
                    "news out."
                )
        if not label_text(topic):
            raise InputError(
                f"{path} {table.unit} {line}: expected a topic in {layout.label!r}, got none; fill it in, or take the "
                "news out."
            )
        news.append(News(label_text(topic), *(re.sub(r"[\t\r\n]+", " ", text) for text in texts)))
    return tuple(news)


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
    groups: dict[str, list[int]] = {topic: [] for topic in topics_of(news)}
    for index, each in enumerate(news):
        groups[each.topic].append(index)
    if rounds < 1:
        raise InputError(f"rounds: expected at least 1, got {rounds}; every news occurs once in each.")
    if len(groups) < 2:
        only = f"only the topic {next(iter(groups))!r}" if groups else "no news"
        raise InputError(f"pairs of news need at least two topics, got {only}: give a file with more.")
    smallest = min(groups, key=lambda topic: len(groups[topic]))
    if len(groups[smallest]) < FEWEST:
        raise InputError(
            f"topic {smallest!r} has {len(groups[smallest])} news: expected at least {FEWEST} of each topic; add some, "
            "or leave the topic out."
        )
    if len(news) * rounds % 2:
        raise InputError(
            f"{len(news)} news in {rounds} rounds are an odd number, so that one would have no partner: leave one out, "
            "or take an even number of rounds."
        )
    rng = random.Random(seed)
    pairing = _Pairing(news, rng)
    pairs = [Pair(drawn.first, drawn.second) for number in range(rounds) for drawn in pairing.round(groups, number)]
    if slot_order == "random":
        pairs = [pair if rng.random() < 0.5 else Pair(pair.second, pair.first) for pair in pairs]
        rng.shuffle(pairs)
    return tuple(pairs)


def topics_of(news: Sequence[News]) -> tuple[str, ...]:
    """The topics in order; whole numbers in the order of numbers."""
    topics = {each.topic for each in news}
    return tuple(sorted(topics, key=lambda topic: (int(topic) if topic.isdecimal() else 0, topic)))


@dataclass
class _Drawn:
    """A pair, and the two topics whose pairs it may swap partners with."""

    block: tuple[str, str]
    first: int
    second: int


class _Pairing:
    """Draws rounds, in which every news has one partner, and remembers what was drawn."""

    def __init__(self, news: Sequence[News], rng: random.Random) -> None:
        self._rng = rng
        first: dict[tuple[str, str], int] = {}
        # For every news the index of the first one that reads the same.
        self._reads = [first.setdefault((each.title, each.description), n) for n, each in enumerate(news)]
        self._taken = {(number, number) for number in self._reads}  # two texts that read the same are never a pair
        self._spare = rng.randrange(len(news)) if len(news) % 2 else None

    def round(self, groups: Mapping[str, Sequence[int]], number: int) -> list[_Drawn]:
        """The pairs of a round, in the authors' order."""
        present = {topic: list(indices) for topic, indices in groups.items()}
        # An odd number of news has no pairing: one of them is left out of every other round, and comes twice next time.
        for indices in present.values():
            if self._spare in indices:
                indices.remove(self._spare)
                indices += [self._spare] * (2 * (number % 2))
        for _ in range(_DRAWS):
            drawn = _draw_round(present, self._rng)
            if self._make_new(drawn):
                self._taken.update(map(self._key, drawn))
                return drawn
        raise InputError(
            f"round {number + 1}: found no pairs that are new and of two different texts, in {_DRAWS} tries; take "
            "fewer rounds, or news with fewer duplicates."
        )

    def _key(self, drawn: _Drawn) -> tuple[int, int]:
        one, other = sorted((self._reads[drawn.first], self._reads[drawn.second]))
        return one, other

    def _make_new(self, drawn: Sequence[_Drawn]) -> bool:
        """Swap partners within blocks until no pair is there twice, or was there before, or has two equal texts."""
        now = Counter(map(self._key, drawn))
        blocks = defaultdict(list)
        for pair in drawn:
            blocks[pair.block].append(pair)
        for pair in drawn:
            if self._key(pair) not in self._taken and now[self._key(pair)] == 1:
                continue
            for _ in range(_SWAPS):
                other = self._rng.choice(blocks[pair.block])
                if other is pair:
                    continue
                before = [self._key(pair), self._key(other)]
                now.subtract(before)
                pair.second, other.second = other.second, pair.second
                after = [self._key(pair), self._key(other)]
                if after[0] != after[1] and not any(key in self._taken or now[key] for key in after):
                    now.update(after)
                    break
                pair.second, other.second = other.second, pair.second
                now.update(before)
            else:
                return False
        return True


def _draw_round(groups: Mapping[str, Sequence[int]], rng: random.Random) -> list[_Drawn]:
    """One round: about half of the news are paired within their topic, the rest between topics."""
    # Within a topic always an even number. Of a topic that would keep more than half of all the rest, so many more that
    # the rest can find partners: then more pairs are the same than different.
    within = {topic: 2 * (len(indices) // 4) for topic, indices in groups.items()}
    left = {topic: len(groups[topic]) - within[topic] for topic in groups}
    largest = max(left, key=lambda topic: left[topic])
    within[largest] += max(0, 2 * left[largest] - sum(left.values()))
    pairs, rest = [], {}
    for topic, indices in groups.items():
        shuffled = rng.sample(indices, len(indices))
        half, rest[topic] = shuffled[: within[topic]], shuffled[within[topic] :]
        pairs += [_Drawn((topic, topic), *couple) for couple in zip(half[::2], half[1::2], strict=True)]
    # The same number for every two topics, so that none is left with more than half of what then remains. With T topics
    # and k = quota (T - 1) news used of each, the largest one, of size m, must not keep more than all others:
    # m - k <= (sum - m) - (T - 1) k.
    sizes, others = [len(indices) for indices in rest.values()], len(rest) - 1
    quota = min(sizes) // others
    if others > 1:
        quota = min(quota, (sum(sizes) - 2 * max(sizes)) // (others * (others - 1)))
    for block in combinations(rest, 2):
        pairs += [_Drawn(block, rest[block[0]].pop(), rest[block[1]].pop()) for _ in range(quota)]
    # Then of the two topics that have most left.
    order = {topic: index for index, topic in enumerate(rest)}
    while any(rest.values()):
        most = sorted(rest, key=lambda topic: (-len(rest[topic]), order[topic]))[:2]
        one, other = sorted(most, key=lambda topic: order[topic])
        pairs.append(_Drawn((one, other), rest[one].pop(), rest[other].pop()))
    return pairs


def label_of(news: Sequence[News], pair: Pair) -> str:
    """The label of a pair: whether the two topics are equal."""
    return LABELS[news[pair.first].topic != news[pair.second].topic]


def count_pairs(news: Sequence[News], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Pairs in numbers, as plain data.

    Besides the counts of labels and topics: `occurrences` (times that a news occurs -> how many news occur so often),
    `slots` (label -> for the first and the second slot, how often it holds each topic), `shortcut` (share of the pairs
    whose label follows from the topic of one slot alone, the better one) and `chance` (share of the commoner label).
    """
    topics = topics_of(news)
    labels = Counter(label_of(news, pair) for pair in pairs)
    slots = Counter((label_of(news, pair), slot, news[n].topic) for pair in pairs for slot, n in enumerate(pair))
    uses = Counter(index for pair in pairs for index in pair)
    sizes = Counter(each.topic for each in news)
    guessed = [sum(max(slots[label, slot, topic] for label in LABELS) for topic in topics) for slot in (0, 1)]
    return {
        "rows": len(pairs),
        "same": labels["same"],
        "different": labels["different"],
        "topics": {topic: sizes[topic] for topic in topics},
        "occurrences": dict(sorted(Counter(uses[index] for index in range(len(news))).items())),
        "slots": {
            label: tuple({topic: slots[label, slot, topic] for topic in topics} for slot in (0, 1)) for label in LABELS
        },
        "shortcut": max(guessed) / len(pairs),
        "chance": max(labels.values()) / len(pairs),
    }


def pairs_table(news: Sequence[News], pairs: Sequence[Pair]) -> str:
    """The whole file as the authors write it: TSV with a header and without quotation marks."""
    rows = [COLUMNS]
    for pair in pairs:
        one, other = news[pair.first], news[pair.second]
        rows.append((label_of(news, pair), one.title, one.description, other.title, other.description))
    return "".join("\t".join(row) + "\n" for row in rows)
