"""How many training examples have what a guide looks for: a guide to full stops needs full stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headwise.errors import InputError
from headwise.guides import as_guides
from headwise.patterns import mark_ids
from headwise.tasks import Encoded
from headwise.training import Listener

# Below this share of the examples a guide is hardly there, which is worth a word.
FEW = 0.1


def count_targets(
    guides: Mapping[str, Mapping[str, Any]], train: Encoded, tokenizer: Any, listener: Listener
) -> dict[str, int]:
    """For each guide that looks for tokens of a kind, in how many training examples there are any; none is refused."""
    if not guides:
        return {}
    known, counts = mark_ids(tokenizer), {}
    for name, guide in as_guides(guides).named():
        for mark in guide.marks:
            found = np.isin(train.ids, known.get(mark, ()))
            count = int(np.count_nonzero(np.add.reduceat(found, train.starts[:-1])))
            if not count:
                raise InputError(
                    f"guide {name}: none of the {len(train)} training examples has a {mark} token, so it would guide "
                    "nothing; take it away."
                )
            if count < FEW * len(train):
                listener.tell(f"guide {name}: only {count} of {len(train)} training examples have a {mark} token")
            counts[name] = count
    return counts
