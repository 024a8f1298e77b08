"""How a re-ranker orders the candidates of some claims."""

from __future__ import annotations

from typing import Any

import numpy

from headwise.tasks import Split

CLAIMS = 20
LONGEST_TEXT = 300


def claims_of(split: Split, logits: numpy.ndarray) -> list[dict[str, Any]]:
    """The first claims with the ranks and scores of all their candidates.

    Papers with equal scores keep the order of the candidates.
    """
    groups = split.groups or ()
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    return [_claim(group, members, split, logits[:, 0]) for group, members in list(places.items())[:CLAIMS]]


def _claim(group: str, members: list[int], split: Split, scores: numpy.ndarray) -> dict[str, Any]:
    order = sorted(members, key=lambda place: -float(scores[place]))
    ranks = {place: rank for rank, place in enumerate(order, start=1)}
    # By their numbers among the candidates, which two models of one collection share.
    return {
        "id": group,
        "text": split.texts[members[0]][0][:LONGEST_TEXT],
        "papers": [
            {
                "id": str(number),
                "text": split.texts[place][1][:LONGEST_TEXT],
                "relevant": bool(split.labels[place]),
                "rank": ranks[place],
                "score": round(float(scores[place]), 4),
            }
            for number, place in enumerate(members)
        ],
    }
