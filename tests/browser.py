"""A real browser for the tests of pages: headless Chromium, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REQUIRED = "CAPTUM_GOAT_BROWSER"  # if this variable is set, tests fail where there is no browser


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser, or skip the test with a message."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        message = "needs Playwright and Chromium: pip install captum-goat[test] and apt-get install chromium"
        if os.environ.get(REQUIRED):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class OpenPage:
    """A page that was opened offline, with all that it requested and all errors that it raised."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900}, **options)
        self.page = context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".cg-canvas svg")

    def close(self, path: Path) -> None:
        """Check that nothing but the file itself was requested, and that there were no errors."""
        assert self.requests == [path.as_uri()]
        assert self.problems == []
        self.page.context.close()
