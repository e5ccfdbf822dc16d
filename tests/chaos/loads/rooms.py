"""Rooms with Python clients: each adds to a counter of its own, and all change one list."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from onceward import limits
from onceward.api.rooms import RoomSnapshot
from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import OncewardError
from tests.chaos.history import Found, Member
from tests.chaos.world import World

ROOMS, PEOPLE = 2, 3
ITEMS_MAX = 12


class Brisk(Clock):
    """Does not wait long before it connects again."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.3) if seconds < limits.ROOM_BEAT_S else seconds)


class Person:
    """Someone in a room."""

    def __init__(self, name: str, room: Room, member: Member, chance: Random) -> None:
        self.name = name
        self.room = room
        self.member = member
        self._chance = chance

    async def change(self) -> None:
        """One step, which counts for oneself and changes what all see."""
        room, chance = self.room, self._chance
        items = room.list("items")
        with room.batch() as saved:
            room.map("counts").add(self.name, 1)
            room.map("shared").set(f"key {chance.randrange(4)}", self.name)
            if len(items) < ITEMS_MAX and chance.random() < 0.6:
                items.insert(chance.randint(0, len(items)), self.name)
            elif len(items):
                item = items.id_at(chance.randrange(len(items)))
                items.move(item, 0) if chance.random() < 0.5 else items.delete(item)
        try:
            await saved
            self.member.taken += 1
        except OncewardError as error:
            if error.code != "outcome_unknown":
                raise
            self.member.unknown += 1

    def seen(self) -> dict[str, Any]:
        """The whole room as it shows here."""
        return plain(self.room.replica.state.plain())


def plain(state: dict[str, Any]) -> dict[str, Any]:
    """What is compared: values and the order of items."""
    lists = state["lists"].items()
    items = {name: [[item[0], item[-1]] for item in found] for name, found in lists}
    return {"maps": state["maps"], "lists": items}


class Rooms:
    """Changes them until it is told to stop."""

    def __init__(self, world: World, seed: int, pause_s: float) -> None:
        self._world = world
        self._seed = seed
        self._pause_s = pause_s
        self.people: dict[str, list[Person]] = {}

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """While there are people in them."""
        async with AsyncExitStack() as stack:
            for number in range(ROOMS * PEOPLE):
                room, name = f"room{number % ROOMS}", f"person{number}"
                node = self._world.nodes[number % len(self._world.nodes)]
                live = Live(node.url, token=f"dev:{name}", clock=Brisk())
                await stack.enter_async_context(live)
                member = self._world.history.rooms.setdefault(room, {})[name] = Member()
                chance = Random(f"{self._seed} {name}")
                person = Person(name, await live.join(room, create=True), member, chance)
                self.people.setdefault(room, []).append(person)
            yield

    async def run(self, stopped: asyncio.Event) -> None:
        async def live(person: Person) -> None:
            chance = Random(f"{self._seed} {person.name} pauses")
            while not stopped.is_set():
                await person.change()
                await self._world.clock.sleep(chance.uniform(0, 2) * self._pause_s)

        async with asyncio.TaskGroup() as group:
            for people in self.people.values():
                for person in people:
                    group.create_task(live(person))

    async def settle(self) -> None:
        """Wait until all have all: each says that it has come to its end, and sees all others
        say so. Steps are answered in order, so then nothing waits."""
        for people in self.people.values():
            changed = asyncio.Event()

            def tell(value: Any, who: Any, changed: asyncio.Event = changed) -> None:
                changed.set()

            for person in people:
                person.room.map("ends").subscribe(tell)
            await asyncio.gather(*[one.room.map("ends").set(one.name, True) for one in people])
            while any(len(person.room.map("ends")) < len(people) for person in people):
                changed.clear()
                await changed.wait()

    async def find(self, found: Found) -> None:
        for room, people in self.people.items():

            async def ask(client: Client, room: str = room) -> RoomSnapshot:
                return await client.rooms.snapshot(room)

            state = await self._world.insist(ask)
            copies = {person.name: person.seen() for person in people}
            server = plain({"maps": state.maps, "lists": state.lists})
            found.rooms[room] = {"server": server, **copies}

    @property
    def figures(self) -> dict[str, int]:
        members = [one for room in self._world.history.rooms.values() for one in room.values()]
        return {
            "room steps acknowledged": sum(member.taken for member in members),
            "room steps of unknown outcome": sum(member.unknown for member in members),
        }
