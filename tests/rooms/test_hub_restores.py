"""A restore of the database, by whatever means: clients that were ahead of it are reset, and then
have the same copy as all others."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward import cli, limits
from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica
from onceward.engine.base import Engine
from onceward.engine.memory import MemoryEngine
from onceward.engine.postgres import PostgresEngine
from onceward.engine.sqlite import SQLiteEngine
from onceward.rooms.frames import Joined, Left, Welcome, encode, read_server
from onceward.rooms.hub import Hub
from onceward.rooms.part import Rooms
from onceward.rooms.wire import messages
from onceward.schedule.placement import Placement
from onceward.store import Store
from onceward.testing.postgres import PostgresServer
from tests.failover import Servers, address
from tests.rooms.people import Badge


class Copy:
    """A client's copy of the room `r`, at the far end of a connection to a hub."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.replica = Replica("r", f"{name}-client", create=True)
        self.resets: list[str] = []
        self.answers: dict[int, str] = {}
        self.changed = asyncio.Event()
        self._hub: Hub | None = None
        self._session: Any = None

    def connect(self, hub: Hub) -> None:
        self._hub = hub
        self._session = hub.connect(self, Badge(self.name))
        self._say(b'{"t":"hello"}')

    def lose(self) -> None:
        session, self._session = self._session, None
        session.lost()
        self.replica.lost()

    def add(self, key: str) -> None:
        """Count one up, and note what becomes of it."""
        step = self.replica.change([op.MapAdd("m", key, 1)])
        step.on_answer(lambda step: self.answers.update({step.n: str(step.error or "taken")}))
        self._flush()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def settled(self, seq: int) -> None:
        await self.until(lambda: self.replica.live and self.replica.seq == seq)
        assert not self.replica.waiting

    @property
    def counts(self) -> dict[str, int]:
        return self.replica.state.plain()["maps"].get("m", {})

    # The wire.

    def send(self, frames: bytes) -> None:
        for message in messages(frames):
            frame: Any = read_server(message)
            if isinstance(frame, Welcome):
                self._say(encode(self.replica.join()))
            elif isinstance(frame, Left):
                # As a client does, after a pause: the database may be away for a while.
                asyncio.get_running_loop().call_later(0.01, self._rejoin)
            elif hasattr(frame, "room"):
                if isinstance(frame, Joined):
                    self.resets.append(frame.reset)
                if frame.__class__.__name__ not in ("Came", "Went"):
                    self.replica.receive(frame)
        self.replica.settle()
        self._flush()
        self.changed.set()

    def close(self, code: int, reason: str) -> None:
        self._session = None
        self.replica.lost()

    def authenticate(self) -> None:
        pass

    async def drained(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def _rejoin(self) -> None:
        self._say(encode(self.replica.join()))

    def _flush(self) -> None:
        for frame in self.replica.out:
            self._say(encode(frame))
        self.replica.out.clear()

    def _say(self, message: bytes) -> None:
        session = self._session
        if session is not None:  # not before this turn has ended, as over a network
            asyncio.get_running_loop().call_soon(session.receive, message)


@asynccontextmanager
async def hub_on(engine: Engine) -> AsyncIterator[Hub]:
    """One node, whatever the engine."""
    async with engine:
        engine.shared = False
        store = Store(engine)
        parts = Rooms(store.ids, limits.SLOTS_DEFAULT)
        hub = Hub(store, parts, Placement(store, limits.SLOTS_DEFAULT))
        try:
            yield hub
        finally:
            await hub.close()
            store.close()


async def count_to(copy: Copy, seq: int) -> None:
    while copy.replica.seq < seq:
        copy.add(f"key {copy.replica.seq}")
        await copy.settled(copy.replica.seq + 1)


async def leave_at_15(hub: Hub, save: Callable[[], Awaitable[None]]) -> tuple[Copy, Copy]:
    """Two clients of a room: the first goes away at 15, with two changes that nobody has seen, when
    the database was saved at 10."""
    ann, bob = Copy("ann"), Copy("bob")
    for copy in (ann, bob):
        copy.connect(hub)
        await copy.settled(0)
    ann.add("ann")
    await bob.settled(1)
    await count_to(bob, 10)
    await save()
    ann.add("ann")
    await bob.settled(11)
    await count_to(bob, 15)
    await ann.settled(15)
    ann.lose()
    for _ in range(2):
        ann.add("ann")
    return ann, bob


async def come_back(hub: Hub, ann: Copy) -> None:
    """Others have gone on to 20 when the first one comes back with its position, 15."""
    cat = Copy("cat")
    cat.connect(hub)
    await cat.settled(10)
    await count_to(cat, 20)
    assert ann.replica.seq == 15
    ann.connect(hub)
    await ann.settled(22)
    await cat.settled(22)
    assert ann.resets == ["new", "diverged"]
    assert ann.counts == cat.counts
    # The second of its changes was acknowledged, and is lost with the restore; the last two were
    # not, and are taken once.
    assert ann.counts["ann"] == 3
    assert ann.answers == dict.fromkeys((1, 2, 3, 4), "taken")
    parts, store = hub.parts, hub.store
    room = await store.run(lambda tx: parts.load(tx, "r"))
    assert room.state.plain()["maps"]["m"] == ann.counts
    assert room.digest == ann.replica.digest == cat.replica.digest


@pytest.mark.parametrize("how", ["backup", "files"])
async def test_a_client_is_reset_after_a_restore_of_sqlite(tmp_path: Path, how: str) -> None:
    path, copy = tmp_path / "db" / "a.db", tmp_path / "copy"
    path.parent.mkdir()
    copy.mkdir()

    async def save() -> None:
        if how == "backup":
            command = ["db", "backup", str(path), str(copy / "a.db"), "--quiet"]
            assert await asyncio.to_thread(cli.main, command) == 0
        else:  # as a snapshot of the disk would
            shutil.copytree(path.parent, copy, dirs_exist_ok=True)

    async with hub_on(SQLiteEngine(str(path))) as hub:
        ann, _ = await leave_at_15(hub, save)
    if how == "backup":
        command = ["db", "backup", str(copy / "a.db"), str(path), "--force", "--quiet"]
        assert await asyncio.to_thread(cli.main, command) == 0
    else:
        shutil.rmtree(path.parent)
        shutil.copytree(copy, path.parent)
    async with hub_on(SQLiteEngine(str(path))) as hub:
        await come_back(hub, ann)


async def test_a_client_is_reset_after_a_restore_of_a_dump(
    server: PostgresServer, url: str, schema: str
) -> None:
    dump = ""

    async def save() -> None:
        nonlocal dump
        dump = await asyncio.to_thread(server.dump, schema)

    async with hub_on(PostgresEngine(url)) as hub:
        ann, _ = await leave_at_15(hub, save)
    server.ask(f"DROP SCHEMA {schema} CASCADE")
    server.restore(dump)
    async with hub_on(PostgresEngine(url)) as hub:
        await come_back(hub, ann)


async def test_a_client_is_reset_after_a_failover_that_lost_commits(
    servers: Servers, schema: str
) -> None:
    standby = servers.follow()

    async def save() -> None:
        await asyncio.to_thread(standby.catch_up)
        await asyncio.to_thread(standby.cut_off)

    async with hub_on(PostgresEngine(address(schema, servers.primary, standby))) as hub:
        ann, bob = await leave_at_15(hub, save)
        await asyncio.to_thread(servers.fail_over, standby)
        # It stays, and is put out of the room when the failover is noticed.
        await bob.until(lambda: bob.resets[-1] == "ahead")
        await bob.settled(10)
        bob.lose()
        await come_back(hub, ann)


async def test_a_room_in_memory_notices_that_its_database_was_restored() -> None:
    engine = MemoryEngine()
    async with hub_on(engine) as hub:
        saved: dict[Any, Any] = {}

        async def save() -> None:
            for partition in list(engine.memory.table.partitions.values()):
                saved.update({record.key: record for record in partition.rows.values()})

        async def restore() -> None:
            rows = engine.memory.table.partitions.values()
            for key in [r.key for one in list(rows) for r in list(one.rows.values())]:
                if key not in saved:
                    engine.memory.table.drop(key)
            for record in saved.values():
                engine.memory.table.put(record)

        ann, bob = await leave_at_15(hub, save)
        await restore()
        hub.rooms["r"].look()
        await bob.until(lambda: bob.resets[-1] == "ahead")
        await bob.settled(10)
        bob.lose()
        await come_back(hub, ann)
