"""Headwise: make the attention heads of the encoder you fine-tune work harder, and see what they do.

The front door. Names are loaded on first use, so that importing headwise costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.attention import AttentionRecord, capture, gate, mask, prune
    from headwise.errors import HeadwiseError, HeadwiseWarning
    from headwise.experiments.analysis.analyze import analyze
    from headwise.experiments.comparison import compare
    from headwise.guides import (
        MDG,
        PDG,
        Disagreement,
        Guide,
        GuidedLoss,
        Match,
        auto,
        decay,
        guidance,
        guide,
        last_losses,
        piecewise,
        register_guide,
        unguide,
        warm_up,
    )
    from headwise.heads import IAT, HeadImportance, head_importance
    from headwise.reports.report_page import report
    from headwise.retrieval.reranker import Reranker
    from headwise.ssa import SSA, self_supervise, supervision
    from headwise.training import GuidedTrainer, MultiTask, load, log_losses, relabel

__version__ = "0.1.0"

_HOMES = {
    "headwise.attention": ("AttentionRecord", "capture", "gate", "mask", "prune"),
    "headwise.errors": ("HeadwiseError", "HeadwiseWarning"),
    "headwise.experiments.analysis.analyze": ("analyze",),
    "headwise.experiments.comparison": ("compare",),
    "headwise.guides": (
        "MDG",
        "PDG",
        "Disagreement",
        "Guide",
        "GuidedLoss",
        "Match",
        "auto",
        "decay",
        "guidance",
        "guide",
        "last_losses",
        "piecewise",
        "register_guide",
        "unguide",
        "warm_up",
    ),
    "headwise.heads": ("IAT", "HeadImportance", "head_importance"),
    "headwise.reports.report_page": ("report",),
    "headwise.retrieval.reranker": ("Reranker",),
    "headwise.ssa": ("SSA", "self_supervise", "supervision"),
    "headwise.training": ("GuidedTrainer", "MultiTask", "load", "log_losses", "relabel"),
}

__all__ = [
    "IAT",
    "MDG",
    "PDG",
    "SSA",
    "AttentionRecord",
    "Disagreement",
    "Guide",
    "GuidedLoss",
    "GuidedTrainer",
    "HeadImportance",
    "HeadwiseError",
    "HeadwiseWarning",
    "Match",
    "MultiTask",
    "Reranker",
    "__version__",
    "analyze",
    "auto",
    "capture",
    "compare",
    "decay",
    "gate",
    "guidance",
    "guide",
    "head_importance",
    "last_losses",
    "load",
    "log_losses",
    "mask",
    "piecewise",
    "prune",
    "register_guide",
    "relabel",
    "report",
    "self_supervise",
    "supervision",
    "unguide",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'headwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__
