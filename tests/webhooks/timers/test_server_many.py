"""A server with very many timers: those that come due are fired in time, and those that are
overdue one after the other, while it answers."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from onceward import limits
from onceward.clock import Clock, boot_ns
from tests.observe.figures import lateness, show
from tests.server_process import ServerProcess
from tests.web.plain import Plain
from tests.webhooks.sink import Request, Sink, fill, statuses

pytestmark = [pytest.mark.timers, pytest.mark.timeout(2700)]

YEAR_MS = 366 * 24 * 3_600_000
# By how much two readings of the time may differ in one machine.
READING_MS = 1.0
# Fired so soon after its time, a timer did not wait for others.
ON_TIME_MS = 10


def judge(heard: list[Request], due: dict[str, int]) -> None:
    """See that each timer was fired once, under one id of its own, and not too early."""
    counts = Counter(request.timer for request in heard)
    missing = due.keys() - counts.keys()
    assert not missing, f"{len(missing)} timers were not fired, such as {min(missing)}"
    twice = [timer for timer, count in counts.items() if count > 1]
    assert not twice, f"{len(twice)} calls were made again, such as {twice[0]}"
    assert len({request.id for request in heard}) == len(heard), "two calls have one id"
    early_ms = max(due[request.timer] - request.at_ms for request in heard)
    assert early_ms <= READING_MS, f"a timer was fired {early_ms:.1f} ms early"


async def test_of_many_timers_each_is_fired_once_under_one_id_and_none_too_early(
    tmp_path: Path, soak: bool
) -> None:
    pending, spread, spread_s, burst = (1_000_000, 100_000, 60, 10_000)
    if not soak:
        pending, spread, spread_s, burst = (100_000, 10_000, 6, 1_000)
    server = ServerProcess(tmp_path)
    async with Sink(tmp_path, "answer") as sink:
        [url] = sink.urls
        clock, began_ns = Clock(), boot_ns()
        far_ms = clock.now_ms() + YEAR_MS
        await fill(server.database, ((f"pending-{n}", url, far_ms) for n in range(pending)))
        per_timer_ms = (boot_ns() - began_ns) / 1e6 / pending
        # Soon after all are set and the server runs, by how long it took until now.
        setting_ms = 3 * per_timer_ms * (spread + burst) + 0.05 * per_timer_ms * pending
        start_ms = clock.now_ms() + int(setting_ms) + (3_000 if soak else 1_500)
        burst_ms = start_ms + spread_s * 500
        due = {f"spread-{n}": start_ms + n * spread_s * 1_000 // spread for n in range(spread)}
        due |= {f"burst-{n}": burst_ms + n * 1_000 // burst for n in range(burst)}
        await fill(server.database, ((id_, url, due_ms) for id_, due_ms in due.items()))
        with server:
            ready_ms = clock.now_ms()
            plain = Plain(server.port)
            late = {"delay-0": {"delay_ms": 0}, "delay-1": {"delay_ms": 1_000}, "late": {"at": 1}}
            for id_, when in late.items():
                status, answer = await plain.post("/v1/timers", {"id": id_, "url": url, **when})
                assert status == 202, answer
                due[id_] = ready_ms + when.get("delay_ms", 0)
            plain.close()
            await sink.until(len(due))
            server.stop()
        heard = await sink.heard()
        judge(heard, due)
        told = await statuses(server.database, due.keys() - late.keys())
        assert set(told.values()) == {"success"}
    fired_ms = max(request.at_ms for request in heard if request.timer.startswith("burst-"))
    in_burst = sum(burst_ms <= request.at_ms <= fired_ms for request in heard)
    # What was due meanwhile waits behind the burst: the drain ends when the first is on time again.
    on_time = (r.at_ms for r in heard if r.at_ms - due[r.timer] < ON_TIME_MS)
    drained_ms = min((at_ms for at_ms in on_time if at_ms > fired_ms), default=fired_ms)
    late_ms = {
        request.timer: request.at_ms - due[request.timer]
        for request in heard
        if request.timer.startswith("spread-") and not burst_ms <= due[request.timer] <= drained_ms
    }
    figures = {
        "pending": pending,
        "spread": spread,
        "burst": burst,
        "ready_before_ms": start_ms - ready_ms,
        "outside the burst": lateness(list(late_ms.values())),
        "burst_per_s": round(in_burst / (fired_ms - burst_ms) * 1e3),
        "drain_s": round((drained_ms - burst_ms) / 1e3, 1),
        "seconds with one 50 ms late": sorted(
            {(due[timer] - start_ms) // 1_000 for timer, ms in late_ms.items() if ms >= 50}
        ),
    }
    wanted = {
        "p99 under 50 ms": figures["outside the burst"]["p99_ms"] < 50,
        "2,000 POST/s in the burst": figures["burst_per_s"] >= 2_000,
    }
    show("many", figures, wanted, soak)


class Prober:
    """Asks a server for something again and again, and notes how long that takes."""

    def __init__(self, server: ServerProcess) -> None:
        self._plain = Plain(server.port)
        self.took_ms: list[float] = []

    async def run(self) -> None:
        clock = Clock()
        while True:
            began_ns = boot_ns()
            message = {"body": len(self.took_ms), "key": str(len(self.took_ms))}
            status, _ = await self._plain.post("/v1/inbox/probes", message)
            assert status == 202
            self.took_ms.append((boot_ns() - began_ns) / 1e6)
            await clock.sleep(0.02)

    def close(self) -> None:
        self._plain.close()


def disorder(heard: list[Request], due: dict[str, int]) -> int:
    """How many later ones were called at the most before one that was due earlier."""
    order = sorted(due, key=due.__getitem__)
    place = {timer: number for number, timer in enumerate(order)}
    return max(place[request.timer] - number for number, request in enumerate(heard))


async def test_overdue_timers_are_fired_in_order_at_the_rate_while_the_server_answers(
    tmp_path: Path, soak: bool
) -> None:
    count, heard_min, rate = (1_000_000, 60_000, 1_000) if soak else (20_000, 1_000, 500)
    (tmp_path / "onceward.toml").write_text(f"webhook_rate = {rate}\n")
    server = ServerProcess(tmp_path)
    async with Sink(tmp_path, "answer") as sink:
        [url] = sink.urls
        first_ms = Clock().now_ms() - 10 * count
        due = {f"overdue-{n}": first_ms + 10 * n for n in range(count)}
        await fill(server.database, ((id_, url, due_ms) for id_, due_ms in due.items()))
        began_ns = boot_ns()
        with server:
            prober = Prober(server)
            probing = asyncio.create_task(prober.run())
            await sink.until(heard_min)
            took_s = (boot_ns() - began_ns) / 1e9
            probing.cancel()
            await asyncio.wait([probing])
            prober.close()
            assert probing.cancelled(), probing.exception()
            server.stop()
        heard = await sink.heard()
    counts = Counter(request.timer for request in heard)
    assert max(counts.values()) == 1
    assert len({request.id for request in heard}) == len(heard)
    figures = {
        "overdue": count,
        "rate": rate,
        "per_s": round(heard_min / took_s),
        "out of order by": disorder(heard, due),
        "api": lateness(prober.took_ms),
        "probes": len(prober.took_ms),
    }
    wanted = {"the API's p99 under 100 ms": figures["api"]["p99_ms"] < 100}
    show("overdue", figures, wanted, soak)
    assert heard_min <= rate * (took_s + 1), "more were called than the rate allows"
    assert figures["out of order by"] <= limits.SLOTS_DEFAULT * limits.COMMIT_WRITES_MAX
