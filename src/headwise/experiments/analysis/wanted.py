"""What a guide wants the maps of an example to look like: an outline over what they are.

Only fixed patterns are shown (first, next, prev, delim, period): what knowledge wants is worked out for training texts.

Shapes: T tokens of the example.
"""

from __future__ import annotations

import numpy as np
import torch

from headwise.experiments.analysis.maps import Floats
from headwise.experiments.apply import Loaded
from headwise.experiments.pattern_scores import missing_marks
from headwise.guides import build
from headwise.guides.match import Match
from headwise.patterns import Tokens, find_marks, mark_ids
from headwise.patterns.knowledge import Knowledge


def wanted_map(run: Loaded, ids: torch.Tensor) -> tuple[str, Floats] | None:
    """The first fixed pattern that the run was guided to, and its map [T,T] for these token ids [1,T]."""
    known = mark_ids(run.tokenizer)
    for name, options in run.recipe.guides.items():
        guide = build(name, **options)
        if not isinstance(guide, Match) or isinstance(guide.pattern, Knowledge) or missing_marks(guide.pattern, known):
            continue
        marks = find_marks(ids.cpu(), known, set(guide.pattern.marks))
        target = guide.pattern.target(Tokens(valid=torch.ones_like(ids.cpu(), dtype=torch.bool), marks=marks))
        where = f"{guide.pattern.name} (guided: layers {guide.layers}, heads {guide.heads})"
        return where, np.asarray(target.rows[0].float().numpy(), dtype=np.float32)
    return None
