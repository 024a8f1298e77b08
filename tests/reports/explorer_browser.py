"""Plugin: one Chromium for all tests of the report page, and pages in it. A test module asks by `pytest_plugins`.

It is a plugin of its own, not a conftest: other tests import names from the conftest at the top.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import FLAGS
from explorer_pages import Tab, write_page
from explorer_payloads import Maker, tiny


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


@pytest.fixture
def silent() -> Iterator[list[Tab]]:
    """Tabs that must not have complained when the test is over."""
    tabs: list[Tab] = []
    yield tabs
    for tab in tabs:
        assert (tab.problems(), tab.complaints()) == ([], [])


@pytest.fixture
def show(browser: Any, silent: list[Tab], tmp_path: Path) -> Callable[..., Tab]:
    """Open a page at a link."""

    def open(maker: Maker, link: str = "", **changes: Any) -> Tab:
        silent[:] = [Tab(browser, write_page(maker, tmp_path / "page.html", **changes)).open(link)]
        return silent[0]

    return open


@pytest.fixture(scope="session")
def tiny_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tiny(), tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def tab(browser: Any, silent: list[Tab], tiny_page: str) -> Tab:
    """A small page with every view; its data are those of `tiny`."""
    silent.append(Tab(browser, tiny_page).open())
    return silent[0]
