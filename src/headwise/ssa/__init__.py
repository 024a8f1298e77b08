"""Self-supervised attention: the model labels its own tokens, learns the labels, and pools by them."""

from headwise.ssa.attach import remove_supervision, self_supervise, supervision, supervision_of
from headwise.ssa.options import SSA, build_ssa
from headwise.ssa.supervision import Supervision
from headwise.ssa.text_tokens import TextTokens

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
