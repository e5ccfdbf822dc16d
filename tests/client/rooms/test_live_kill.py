"""Many clients of a server that is killed again and again: each change of theirs counts once."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.errors import OncewardError
from tests.server_process import ServerProcess

KILLS, CLIENTS, EDITS = 30, 20, 40

pytestmark = [
    pytest.mark.rooms,
    pytest.mark.timeout(2_700),
    pytest.mark.soak,  # `test_live` restarts a server once
]


class User:
    """Edits a room, and notes what became of it."""

    def __init__(self, name: str, room: Room, chance: random.Random) -> None:
        self.name = name
        self.room = room
        self.outcomes: Counter[str] = Counter()
        self._chance = chance
        self._waiting: list[asyncio.Task[None]] = []

    async def edit(self) -> None:
        room, chance = self.room, self._chance
        for number in range(EDITS):
            self._watch(room.map("counts").add(self.name, 1))
            items = room.list("items")
            if len(items) < 20 or chance.random() < 0.3:
                items.insert(chance.randint(0, len(items)), f"{self.name} {number}")
            elif chance.random() < 0.5:
                items.move(items.id_at(chance.randrange(len(items))), 0)
            else:
                items.delete(items.id_at(chance.randrange(len(items))))
            if number % 10 == 0:
                room.map("shared").set("last", self.name)
                room.undo()
                await asyncio.sleep(0)
        while self._waiting:
            await self._waiting.pop()

    def _watch(self, saved: Any) -> None:
        self._waiting.append(asyncio.create_task(self._note(saved)))

    async def _note(self, saved: Any) -> None:
        try:
            await saved
            self.outcomes["taken"] += 1
        except OncewardError as error:
            self.outcomes[error.code] += 1


async def test_what_clients_do_counts_once_while_the_server_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path))
        users = []
        for number in range(CLIENTS):
            name = f"u{number}"
            live = Live(f"http://127.0.0.1:{server.port}", token=f"dev:{name}")
            await stack.enter_async_context(live)
            users.append(User(name, await live.join("r", create=True), chance))
        for _ in range(KILLS):
            work = [asyncio.create_task(user.edit()) for user in users]
            await asyncio.wait(work[:1], timeout=chance.random())
            server.kill()
            server.start()
            await asyncio.to_thread(server.until_ready)
            await asyncio.gather(*work)
        await _settled([user.room for user in users])
        first = users[0].room.replica.state.plain()
        assert all(user.room.replica.state.plain() == first for user in users)
        assert {user.room.position for user in users} == {users[0].room.position}
        for user in users:
            assert user.outcomes == {"taken": KILLS * EDITS}, user.outcomes
            assert first["maps"]["counts"][user.name] == KILLS * EDITS
        print(users[0].room.position, "steps")


async def _settled(rooms: list[Room]) -> None:
    """Wait until all have all: each says that it has come to its end, and sees all others say so.
    Steps are answered in order, so then nothing waits."""
    changed = asyncio.Event()
    for room in rooms:
        room.map("ends").subscribe(lambda value, who: changed.set())
    await asyncio.gather(*[room.map("ends").set(str(n), True) for n, room in enumerate(rooms)])
    while any(len(room.map("ends")) < len(rooms) for room in rooms):
        changed.clear()
        await changed.wait()
