"""What a file of a data set has twice, and what two files share that should not be in both."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from headwise.data.checked_files import DataFile, Key, Position
from headwise.data.near_duplicates import THRESHOLD, near_duplicates

SHOWN = 3
"""How many examples of a problem are shown."""

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it is done, and how much there is."""
Matches = Mapping[int, tuple[int, float]]
"""Index in the second file -> index in the first file, and how alike the two are."""


@dataclass(frozen=True)
class Repeats:
    """How often something occurs, and where first."""

    count: int
    examples: tuple[tuple[Position, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """What one file has twice, regardless of case and white space."""

    repeated: Repeats
    """Examples whose texts occur before."""
    contradicting: Repeats
    """Different texts that occur with labels that do not agree."""
    identical: Repeats | None
    """Pairs of a text with itself; None for single texts."""
    swapped: Repeats | None
    """Pairs that occur before the other way round; None for single texts."""


@dataclass(frozen=True)
class Match:
    """One of the examples that two files share."""

    first: Position
    second: Position
    similarity: float


@dataclass(frozen=True)
class Shared:
    """Examples of the second file that are in the first, too."""

    count: int
    share: float
    """Of the second file."""
    same_label: float | None
    """Share whose label is that of the first file, of those that have both; None if none has."""
    examples: tuple[Match, ...]
    complete: bool = True
    """Whether there can be no more; near-duplicates in files that repeat themselves are not all looked for."""


@dataclass(frozen=True)
class Leak:
    """What a second file shares with a first."""

    first: str
    second: str
    exact: Shared
    """All texts are the same but for case and white space."""
    swapped: Shared | None
    """The pair is there the other way round, and not this way; None for single texts."""
    near: Shared
    """Neither of them, but almost the same; see `near_duplicates`."""
    texts: dict[str, Shared] | None
    """By text, examples in which this one is the same, whatever the other; None for single texts."""


def find_duplicates(file: DataFile, tolerance: float) -> Duplicates:
    """Examples of a file that are the same; labels up to the tolerance apart agree."""
    groups: dict[Key, list[int]] = defaultdict(list)
    for index, key in enumerate(file.keys):
        groups[key].append(index)
    contradicting: list[tuple[int, ...]] = []
    for group in groups.values():
        known = [(label, index) for index in group if (label := file.labels[index]) is not None]
        if known:
            # The two whose labels are farthest apart.
            (low, first), (high, second) = min(known), max(known, key=lambda each: (each[0], -each[1]))
            if high - low > tolerance:
                contradicting.append((min(first, second), max(first, second)))
    before = file.first_indices
    repeated = [(before[key], index) for index, key in enumerate(file.keys) if before[key] < index]
    identical = [(index,) for index, key in enumerate(file.keys) if key[0] == key[-1]]
    swapped = [
        (before[key[::-1]], index)
        for index, key in enumerate(file.keys)
        if key[0] != key[-1] and before.get(key[::-1], index) < index
    ]

    def repeats(indices: Sequence[tuple[int, ...]]) -> Repeats:
        return Repeats(len(indices), tuple(tuple(map(file.position, group)) for group in indices[:SHOWN]))

    pairs = len(file.keys[0]) == 2
    return Duplicates(
        repeats(repeated),
        repeats(contradicting),
        identical=repeats(identical) if pairs else None,
        swapped=repeats(swapped) if pairs else None,
    )


def find_leaks(
    files: Sequence[DataFile],
    names: Sequence[str],
    tolerance: float,
    *,
    near: float = THRESHOLD,
    progress: Progress = lambda what, done, total: None,
) -> list[Leak]:
    """Compare every file with every later one; `names` are those of the texts, and `near` is a similarity."""
    leaks = []
    for first, second in combinations(files, 2):
        shared = functools.partial(_shared, first, second, tolerance)
        pairs, known = len(names) == 2, first.first_indices
        exact = {index: (known[key], 1.0) for index, key in enumerate(second.keys) if key in known}
        left = [index for index in range(len(second)) if index not in exact]
        swaps = {index: second.keys[index][::-1] for index in left} if pairs else {}
        swapped = {index: (known[key], 1.0) for index, key in swaps.items() if key in known}
        left = [index for index in left if index not in swapped]
        # Each different example of the first file is looked at once.
        distinct = list(known.values())
        found = near_duplicates(
            [first.examples.texts[index] for index in distinct],
            [second.examples.texts[index] for index in left],
            threshold=near,
            advance=functools.partial(progress, f"near-duplicates of {second.name} in {first.name}"),
        )
        similar = {left[two]: (distinct[one], alike) for two, (one, alike) in sorted(found.matches.items())}
        same_texts = {}
        for number, name in enumerate(names if pairs else ()):
            of_first = {key[number]: index for index, key in reversed(list(enumerate(first.keys)))}
            keys = enumerate(second.keys)
            matches = {index: (of_first[key[number]], 1.0) for index, key in keys if key[number] in of_first}
            same_texts[name] = shared(matches, labels=False)
        leaks.append(
            Leak(
                first=first.name,
                second=second.name,
                exact=shared(exact),
                swapped=shared(swapped) if pairs else None,
                near=replace(shared(similar), complete=found.complete),
                texts=same_texts if pairs else None,
            )
        )
    return leaks


def _shared(first: DataFile, second: DataFile, tolerance: float, matches: Matches, *, labels: bool = True) -> Shared:
    shown = sorted(matches.items(), key=lambda each: -each[1][1])[:SHOWN]
    agreeing = []
    for two, (one, _) in matches.items() if labels else ():
        label, other = first.labels[one], second.labels[two]
        if label is not None and other is not None:
            agreeing.append(abs(label - other) <= tolerance)
    return Shared(
        count=len(matches),
        share=len(matches) / len(second),
        same_label=sum(agreeing) / len(agreeing) if agreeing else None,
        examples=tuple(Match(first.position(one), second.position(two), alike) for two, (one, alike) in shown),
    )
