"""A table with a game, at which people come, play, and leave; and one who watches every step."""

import asyncio
from random import Random
from typing import Any

from onceward.api.rooms import RoomEntry
from onceward.client import Client
from onceward.errors import HistoryGone, OncewardError
from tests.chaos.history import Found, Move, Place, Table
from tests.chaos.world import World

TABLE, ROOM = "corner", "table:corner"
SEATS, PEOPLE = 2, 6
POLICY = {"idle_s": 0, "turn_s": 0, "grace_s": 0, "waiting_s": 0, "max_wins": 3}
# What is said to one who comes too late: the game has gone on, or someone has left.
TOO_LATE = {
    *("stale_move", "not_your_turn", "no_game", "other_game", "not_seated", "match_over"),
    "bad_move",
}
PAGE = 200


class Tables:
    """Lets people play until it is told to stop."""

    def __init__(self, world: World, seed: int, pause_s: float) -> None:
        self._world = world
        self._seed = seed
        self._pause_s = pause_s
        self._table = world.history.tables[TABLE] = Table(SEATS)
        self._users = [f"user{number}" for number in range(PEOPLE)]
        self._joins = self._leaves = 0
        self._seats: dict[str, str] = {}
        self._seen = 0

    async def open(self) -> None:
        """Let people sit down and stand in line."""
        await self._world.insist(self._make)
        for user in self._users:
            await self._join(user)

    async def run(self, stopped: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._play(stopped))
            group.create_task(self._come_and_go(stopped))
            group.create_task(self._watch(stopped))

    async def _make(self, client: Client) -> None:
        try:
            await client.tables.create(id=TABLE, policy=POLICY, game="nim")
        except OncewardError as error:
            if error.code != "table_exists":
                raise

    async def _join(self, user: str) -> None:
        await self._world.insist(lambda client: client.tables.join(TABLE, user=user))
        self._table.people[user] = True
        self._joins += 1

    async def _come_and_go(self, stopped: asyncio.Event) -> None:
        chance = Random(f"{self._seed} guests")
        while not stopped.is_set():
            await self._world.clock.sleep(chance.uniform(0, 8) * self._pause_s)
            user = chance.choice(self._users)
            await self._world.insist(lambda client: client.tables.leave(TABLE, user=user))  # noqa: B023
            self._table.people[user] = False
            self._leaves += 1
            if chance.random() < 0.9 or sum(self._table.people.values()) <= SEATS:
                await self._join(user)
        for user in self._users[: SEATS + 1]:
            await self._join(user)

    async def _play(self, stopped: asyncio.Event) -> None:
        chance = Random(f"{self._seed} players")
        while not stopped.is_set():
            game = await self._world.insist(lambda client: client.rooms.get_map(ROOM, "game"))
            if "now" in game:
                await self._move(game["now"], chance)
            await self._world.clock.sleep(chance.uniform(0, 2) * self._pause_s)

    async def _move(self, now: dict[str, Any], chance: Random) -> None:
        if not now["awaited"]:
            return
        seat = now["awaited"][0]
        user = now["players"][seat]
        taken = chance.randint(1, min(3, now["state"]["left"]))
        asked = Move(now["match"], now["number"], seat, taken)
        self._table.moves.append(asked)
        move = {"move": taken, "number": asked.number, "match": asked.match}
        key = f"{asked.match}-{asked.number}-{len(self._table.moves)}"
        try:
            await self._world.insist(lambda c: c.tables.move(TABLE, move=move, user=user, key=key))
            asked.acknowledged = True
        except OncewardError as error:
            if error.code not in TOO_LATE:
                raise

    async def _watch(self, stopped: asyncio.Event) -> None:
        """See each step, as it was committed."""
        while not stopped.is_set():
            await self._look()
            await self._world.clock.sleep(2 * self._pause_s)

    async def _look(self) -> None:
        more = True
        while more:
            try:
                page = await self._world.insist(
                    lambda client: client.rooms.history(ROOM, since=self._seen, limit=PAGE)
                )
            except HistoryGone:
                state = await self._world.insist(lambda client: client.rooms.snapshot(ROOM))
                self._seen = state.seq
                seats = state.maps.get("seats", {})
                self._seats = {marker: seat["user"] for marker, seat in seats.items() if seat}
                continue
            for step in page.entries:
                self._see(step)
            more = page.next is not None

    def _see(self, step: RoomEntry) -> None:
        self._seen = step.seq
        for op in step.ops:
            if op.get("map") == "seats":
                if op.get("value") is not None:
                    self._seats[op["key"]] = op["value"]["user"]
                else:
                    self._seats.pop(op["key"], None)
        self._table.seen.append(dict(self._seats))

    async def settle(self) -> None:
        """See what was not seen yet."""
        await self._look()

    async def find(self, found: Found) -> None:
        """Where everyone is; and then all games are ended, to see what is in their logs."""
        places = found.places[TABLE] = {}
        for user in self._users:
            place = await self._world.insist(lambda c: c.tables.place(TABLE, user=user))  # noqa: B023
            places[user] = Place(place.role, place.marker, place.number, place.position)
        await self._world.insist(lambda client: client.tables.close(TABLE))
        for match in {move.match for move in self._table.moves}:
            entries = await self._world.insist(lambda c: c.matches.log(match))  # noqa: B023
            moves = [entry for entry in entries if entry["type"] == "moved"]
            found.logs[match] = [(entry["seat"], entry["move"]) for entry in moves]

    @property
    def figures(self) -> dict[str, int]:
        moves = self._table.moves
        return {
            "joins at a table": self._joins,
            "leaves of a table": self._leaves,
            "moves acknowledged": sum(move.acknowledged for move in moves),
            "games": len({move.match for move in moves if move.acknowledged}),
            "steps of a table seen": len(self._table.seen),
        }
