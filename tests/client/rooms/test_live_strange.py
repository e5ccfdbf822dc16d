"""Connections whose server knows other tokens, or says what is not known here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from onceward import limits
from onceward.client.rooms.live import Live
from onceward.clock import Clock
from onceward.errors import OncewardError, Unavailable
from onceward.ids import Ids
from onceward.web.auth import Auth, JwtKey
from tests.client.rooms.test_live import Hasty, connect, until
from tests.client.served import Served
from tests.signed import signed

SECRET = "a secret of thirty-two characters or more"


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as served:
        yield served


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


# Credentials.


def token(user: str = "ann", lasts_s: float = 3_600, **names: list[str]) -> str:
    return signed(SECRET, user, Clock().now_ms() // 1000 + int(lasts_s), **names)


@pytest.fixture
async def guarded() -> AsyncIterator[Served]:
    auth = Auth(jwt_keys=[JwtKey("HS256", SECRET, "onceward")])
    async with Served(auth=auth) as served:
        yield served


async def test_the_token_says_who_one_is_and_what_one_may(
    guarded: Served, stack: AsyncExitStack
) -> None:
    ann = await connect(stack, guarded.url, token=token("ann", 3_600, write=["board"]))
    bob = await connect(stack, guarded.url, token=token("bob", 3_600, read=["board"]))
    one = await ann.join("board", create=True)
    two = await bob.join("board")
    assert (ann.user, bob.user) == ("ann", "bob")
    one.presence("p").set("here")
    await until(two, lambda: two.presence("p").all() == {"ann": "here"})
    with pytest.raises(OncewardError) as refused:
        await two.map("m").set("k", 1)
    assert refused.value.code == "not_allowed"
    assert two.map("m").whole() == {}
    with pytest.raises(OncewardError) as refused:
        await bob.join("other")
    assert refused.value.code == "not_allowed"
    await one.map("m").set("k", 1)
    await until(two, lambda: "k" in two.map("m"))


async def test_without_a_good_token_the_connection_is_closed_for_good(
    guarded: Served, stack: AsyncExitStack
) -> None:
    expired = token("ann", -60, write=["board"])
    for bad in ("", "nonsense", expired):
        live = await connect(stack, guarded.url, token=bad)
        with pytest.raises(OncewardError) as refused:
            await live.join("board")
        code = "token_expired" if bad == expired else "no_credentials"
        assert refused.value.code == code
        assert live.state == "closed"
        with pytest.raises(OncewardError):
            live.room("another")


async def test_a_token_is_renewed_before_it_expires(guarded: Served, stack: AsyncExitStack) -> None:
    renewed = asyncio.Event()
    asked = 0

    async def fresh() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            renewed.set()
        return token("ann", 3_600, write=["board"])

    class Renewing(Hasty):
        """Does not wait for the first renewal."""

        async def sleep(self, seconds: float) -> None:
            if asked != 1 or seconds == limits.ROOM_BEAT_S:
                await super().sleep(seconds)
            else:
                assert 2_800 < seconds < 2_900

    live = await stack.enter_async_context(Live(guarded.url, token=fresh, clock=Renewing()))
    room = await live.join("board", create=True)
    await renewed.wait()
    await room.map("m").set("k", 1)
    assert room.status == "live"


async def test_who_has_a_clock_that_is_ahead_asks_for_tokens_now_and_then_only(
    guarded: Served, stack: AsyncExitStack
) -> None:
    class Ahead(Hasty):
        def __init__(self) -> None:
            super().__init__()
            self.slept_s: list[float] = []

        def now_ms(self) -> int:
            return super().now_ms() + 24 * 3_600_000

        async def sleep(self, seconds: float) -> None:
            self.slept_s.append(seconds)
            await super().sleep(0 if seconds == 30 and len(self.slept_s) < 20 else seconds)

    async def fresh() -> str:
        return token("ann", 3_600, write=["board"])

    clock = Ahead()
    live = await stack.enter_async_context(Live(guarded.url, token=fresh, clock=clock))
    await live.join("board", create=True)
    assert set(clock.slept_s) <= {30, limits.ROOM_BEAT_S}


# What a server says that is not known here.


async def test_frames_of_a_kind_that_is_not_known_are_passed_over(
    served: Served, stack: AsyncExitStack
) -> None:
    live = await connect(stack, served.url)
    room = await live.join("board", create=True)
    for text in ('{"t": "news"}', '{"t": "news", "room": "board", "seq": 9}', '{"t": "joining"}'):
        live._receive(text)
    await room.map("m").set("k", 1)
    assert (live.state, room.status) == ("connected", "live")


async def test_a_room_of_which_a_frame_cannot_be_read_is_got_anew(
    served: Served, stack: AsyncExitStack
) -> None:
    live = await connect(stack, served.url)
    room, other = await live.join("board", create=True), await live.join("other", create=True)
    await room.map("m").set("k", 1)
    waiting = room.map("m").set("k", 2)
    live._receive('{"t": "change", "room": "board", "seq": 2, "ops": [{"op": "map.turn"}]}')
    with pytest.raises(OncewardError) as unknown:
        await waiting
    assert unknown.value.code == "outcome_unknown"
    await until(room, lambda: room.status == "live")
    assert room.map("m").get("k") in (1, 2)
    await other.map("m").set("k", 1)
    await room.map("m").set("k", 3)


class Metronome(Clock):
    """Waits for nobody, but for signs of life until it is told to; and notes all pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_s: list[float] = []
        self.beats = asyncio.Semaphore(0)
        self.waits = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        if seconds == limits.ROOM_BEAT_S:
            self.waits.release()
            await self.beats.acquire()
        else:
            self.pauses_s.append(seconds)


class Halves(Ids):
    """By chance, always the middle."""

    def fraction(self) -> float:
        return 0.5


async def test_who_spoils_a_room_again_and_again_is_connected_to_after_pauses_that_grow(
    served: Served, stack: AsyncExitStack
) -> None:
    clock = Metronome()
    live = await stack.enter_async_context(Live(served.url, clock=clock, ids=Halves(clock.now_ms)))
    room = await live.join("board", create=True)
    strange = '{"t": "change", "room": "board", "seq": 9, "ops": [{"op": "map.turn"}]}'
    for _ in range(9):
        for _ in range(3):  # of one connection it counts once
            live._receive(strange)
        await until(room, lambda: room.status != "live")
        await until(room, lambda: room.status == "live")
    grown_s = [0.6 * min(limits.ROOM_PAUSE_S_MIN * 2**n, limits.ROOM_PAUSE_S_MAX) for n in range(9)]
    assert clock.pauses_s == pytest.approx(grown_s)
    for _ in range(10):
        await clock.waits.acquire()
    clock.beats.release()
    await clock.waits.acquire()  # it was well for so long
    live._receive(strange)
    await until(room, lambda: room.status != "live")
    await until(room, lambda: room.status == "live")
    assert clock.pauses_s[-1] == pytest.approx(grown_s[0])


@pytest.mark.parametrize(
    "text", ["nonsense", "null", "[]", '{"t": 7}', '{"t": "welcome"}', "[" * 99_999]
)
async def test_who_says_what_cannot_be_read_is_connected_to_again_but_not_at_once(
    text: str,
) -> None:
    live = Live("http://127.0.0.1:9", clock=Hasty())
    with pytest.raises(Unavailable, match="cannot be read"):
        live._receive(text)
    assert live._attempt == 6
