import asyncio

import pytest

from benchmarks import punctual
from benchmarks.punctual import Fires, Keeper, Timer, measure_punctuality


class Prompt:
    """Fires each timer so many times, on time to the nanosecond, without waiting for that."""

    def __init__(self, fires: Fires, late_ms: int = 0, times: int = 1) -> None:
        self.fires = fires
        self.late_ms = late_ms
        self.times = times

    async def set(self, timers: list[Timer]) -> None:
        for number, due_ms in timers:
            for _ in range(self.times):
                self.fires.add(number, (due_ms + self.late_ms) * 1_000_000)


async def test_lateness_counts_from_when_each_was_due() -> None:
    fires = Fires()
    figures = await measure_punctuality(Prompt(fires, late_ms=7), 100, 1.0, fires=fires)
    assert figures["p50_ms"] == figures["p99_ms"] == figures["max_ms"] == 7
    assert figures["early_ms"] == 0
    assert len(fires.seen) == 200  # those to warm up come first


async def test_who_is_early_is_told() -> None:
    fires = Fires()
    figures = await measure_punctuality(Prompt(fires, late_ms=-3), 5, 0.1, fires=fires)
    assert figures["early_ms"] == 3


async def test_a_timer_that_fires_twice_is_an_error() -> None:
    fires = Fires()
    with pytest.raises(RuntimeError, match="fired twice"):
        await measure_punctuality(Prompt(fires, times=2), 5, 0.1, fires=fires)


async def test_timers_that_never_fire_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punctual, "DRAIN_S", 0.0)
    monkeypatch.setattr(punctual, "AHEAD_S", 0.0)
    fires = Fires()
    with pytest.raises(TimeoutError, match="0 of 3"):
        await Keeper(Prompt(fires, times=0), fires).fired([0, 0, 0])


async def test_fires_may_come_from_other_threads() -> None:
    fires = Fires()
    fires.want(2)
    await asyncio.gather(asyncio.to_thread(fires.add, 1), asyncio.to_thread(fires.add, 2))
    await fires.wait(10)
    assert {number for number, _ in fires.seen} == {1, 2}
