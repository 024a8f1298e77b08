"""The public API is small, and stays as it is unless somebody means to change it."""

import pytest

import headwise as hw

NAMES = [
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
# What headwise 0.1 had beside these, and where it is now.
MOVED = {
    "AttentionRecord": "attention",
    "Disagreement": "guides",
    "GuidedLoss": "guides",
    "HeadImportance": "heads",
    "MultiTask": "training",
    "decay": "guides",
    "guidance": "guides",
    "last_losses": "guides",
    "log_losses": "training",
    "piecewise": "guides",
    "register_guide": "guides",
    "relabel": "training",
    "supervision": "ssa",
    "warm_up": "guides",
}


def test_the_public_names_are_these():
    assert hw.__all__ == NAMES
    assert len(NAMES) <= 32
    assert dir(hw) == sorted(NAMES)


def test_every_public_name_leads_to_something_of_that_name():
    for name in NAMES:
        expected = {"MDG": "MapDiscrimination", "PDG": "PatternDecorrelation", "__version__": None}.get(name, name)
        assert getattr(getattr(hw, name), "__name__", None) == expected


def test_every_name_of_a_subpackage_is_there():
    """Most are imported on first use."""
    for package in ("attention", "data", "experiments", "guides", "heads", "metrics", "patterns", "ssa", "training"):
        names = getattr(hw, package).__all__
        assert [name for name in names if not hasattr(getattr(hw, package), name)] == []
        with pytest.raises(AttributeError, match=f"module 'headwise.{package}' has no attribute 'nothing'"):
            getattr(hw, package).nothing  # noqa: B018


def test_old_names_work_with_a_warning():
    for name, package in MOVED.items():
        with pytest.warns(DeprecationWarning, match=f"headwise.{name} is deprecated: use "):
            found = getattr(hw, name)
        assert found is getattr(getattr(hw, package), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'headwise' has no attribute 'atention'"):
        hw.atention  # noqa: B018
