"""Headwise: attention heads of transformer models: see them, change them, guide them in training, and show what it did.

Names are loaded on first use, so that `import headwise` costs nothing. Everything else is in the subpackages, such as
`headwise.guides` and `headwise.training`. As soon as transformers is imported, `attn_implementation="headwise"` works.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import wrapt

from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.attention import capture, gate, mask, prune
    from headwise.errors import HeadwiseError
    from headwise.experiments.analysis.analyze import analyze
    from headwise.experiments.comparison import compare
    from headwise.guides import (
        MDG,
        PDG,
        Alignment,
        Consistency,
        Entropy,
        Guide,
        HeadDropout,
        Match,
        Rationale,
        Relations,
        auto,
        guide,
        unguide,
    )
    from headwise.heads import IAT, head_importance
    from headwise.reports.report_page import report
    from headwise.retrieval.reranker import Reranker
    from headwise.retrieval.search import Searcher
    from headwise.ssa import SSA, self_supervise
    from headwise.training import GuideCallback, GuidedTrainer, SSACallback, load

__version__ = "0.1.0"

_MODULES = {
    "attention": ("capture", "gate", "mask", "prune"),
    "errors": ("HeadwiseError",),
    "experiments.analysis.analyze": ("analyze",),
    "experiments.comparison": ("compare",),
    "guides": (
        *("MDG", "PDG", "Alignment", "Consistency", "Entropy", "Guide", "HeadDropout", "Match", "Rationale"),
        *("Relations", "auto", "guide", "unguide"),
    ),
    "heads": ("IAT", "head_importance"),
    "reports.report_page": ("report",),
    "retrieval.reranker": ("Reranker",),
    "retrieval.search": ("Searcher",),
    "ssa": ("SSA", "self_supervise"),
    "training": ("GuideCallback", "GuidedTrainer", "SSACallback", "load"),
}
# Names of an earlier version, which work until the next one: where they are now, and what to use instead if not that.
_DEPRECATED = {
    "attention": ("AttentionRecord",),
    "errors": ("HeadwiseWarning",),
    "guides": (
        "Disagreement",
        "GuidedLoss",
        "decay",
        "guidance",
        "last_losses",
        "piecewise",
        "register_guide",
        "warm_up",
    ),
    "heads": ("HeadImportance",),
    "ssa": ("supervision",),
    "training": ("MultiTask", "log_losses", "relabel"),
}
_public = lazy_names("headwise", _MODULES)
# Importing this module registers our attention with transformers.
wrapt.register_post_import_hook(
    lambda _: importlib.import_module("headwise.attention.backend"), "transformers.modeling_utils"
)
_INSTEAD = {"log_losses": "callbacks=[headwise.GuideCallback()]", "relabel": "headwise.SSACallback"}
_SUBPACKAGES = "attention data experiments guides heads metrics patterns reports retrieval ssa training".split()

__all__ = [
    "IAT",
    "MDG",
    "PDG",
    "SSA",
    "Alignment",
    "Consistency",
    "Entropy",
    "Guide",
    "GuideCallback",
    "GuidedTrainer",
    "HeadDropout",
    "HeadwiseError",
    "Match",
    "Rationale",
    "Relations",
    "Reranker",
    "SSACallback",
    "Searcher",
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
    if name in _SUBPACKAGES:
        return importlib.import_module(f"headwise.{name}")
    for module, names in _DEPRECATED.items():
        if name in names:
            new = _INSTEAD.get(name, f"headwise.{module}.{name}")
            warnings.warn(f"headwise.{name} is deprecated: use {new}.", DeprecationWarning, stacklevel=2)
            return getattr(importlib.import_module(f"headwise.{module}"), name)
    return _public(name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
