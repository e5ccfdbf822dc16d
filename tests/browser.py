"""A real browser for tests of pages: Chromium, driven by playwright."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.needs import need, need_program

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = """async () => (await axe.run({
    resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
})).violations"""


@contextmanager
def launched() -> Iterator[Any]:
    """A new browser."""
    playwright = need("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        # It is started as a child of this process; as root it has no sandbox of its own.
        browser = driver.chromium.launch(
            executable_path=need_program(*NAMES), chromium_sandbox=os.geteuid() != 0, timeout=60_000
        )
        yield browser
        browser.close()


@contextmanager
def visiting(browser: Any, forgive: str = "never", **options: Any) -> Iterator[Any]:
    """A page in a browser, with nothing of others in it; its context makes more tabs. At the end
    nothing on any of them may have failed but for what `forgive` matches: no script, no request,
    and nothing that a security policy forbids."""
    context = browser.new_context(**options)
    context.set_default_timeout(30_000)
    wrong: list[str] = []
    context.on("weberror", lambda failed: wrong.append(str(failed.error)))
    context.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    yield context.new_page()
    context.close()
    assert [said for said in wrong if not re.search(forgive, said)] == []


def grievances(page: Any) -> list[str]:
    """What axe finds on a page that keeps people from using it: what is serious or critical."""
    module = need("axe_playwright_python.base")
    page.evaluate(Path(module.__file__).with_name("axe.min.js").read_text())
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in page.evaluate(AXE)
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@contextmanager
def browsing(forgive: str = "never", **options: Any) -> Iterator[Any]:
    """A page in a browser of its own; see `visiting`."""
    with launched() as browser, visiting(browser, forgive, **options) as page:
        yield page
