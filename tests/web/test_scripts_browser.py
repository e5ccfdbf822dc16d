"""The client in a real browser: the vectors, and a tab in whose room very much happens."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.web.packing import pack
from onceward.web.scripts import modules
from tests.client.served import Served
from tests.server_process import ServerProcess
from tests.tabs import tabs
from tests.web.test_scripts import PLAYED

pytestmark = pytest.mark.browser

USERS, KEYS = 2, 200
# Changes a second of all users, and for how many seconds; `make soak-browser` takes the larger one.
RATE, SECONDS, SOAK_SECONDS = 1_000, 2, 300
# So much more a tab may have in the end than when it had all keys: noise, and not what it received.
GROWTH_BYTES = 1_500_000

PLAY = """async ([text, vectors]) => {
    const packed = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const { count, play } = await import("/tests/vectors.js");
    return [count(vectors), play(await import(packed), vectors)];
}"""
WATCH = """async () => {
    const { Live } = await import("/client.js");
    const { Watcher } = await import("/tests/watcher.js");
    const room = await new Live(null, { token: "dev:watcher" }).join("r", { create: true });
    globalThis.watcher = new Watcher(room);
}"""


async def test_the_vectors_are_played_as_they_should() -> None:
    folder = Path("tests/vectors/rooms")
    vectors = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("positions", "steps", "replica")
    }
    packed = pack({**modules(), "all.js": PLAYED}, "all.js", {})
    async with Served() as served, tabs(served.url) as [page]:
        count, wrong = await page.evaluate(PLAY, [packed, vectors])
    assert count > 50
    assert wrong == []


@pytest.mark.timeout(2_700)
async def test_a_tab_in_which_very_much_happens_stays_small_and_responsive(
    tmp_path: Path, soak: bool
) -> None:
    seconds = SOAK_SECONDS if soak else SECONDS
    with ServerProcess(tmp_path) as server:
        async with tabs(server.url) as [page]:
            await page.evaluate(WATCH)
            clients = [Live(server.url, token=f"dev:user {n}") for n in range(USERS)]
            rooms = [await (await live.open()).join("r") for live in clients]
            await _flood(rooms, 1)
            await page.evaluate("seq => watcher.until(seq)", rooms[0].position[1])
            before = await _heap(page)
            begun = rooms[0].position[1]
            for minute in range(0, seconds, 60):
                await _flood(rooms, min(seconds - minute, 60))
                end = max(room.position[1] for room in rooms)
                await page.evaluate("seq => watcher.until(seq)", end)
                told, late, longest = await page.evaluate(
                    "[watcher.told, watcher.late(), watcher.longestMs]"
                )
                heap = await _heap(page)
                print(
                    f"{end - begun} changes, told {told} times; heap {heap / 1e6:.2f} MB, "
                    f"before {before / 1e6:.2f}; late by {late:.0f} ms, {longest:.0f} at the most"
                )
            whole = await page.evaluate("watcher.room.map('flood').whole()")
            assert whole == rooms[0].map("flood").whole()
            assert end - begun >= RATE * seconds
            assert told < end / 2, "what comes in a burst is told together"
            assert heap < before + GROWTH_BYTES
            if soak:
                assert late < 100, "ms"
            for live in clients:
                await live.close()


async def _flood(rooms: list[Room], seconds: int) -> None:
    """Change a room at the rate, all users together."""
    clock = Clock()
    begun_ns = clock.elapsed_ns()
    made = 0
    while made < RATE * seconds:
        due = int((clock.elapsed_ns() - begun_ns) / 1e9 * RATE)
        saved: list[Any] = []
        for number in range(made, min(due, made + 100, RATE * seconds)):
            room = rooms[number % len(rooms)]
            saved.append(
                room.map("flood").set(
                    f"key {number % KEYS}", {"text": f"{number:020}", "n": number}
                )
            )
        made += len(saved)
        if made < due:
            await saved[0]  # the server comes first
        else:
            await clock.sleep(0.02)
    while any(room.waiting for room in rooms):
        await clock.sleep(0.02)
    # All have all of it.
    await asyncio.gather(*[room.map("ends").add(str(n)) for n, room in enumerate(rooms)])


async def _heap(page: Any) -> int:
    """How much the page's objects take, when what nobody needs is gone."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("HeapProfiler.enable")
    for _ in range(3):
        await devtools.send("HeapProfiler.collectGarbage")
    used = (await devtools.send("Runtime.getHeapUsage"))["usedSize"]
    await devtools.detach()
    return int(used)
