"""Holding out whole groups: examples that share a text stay on one side of a split."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence
from itertools import accumulate

from headwise.data.examples import Split
from headwise.data.near_duplicates import LIMIT, THRESHOLD, SimilarSets, folded, word_stretches
from headwise.errors import InputError

TEXTS = {"text1": 0, "text2": 1}
"""What examples may be grouped by -> which of their texts it is."""
NEAR_DUPLICATES = "near_duplicates"
MOST_COMPARED = 20_000
"""Of more examples only those with equal texts are duplicates: to compare all of them takes minutes."""
# Bits of memory for the table of totals, 16 MB: enough to search all choices of 10,000 groups with 10,000 examples to
# hold out. Of more, the first groups are taken without a search.
MOST_BITS = 2**27


def text_groups(split: Split, group_by: str) -> list[list[int]]:
    """The indices of the examples with equal texts, group by group, in the order in which the groups begin.

    Texts are equal if they differ only in Unicode composition (NFC), case or white space.

    Args:
        split: the examples.
        group_by: text1, text2, or near_duplicates for examples whose texts are all nearly the same.
    """
    if group_by == NEAR_DUPLICATES:
        return _near_duplicates(split)
    return _by_key([_same(texts[TEXTS[group_by]]) for texts in split.texts])


def _same(text: str) -> str:
    return folded(unicodedata.normalize("NFC", text))


def _by_key(keys: Sequence[Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _near_duplicates(split: Split) -> list[list[int]]:
    """Chains of near-duplicates are one group."""
    equal = _by_key([tuple(map(_same, texts)) for texts in split.texts])
    if len(equal) > MOST_COMPARED:
        return equal
    sets = [word_stretches(split.texts[group[0]]) for group in equal]
    index = SimilarSets(sets, THRESHOLD, limit=LIMIT)
    cluster: dict[int, int] = {}
    for first in range(len(equal)):
        waiting = [first]
        while waiting:
            current = waiting.pop()
            if current not in cluster:
                cluster[current] = first
                waiting += [other for other, _ in index.search(sets[current]) if other not in cluster]
    joined = _by_key([cluster[number] for number in range(len(equal))])
    return [sorted(index for number in group for index in equal[number]) for group in joined]


def stratified_holdout(groups: Sequence[Sequence[int]], labels: Sequence[Hashable], fraction: float) -> list[int]:
    """The numbers of the groups to hold out: of each label as near to its part as whole groups allow.

    A group counts for the label of its first example. A label of one group stays where it is, and every other one is on
    both sides.

    Args:
        groups: indices of examples; shuffle the groups before, the order decides.
        labels: of the examples.
        fraction: the part of each label's examples.
    """
    held: list[int] = []
    for numbers in _by_key([labels[group[0]] for group in groups]):
        if len(numbers) > 1:
            sizes = [len(groups[number]) for number in numbers]
            held += [numbers[position] for position in hold_out_groups(sizes, fraction * sum(sizes))]
    return held


def hold_out_groups(sizes: Sequence[int], target: float) -> list[int]:
    """The indices of the groups to hold out, so that their total is as near to the target as whole groups allow.

    A group comes in if the nearest total can still be reached with it; earlier groups come first. At least one group is
    held out, and at least one is not. Of two totals that are equally near, the smaller one counts.

    Args:
        sizes: how many examples each group has; shuffle them before, the order decides.
        target: how many examples to hold out.
    """
    if len(sizes) < 2:
        raise InputError(f"groups to hold out from: expected two or more, got {len(sizes)}; add examples of others.")
    largest = max(sizes)
    room = max(MOST_BITS // len(sizes), 2 * largest)
    # Far from the target every choice is as good as another.
    start = next(index for index, total in enumerate(accumulate(sizes, initial=0)) if target - total <= room)
    held, rest = list(range(start)), sizes[start:]
    target -= sum(sizes[:start])
    # reachable[n] has bit s set if some of the groups from n on hold s examples together: all choices at once. No
    # total beyond one group above the target can be the nearest.
    mask = (1 << int(target) + largest + 1) - 1
    reachable = [1]
    for size in reversed(rest):
        reachable.append((reachable[-1] | reachable[-1] << size) & mask)
    reachable.reverse()
    least, whole = 0 if held else 1, sum(rest)
    totals = (total for total, bit in enumerate(bin(reachable[0])[:1:-1]) if bit == "1" and least <= total < whole)
    left = min(totals, key=lambda total: abs(total - target))
    for index, size in enumerate(rest):
        if left >= size and reachable[index + 1] >> left - size & 1:
            held.append(start + index)
            left -= size
    return held
