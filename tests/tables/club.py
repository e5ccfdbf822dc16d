"""Tables on a memory engine, with a clock that stands still until a test moves it."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from onceward import keys
from onceward.engine.base import Check
from onceward.engine.memory import MemoryEngine
from onceward.keys import Key
from onceward.schedule import due_ms_of, due_partition
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.tables import Change, Ending, Place, Seats, Table
from onceward.tables.invariants import RULES
from onceward.tables.records import Head
from tests.quick import QuickClock, WatchedEngine
from tests.schedule.jobs import all_records

T = TypeVar("T")


def problems(engine: MemoryEngine) -> list[str]:
    """What is wrong between the records."""
    records = all_records(engine)
    return [
        f"{key}: {problem}"
        for key, record in records.items()
        for rule in RULES
        if key[0].partition("#")[0] == rule.kind
        for problem in rule.judge(record, records.get)
    ]


class Screen:
    """A board that keeps what it was shown, map by map."""

    def __init__(self) -> None:
        self.shown: dict[str, dict[tuple[str, str], Any]] = {}
        self.steps: list[tuple[str, list[Change]]] = []

    def copy(self) -> "Screen":
        """As it is now."""
        found = Screen()
        found.restore(self)
        return found

    def restore(self, other: "Screen") -> None:
        """Show what another one does: a transaction was undone."""
        self.shown = {table: dict(maps) for table, maps in other.shown.items()}
        self.steps = list(other.steps)

    async def open(self, tx: Transaction, table: str) -> None:
        self.shown[table] = {}

    async def show(self, tx: Transaction, table: str, changes: list[Change]) -> None:
        self.steps.append((table, changes))
        for change in changes:
            if change.gone and not change.key:
                for place in [p for p in self.shown[table] if p[0] == change.map]:
                    del self.shown[table][place]
            elif change.gone:
                del self.shown[table][change.map, change.key]
            else:
                self.shown[table][change.map, change.key] = change.value

    async def close(self, tx: Transaction, table: str) -> None:
        self.shown.pop(table, None)


class Club:
    """Everything that can happen at tables, each in its own commit."""

    def __init__(self) -> None:
        self.clock = QuickClock()
        self.engine = WatchedEngine()
        self.store = Store(self.engine, self.clock)
        self.screen = Screen()
        self.seats = Seats(self.store.ids, 1, self.screen)

    async def run(self, fn: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self.store.run(fn)

    async def create(self, id_: str = "t", *, game: str = "", **policy: Any) -> Table:
        return await self.run(lambda tx: self.seats.create(tx, id_, policy=policy, game=game))

    async def join(self, *users: str, table: str = "t", **options: Any) -> Place:
        for user in users:
            place = await self.run(
                lambda tx, user=user: self.seats.join(tx, table, user, **options)
            )
        return place

    async def leave(self, user: str, table: str = "t") -> Place:
        return await self.run(lambda tx: self.seats.leave(tx, table, user))

    async def result(self, *winners: str, table: str = "t", game: int | None = None) -> Ending:
        return await self.run(lambda tx: self.seats.result(tx, table, winners, game=game))

    async def place(self, user: str, table: str = "t") -> Place:
        return await self.run(lambda tx: self.seats.place(tx, table, user))

    async def get(self, table: str = "t") -> Table:
        return await self.run(lambda tx: self.seats.get(tx, table))

    async def do(self, name: str, *args: Any, table: str = "t", **options: Any) -> Any:
        return await self.run(lambda tx: getattr(self.seats, name)(tx, table, *args, **options))

    async def players(self, table: str = "t") -> dict[str, str]:
        return (await self.get(table)).players

    def head(self, table: str = "t") -> Head:
        record = all_records(self.engine)[f"table#{table}", "head"]
        return msgspec.json.decode(record.value, type=Head)

    def records(self, *kinds: str) -> list[Key]:
        return sorted(key for key in all_records(self.engine) if key[0].split("#")[0] in kinds)

    def line(self, table: str = "t") -> dict[str, list[tuple[str, ...]]]:
        """Who stands in each lane, by their records."""
        found: dict[str, list[tuple[str, ...]]] = {}
        for key, record in sorted(all_records(self.engine).items()):
            if key[0].startswith(f"lane#{table}#"):
                lane, kind, _ = keys.split(key[1])
                if kind == "wait":
                    users = tuple(msgspec.json.decode(record.value)["users"])
                    found.setdefault(lane, []).append(users)
        return found

    async def act(self, entry: Key) -> None:
        """What the dispatcher does with a due entry."""
        seats = self.seats
        kinds = {"seats-clock": seats.tick, "seats-wait": seats.expire, "seats-purge": seats.purge}
        await self.run(lambda tx: kinds[entry[1].split("#")[-1]](tx, entry))

    async def settle(self) -> None:
        """Act on what is due, in order."""
        while True:
            due = await self.engine.scan(due_partition(0), self.clock.at_ms)
            due = [record for record in due if due_ms_of(record.key[1]) <= self.clock.at_ms]
            if not due:
                return
            await self.act(due[0].key)

    async def pass_ms(self, passed_ms: int) -> None:
        """Let time pass, and what is due happen when it is due."""
        until_ms = self.clock.at_ms + passed_ms
        while True:
            rows = await self.engine.scan(due_partition(0), self.clock.at_ms, limit=1)
            if not rows or due_ms_of(rows[0].key[1]) > until_ms:
                break
            self.clock.at_ms = max(self.clock.at_ms, due_ms_of(rows[0].key[1]))
            await self.settle()
        self.clock.at_ms = until_ms

    @property
    def largest_commit(self) -> int:
        return max(
            len(writes)
            for writes in self.engine.commits
            if not all(type(write) is Check for write in writes)
        )


async def new_club() -> Club:
    club = Club()
    await club.engine.open()
    return club
