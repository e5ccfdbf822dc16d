"""Many people who join one table at the same instant, and a judge who has seen every step.

They come over connections, of which each serves several; some leave again at once, while games
end. A spectator in the table's room sees each commit as one step, in the order of commits: from
that alone it is judged that nobody was overtaken, seated twice, or one too many.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.errors import OncewardError
from onceward.rooms.frames import Change, ServerFrame

TABLE = "crowded"
POLICY = {"max_wins": 3, "idle_s": 0, "grace_s": 0, "waiting_s": 0}


class Crowd:
    """People at one table, over servers at some addresses."""

    def __init__(self, urls: Sequence[str], people: int, connections: int, leaving: int) -> None:
        self.urls = urls
        self.users = [f"u{number:04}" for number in range(people)]
        self.leaving = set(random.Random(people).sample(self.users, leaving))
        self.connections = connections
        self.places: dict[str, Any] = {}
        self.results = 0
        self._joined = asyncio.Event()

    async def run(self) -> None:
        """Let them come, and judge what was seen."""
        async with Client(self.urls[0]) as client:
            await client.tables.create(id=TABLE, policy=POLICY)
            watcher = client.live(token="dev:watcher")
            steps: list[Change] = []
            async with watcher:
                room = await watcher.join(f"table:{TABLE}")
                receive = room.receive

                def note(frame: ServerFrame) -> None:
                    if isinstance(frame, Change):
                        steps.append(frame)
                    receive(frame)  # type: ignore[arg-type]

                room.receive = note  # type: ignore[method-assign, assignment]
                lives = [
                    Live(self.urls[number % len(self.urls)], token=f"dev:c{number}")
                    for number in range(self.connections)
                ]
                try:
                    await self._crowd(lives, client)
                finally:
                    await asyncio.gather(*[live.close() for live in lives])
                async with asyncio.timeout(120):
                    last = (await client.rooms.get(room.id)).seq
                    while steps[-1].seq < last:  # noqa: ASYNC110 - nobody else could tell
                        await asyncio.sleep(0)
                await self._judge_end(client)
            judge_steps(steps)

    async def _crowd(self, lives: list[Live], client: Client) -> None:
        for live in lives:
            await live.open()
            await live.act("get", TABLE)  # it is connected
        start = asyncio.Event()
        tasks = [
            asyncio.create_task(self._person(lives[number % len(lives)], user, start))
            for number, user in enumerate(self.users)
        ]
        host = asyncio.create_task(self._host(client))
        start.set()
        await asyncio.gather(*tasks)
        self._joined.set()
        await host

    async def _person(self, live: Live, user: str, start: asyncio.Event) -> None:
        await start.wait()
        place = await live.act("join", TABLE, user=user)
        assert place["role"] in ("seated", "waiting")
        self.places[user] = place
        if user in self.leaving:
            place = await live.act("leave", TABLE, user=user)
            assert place["role"] == ""

    async def _host(self, client: Client) -> None:
        """End one game after another, as long as people come and for some games more."""
        chance = random.Random(1)
        more = 20
        while more:
            table = await client.tables.get(TABLE)
            more -= self._joined.is_set()
            if table.phase != "playing":
                await asyncio.sleep(0)
                continue
            winner = chance.choice(sorted(seat.user for seat in table.seats.values() if seat))
            winners = [winner] if chance.random() < 0.8 else []
            try:
                await client.tables.result(TABLE, winners=winners, game=table.number)
                self.results += 1
            except OncewardError as error:
                if error.code not in ("other_game", "no_game", "not_seated"):
                    raise  # else someone has left just now

    async def _judge_end(self, client: Client) -> None:
        """All who stayed are there, once, and their positions are 1, 2, 3 … in order."""
        stayed = [user for user in self.users if user not in self.leaving]
        table = await client.tables.get(TABLE)
        seated = {seat.user for seat in table.seats.values() if seat}
        assert len(seated) == 2
        assert table.waiting == len(stayed) - 2
        places = await asyncio.gather(
            *[client.tables.place(TABLE, user=user) for user in self.users]
        )
        assert {place.user for place in places if place.role == "seated"} == seated
        waiting = sorted((p.number, p.position) for p in places if p.role == "waiting")
        assert [position for _, position in waiting] == list(range(1, table.waiting + 1))
        assert {place.user for place in places if place.role} == set(stayed)
        assert self.results > 10


def judge_steps(steps: list[Change]) -> None:
    """What must hold after each commit, from what a spectator has seen."""
    seats: dict[str, str] = {}
    gone: set[int] = set()
    went = 0
    lowest = 0  # of the numbers that have not gone
    seatings = 0
    for step in steps:
        before = set(seats.values())
        left: list[int] = []
        for op in step.ops:
            value: Any = getattr(op, "value", None)
            if op.map == "seats":
                if value is None:
                    seats.pop(op.key, None)
                else:
                    seats[op.key] = value["user"]
            elif op.map == "line":
                left += value["gone"][len(value["gone"]) - (value["went"] - went) :]
                went = value["went"]
        assert len(seats) <= 2
        assert len(set(seats.values())) == len(seats), f"someone sits twice: {seats}"
        came = set(seats.values()) - before
        gone.update(left)
        if came and left:
            # Those who sat down had the lowest numbers of all who waited.
            for number in sorted(left):
                while lowest in gone and lowest < number:
                    lowest += 1
                assert lowest == number, f"{number} has overtaken {lowest}"
            seatings += 1
        while lowest in gone:
            gone.discard(lowest)
            lowest += 1
    assert seatings > 5
