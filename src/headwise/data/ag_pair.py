"""News with a topic each, from the files of AG News."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from headwise.data.examples import label_text
from headwise.data.layouts import Dialect, Layout, Table, choose
from headwise.data.readers import SUFFIXES, open_table
from headwise.data.task import named
from headwise.data.text_files import check_file, gzipped
from headwise.disk import new_file, save_content
from headwise.errors import InputError, choices

# As published, as others pass it on, and with title and description already in one text.
LAYOUTS = (
    Layout(("title", "description"), "class", columns=("class", "title", "description")),
    named("title", "description", label="class"),
    named("title", "description", label="label"),
    named("Title", "Description", label="Class Index"),
    Layout(("text",), "label", columns=("text", "label")),
    named("text", label="label"),
)
_BREAKS = re.compile(r"[\t\r\n]+")


@dataclass(frozen=True)
class News:
    """One piece of news."""

    topic: str
    """As the file writes it."""
    title: str
    description: str = ""
    """Empty where the file has title and description in one text."""


def read_news(path: Path) -> tuple[News, ...]:
    """The news of a .csv, .tsv, .jsonl or .parquet file, in its order.

    Tabs and line ends within texts become blanks, as the pairs are written to a TSV; all else, AG's backslashes
    included, stays as it is.
    """
    _check_name(path)
    table = open_table(path, Dialect())
    layout = choose(LAYOUTS, table, labelled=True)
    names = (layout.label, *layout.text_columns)
    if not layout.fits(table) or not set(names) <= set(layout.known(table)):
        raise InputError(_no_news(table))
    columns = None if table.named else layout.columns
    return tuple(
        _news(table, line, dict(zip(names, row, strict=True))) for line, row in table.rows(names, columns, _refuse)
    )


def _check_name(path: Path) -> None:
    check_file(path)
    if (path.with_suffix("") if gzipped(path) else path).suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: news are read from .csv, .tsv, .jsonl and .parquet files; name or save it as one.")


def _news(table: Table, line: int, row: dict[str, Any]) -> News:
    topic, *texts = row.items()
    for name, value in texts:
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"{table.where} {table.unit} {line}: expected text in {name!r}, got {value!r}; fill it in, or take the "
                "news out."
            )
    if not label_text(topic[1]):
        raise InputError(
            f"{table.where} {table.unit} {line}: expected a topic in {topic[0]!r}, got none; fill it in, or take the "
            "news out."
        )
    return News(label_text(topic[1]), *(_BREAKS.sub(" ", text) for _, text in texts))


def _no_news(table: Table) -> str:
    got = f"{len(table.first)} columns that begin {', '.join(repr(name[:20]) for name in table.first[:4])}"
    return (
        f"{table.where}: expected news as class, title and description (or text and label), with or without a header "
        f"of these names, got {got}; name or order the columns so."
    )


def _refuse(sentence: str) -> NoReturn:
    raise InputError(sentence)


def topics_of(news: Sequence[News]) -> tuple[str, ...]:
    """The topics in order; whole numbers in the order of numbers."""
    found = {each.topic for each in news}
    return tuple(sorted(found, key=lambda topic: (int(topic) if topic.isdecimal() else 0, topic)))


# One round: every news meets another, about half of them within their topic.


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


# Which news meets which: rounds in which every news has one partner.


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


# What pairs of news owe, and what they look like in numbers.


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


# Pairs of news as the authors write them: TSV with a header and without quotation marks.


COLUMNS = ("label", "news1-sentence1", "news1-sentence2", "news2-sentence1", "news2-sentence2")


def pairs_table(news: Sequence[News], pairs: Sequence[Pair]) -> str:
    """The whole file."""
    rows = [COLUMNS]
    for pair in pairs:
        one, other = news[pair.first], news[pair.second]
        rows.append((label_of(news, pair), one.title, one.description, other.title, other.description))
    return "".join("\t".join(row) + "\n" for row in rows)


def write_pairs(
    source: Path, target: Path, *, seed: int = 0, rounds: int = 2, slot_order: str = "random", overwrite: bool = False
) -> dict[str, Any]:
    """Make the pairs of a file of news and write them, whole or not at all; what they look like in numbers."""
    with _new_table(target, overwrite=overwrite):
        news = read_news(source)
        pairs = make_pairs(news, seed=seed, rounds=rounds, slot_order=slot_order)
        counts = check_pairs(news, pairs, rounds=rounds)
        save_content(target, pairs_table(news, pairs))
    asked = {"news": str(source), "output": str(target), "seed": seed, "rounds": rounds, "slot_order": slot_order}
    return {**asked, **counts.as_dict()}


def _new_table(path: Path, *, overwrite: bool) -> AbstractContextManager[None]:
    """Lock the file for the block that writes it; refuses a place where no table can be, before any work is done."""
    if path.suffix != ".tsv" and not path.is_dir():
        raise InputError(f"--out {path}: pairs are written as TSV; name a file that ends in .tsv.")
    return new_file(path, "--out", replace=overwrite, example="train.tsv")
