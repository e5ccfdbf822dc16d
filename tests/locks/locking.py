"""Locks on a memory engine, with a clock that stands still until a test moves it."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from onceward import keys
from onceward.engine.base import Check
from onceward.engine.memory import MemoryEngine
from onceward.keys import Key
from onceward.locks import LockTable, Request, Status
from onceward.locks.invariants import RULES
from onceward.schedule import due_ms_of, due_partition
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import QuickClock, WatchedEngine
from tests.schedule.jobs import all_records

T = TypeVar("T")


def problems(engine: MemoryEngine) -> list[str]:
    """What is wrong between the records, counts included."""
    records = all_records(engine)
    found = [
        f"{key}: {problem}"
        for key, record in records.items()
        for rule in RULES
        if key[0].partition("#")[0] == rule.kind
        for problem in rule.judge(record, records.get)
    ]
    heads: dict[str, dict[str, int]] = {}
    counted: dict[str, dict[str, int]] = {}
    for key, record in records.items():
        if key[0].startswith("lock#"):
            name, what, *_ = keys.split(key[1])
            if what == "head":
                head = msgspec.json.decode(record.value)
                heads[name] = {"hold": head["held"], "wait": head["waiting"]}
            else:
                counts = counted.setdefault(name, {"hold": 0, "wait": 0})
                counts[what] += 1
    for name, counts in heads.items():
        if counted.get(name, {"hold": 0, "wait": 0}) != counts:
            found.append(f"{name} has {counted.get(name)}, and its head says {counts}")
    return found


class Locking:
    """Everything that can happen to locks, each in its own commit."""

    def __init__(self, slots: int = 1, unused_ms: int = 3_600_000) -> None:
        self.clock = QuickClock()
        self.engine = WatchedEngine()
        self.store = Store(self.engine, self.clock)
        self.slots = slots
        self.table = LockTable(self.store.ids, slots, unused_ms=unused_ms)

    async def run(self, fn: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self.store.run(fn)

    async def acquire(self, *names: str, **options: Any) -> Request | None:
        capacities = {name: options.get("capacity", 1) for name in names}
        options.pop("capacity", None)
        return await self.run(lambda tx: self.table.acquire(tx, capacities, **options))

    async def join(self, *names: str, **options: Any) -> Request:
        capacities = {name: options.get("capacity", 1) for name in names}
        options.pop("capacity", None)
        return await self.run(lambda tx: self.table.join(tx, capacities, **options))

    async def held(self, *names: str, **options: Any) -> Request:
        request = await self.acquire(*names, **options)
        assert request is not None
        assert request.held
        return request

    async def waits(self, *names: str, **options: Any) -> Request:
        request = await self.join(*names, **options)
        assert not request.held
        return request

    async def get(self, request: Request) -> Request | None:
        return await self.run(lambda tx: self.table.get(tx, request.id))

    async def state(self, request: Request) -> str | None:
        found = await self.get(request)
        return None if found is None else found.state

    async def release(self, request: Request, **options: Any) -> None:
        await self.run(lambda tx: self.table.release(tx, request.id, **options))

    async def withdraw(self, request: Request) -> Request | None:
        return await self.run(lambda tx: self.table.withdraw(tx, request.id))

    async def renew(self, request: Request, lease_ms: int | None = None) -> int:
        return await self.run(lambda tx: self.table.renew(tx, request.id, lease_ms))

    async def guard(self, name: str, token: int) -> None:
        async def write(tx: Transaction) -> None:
            await self.table.guard(tx, name, token)
            tx.put(("written", keys.join(name)), token)

        await self.run(write)

    async def gate(self, resource: str, token: int) -> None:
        await self.run(lambda tx: self.table.gate(tx, resource, token))

    async def status(self, name: str) -> Status:
        found = await self.run(lambda tx: self.table.status(tx, name))
        assert found is not None
        return found

    async def line(self, name: str) -> tuple[list[str], list[str]]:
        """The owners of those who hold and of those who wait."""
        status = await self.status(name)
        return [s.owner for s in status.holders], [s.owner for s in status.waiters]

    async def due(self) -> list[Key]:
        now_ms = self.clock.now_ms()
        return [
            record.key
            for slot in range(self.slots)
            for record in await self.engine.scan(due_partition(slot), now_ms)
        ]

    async def act(self, entry: Key) -> None:
        """What the dispatcher does with a due entry."""
        table = self.table
        kinds = {
            "lock": (table.expire, table.read_to_expire),
            "lock-grant": (table.grant_rest, table.read_to_grant),
            "lock-unused": (table.forget, table.read_to_forget),
        }
        act, reads = kinds[entry[1].split("#")[-1]]

        async def fn(tx: Transaction) -> None:
            await tx.fetch(reads(entry))
            await act(tx, entry)

        await self.run(fn)

    async def settle(self) -> None:
        """Act on what is due, in order."""
        while due := [e for e in await self.due() if due_ms_of(e[1]) <= self.clock.at_ms]:
            await self.act(min(due, key=lambda entry: entry[1]))

    async def pass_ms(self, passed_ms: int) -> None:
        self.clock.at_ms += passed_ms
        await self.settle()

    @property
    def largest_commit(self) -> int:
        """How many writes and checks the largest commit so far had."""
        return max(
            len(writes)
            for writes in self.engine.commits
            if not all(type(write) is Check for write in writes)
        )


async def new_locking(**options: Any) -> Locking:
    locking = Locking(**options)
    await locking.engine.open()
    return locking
