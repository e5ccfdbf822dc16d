"""A real browser for tests of pages: Chromium, driven by playwright."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.needs import need, need_program

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def browsing(forgive: str = "never", **options: Any) -> Iterator[Any]:
    """A page in a new browser; its context makes more tabs. At the end nothing on any of them may
    have failed but for what `forgive` matches: no script, no request, and nothing that a security
    policy forbids."""
    playwright = need("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        # It is started as a child of this process; as root it has no sandbox of its own.
        browser = driver.chromium.launch(
            executable_path=need_program(*NAMES), chromium_sandbox=os.geteuid() != 0, timeout=60_000
        )
        context = browser.new_context(**options)
        context.set_default_timeout(30_000)
        wrong: list[str] = []
        context.on("weberror", lambda failed: wrong.append(str(failed.error)))
        context.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        yield context.new_page()
        browser.close()
    assert [said for said in wrong if not re.search(forgive, said)] == []
