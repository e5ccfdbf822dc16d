"""A Python program that edits a room at random, as tests/js/person.js does in a browser."""

import asyncio
import random
from collections import Counter
from typing import Any

from onceward import limits
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import OncewardError


class Hasty(Clock):
    """Does not wait long before it connects again."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.05) if seconds < limits.ROOM_BEAT_S else seconds)


ITEMS = 300


class Editor:
    """Edits a room, and notes what became of it."""

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
            # So that it stays about as long as it is.
            if len(items) < 20 or chance.random() < (0.3 if len(items) < ITEMS else 0.05):
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
