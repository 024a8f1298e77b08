"""Self-supervised attention: the model labels its own tokens, learns the labels, and pools by them."""

from typing import TYPE_CHECKING, Any, Optional

from headwise.attention import encoder_of
from headwise.errors import UnsupportedModelError
from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.ssa.config import SSA, build_ssa
    from headwise.ssa.model import Supervision, TextTokens
    from headwise.ssa.supervise import remove_supervision, self_supervise, supervision

TOKEN_HEAD = "ssa"

__all__ = [
    "SSA",
    "TOKEN_HEAD",
    "Supervision",
    "TextTokens",
    "build_ssa",
    "remove_supervision",
    "self_supervise",
    "supervision",
    "supervision_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "config": ("SSA", "build_ssa"),
        "model": ("Supervision", "TextTokens"),
        "supervise": ("remove_supervision", "self_supervise", "supervision"),
    },
)


def supervision_of(model: Any) -> Optional["Supervision"]:
    """The token head of a model, or None where there is none."""
    try:
        module = getattr(encoder_of(model), TOKEN_HEAD, None)
    except UnsupportedModelError:
        return None
    # PEFT may wrap it; its attributes are those of the copy that learns.
    owner = getattr(getattr(module, "run", None), "__self__", None)
    if owner is None:
        return None
    from headwise.ssa.model import Supervision

    return owner if isinstance(owner, Supervision) else None
