"""Pages that programs write are what the programs would write."""

import subprocess
import sys
from pathlib import Path

from headwise.guides import GUIDES

DOCS = Path(__file__).parents[1] / "docs"


def test_which_guide_is_up_to_date():
    answer = subprocess.run([sys.executable, DOCS / "which_guide.py", "--check"], check=False)
    assert answer.returncode == 0, "run `python docs/which_guide.py`"


def test_which_guide_has_every_guide():
    text = (DOCS / "which-guide.md").read_text(encoding="utf-8")
    for name in GUIDES:
        assert f"\n## {name}\n" in text
        assert f"| [`{name}`](#{name}) |" in text
