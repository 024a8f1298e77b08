"""The page of tokens in a real browser: it opens from disk, shows what it should, and runs nothing."""

import re
import shutil
import subprocess

import pytest
from chromium import FLAGS

from headwise.reports.token_page import ScoredText, ScoredToken, token_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = '<script>document.title="owned"</script>'


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_opens_from_disk_and_a_hostile_text_is_only_text(tmp_path):
    words = [("a", 0.1, False), (HOSTILE, 0.9, True), ("ünï", 0.4, True)]
    tokens = (ScoredToken("[CLS]", None, False, 0), *(ScoredToken(*word, 0) for word in words))
    page = tmp_path / "page.html"
    page.write_text(token_page([ScoredText(tokens, "yes", {"yes": 1.0}, 0.3)], "Tokens"), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "<title>Tokens</title>" in shown
    assert "<script" not in shown
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in shown
    scores = [float(score) for score in re.findall(r'style="--score:\s*([\d.]+)', shown)]
    assert scores == [0.1, 0.9, 0.4]
