"""Headwise: attention heads of transformer models: see them, change them, guide them in training, and show what it did.

Names are loaded on first use, so that `import headwise` costs nothing. Everything else is in the subpackages, such as
`headwise.guides` and `headwise.training`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.attention import capture, gate, mask, prune
    from headwise.errors import HeadwiseError
    from headwise.experiments.analysis.analyze import analyze
    from headwise.experiments.comparison import compare
    from headwise.guides import MDG, PDG, Guide, Match, auto, guide, unguide
    from headwise.heads import IAT, head_importance
    from headwise.reports.report_page import report
    from headwise.retrieval.reranker import Reranker
    from headwise.ssa import SSA, self_supervise
    from headwise.training import GuideCallback, GuidedTrainer, SSACallback, load

__version__ = "0.1.0"

_MODULES = {
    "headwise.attention": ("capture", "gate", "mask", "prune"),
    "headwise.errors": ("HeadwiseError",),
    "headwise.experiments.analysis.analyze": ("analyze",),
    "headwise.experiments.comparison": ("compare",),
    "headwise.guides": ("MDG", "PDG", "Guide", "Match", "auto", "guide", "unguide"),
    "headwise.heads": ("IAT", "head_importance"),
    "headwise.reports.report_page": ("report",),
    "headwise.retrieval.reranker": ("Reranker",),
    "headwise.ssa": ("SSA", "self_supervise"),
    "headwise.training": ("GuideCallback", "GuidedTrainer", "SSACallback", "load"),
}
# Names of an earlier version, which work until the next one: where they are now, and what to use instead if not that.
_DEPRECATED = {
    "AttentionRecord": "headwise.attention",
    "Disagreement": "headwise.guides",
    "GuidedLoss": "headwise.guides",
    "HeadImportance": "headwise.heads",
    "HeadwiseWarning": "headwise.errors",
    "MultiTask": "headwise.training",
    "decay": "headwise.guides",
    "guidance": "headwise.guides",
    "last_losses": "headwise.guides",
    "log_losses": "headwise.training",
    "piecewise": "headwise.guides",
    "register_guide": "headwise.guides",
    "relabel": "headwise.training",
    "supervision": "headwise.ssa",
    "warm_up": "headwise.guides",
}
_INSTEAD = {"log_losses": "callbacks=[headwise.GuideCallback()]", "relabel": "headwise.SSACallback"}
_SUBPACKAGES = (
    "attention",
    "data",
    "experiments",
    "guides",
    "heads",
    "metrics",
    "patterns",
    "reports",
    "retrieval",
    "ssa",
    "training",
)

__all__ = [
    "IAT",
    "MDG",
    "PDG",
    "SSA",
    "Guide",
    "GuideCallback",
    "GuidedTrainer",
    "HeadwiseError",
    "Match",
    "Reranker",
    "SSACallback",
    "__version__",
    "analyze",
    "auto",
    "capture",
    "compare",
    "gate",
    "guide",
    "head_importance",
    "load",
    "mask",
    "prune",
    "report",
    "self_supervise",
    "unguide",
]


def __getattr__(name: str) -> Any:
    """Load a public name or a subpackage; names of an earlier version come with a DeprecationWarning."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"headwise.{name}")
    if name in _DEPRECATED:
        new = _INSTEAD.get(name, f"{_DEPRECATED[name]}.{name}")
        warnings.warn(f"headwise.{name} is deprecated: use {new}.", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(_DEPRECATED[name]), name)
    raise AttributeError(f"module 'headwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__
