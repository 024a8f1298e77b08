"""The front door is small, and stays as it is unless somebody means to change it."""

import pytest

import headwise as hw

NAMES = [
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


def test_the_public_names_are_these():
    assert hw.__all__ == NAMES


def test_dir_shows_the_public_names_only():
    assert dir(hw) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_leads_to_something_of_that_name(name):
    found = getattr(hw, name)
    expected = {"MDG": "MapDiscrimination", "PDG": "PatternDecorrelation", "__version__": None}.get(name, name)
    assert getattr(found, "__name__", None) == expected


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'headwise' has no attribute 'atention'"):
        hw.atention  # noqa: B018
