"""Every example runs, and does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

from headwise.guides import GUIDES

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_guide_lowers_its_own_value():
    try:
        values = runpy.run_path(str(EXAMPLES / "own_guide.py"))["main"]()
    finally:
        GUIDES.remove("no-sink")
    assert values[-1] < 0.9 * values[0]


def test_docs_show_the_example_as_it_is():
    page = (EXAMPLES.parent / "docs" / "own-guide.md").read_text()
    source = (EXAMPLES / "own_guide.py").read_text()
    for line in ('@hw.register_guide("no-sink")', "class NoSink(hw.Guide):", "return share.mean()"):
        assert line in page
        assert line in source
