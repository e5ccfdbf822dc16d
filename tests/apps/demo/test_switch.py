"""Work is done while a switch is on."""

import asyncio

from apps.demo.switch import Switch
from onceward.clock import Clock
from onceward.errors import Unavailable


class Counting(Clock):
    """Sleeps for no time."""

    slept = 0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        await asyncio.sleep(0)


async def test_work_goes_on_while_the_switch_is_on_and_leaves_when_it_is_off() -> None:
    switch, happened = Switch(False), asyncio.Queue[str]()

    async def work() -> None:
        happened.put_nowait("come")
        try:
            await asyncio.Event().wait()
        finally:
            happened.put_nowait("stop")

    async def leave() -> None:
        happened.put_nowait("leave")

    working = asyncio.create_task(switch.while_on(work, Counting(), leave))
    for _ in range(2):
        assert happened.empty()
        switch.turn(True)
        switch.turn(True)  # twice is once
        assert await happened.get() == "come"
        assert switch.is_on
        switch.turn(False)
        assert [await happened.get(), await happened.get()] == ["stop", "leave"]
    switch.turn(True)
    assert await happened.get() == "come"
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()
    assert [await happened.get(), happened.empty()] == ["stop", True]


async def test_what_the_server_cannot_do_now_is_begun_anew() -> None:
    switch, clock, tries = Switch(True), Counting(), 0
    enough = asyncio.Event()

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            enough.set()
            await asyncio.Event().wait()
        raise Unavailable("not now")

    working = asyncio.create_task(switch.while_on(work, clock))
    await enough.wait()
    assert clock.slept == 2
    working.cancel()
    await asyncio.wait([working])
