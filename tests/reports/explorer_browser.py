"""Plugin: one Chromium for all tests of the report page. A test module asks for it by `pytest_plugins`.

It is a plugin of its own, not a conftest: other tests import names from the conftest at the top.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import FLAGS


def _missing(what: str) -> None:
    if os.environ.get("HEADWISE_NEED_CHROMIUM") == "1":
        pytest.fail(f"{what}, though HEADWISE_NEED_CHROMIUM=1 asks for it")
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        _missing("Chromium or its driver (chromedriver) is not installed")
    try:
        from selenium import webdriver
    except ImportError:
        _missing("selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, "--window-size=1280,900", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "deny"})  # files are read from their blobs
    yield opened
    opened.quit()
