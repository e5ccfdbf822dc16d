"""Jobs on a memory engine, with a clock that stands still until a test moves it."""

from typing import Any

from onceward.engine.base import Record
from onceward.engine.memory import MemoryEngine
from onceward.job_options import job_options
from onceward.keys import Key
from onceward.schedule import (
    Claim,
    Job,
    Schedule,
    due_ms_of,
    due_partition,
    ready_partition,
)
from onceward.schedule.invariants import RULES as SCHEDULE_RULES
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.webhooks.timers.invariants import RULES as TIMER_RULES
from tests.quick import QuickClock


def all_records(engine: MemoryEngine) -> dict[Key, Record]:
    partitions = engine.memory.table.partitions.values()
    return {record.key: record for partition in partitions for record in partition.rows.values()}


def problems(engine: MemoryEngine) -> list[str]:
    """What is wrong between the records."""
    records = all_records(engine)
    return [
        f"{key}: {problem}"
        for key, record in records.items()
        for rule in (*SCHEDULE_RULES, *TIMER_RULES)
        if key[0].partition("#")[0] == rule.kind
        for problem in rule.judge(record, records.get)
    ]


class Jobs:
    """One slot of jobs, and everything that can happen to them, each in its own commit."""

    def __init__(self) -> None:
        self.clock = QuickClock()
        self.engine = MemoryEngine()
        self.store = Store(self.engine, self.clock)
        self.schedule = Schedule(self.store.ids, slots=1)

    async def open(self) -> "Jobs":
        await self.engine.open()
        return self

    async def send(self, body: Any = None, queue: str = "q", **options: Any) -> str:
        async def fn(tx: Transaction) -> str:
            return await self.schedule.send(
                tx, queue, body, job_options(options), due_ms=options.get("due_ms", 0)
            )

        return await self.store.run(fn)

    async def get(self, id_: str) -> Job:
        return await self.store.run(lambda tx: self.schedule.get(tx, id_))

    async def stage(self, id_: str) -> str:
        return (await self.get(id_)).stage

    async def ready(self, queue: str = "q") -> list[Key]:
        """The ready entries, in order."""
        found = await self.engine.scan(ready_partition(0, queue), self.clock.now_ms())
        return [record.key for record in found]

    async def due(self) -> list[Key]:
        found = await self.engine.scan(due_partition(0), self.clock.now_ms())
        return [record.key for record in found]

    async def claim(
        self, queue: str = "q", worker: str = "w", lease_ms: int = 1_000
    ) -> Claim | None:
        """Claim the first ready job, if there is one."""
        ready = await self.ready(queue)
        return await self.claim_at(ready[0], worker, lease_ms) if ready else None

    async def claim_at(self, entry: Key, worker: str = "w", lease_ms: int = 1_000) -> Claim | None:
        return await self.store.run(lambda tx: self.schedule.claim(tx, entry, worker, lease_ms))

    async def claimed(self, **options: Any) -> Claim:
        claim = await self.claim(**options)
        assert claim is not None
        return claim

    async def complete(self, claim: Claim) -> None:
        await self.store.run(lambda tx: self.schedule.complete(tx, claim.id, claim.token))

    async def extend(self, claim: Claim, lease_ms: int) -> int:
        return await self.store.run(
            lambda tx: self.schedule.extend(tx, claim.id, claim.token, lease_ms)
        )

    async def fail(self, claim: Claim, retry_ms: int | None, reason: str = "why") -> str:
        return await self.store.run(
            lambda tx: self.schedule.fail(tx, claim.id, claim.token, reason, retry_ms)
        )

    async def release(self, claim: Claim) -> None:
        await self.store.run(lambda tx: self.schedule.release(tx, claim.id, claim.token))

    async def act(self, entry: Key) -> None:
        """What the dispatcher does with a due entry."""
        acts = {"job": self.schedule.promote, "lease": self.schedule.expire}
        await self.store.run(lambda tx: acts[entry[1].split("#")[-1]](tx, entry))

    async def pass_ms(self, passed_ms: int) -> None:
        """Let time pass, and act on what has become due, in order."""
        self.clock.at_ms += passed_ms
        while due := [e for e in await self.due() if due_ms_of(e[1]) <= self.clock.at_ms]:
            await self.act(due[0])


async def new_jobs() -> Jobs:
    return await Jobs().open()
