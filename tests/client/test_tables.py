"""Tables by the client, on good connections and on bad ones, and over live connections."""

import asyncio
from typing import Any

import pytest

from onceward.api.tables import WaitlistPage
from onceward.app import App
from onceward.client import Client, Waiter
from onceward.errors import BadInput, NoSuchTable, OncewardError, OutcomeUnknown
from onceward.tables import Ending, Table
from tests.client.served import Cutter, Loss, Served

LOSSES = [[Loss.REQUEST], [Loss.ANSWER], [Loss.HALF, Loss.REQUEST, Loss.ANSWER]]
lossy = pytest.mark.parametrize("losses", LOSSES, ids=" and ".join)


class Count:
    """Everyone counts on, up to three: then the game is over, and the last one has won."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def begin(self, tx: Any, table: Table) -> None:
        tx.put(("count", table.id), 0)

    async def move(self, tx: Any, table: Table, user: str, move: Any) -> Any:
        count = await tx.get(("count", table.id)) + move
        tx.put(("count", table.id), count)
        if count >= 3:
            await self.app.seats.result(tx, table.id, [user], game=table.number)
        return count

    async def ended(self, tx: Any, table: Table, ending: Ending) -> None:
        pass


def counting() -> App:
    app = App("memory://", slots=4)
    app.referee("count", Count(app))
    return app


async def test_a_table_is_made_joined_and_left(client: Client) -> None:
    table = await client.tables.create(
        id="t", policy={"kind": "ranked", "tiers": []}, meta={"a": 1}
    )
    assert (table.id, table.phase, table.players, table.meta) == ("t", "waiting", {}, {"a": 1})
    for user in ("ann", "ben", "cas"):
        place = await client.tables.join("t", user=user)
    assert (place.role, place.position) == ("waiting", 1)
    assert (await client.tables.place("t", user="ann")).marker == "X"
    ended = await client.tables.result("t", winners=["ben"], game=1)
    assert (ended.winners, ended.reason) == (("ben",), "result")
    assert (await client.tables.get("t")).players == {"X": "cas", "O": "ben"}
    assert (await client.tables.leave("t", user="ann")).role == ""
    assert (await client.tables.watch("t", user="ann")).role == "watching"
    await client.tables.heartbeat("t", user="ann")
    best, *_ = await client.tables.leaders("tables")
    assert best.user == "ben"
    assert [
        leader.user
        for leader in await client.tables.leaders("tables", rating=best.rating, user=best.user)
    ] == ["ann"]
    rated = await client.tables.rating("tables", "ben")
    assert rated is not None
    assert rated.won == 1
    assert await client.tables.rating("tables", "zoe") is None
    assert (await client.tables.pause("t")).paused
    assert not (await client.tables.resume("t")).paused
    assert [one.id for one in (await client.tables.list(prefix="t")).tables] == ["t"]
    assert (await client.tables.close("t")).phase == "closed"
    assert [one.id for one in (await client.tables.list(phase="closed")).tables] == ["t"]
    assert (await client.tables.list(phase="playing", game="chess")).tables == []
    with pytest.raises(BadInput) as refused:
        await client.tables.join("t")
    assert refused.value.code == "table_closed"
    with pytest.raises(NoSuchTable):
        await client.tables.get("u")


async def test_a_waitlist_is_read_in_pages(client: Client) -> None:
    await client.tables.create(id="t", policy={"lanes": ["vip", "main"], "party_max": 2})
    for user in ("ann", "ben", "cas", "dan"):
        await client.tables.join("t", user=user)
    await client.tables.join("t", user="eve", party=["fay"])
    await client.tables.join("t", user="gil", lane="vip")
    found: list[Waiter] = []
    after: str | None = ""
    while after is not None:
        page = await client.tables.waitlist("t", after=after, limit=1)
        found, after = found + page.waitlist, page.next
    assert [(one.lane, one.position, one.size, one.users) for one in found] == [
        ("vip", 1, 1, ("gil",)),
        ("main", 1, 1, ("cas",)),
        ("main", 2, 1, ("dan",)),
        ("main/0/2", 1, 2, ("eve", "fay")),
    ]
    assert await client.tables.waitlist("t") == WaitlistPage("t", found, None)
    assert [one async for one in client.tables.iterate_waitlist("t", limit=2)] == found


async def test_a_table_that_is_full_is_told_at_once(client: Client) -> None:
    await client.tables.create(id="t", policy={"waitlist_max": 0})
    for user in ("ann", "ben"):
        await client.tables.join("t", user=user)
    with pytest.raises(OncewardError) as refused:
        await client.tables.join("t", user="cas")
    assert refused.value.code == "table_full"
    await client.tables.pause("t")
    with pytest.raises(OncewardError) as refused:
        await client.tables.move("t", move=1, user="ann")
    assert refused.value.code == "table_paused"


@lossy
async def test_nothing_is_done_twice_when_answers_are_lost(losses: list[Loss]) -> None:
    async with (
        Served(counting()) as served,
        Cutter(served.port) as cutter,
        Client(cutter.url) as client,
    ):
        cutter.losses += losses
        await client.tables.create(id="t", game="count")
        for user in ("ann", "ben", "cas"):
            cutter.losses += losses
            await client.tables.join("t", user=user)
        cutter.losses += losses
        assert await client.tables.move("t", move=1, user="ann") == 1
        cutter.losses += losses
        assert await client.tables.move("t", move=1, user="ann") == 2
        assert (await client.tables.place("t", user="cas")).position == 1


async def test_a_result_whose_answer_was_lost_is_not_guessed() -> None:
    async with Served() as served, Cutter(served.port) as cutter, Client(cutter.url) as client:
        await client.tables.create(id="t")
        for user in ("ann", "ben"):
            await client.tables.join("t", user=user)
        cutter.losses += [Loss.ANSWER]
        with pytest.raises(OutcomeUnknown):
            await client.tables.result("t", winners=["ann"], game=1)
        with pytest.raises(BadInput) as refused:
            await client.tables.result("t", winners=["ann"], game=1)
        assert refused.value.code == "other_game"


async def test_the_same_is_done_over_a_live_connection() -> None:
    async with Served(counting()) as served, Client(served.url) as client:
        await client.tables.create(id="t", game="count")
        async with client.live(token="dev:ann") as ann, client.live(token="dev:ben") as ben:
            assert (await ann.act("join", "t"))["marker"] == "X"
            assert (await ben.act("join", "t"))["marker"] == "O"
            room = await ben.join("table:t")
            assert room.map("seats").get("O")["user"] == "ben"
            assert await ann.act("move", "t", move=2) == {"answer": 2}
            with pytest.raises(BadInput) as refused:
                await ann.act("result", "none")
            assert refused.value.code == "no_such_table"
            with pytest.raises(BadInput) as refused:
                await ann.act("dance", "t")
            assert refused.value.code == "bad_request"
        with pytest.raises(BadInput):
            await ann.act("join", "t")


async def test_what_no_server_would_read_is_not_asked_for() -> None:
    deep: Any = []
    for _ in range(91):
        deep = [deep]
    async with Served() as served, Client(served.url) as client, client.live() as live:
        for do, table, body, code in (
            (7, "t", {}, "bad_name"),
            ("join", 7, {}, "bad_name"),
            ("join", "x" * 300, {}, "bad_name"),
            ("move", "t", {"move": object()}, "bad_value"),
            ("move", "t", {"move": deep}, "too_deep"),
            ("move", "t", {"move": "x" * (1 << 20)}, "value_too_large"),
        ):
            with pytest.raises(OncewardError) as refused:
                await live.act(do, table, **body)  # type: ignore[arg-type]
            assert refused.value.code == code
        await client.tables.create(id="t")
        assert (await live.act("join", "t"))["marker"] == "X"
        assert live.state == "connected"


async def test_what_was_asked_for_when_the_connection_is_lost_is_not_guessed() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t")
        async with client.live(token="dev:ann") as ann:
            await ann.act("join", "t")
            acts = ann._acts
            acts._send = lambda frame: None  # it goes nowhere
            asked = acts.ask("leave", "t", {}, connected=True)
            waiting = asyncio.create_task(asked)
            await asyncio.sleep(0)
            acts.lost()
            with pytest.raises(OutcomeUnknown):
                await waiting
