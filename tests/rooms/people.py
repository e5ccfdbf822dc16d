"""A hub in memory, and people who are connected to it without a network."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from onceward import limits
from onceward.capabilities import SCOPES
from onceward.engine.memory import MemoryEngine
from onceward.errors import TABLE, BadInput
from onceward.rooms.hub import Hub
from onceward.rooms.part import Rooms
from onceward.rooms.session import Session
from onceward.rooms.wire import messages
from onceward.schedule.placement import Placement
from onceward.store import Store

ANSWER_S = 30


class Badge:
    """Who someone is, and what that one may do: all, or the deeds and rooms given."""

    def __init__(self, name: str, *may: tuple[str, str], until_ms: int | None = None) -> None:
        self.name = self.user = name
        self.until_ms = until_ms
        self._may = may

    def may(self, action: str, name: str) -> bool:
        actions = (action, *SCOPES[action].included_in)
        return not self._may or any((one, name) in self._may for one in actions)


class Person:
    """One connection. Its wire notes what comes."""

    def __init__(self, hub: Hub, badge: Badge | None, *, relayed: bool = False) -> None:
        self.got: list[Any] = []
        self.writes = 0
        self.code: int | None = None
        self.reason = ""
        self.paused = False
        self.takes = asyncio.Event()
        """While it is set, what was sent is taken at once."""
        self.takes.set()
        self._news = asyncio.Event()
        self._read = 0
        self.session: Session = hub.connect(self, badge, relayed=relayed)

    # The wire.

    def send(self, frames: bytes) -> None:
        assert self.code is None
        self.writes += 1
        self.got += [json.loads(message) for message in messages(frames)]
        self._news.set()

    def close(self, code: int, reason: str) -> None:
        if self.code is None:
            self.code, self.reason = code, reason
            self._news.set()

    async def drained(self) -> None:
        await self.takes.wait()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def authenticate(self) -> None: ...

    # The person.

    def ask(self, t: str, **members: Any) -> None:
        """Send a frame."""
        self.session.receive(json.dumps({"t": t, **members}).encode())

    def step(self, room: str, n: int, *ops: Any) -> None:
        self.ask("ops", room=room, n=n, ops=list(ops))

    async def next(self, *kinds: str) -> Any:
        """The next frame, of one of these types if any are given; others are passed over."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                while self._read < len(self.got):
                    self._read += 1
                    if not kinds or self.got[self._read - 1]["t"] in kinds:
                        return self.got[self._read - 1]
                assert self.code is None, f"closed: {self.code} {self.reason}"
                self._news.clear()
                await self._news.wait()

    def skip(self) -> None:
        """Pass over all that has come so far."""
        self._read = len(self.got)

    async def closed(self) -> str:
        """The reason why the connection was closed."""
        async with asyncio.timeout(ANSWER_S):
            while self.code is None:
                self._news.clear()
                await self._news.wait()
        assert TABLE[self.reason].close == self.code
        return self.reason

    async def join(self, room: str, client: str = "c", **members: Any) -> Any:
        """Join a room; what `joined` said, with the snapshot in it if there was one."""
        self.ask("join", room=room, client=client, **members)
        joined = await self.next("joined", "left")
        assert joined["t"] == "joined", joined
        if joined.get("reset"):
            whole = await self.next("snapshot")
            joined["maps"], joined["lists"] = whole["maps"], whole["lists"]
        return joined

    def lose(self) -> None:
        """The connection is lost."""
        self.session.lost()


class House:
    """A hub, and a door for people."""

    def __init__(self, store: Store, hub: Hub, parts: Rooms) -> None:
        self.store = store
        self.hub = hub
        self.parts = parts
        self.tokens: dict[str, Badge] = {}
        hub.visitor = self._visitor

    def _visitor(self, token: str) -> Badge:
        if token not in self.tokens:
            raise BadInput("nobody knows this token", code="no_credentials")
        return self.tokens[token]

    async def enter(self, name: str, *may: tuple[str, str]) -> Person:
        """Someone who is greeted already."""
        person = Person(self.hub, Badge(name, *may))
        person.ask("hello")
        assert (await person.next())["t"] == "welcome"
        return person

    async def make(self, id_: str, **options: Any) -> None:
        await self.store.run(lambda tx: self.parts.create(tx, id_, **options))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let others go on until something is so."""
        async with asyncio.timeout(ANSWER_S):
            while not holds():  # noqa: ASYNC110 - nobody else could tell
                await asyncio.sleep(0)


@asynccontextmanager
async def open_house(store: Store | None = None) -> AsyncIterator[House]:
    engine = MemoryEngine() if store is None else store.engine
    if store is None:
        store = Store(engine)
        await engine.open()
    engine.shared = False
    parts = Rooms(store.ids, limits.SLOTS_DEFAULT)
    hub = Hub(store, parts, Placement(store, limits.SLOTS_DEFAULT))
    try:
        yield House(store, hub, parts)
    finally:
        await hub.close()
        await engine.close()


def map_set(map_: str, key: str, value: Any) -> dict[str, Any]:
    return {"op": "map.set", "map": map_, "key": key, "value": value}
