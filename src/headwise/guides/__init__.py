"""Guides: differentiable pressure on attention. A new one is one file and one line in `base`."""

from typing import TYPE_CHECKING

from headwise.guides.attach import GuidedLoss, as_guides, guidance, guidance_of, guide, last_losses, unguide
from headwise.guides.base import GUIDES, Guide, Guides, build, mean_over_examples, register_guide
from headwise.guides.gram import MapDiscrimination, PatternDecorrelation
from headwise.guides.guidance import Guidance
from headwise.guides.weights import auto, constant, decay, piecewise, warm_up
from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.guides.disagreement import Disagreement
    from headwise.guides.match import Match

MDG = MapDiscrimination
PDG = PatternDecorrelation

__all__ = [
    "GUIDES",
    "MDG",
    "PDG",
    "Disagreement",
    "Guidance",
    "Guide",
    "GuidedLoss",
    "Guides",
    "MapDiscrimination",
    "Match",
    "PatternDecorrelation",
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

__getattr__ = lazy_names(__name__, {"disagreement": ("Disagreement",), "match": ("Match",)})
