"""What a guide wants the maps of an example to look like: an outline over what they are.

Only fixed patterns are shown (first, next, prev, delim, period): what knowledge wants is worked out for training texts.

Shapes: T tokens of the example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from headwise.experiments.analysis.maps import Floats
from headwise.experiments.apply import Loaded
from headwise.experiments.pattern_scores import missing_marks
from headwise.guides import build
from headwise.guides.match import Match
from headwise.patterns import Pattern, Tokens, find_marks, mark_ids
from headwise.patterns.knowledge import Knowledge


@dataclass(frozen=True)
class WantedMap:
    """The first fixed pattern that a run was guided to."""

    name: str
    """The pattern, and where it was wanted."""
    pattern: Pattern
    known: Mapping[str, tuple[int, ...]]
    """Ids of separators and full stops."""

    @classmethod
    def of(cls, run: Loaded) -> WantedMap | None:
        """That of a run; None if it was guided to none. Asked once, since it looks through the whole vocabulary."""
        guides = [build(name, **options) for name, options in run.recipe.guides.items()]
        fixed = [each for each in guides if isinstance(each, Match) and not isinstance(each.pattern, Knowledge)]
        known = mark_ids(run.tokenizer) if fixed else {}
        for guide in fixed:
            if not missing_marks(guide.pattern, known):
                where = f"{guide.pattern.name} (guided: layers {guide.layers}, heads {guide.heads})"
                return cls(where, guide.pattern, known)
        return None

    def rows(self, ids: torch.Tensor) -> Floats:
        """[T,T] what it wants of an example with these token ids [1,T]."""
        ids = ids.cpu()
        marks = find_marks(ids, self.known, set(self.pattern.marks))
        target = self.pattern.target(Tokens(valid=torch.ones_like(ids, dtype=torch.bool), marks=marks))
        return np.asarray(target.rows[0].float().numpy(), dtype=np.float32)
