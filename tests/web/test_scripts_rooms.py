"""Browsers and Python programs in one room, while connections are lost and the server is killed."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from onceward import limits
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import OncewardError
from tests.server_process import ServerProcess
from tests.tabs import tabs

TABS, USERS = 2, 2
# `make soak-browser` takes the larger numbers.
ROUNDS, EDITS = 2, 40
SOAK_ROUNDS, SOAK_EDITS = 40, 300

ENTER = """async ([name, seed]) => {
    const { Person } = await import("/tests/person.js");
    globalThis.person = await Person.enter(await import("/client.js"), name, "r", seed);
}"""


class Hasty(Clock):
    """Does not wait long before it connects again."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.05) if seconds < limits.ROOM_BEAT_S else seconds)


class User:
    """Edits a room at random; see tests/js/person.js."""

    def __init__(self, name: str, room: Room, chance: random.Random) -> None:
        self.name = name
        self.room = room
        self.outcomes: Counter[str] = Counter()
        self._chance = chance

    async def edit(self, count: int) -> None:
        room, chance, saved = self.room, self._chance, []
        items, shared = room.list("items"), room.map("shared")
        for number in range(count):
            saved.append(room.map("counts").add(self.name, 1))
            if len(items) < 20 or chance.random() < 0.3:
                items.insert(chance.randint(0, len(items)), f"{self.name} {number}")
            elif chance.random() < 0.5:
                items.move(items.id_at(chance.randrange(len(items))), 0)
            else:
                items.delete(items.id_at(chance.randrange(len(items))))
            if number % 5 == 0:
                shared.set("last", self.name)
                room.undo()
            elif number % 5 == 1:
                with room.batch():
                    shared.set(f"key {chance.randrange(9)}", {"by": self.name})
                    items.push(number)
            await asyncio.sleep(0)
        for one in saved:
            try:
                await one
                self.outcomes["taken"] += 1
            except OncewardError as error:
                self.outcomes[error.code] += 1

    def seen(self) -> dict[str, Any]:
        room = self.room
        return {
            "position": list(room.position),
            "counts": room.map("counts").whole(),
            "shared": room.map("shared").whole(),
            "items": [list(item) for item in room.list("items").items()],
        }

    async def rest(self, count: int, mark: str) -> None:
        """Wait until all have all; see tests/js/person.js."""
        ends, changed = self.room.map("ends"), asyncio.Event()
        end = ends.subscribe(lambda value, who: changed.set())
        await ends.set(f"{mark} {self.name}", True)
        while sum(key.startswith(f"{mark} ") for key in ends) < count:
            changed.clear()
            await changed.wait()
        end()


@pytest.mark.browser
@pytest.mark.soak
@pytest.mark.timeout(2_700)
async def test_browsers_and_programs_see_the_same_whatever_happens(
    tmp_path: Path, soak: bool
) -> None:
    rounds, edits = (SOAK_ROUNDS, SOAK_EDITS) if soak else (ROUNDS, EDITS)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path))
        pages = await stack.enter_async_context(tabs(server.url, TABS))
        for number, page in enumerate(pages):
            await page.evaluate(ENTER, [f"tab {number}", chance.randrange(1 << 32)])
        users = []
        for number in range(USERS):
            live = Live(server.url, token=f"dev:user {number}", clock=Hasty())
            await stack.enter_async_context(live)
            users.append(User(f"user {number}", await live.join("r"), chance))
        everyone = TABS + USERS
        for round_ in range(1, rounds + 1):
            work = [asyncio.create_task(user.edit(edits)) for user in users]
            work += [
                asyncio.create_task(page.evaluate("count => person.edit(count)", edits))
                for page in pages
            ]
            away = pages[round_ % TABS].context
            await away.set_offline(True)
            await asyncio.wait(work[:1], timeout=chance.random() / 2)
            server.kill()
            server.start()
            await asyncio.to_thread(server.until_ready)
            await away.set_offline(False)
            for page in pages:
                await page.evaluate("person.live.wake()")
            await asyncio.gather(*work)
            mark = f"round {round_}"
            await asyncio.gather(
                *[user.rest(everyone, mark) for user in users],
                *[
                    page.evaluate("([n, mark]) => person.rest(n, mark)", [everyone, mark])
                    for page in pages
                ],
            )
            seen = [user.seen() for user in users]
            seen += [await page.evaluate("person.seen()") for page in pages]
            assert all(one == seen[0] for one in seen), f"seed {seed}"
            names = [f"user {n}" for n in range(USERS)] + [f"tab {n}" for n in range(TABS)]
            assert seen[0]["counts"] == dict.fromkeys(names, round_ * edits)
        outcomes = [dict(user.outcomes) for user in users]
        outcomes += [await page.evaluate("person.outcomes") for page in pages]
        assert outcomes == [{"taken": rounds * edits}] * everyone
        print(seen[0]["position"], "steps")
