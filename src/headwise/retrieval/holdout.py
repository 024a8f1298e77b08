"""Keeping claims for training and claims for testing apart, near-duplicates included."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwise.data.grouped_holdout import hold_out_groups
from headwise.data.near_duplicates import SimilarSets, plain_words
from headwise.errors import InputError

# In IL-10 the number is part of a name: IL10.
NAME_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011](?=\d)")
GRAMMAR = (
    "a about after against all also among an and any are as at be been before being between both but by can could "
    "did do does during each either for from had has have having if in into is it its may might of on only or other "
    "over per same shall should so some such than that the their them then there these they this those through to "
    "under up upon very via was were what when where whether which while who will with within would "
    "cannot fail fails incapable lack lacking lacks neither never no none nor not unable without"
)
# Two claims that differ only in these say that the same thing goes up, goes down or does not move.
DEGREES = (
    "better effect effective effectively fewer greater high higher highest highly ineffective led less low lower "
    "lowest more most much negative negatively poorer positive positively significantly stronger weaker worse "
    "associated association correlated correlation correlates linked related unrelated thousand million"
)
VERBS = (
    "activate affect attenuate block cause decline decrease diminish downregulate elevate enhance exacerbate "
    "facilitate impair impede improve increase induce inhibit lead lower prevent promote protect raise reduce "
    "repress rise stimulate suppress upregulate worsen"
)

FORMS = [verb + ending for verb in VERBS.split() for ending in ("", "s")]
FORMS += [verb.removesuffix("e") + ending for verb in VERBS.split() for ending in ("es", "ed", "ing")]
IGNORED = frozenset([*GRAMMAR.split(), *DEGREES.split(), *FORMS])


def claim_words(text: str) -> frozenset[str]:
    """The words that say what a text is about: never empty, and equal for "X raises Y" and "X lowers Y by 5%".

    These are the words of the search, without plural endings, numbers, grammar, negations and words for the direction
    of an effect. A text of nothing else keeps all of its words, and one without words stands for itself. The lists are
    English; in another language every word counts.
    """
    words = plain_words(NAME_HYPHEN.sub("", text))
    about = {_singular(word) for word in words if word not in IGNORED and not word.isdecimal()}
    return frozenset(about or words or [text.strip()])


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


THRESHOLD = 0.6


def near_duplicates(texts: Sequence[str], *, threshold: float = THRESHOLD) -> list[int]:
    """For every text the number of its cluster, which is the smallest index in it.

    Two texts are near-duplicates if |A ∩ B| / |A ∪ B| ≥ threshold for the sets A and B of what they are about
    (`claim_words`); clusters are the connected parts. At the default of 0.6 one word in four may differ, and which
    way the effect goes always may. Measured on SciFact's claims: pairs just above it are rewrites of one another,
    pairs just below it are mostly different findings of one paper.
    """
    sets = [claim_words(text) for text in texts]
    distinct = list(dict.fromkeys(sets))
    similar = _index(distinct, threshold)
    clusters: dict[frozenset[str], int] = {}
    for index, words in enumerate(sets):
        waiting = [words]
        while waiting:
            current = waiting.pop()
            if current not in clusters:
                clusters[current] = index
                waiting += [distinct[other] for other, _ in similar.search((current,))]
    return [clusters[words] for words in sets]


def _index(sets: Sequence[frozenset[str]], threshold: float) -> SimilarSets:
    if not 0 < threshold <= 1:
        raise InputError(f"threshold: expected a number above 0 and at most 1, got {threshold!r}; 0.6 is usual.")
    return SimilarSets([(words,) for words in sets], threshold)


@dataclass(frozen=True)
class Leaks:
    """Training claims without, and with, a near-duplicate among the claims to test on."""

    kept: tuple[str, ...]
    """Ids that may be trained on, in their order."""
    removed: Mapping[str, str]
    """Id -> id of the most similar claim on the other side."""


def without_leaks(train: Mapping[str, str], others: Mapping[str, str], *, threshold: float = THRESHOLD) -> Leaks:
    """The claims (id -> text) that are no near-duplicate of one of the others, and those that are.

    A claim that is like a removed one, but like none of the others, stays.
    """
    names, similar = list(others), _index([claim_words(text) for text in others.values()], threshold)
    removed = {}
    for claim, text in train.items():
        matches = list(similar.search((claim_words(text),)))
        if matches:
            removed[claim] = names[min(matches, key=lambda match: (-match[1], match[0]))[0]]
    return Leaks(tuple(claim for claim in train if claim not in removed), removed)


def split_claims(
    claims: Mapping[str, str], fraction: float, seed: int, *, threshold: float = THRESHOLD
) -> tuple[list[str], list[str]]:
    """Ids of the claims that stay, and of those held out: whole clusters of near-duplicates, drawn by the seed.

    As many are held out as come nearest to the fraction, but at least one cluster is on each side. Both lists are in
    the order of the claims.
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction: expected a number between 0 and 1, got {fraction!r}; 0.1 holds out a tenth.")
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}; give another.")
    clusters: dict[int, list[str]] = defaultdict(list)
    for claim, cluster in zip(claims, near_duplicates(list(claims.values()), threshold=threshold), strict=True):
        clusters[cluster].append(claim)
    if len(clusters) < 2:
        raise InputError(
            f"{len(claims)} claims to split: expected two or more that are no near-duplicates of each other, got "
            f"{len(clusters)}; add claims."
        )
    groups = list(clusters.values())
    groups = [groups[position] for position in np.random.default_rng(seed).permutation(len(groups))][::-1]
    chosen = hold_out_groups([len(group) for group in groups], fraction * len(claims))
    held = {claim for index in chosen for claim in groups[index]}
    return [claim for claim in claims if claim not in held], [claim for claim in claims if claim in held]
