"""Nodes that share one memory in virtual time, each a process that can be paused and killed."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, TypeVar

from onceward.engine.base import Put, Record, Version, Watch, Watchers, Write
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import EngineStopped, Unavailable
from onceward.ids import Ids
from onceward.job_options import job_options
from onceward.keys import Key
from onceward.node import Node
from onceward.schedule import Claim, Job
from onceward.schedule.placement import NODES, SLOTS
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.clock import Process, VirtualClock, VirtualLoop, run_virtual
from tests.schedule.jobs import all_records, problems

T = TypeVar("T")

LEASE_S = 10.0


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time, of which it has an hour."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(3_600):
                await test(*args, **kwargs)

        run_virtual(main())

    return run


class TestEngine(MemoryEngine):
    """A memory engine that can be cut off, made to hang, to stop, or to give no hints."""

    __test__ = False

    def __init__(self, memory: Memory | None = None, *, deaf: bool = False) -> None:
        super().__init__(memory)
        self.deaf = deaf
        self.cut_off = False
        self.cut_off_code = "engine_unreachable"
        self.stopped = False
        self.latency_s = 0.0
        self.commits: list[Sequence[Write]] = []
        self.scans: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self._nobody = Watchers()
        self._clock = VirtualClock()

    def hang(self) -> None:
        """Let calls wait until `free` is set."""
        self.free.clear()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        await self._travel()
        found = await super().get(keys, now_ms)
        await self._travel()
        return found

    async def scan(self, partition: str, now_ms: int, **options: Any) -> list[Record]:
        self.scans.append(partition)
        await self._travel()
        found = await super().scan(partition, now_ms, **options)
        await self._travel()
        return found

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        await self._travel()
        version = await super().commit(writes, now_ms, visible)
        self.commits.append(writes)
        await self._travel()
        return version

    async def sweep(self, *args: Any) -> int:
        await self._travel()
        return await super().sweep(*args)

    def watch(self, partition: str) -> Watch:
        return self._nobody.add(partition) if self.deaf else super().watch(partition)

    async def _travel(self) -> None:
        await self.free.wait()
        if self.stopped:
            raise EngineStopped("the disk is gone")
        if self.cut_off:
            raise Unavailable("cut off", code=self.cut_off_code)
        if self.latency_s:
            await self._clock.sleep(self.latency_s)


class Member:
    """A node of a cluster, and the process it runs in."""

    def __init__(self, process: Process, engine: TestEngine, node: Node) -> None:
        self.process = process
        self.engine = engine
        self.node = node
        self.store = node.store
        self.clock = node.store.clock

    async def do(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run something inside the process."""
        return await self.process.spawn(coro)

    @property
    def owned(self) -> set[int]:
        return {slot for slot in self.node.placement.owned if self.node.placement.holds(slot)}

    async def run(self, fn: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self.do(self.store.run(fn))

    async def send(self, body: Any = None, queue: str = "q", **options: Any) -> str:
        delay_ms = options.pop("delay_ms", None)
        if delay_ms is not None:
            options["due_ms"] = self.clock.now_ms() + delay_ms
        due_ms, given = options.pop("due_ms", 0), job_options({"attempts_max": 0, **options})
        return await self.run(
            lambda tx: self.node.schedule.send(tx, queue, body, given, due_ms=due_ms)
        )

    async def claim(self, queue: str = "q", worker: str = "w", **options: Any) -> list[Claim]:
        options.setdefault("lease_ms", 60_000)
        return await self.do(self.node.claims.claim(queue, worker, **options))

    async def complete(self, claim: Claim) -> None:
        await self.run(lambda tx: self.node.schedule.complete(tx, claim.id, claim.token))

    async def job(self, id_: str) -> Job:
        return await self.run(lambda tx: self.node.schedule.get(tx, id_))

    async def stop(self) -> None:
        await self.do(self.node.stop())


def asks(member: Member, worker: str = "w", **options: Any) -> "asyncio.Task[list[Claim]]":
    """A worker that asks, beside the test."""
    return asyncio.create_task(member.claim(worker=worker, **options))


def claim_commits(member: Member) -> list[list[Write]]:
    """The commits that have leased a job."""
    return [
        list(writes)
        for writes in member.engine.commits
        if any(type(w) is Put and w.key[1].endswith("#lease") for w in writes)
    ]


class Cluster:
    """Nodes that share a memory."""

    def __init__(
        self,
        slots: int = 16,
        *,
        deaf: bool = False,
        shared: bool = True,
        seed: int = 0,
        engine: type[TestEngine] = TestEngine,
    ) -> None:
        self.memory = Memory()
        self.engine = engine
        self.seed = seed
        self.slots = slots
        self.deaf = deaf
        self.shared = shared
        self.members: list[Member] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.clock = VirtualClock()

    async def start(self, *, wall_offset_ms: int = 0, lease_s: float = LEASE_S) -> Member:
        process = self.loop.process(f"node{len(self.members)}")

        async def boot() -> Member:
            engine = await self.engine(self.memory, deaf=self.deaf).open()
            engine.shared = self.shared
            clock = VirtualClock(wall_offset_ms=wall_offset_ms)
            # From a seed, so that what fails once fails always.
            ids = Ids(clock.now_ms, random.Random(f"{self.seed} {process.name}").randbytes)
            store = Store(engine, clock, ids)
            node = Node(store, name=process.name, slots=self.slots, lease_ms=int(lease_s * 1000))
            await node.start()
            return Member(process, engine, node)

        member = await process.spawn(boot())
        self.members.append(member)
        return member

    async def start_many(self, count: int) -> list[Member]:
        """Start several nodes, and let them find their shares."""
        members = [await self.start() for _ in range(count)]
        await self.clock.sleep(LEASE_S)
        return members

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.process.running]

    @property
    def names(self) -> set[str]:
        """The nodes that have a record."""
        return {key[1] for key in self.records if key[0] == NODES}

    @property
    def owners(self) -> dict[int, str]:
        """Who owns which slot, by the records."""
        return {
            int(key[1]): record.value.decode().split('"')[3]
            for key, record in self.records.items()
            if key[0] == SLOTS
        }

    @property
    def records(self) -> dict[Key, Record]:
        return all_records(MemoryEngine(self.memory))

    @property
    def problems(self) -> list[str]:
        return problems(MemoryEngine(self.memory))

    @property
    def all_owned(self) -> bool:
        """Whether each slot is held by exactly one node that runs, and the records agree."""
        held = [
            (slot, member.node.placement.node) for member in self.alive for slot in member.owned
        ]
        return len(held) == self.slots and dict(held) == self.owners

    async def until(self, true: Callable[[], bool], step_s: float = 0.02) -> float:
        """Let time pass until something is true; returns how much passed."""
        start_s = self.loop.time()
        while not true():
            await self.clock.sleep(step_s)
        return self.loop.time() - start_s
