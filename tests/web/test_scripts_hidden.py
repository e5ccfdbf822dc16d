"""A page that is not seen, or that stands still, stays in its room or comes back to it, and is
right at once when it is shown."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward.app import App
from onceward.client.rooms.live import Live
from onceward.engine.memory import Memory, MemoryEngine
from tests.client.served import Served
from tests.hidden import Tab
from tests.tabs import launched
from tests.web.editor import Hasty

pytestmark = pytest.mark.timeout(180)

ENTER = """(async () => {
    const { Live } = await import("/client.js");
    globalThis.live = new Live(null, { token: "dev:ann" });
    globalThis.room = await live.join("r", { create: true });
    globalThis.map = room.map("m");
    globalThis.states = [];
    live.onState((state) => states.push(state));
    // Waits until something is so, without a timer.
    globalThis.until = (holds) => new Promise((resolve) => {
        const look = () => holds() && (ends.forEach((end) => end()), resolve());
        const ends = [map.subscribe(look), live.onState(look), room.onStatus(look)];
        document.addEventListener("visibilitychange", look);
        look();
    });
})()"""


@asynccontextmanager
async def served(memory: Memory, port: int = 0) -> AsyncIterator[Served]:
    async with Served(App(MemoryEngine(memory), slots=4), port=port) as server:
        yield server


async def until(tab: Tab, holds: str) -> None:
    await tab.evaluate(f"until(() => {holds})")


async def test_a_page_that_is_hidden_is_right_when_it_is_seen_again() -> None:
    memory = Memory()
    async with launched(hides=True) as browser:
        devtools = await browser.new_browser_cdp_session()
        async with served(memory) as server:
            page = await Tab.open(devtools, f"{server.url}/healthz")
            await page.evaluate(ENTER)
            ben = Live(server.url, token="dev:ben", clock=Hasty())
            theirs = (await (await ben.open()).join("r")).map("m")
            other = await Tab.open(devtools, "about:blank")
            await until(page, "document.hidden")

            # What others do comes, what is done here is sent, and so is presence.
            await theirs.set("k", 1)
            await until(page, "map.get('k') === 1")
            here = theirs._room.presence("here")
            assert await page.evaluate(
                "[1, 2, 3].forEach((x) => room.presence('here').set({ x })), map.set('mine', 1)"
            )
            await seen(here, {"ann": {"x": 3}})
            assert theirs.get("mine") == 1

            # It stands still, and very much happens.
            await page.freeze()
            for number in range(200):
                theirs.set("k", number)
            await theirs.set("k", "thawed")
            await page.show()
            await until(page, "!document.hidden && map.get('k') === 'thawed'")
            assert await page.evaluate("states") == []

            # The connection is lost while it stands still …
            await other.show()
            await until(page, "document.hidden")
            await page.evaluate("void map.set('mine', 2)")
            await page.freeze()
        async with served(memory, server.port) as server:
            await theirs.set("k", "elsewhere")
            await page.show()
            await until(page, "map.get('k') === 'elsewhere'")
            assert await page.evaluate("[live.state, room.status]") == ["connected", "live"]

            # … and while it goes on, unseen.
            await other.show()
            await until(page, "document.hidden")
            await page.evaluate("states.length = 0")
        async with served(memory, server.port):
            await theirs.set("k", "again")
            await until(page, "map.get('k') === 'again'")
            assert await page.evaluate("document.hidden")
            assert (await page.evaluate("states"))[-1] == "connected"
            assert theirs.get("mine") == 2
            await page.evaluate("live.close()")
            await ben.close()


async def seen(presence: Any, values: Any) -> None:
    """Wait until a presence is so."""
    changed = asyncio.Event()
    end = presence.subscribe(lambda all_, who: changed.set())
    while presence.all() != values:
        changed.clear()
        await changed.wait()
    end()
