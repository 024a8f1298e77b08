"""Self-supervised attention: the model labels its own tokens, learns the labels, and pools by them."""

from headwise.ssa.config import SSA, build_ssa
from headwise.ssa.model import Supervision, TextTokens
from headwise.ssa.supervise import remove_supervision, self_supervise, supervision, supervision_of

__all__ = [
    "SSA",
    "Supervision",
    "TextTokens",
    "build_ssa",
    "remove_supervision",
    "self_supervise",
    "supervision",
    "supervision_of",
]
