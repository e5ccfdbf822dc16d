"""Nine of ten endpoints never answer, or drip: the others are called as if those were not there."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from onceward.clock import Clock
from tests.observe.figures import lateness, rss_bytes, show
from tests.server_process import ServerProcess
from tests.webhooks.sink import Sink, fill

pytestmark = [pytest.mark.timers, pytest.mark.timeout(2700)]


async def watch(pid: int, sizes: list[int]) -> None:
    """Note again and again how much memory a process takes."""
    clock = Clock()
    while True:
        sizes.append(rss_bytes(pid))
        await clock.sleep(0.5)


async def test_endpoints_that_hang_or_drip_delay_nobody_else(tmp_path: Path, soak: bool) -> None:
    healthy, seconds, per_second = (20, 300, 2) if soak else (3, 2, 8)
    # In the short form no call to the others is over before the test is; and those that want to
    # be made are more than can be under way at once.
    settings = "" if soak else "webhook_timeout_s = 300\nwebhook_calls = 80\ndrain_s = 0\n"
    (tmp_path / "onceward.toml").write_text(settings)
    server = ServerProcess(tmp_path)
    hows = (["hang", "drip"] * (9 * healthy))[: 9 * healthy]
    for name in ("well", "ill"):
        (tmp_path / name).mkdir()
    async with (
        Sink(tmp_path / "well", *["answer"] * healthy) as well,
        Sink(tmp_path / "ill", *hows) as ill,
    ):
        lead_ms = 4_000 if soak else 2_000  # until the server runs
        start_ms, count = Clock().now_ms() + lead_ms, seconds * per_second
        dues = [start_ms + n * 1_000 // per_second for n in range(count)]
        due = {(number, n): due_ms for n, due_ms in enumerate(dues) for number in range(healthy)}
        timers = [
            (f"{kind}-{number}-{n}", url, due_ms)
            for n, due_ms in enumerate(dues)
            for kind, sink in (("ill", ill), ("well", well))
            for number, url in enumerate(sink.urls)
        ]
        await fill(server.database, timers)
        sizes: list[int] = []
        with server:
            watching = asyncio.create_task(watch(server.pid, sizes))
            await well.until(len(due))
            watching.cancel()
            await asyncio.wait([watching])
            sizes.append(rss_bytes(server.pid))  # at the end, too, however soon that is
            heard, others = await well.heard(), await ill.heard()
    late_ms = [request.at_ms - dues[int(request.timer.rpartition("-")[2])] for request in heard]
    assert max(Counter(request.timer for request in heard).values()) == 1
    assert len(heard) == len(due)
    assert len({request.endpoint for request in others}) > healthy, "hardly any hung"
    settled = max(len(sizes) // 3, 1)
    figures = {
        "endpoints": 10 * healthy,
        "calls": len(timers),
        "well": lateness(late_ms),
        "calls to the ill": len(others),
        "rss_mb": [round(size / 1e6) for size in (sizes[settled], max(sizes[-settled:]))],
    }
    wanted = {
        "under 1 s late": max(late_ms) < 1_000,
        "memory is flat": max(sizes[-settled:]) < 1.1 * max(sizes[settled : 2 * settled]),
    }
    show("hanging", figures, wanted, soak)
