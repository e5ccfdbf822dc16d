"""A lock that is held over HTTP is renewed, and whoever loses it is stopped."""

import asyncio
from pathlib import Path

import pytest

from onceward.client import Client
from onceward.errors import BadInput, LockHeld, LockLost
from tests.client.served import Cutter, Loss, Served
from tests.server_process import ServerProcess

LEASE_S = 0.6


async def renewals(cutter: Cutter, count: int) -> None:
    """Wait until so many requests to renew came by."""
    seen = 0
    while seen < count:
        seen = sum("/renew" in line for line in cutter.requests)
        await asyncio.sleep(0)


async def test_names_are_held_for_the_time_of_the_body(client: Client) -> None:
    async with client.locks.hold(["a", "b"], owner="me") as lock:
        assert lock.tokens == {"a": 1, "b": 1}
        with pytest.raises(LockHeld):
            async with client.locks.hold(["b"]):
                pytest.fail("held twice")
    async with client.locks.hold(["b"]) as lock:
        assert lock.token == 2


async def test_a_lock_is_held_for_longer_than_its_lease(client: Client, cutter: Cutter) -> None:
    async with client.locks.hold(["a"], lease_s=LEASE_S):
        await renewals(cutter, 4)
        assert (await client.locks.get("a")).held == 1
    assert (await client.locks.get("a")).held == 0


async def test_who_waits_in_line_holds_next_with_a_whole_lease(client: Client) -> None:
    first = await client.locks.acquire(["a"])

    async def next_one() -> int:
        async with client.locks.hold(["a"], wait_s=30, lease_s=30) as lock:
            return lock.token

    waiting = asyncio.create_task(next_one())
    while not (await client.locks.get("a")).waiting:
        pass
    await client.locks.release(first.id)
    assert await waiting == 2


async def test_a_lock_that_is_lost_while_held_cancels_its_body(client: Client) -> None:
    cancelled = asyncio.Event()

    async def body() -> None:
        async with client.locks.hold(["a", "b"], lease_s=LEASE_S) as lock:
            assert await client.locks.release(lock.id)  # by someone who should not
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    with pytest.raises(LockLost, match="the lock on a, b was lost"):
        await body()
    assert cancelled.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "what follows goes on"


async def test_a_holder_that_cannot_reach_the_server_gives_up_in_time(
    client: Client, cutter: Cutter, served: Served
) -> None:
    async def body() -> None:
        async with client.locks.hold(["a"], lease_s=LEASE_S):
            cutter.deaf.set()
            cutter.cut_all()
            await asyncio.Event().wait()

    async with Client(served.url) as other:
        with pytest.raises(LockLost, match="ended before it could be renewed"):
            await body()
        async with other.locks.hold(["a"], wait_s=30) as lock:
            assert lock.token == 2


async def test_an_impatient_client_tries_on_while_the_lease_lasts(
    cutter: Cutter, served: Served
) -> None:
    async with (
        Client(cutter.url, patience_s=0) as client,
        client.locks.hold(["a"], lease_s=3),
    ):
        cutter.word, cutter.losses = "/renew", [Loss.REQUEST, Loss.ANSWER]
        await renewals(cutter, 3)
        assert cutter.losses == []


async def test_a_lock_whose_loss_was_not_noticed_is_told_at_the_end(client: Client) -> None:
    with pytest.raises(LockLost, match="released by another client"):
        async with client.locks.hold(["a"]) as lock:
            await client.locks.release(lock.id)


async def test_an_error_of_the_body_counts_for_more_than_the_loss(client: Client) -> None:
    async def at_once() -> None:
        async with client.locks.hold(["a"]) as lock:
            await client.locks.release(lock.id)
            raise KeyError("body")

    async def when_cancelled() -> None:
        async with client.locks.hold(["a"], lease_s=LEASE_S) as lock:
            await client.locks.release(lock.id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError("body") from None

    for body in (at_once, when_cancelled):
        with pytest.raises(KeyError):
            await body()


async def test_one_who_is_cancelled_from_outside_lets_go(client: Client) -> None:
    began = asyncio.Event()

    async def body() -> None:
        async with client.locks.hold(["a"]):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.locks.get("a")).held == 0


async def test_a_server_that_is_away_at_the_end_is_waited_for_no_longer_than_the_lease(
    client: Client, cutter: Cutter
) -> None:
    async with client.locks.hold(["a"], lease_s=LEASE_S):
        cutter.deaf.set()
        cutter.cut_all()
    cutter.deaf.clear()
    async with client.locks.hold(["a"], wait_s=30) as lock:
        assert lock.token == 2


async def test_a_hold_is_for_one_use(client: Client) -> None:
    hold = client.locks.hold(["a"])
    async with hold:
        with pytest.raises(BadInput, match="already entered"):
            async with hold:
                pytest.fail("entered twice")


@pytest.mark.parametrize("lease_s", [0, -1, float("nan"), 1e12])
async def test_a_lease_that_makes_no_sense_is_refused(client: Client, lease_s: float) -> None:
    with pytest.raises(BadInput):
        async with client.locks.hold(["a"], lease_s=lease_s):
            pytest.fail("held")


async def test_who_waits_when_the_server_stops_keeps_its_place(
    client: Client, cutter: Cutter, served: Served
) -> None:
    """It is told to ask again, and does so with the same request."""
    async with Client(served.url) as other:
        first = await other.locks.acquire(["a"])
        waiting = asyncio.create_task(client.locks.acquire(["a"], wait_s=30))
        while not (await other.locks.get("a")).waiting:
            pass
        served.server.drain()
        while sum("/acquire" in line for line in cutter.requests) < 3:
            await other.locks.get("a")
        assert (await other.locks.get("a")).waiting == 1
        served.server.draining.clear()
        await other.locks.release(first.id)
        assert (await waiting).token == 2


async def test_a_lock_is_held_through_a_crash_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        async with Client(server.url) as client:
            async with client.locks.hold(["a"], lease_s=50) as lock:
                server.kill()
                server.start()
                status = await client.locks.get("a")  # asked again until it is back
                assert (status.held, status.token) == (1, lock.token)
            async with client.locks.hold(["a"]) as lock:
                assert lock.token == 2


async def test_a_long_wait_is_several_requests_and_keeps_its_place(
    client: Client, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.client.locks._WAIT_S", 0.02)
    first = await client.locks.acquire(["a"])
    order: list[str] = []

    async def wait(name: str) -> None:
        async with client.locks.hold(["a"], wait_s=None):
            order.append(name)

    waiting = []
    for number, name in enumerate(("early", "late"), 1):
        waiting.append(asyncio.create_task(wait(name)))
        while (await client.locks.get("a")).waiting < number:
            pass
    before = sum("/acquire" in line for line in cutter.requests)
    while sum("/acquire" in line for line in cutter.requests) < before + 6:
        assert (await client.locks.get("a")).waiting == 2
    await client.locks.release(first.id)
    await asyncio.gather(*waiting)
    assert order == ["early", "late"]


async def test_a_long_wait_ends_when_it_was_asked_to(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.client.locks._WAIT_S", 0.02)
    monkeypatch.setattr("onceward.limits.WAIT_MS_MAX", 50)
    await client.locks.acquire(["a"])
    with pytest.raises(LockHeld):
        await client.locks.acquire(["a"], wait_s=0.1)
    assert (await client.locks.get("a")).waiting == 0, "the last request gives up the place"


async def test_a_place_is_kept_for_a_named_request_only(client: Client) -> None:
    with pytest.raises(BadInput, match="keep_place needs the member request"):
        await client.call(
            "POST", "v1", "locks", "acquire", type=dict, body={"names": ["a"], "keep_place": True}
        )
