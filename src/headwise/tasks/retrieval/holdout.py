"""Keeping claims for training and claims for testing apart, near-duplicates included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwise.errors import InputError
from headwise.tasks.retrieval.duplicates import THRESHOLD, near_duplicates, nearest_duplicates


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
    names = list(others)
    places = nearest_duplicates(list(train.values()), list(others.values()), threshold=threshold)
    removed = {claim: names[place] for claim, place in zip(train, places, strict=True) if place is not None}
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
    order = np.random.default_rng(seed).permutation(len(groups))
    held = _nearest_to(fraction * len(claims), [groups[place] for place in order])
    return [claim for claim in claims if claim not in held], [claim for claim in claims if claim in held]


def _nearest_to(wanted: float, clusters: Sequence[Sequence[str]]) -> set[str]:
    """The claims of some of the clusters, as near to the wanted number as any choice of clusters comes."""
    # reachable[n] has bit s set if some of the first n clusters hold s claims together: all choices at once.
    reachable = [1]
    for cluster in clusters:
        reachable.append(reachable[-1] | reachable[-1] << len(cluster))
    every = sum(map(len, clusters))
    left = min((size for size in range(1, every) if reachable[-1] >> size & 1), key=lambda size: abs(size - wanted))
    held: set[str] = set()
    for before, cluster in zip(reversed(reachable[:-1]), reversed(clusters), strict=True):
        if left >= len(cluster) and before >> left - len(cluster) & 1:
            held.update(cluster)
            left -= len(cluster)
    return held
