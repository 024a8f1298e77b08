"""Guides: differentiable pressure on attention. A new one is one file and one line in `base`."""

from typing import TYPE_CHECKING

from headwise.guides.attach import GuidedLoss, as_guides, guidance, guidance_of, guide, last_losses, unguide
from headwise.guides.base import GUIDES, Guide, Guides, Regulariser, build, mean_over_examples, register_guide
from headwise.guides.consistency import Consistency
from headwise.guides.gram import MapDiscrimination, PatternDecorrelation
from headwise.guides.guidance import Guidance
from headwise.guides.head_dropout import HeadDropout
from headwise.guides.weights import auto, constant, decay, piecewise, warm_up
from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.guides.alignment import Alignment
    from headwise.guides.disagreement import Disagreement
    from headwise.guides.entropy import Entropy
    from headwise.guides.match import Match, Relations
    from headwise.guides.rationale import Rationale

MDG = MapDiscrimination
PDG = PatternDecorrelation

__all__ = [
    "GUIDES",
    "MDG",
    "PDG",
    "Alignment",
    "Consistency",
    "Disagreement",
    "Entropy",
    "Guidance",
    "Guide",
    "GuidedLoss",
    "Guides",
    "HeadDropout",
    "MapDiscrimination",
    "Match",
    "PatternDecorrelation",
    "Rationale",
    "Regulariser",
    "Relations",
    "as_guides",
    "auto",
    "build",
    "constant",
    "decay",
    "guidance",
    "guidance_of",
    "guide",
    "last_losses",
    "mean_over_examples",
    "piecewise",
    "register_guide",
    "unguide",
    "warm_up",
]

__getattr__ = lazy_names(
    __name__,
    {
        "alignment": ("Alignment",),
        "disagreement": ("Disagreement",),
        "entropy": ("Entropy",),
        "match": ("Match", "Relations"),
        "rationale": ("Rationale",),
    },
)
