"""Many timers of one receiver are due at once: it is called as fast as it can take that."""

from collections import Counter
from pathlib import Path

import pytest

from onceward.clock import Clock
from tests.observe.figures import lateness, show
from tests.server_process import ServerProcess
from tests.webhooks.sink import Sink, fill

pytestmark = [pytest.mark.timers, pytest.mark.timeout(2700)]

ANSWERS_MS = 200


async def test_a_receiver_gets_many_calls_at_once_while_it_answers_well(
    tmp_path: Path, soak: bool
) -> None:
    count = 4_000 if soak else 500
    server = ServerProcess(tmp_path)
    async with Sink(tmp_path, "late") as sink:
        start_ms = Clock().now_ms() + (6_000 if soak else 2_000)
        due = {f"t{n}": start_ms + n * 1_000 // count for n in range(count)}
        await fill(server.database, ((id_, sink.urls[0], at_ms) for id_, at_ms in due.items()))
        with server:
            ready_ms = Clock().now_ms()
            await sink.until(count)
            assert server.stop() == 0
        heard = await sink.heard()
    assert max(Counter(request.timer for request in heard).values()) == 1
    took_ms = max(request.at_ms for request in heard) + ANSWERS_MS - start_ms
    figures = {
        "timers": count,
        "ready_before_ms": start_ms - ready_ms,
        "delivered_s": round(took_ms / 1e3, 2),
        "late": lateness([request.at_ms - due[request.timer] for request in heard]),
    }
    show("burst", figures, {"all delivered within 3 s": took_ms < 3_000}, soak)


async def test_a_receiver_that_takes_50_calls_at_once_refuses_few(
    tmp_path: Path, soak: bool
) -> None:
    count = 4_000 if soak else 500
    server = ServerProcess(tmp_path)
    async with Sink(tmp_path, "fifty") as sink:
        start_ms = Clock().now_ms() + (6_000 if soak else 2_000)
        await fill(server.database, ((f"t{n}", sink.urls[0], start_ms) for n in range(count)))
        with server:
            heard = []
            while len({request.timer for request in heard}) < count:
                await sink.until(max(count, len(heard) + 1))
                heard = await sink.heard()
            assert server.stop() == 0
        heard = await sink.heard()
    repeated = len(heard) - count
    last_ms = max(request.at_ms for request in heard)
    figures = {
        "timers": count,
        "refused": repeated,
        "refused_percent": round(100 * repeated / len(heard), 2),
        "took_s": round((last_ms - start_ms) / 1e3, 1),
    }
    show("fifty", figures, {"at most 5% refused": repeated <= 0.05 * len(heard)}, soak)
