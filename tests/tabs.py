"""Tabs of a real browser, for tests that do other things meanwhile. See `tests.browser`."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.browser import NAMES
from tests.needs import need, need_program

SCRIPTS = Path(__file__).parent / "js"
MODULES = Path(__file__).parents[1] / "clients" / "js"
# What Chromium says of connections that are refused, cut or offline.
LOST = r"WebSocket connection to|net::ERR_"


# What playwright tells Chromium so that pages go on as if they were seen.
_ALWAYS_SEEN = [
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
]


@asynccontextmanager
async def launched(*, hides: bool = False) -> AsyncIterator[Any]:
    """A new browser. If it hides pages they are as for people: timers of one that is not seen come
    late; see `Tab`."""
    playwright = need("playwright.async_api")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=need_program(*NAMES),
            chromium_sandbox=os.geteuid() != 0,
            timeout=60_000,
            ignore_default_args=_ALWAYS_SEEN if hides else None,
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def tabs(browser: Any, url: str, count: int = 1, forgive: str = LOST) -> AsyncIterator[Any]:
    """Pages of a server, each like one in a browser of its own. The scripts of `tests/js` are below
    /tests/, the modules of the client below /modules/. At the end nothing on them may have failed
    but for what `forgive` matches."""
    wrong: list[str] = []
    async with AsyncExitStack() as stack:
        pages = []
        for _ in range(count):
            context = await browser.new_context()
            stack.push_async_callback(context.close)
            context.set_default_timeout(30_000)
            context.on("weberror", lambda failed: wrong.append(str(failed.error)))
            context.on("console", lambda said: said.type == "error" and wrong.append(said.text))
            page = await context.new_page()
            await page.route("**/tests/*", _script)
            await page.route("**/modules/**", _module)
            await page.goto(f"{url}/healthz")  # any page that is really its own
            pages.append(page)
        yield pages
    assert [said for said in wrong if not re.search(forgive, said)] == []


async def _script(route: Any) -> None:
    name = route.request.url.rpartition("/")[2]
    await route.fulfill(path=SCRIPTS / name, content_type="text/javascript")


async def _module(route: Any) -> None:
    path = route.request.url.partition("/modules/")[2]
    await route.fulfill(path=MODULES / path, content_type="text/javascript")
