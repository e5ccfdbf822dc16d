"""Rooms over real connections to a real server, which are cut, closed and refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.client.client import Client
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.client.transport import AWAY_S_MAX
from onceward.clock import Clock
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import BadInput, NoSuchRoom, OncewardError, Unavailable
from onceward.ids import Ids
from tests.client.served import Script, Served, Sprinting, answer
from tests.web.peer import join_large_rooms


class Hasty(Clock):
    """Does not wait long before it connects again, nor ever asks for a sign of life."""

    async def sleep(self, seconds: float) -> None:
        if seconds < 15:
            await asyncio.sleep(0)
        else:
            await asyncio.Event().wait()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as served:
        yield served


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def connect(stack: AsyncExitStack, url: str, **options: Any) -> Live:
    return await stack.enter_async_context(Live(url, clock=Hasty(), **options))


async def until(room: Room, holds: Callable[[], bool]) -> None:
    """Wait until something is so, looking when something has changed."""
    changed = asyncio.Event()
    ends = [
        room.map("m").subscribe(lambda value, who: changed.set()),
        room.list("l").subscribe(lambda value, who: changed.set()),
        room.presence("p").subscribe(lambda value, who: changed.set()),
        room.on_members(lambda members: changed.set()),
        room.on_status(lambda status: changed.set()),
    ]
    while not holds():
        changed.clear()
        await changed.wait()
    for end in ends:
        end()


async def test_two_share_a_room(served: Served, stack: AsyncExitStack) -> None:
    client = await stack.enter_async_context(Client(served.url))
    ann = await stack.enter_async_context(client.live())
    bob = await connect(stack, served.url)
    one = await ann.join("board", create=True)
    two = await bob.join("board")
    await until(one, lambda: len(one.members) == 2)
    saved = one.map("m").set("k", {"a": 1})
    one.list("l").push("x")
    assert await saved == 1
    await until(two, lambda: len(two.list("l")) == 1)
    assert two.map("m").whole() == {"k": {"a": 1}}
    with two.batch() as batch:
        two.map("m").set("k", 2)
        item = two.list("l").insert(0, "y")
    assert await batch == await item == 3
    await until(one, lambda: len(one.list("l")) == 2)
    assert one.list("l").values() == ["y", "x"]
    undone = two.undo()
    assert undone.kept == []
    assert undone.step is not None
    assert await undone.step == 4
    await until(one, lambda: len(one.list("l")) == 1)
    (item_,) = one.list("l").items()
    assert (item_.id in one.list("l"), "none" in one.list("l")) == (True, False)
    assert (one.list("l").get(item_.id), one.list("l").get("none", 7)) == ("x", 7)
    assert one.map("m").get("k") == {"a": 1}
    heard: asyncio.Queue[Any] = asyncio.Queue()
    one.on("wave", lambda value, said: heard.put_nowait((value, said.direct)))
    two.say("wave", 1)
    two.tell(one.me, "wave", 2)
    assert [await heard.get(), await heard.get()] == [(1, False), (2, True)]
    two.presence("p").set({"x": 1})
    await until(one, lambda: bool(one.presence("p").all()))
    assert list(one.presence("p").all().values()) == [{"x": 1}]
    two.leave()
    await until(one, lambda: len(one.members) == 1)


async def test_a_presence_against_the_schema_is_taken_back_and_reported(
    served: Served, stack: AsyncExitStack
) -> None:
    client = await stack.enter_async_context(Client(served.url))
    await client.rooms.create(id="shaped")
    await client.rooms.put_presence("shaped", "p", schema={"type": "number"})
    ann, bob = await connect(stack, served.url), await connect(stack, served.url)
    one, two = await ann.join("shaped"), await bob.join("shaped")
    refused: list[str] = []
    one.on_refused(lambda error, operations: refused.append(error.code))
    one.presence("p").set(1)
    await until(two, lambda: list(two.presence("p").all().values()) == [1])
    one.presence("p").set("text")
    assert one.presence("p").mine == "text"
    await until(one, lambda: one.presence("p").mine == 1)
    assert refused == ["bad_shape"]
    assert list(two.presence("p").all().values()) == [1]


async def test_a_lost_connection_is_made_again_and_what_was_missed_comes(
    served: Served, stack: AsyncExitStack
) -> None:
    ann, bob = await connect(stack, served.url), await connect(stack, served.url)
    states: list[str] = []
    one, two = await ann.join("board", create=True), await bob.join("board")
    other = await ann.join("other", create=True)
    ann.on_state(states.append)
    saved = []
    for number in range(5):
        saved.append(two.map("m").add("n", 1))
        saved.append(one.map("m").add("n", 1))
        ann.restart()  # in the middle of it
        saved.append(two.list("l").push(number))
        saved.append(one.list("l").push(number))
        await saved[-3]
    await asyncio.gather(*saved, one.list("l").push("last"))
    await until(two, lambda: len(two.list("l")) == 11)
    await until(one, lambda: len(one.list("l")) == 11)
    assert one.list("l").items() == two.list("l").items()
    assert one.map("m").whole() == two.map("m").whole() == {"n": 10}
    assert await other.map("m").set("k", 1) == 1
    assert states[:2] == ["connecting", "connected"]
    assert one.position == two.position


async def test_changes_made_while_the_server_is_away_are_sent_when_it_is_back(
    served: Served, stack: AsyncExitStack
) -> None:
    live = Live(served.url, clock=Hasty())
    room = live.room("board", create=True)
    saved = room.map("m").set("early", 1)
    assert not saved.done
    assert room.map("m").whole() == {"early": 1}
    await stack.enter_async_context(live)
    assert await saved == 1
    assert live.room("board") is room


async def test_what_is_done_while_a_server_restarts_is_there_once_when_it_is_back(
    stack: AsyncExitStack,
) -> None:
    memory = Memory()
    async with Served(App(MemoryEngine(memory), slots=4)) as served:
        ann, ben = await connect(stack, served.url), await connect(stack, served.url)
        one, two = await ann.join("board", create=True), await ben.join("board")
        early = [room.map("m").add("n", 1) for room in (one, two) for _ in range(5)]
        one.presence("p").set("here")
        await two.list("l").push("before")
    await until(one, lambda: one.status == "away")
    late = [room.map("m").add("n", 1) for room in (one, two) for _ in range(5)]
    one.list("l").insert(0, "first")
    assert ann.state == "connecting"
    async with Served(App(MemoryEngine(memory), slots=4), port=served.port):
        await asyncio.gather(*early, *late)
        await until(two, lambda: len(two.list("l")) == 2)
        await until(two, lambda: bool(two.presence("p").all()))
        for room in (one, two):
            await until(room, lambda room=room: room.map("m").get("n") == 20)
        assert two.list("l").values() == ["first", "before"]
        await ann.close()
        await ben.close()


async def test_a_room_that_cannot_be_joined_says_why(served: Served, stack: AsyncExitStack) -> None:
    live = await connect(stack, served.url)
    with pytest.raises(NoSuchRoom):
        await live.join("missing")
    with pytest.raises(BadInput):
        await live.join("x" * 300)
    room = await live.join("missing", create=True)
    assert (room.status, room.position[1]) == ("live", 0)


async def test_who_lost_a_full_room_gets_in_again_when_there_is_a_place(
    served: Served, stack: AsyncExitStack
) -> None:
    class Held(Hasty):
        free = asyncio.Event()

        async def sleep(self, seconds: float) -> None:
            await self.free.wait()
            await super().sleep(seconds)

    client = await stack.enter_async_context(Client(served.url))
    await client.rooms.create(id="small", capacity=1)
    clock = Held()
    ann = await stack.enter_async_context(Live(served.url, clock=clock, token="dev:ann"))
    ben = await connect(stack, served.url, token="dev:ben")
    one = await ann.join("small")
    with pytest.raises(OncewardError) as refused:
        await ben.join("small")
    assert refused.value.code == "room_full"
    ann.restart()
    await until(one, lambda: one.status == "away")
    two = None
    while two is None:  # until the server has noticed
        with suppress(OncewardError):
            two = await ben.join("small")
    saved = one.map("m").set("k", 1)
    refusals = asyncio.Event()
    rejoin = ann.rejoin
    ann.rejoin = lambda room: (refusals.set(), rejoin(room))  # type: ignore[method-assign,assignment]
    clock.free.set()
    await refusals.wait()
    assert one.status == "away"
    two.leave()
    await saved
    assert one.status == "live"


async def test_a_deleted_room_is_closed_and_others_go_on(
    served: Served, stack: AsyncExitStack
) -> None:
    live = await connect(stack, served.url)
    room, other = await live.join("board", create=True), await live.join("other", create=True)
    await served.app.run(lambda tx: served.app.rooms.remove(tx, "board"))
    await until(room, lambda: room.status == "closed")
    assert room.error is not None
    assert room.error.code == "room_deleted"
    with pytest.raises(OncewardError):
        room.map("m").set("k", 1)
    await other.map("m").set("k", 1)
    again = await live.join("board", create=True)
    assert again is not room


async def test_a_handler_s_change_is_told(served: Served, stack: AsyncExitStack) -> None:
    live = await connect(stack, served.url)
    room = await live.join("board", create=True)
    rooms = served.app.rooms
    await served.app.run(lambda tx: rooms.map_set(tx, "board", "m", "k", 7, by="robot"))
    await until(room, lambda: "k" in room.map("m"))
    assert room.map("m")["k"] == 7


async def test_a_refused_change_raises_where_it_is_awaited(
    served: Served, stack: AsyncExitStack
) -> None:
    ann, bob = await connect(stack, served.url), await connect(stack, served.url)
    one, two = await ann.join("board", create=True), await bob.join("board")
    verdicts = await asyncio.gather(
        _outcome(one.map("m").compare("k", "ann's")), _outcome(two.map("m").compare("k", "bob's"))
    )
    assert sorted(verdicts) == ["not_expected", "taken"]
    expected = "ann's" if verdicts[0] == "taken" else "bob's"
    for room in (one, two):
        await until(room, lambda room=room: room.map("m").get("k") == expected)


async def test_each_of_100_lost_compares_gets_its_own_reason(
    served: Served, stack: AsyncExitStack
) -> None:
    ann, bob = await connect(stack, served.url), await connect(stack, served.url)
    rooms = [await ann.join("board", create=True), await bob.join("board")]
    compares: list[Any] = []
    others: list[Any] = []
    for number in range(100):
        for name, room in zip("ab", rooms, strict=True):
            compares.append(room.map("m").compare(f"key {number}", name))
            others.append(room.map(name).set("last", number))
    errors = [await _error(saved) for saved in compares]
    for number, pair in enumerate(zip(errors[::2], errors[1::2], strict=True)):
        [lost] = [error for error in pair if error is not None]
        assert lost.code == "not_expected"
        assert f"'key {number}' in 'm' is not as expected" in lost.message
    assert {await _outcome(saved) for saved in others} == {"taken"}


async def _error(saved: Any) -> OncewardError | None:
    try:
        await saved
    except OncewardError as error:
        return error
    return None


async def _outcome(saved: Any) -> str:
    error = await _error(saved)
    return "taken" if error is None else error.code


async def test_closing_ends_what_waits(served: Served) -> None:
    live = Live(served.url, clock=Hasty())
    async with live:
        room = await live.join("board", create=True)
    await live.close()
    assert (live.state, room.status) == ("closed", "closed")
    with pytest.raises(BadInput):
        live.room("board")


# Servers that are away, or no servers of rooms.


async def test_a_server_that_refuses_is_tried_again_with_pauses_that_grow() -> None:
    clock = Sprinting()
    answers = [answer(500, b"")] * 4 + [answer(404, b"")]
    async with Script(*answers) as script, Live(script.url, clock=clock) as live:
        with pytest.raises(BadInput) as refused:
            await live.join("board")
    assert refused.value.code == "not_found"
    assert len(script.requests) == 5
    assert len(clock.slept_s) == 4
    assert all(
        0.2 * 0.2 * 2**number <= slept_s <= 0.2 * 2**number
        for number, slept_s in enumerate(clock.slept_s)
    )


@pytest.mark.parametrize("after_s", [0, 3, 99])
async def test_a_refusal_is_waited_out_and_a_proxy_without_its_server_is_not(after_s: int) -> None:
    clock = Sprinting()
    more = [f"Retry-After: {after_s}"] if after_s else []
    answers = [answer(503, b"", *more)] * 12 + [answer(404, b"")]
    async with Script(*answers) as script, Live(script.url, clock=clock) as live:
        with pytest.raises(BadInput):
            await live.join("board")
    assert len(clock.slept_s) == 12
    if after_s:
        assert min(clock.slept_s) >= min(after_s, limits.ROOM_PAUSE_S_MAX)
    assert max(clock.slept_s) <= (limits.ROOM_PAUSE_S_MAX if after_s else AWAY_S_MAX)


async def test_a_server_that_was_away_for_long_is_found_within_a_second() -> None:
    clock, many = Sprinting(), asyncio.Event()

    class Fractions(Ids):
        def fraction(self) -> float:
            if len(clock.slept_s) == 500:
                many.set()
            return super().fraction()

    ids = Fractions(clock.now_ms)
    async with Live("http://127.0.0.1:9", clock=clock, ids=ids) as live:  # nobody listens there
        await many.wait()
        assert live.state == "connecting"
    assert max(clock.slept_s) <= AWAY_S_MAX
    quarters = Counter(int(slept_s / AWAY_S_MAX * 4) for slept_s in clock.slept_s)
    assert min(quarters[n] for n in range(4)) > 60, "they are spread over the whole pause"


async def test_a_server_that_refuses_credentials_is_not_asked_again() -> None:
    for status, code in ((401, "no_credentials"), (403, "not_allowed")):
        async with Script(answer(status, b"")) as script, Live(script.url, clock=Hasty()) as live:
            with pytest.raises(OncewardError) as refused:
                await live.join("board")
        assert refused.value.code == code
        assert len(script.requests) == 1


async def test_a_server_that_says_nothing_any_more_is_given_up(
    served: Served, stack: AsyncExitStack
) -> None:
    silent = asyncio.Event()

    class Impatient(Hasty):
        async def sleep(self, seconds: float) -> None:
            if seconds < 15:
                await asyncio.sleep(0)
            else:
                await silent.wait()

    live = await stack.enter_async_context(Live(served.url, clock=Impatient()))
    room = await live.join("board", create=True)
    lost = asyncio.Event()
    live.on_state(lambda state: lost.set() if state == "connecting" else None)
    live._heard = False  # as if nothing had come since the last beat
    silent.set()
    await lost.wait()
    silent.clear()
    await until(room, lambda: room.status == "live")


async def test_what_gets_no_token_is_asked_again(served: Served, stack: AsyncExitStack) -> None:
    tries = 0

    async def flaky() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("the one who signs is away")
        return "any"

    live = await connect(stack, served.url, token=flaky)
    await live.join("board", create=True)
    assert tries == 3


async def test_a_server_is_tried_again_however_long_it_was_away() -> None:
    clock = Sprinting()
    live = Live("http://127.0.0.1:9", clock=clock)
    for tries in range(2_000):
        await live._pause(tries)
    assert 3 <= clock.slept_s[-1] <= 15


async def test_a_room_that_moves_now_and_then_is_joined_again_soon_each_time(
    served: Served, stack: AsyncExitStack
) -> None:
    live = await connect(stack, served.url)
    room = await live.join("board", create=True)
    for _ in range(3):
        served.app.hub.rooms["board"].end("room_moved", "it moves")
        await until(room, lambda: room.status == "away")
        await until(room, lambda: room.status == "live")
        assert live._attempt == 0


async def test_large_rooms_can_be_joined_together_by_who_reads_slowly(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READER_BYTES_MAX", 10_000)
    await join_large_rooms(served.port, served.app)


async def test_rooms_that_move_together_are_joined_again_together() -> None:
    clock = Sprinting()
    live = Live("http://127.0.0.1:9", clock=clock)
    for number in range(10):
        live.rejoin(live.room(str(number)))
    await asyncio.gather(*live._tasks)
    assert max(clock.slept_s) <= limits.ROOM_PAUSE_S_MIN
    await live.close()
