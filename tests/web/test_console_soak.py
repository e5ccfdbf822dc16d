"""The overview of a server with very much in it is there quickly, and a browser that watches it for
long does not grow."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.client import Client
from onceward.clock import boot_ns
from onceward.errors import OncewardError
from tests.browser import launched, visiting
from tests.server_process import ServerProcess
from tests.web.watching import growth

pytestmark = [pytest.mark.console, pytest.mark.timeout(2_400)]

AT_ONCE = 50
JOBS, TIMERS, ROOMS = 100_000, 10_000, 1_000
LOAD_MS_MAX = 1_000
UPDATES_PER_S, UPDATES = 10, 6_000
# Until all queues are counted, and nobody has worked on them for long enough to tell.
FIRST = 1_200


async def fill(server: ServerProcess, jobs: int, timers: int, rooms: int) -> None:
    async with Client(server.url, connections=AT_ONCE) as client:

        async def post(*path: str, body: Any) -> None:
            await client.call("POST", *path, type=dict, body=body)

        def work() -> Iterator[Coroutine[Any, Any, None]]:
            for first in range(0, jobs, 1_000):
                messages = [
                    {"key": f"order-{number}", "body": {"item": "lamp", "number": number}}
                    for number in range(first, min(first + 1_000, jobs))
                ]
                queue = f"queue-{first // 1_000 % 10}"
                yield post("v1", "inbox", queue, "batch", body={"messages": messages})
            for number in range(timers):
                timer = {"id": f"timer-{number}", "queue": "later", "delay_ms": 3_600_000 + number}
                yield post("v1", "timers", body=timer)
            for number in range(rooms):
                yield post("v1", "rooms", body={"id": f"room-{number}"})

        waiting = work()

        async def worker() -> None:
            for one in waiting:
                await one

        await asyncio.gather(*[worker() for _ in range(AT_ONCE)])


@contextmanager
def traffic(server: ServerProcess) -> Iterator[None]:
    """Messages that come in meanwhile, each of them twice, and are worked on."""
    over = threading.Event()

    async def send() -> None:
        number = 0
        async with Client(server.url) as client:
            while not over.is_set():
                number += 1
                for _ in range(2):
                    await client.send("live", number, key=f"live-{number}")
                for claim in await client.jobs.claim("live", max=10):
                    await client.jobs.complete(claim.id, claim.token)
                await client.jobs.claim("empty", wait_s=0.02)  # to rest

    def run() -> None:
        try:
            asyncio.run(send())
        except OncewardError:
            assert over.is_set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


@pytest.mark.soak
def test_a_browser_that_watches_for_long_does_not_grow(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        link = server.console_link()
        asyncio.run(fill(server, JOBS, TIMERS, ROOMS))
        with traffic(server), launched() as browser, visiting(browser) as page:
            page.goto(link)
            page.get_by_role("heading", level=1, name="Overview").wait_for()
            loads = [load(page) for _ in range(5)]
            begun_ns = boot_ns()
            grown = growth(page, UPDATES, FIRST)
            per_s = (FIRST + UPDATES) / (boot_ns() - begun_ns) * 1e9
    print(f"\nloaded in {loads} ms, {per_s:.1f} updates a second, grown by {grown}")
    assert sorted(loads)[2] < LOAD_MS_MAX
    assert per_s > UPDATES_PER_S * 0.9


def load(page: Any) -> int:
    """How long it takes until the overview shows its plots and its queues."""
    page.reload()
    page.locator(".plot .line.first").first.and_(page.locator("[d^=M]")).wait_for(state="attached")
    page.locator("tbody tr").first.wait_for()
    return int(page.evaluate("performance.now()"))
