"""Runs clerks (`clerk.py`), gives them jobs, kills and pauses them, and judges what they did."""

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import asyncpg
import msgspec

from onceward.engine.base import Record
from onceward.engine.postgres import PostgresEngine
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.node import Node
from onceward.schedule.invariants import RULES
from onceward.schedule.placement import NODES, SLOTS, SlotOwner
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.schedule.clerk import EFFECTS, LEASE_MS, QUEUE, WORKERS, effect_key, log_partition

ROOT = Path(__file__).parents[2]
LEASE_S = LEASE_MS / 1_000
SLOT_COUNT = 16
ORDER_KEYS = 30
JOBS_PER_COMMIT = 24
OFFSETS_MS = [0, 5 * 3_600_000, -11 * 3_600_000]


@dataclass
class Sent:
    """A job as it was sent."""

    number: int
    order_key: str | None
    due_ms: int


class Clerk:
    """A process with a node."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.alive = True
        self.started = False
        self.stopped = False
        self.done = 0
        self.stale = 0

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)


class Office:
    """Clerks, their database, and what was heard of them."""

    def __init__(self, url: str, random: Random) -> None:
        self.random = random
        self.clerks: list[Clerk] = []
        self.sent: dict[str, Sent] = {}
        self.heard: set[str] = set()
        """Jobs that are done: a clerk has said so, or the database."""
        self.problems: list[str] = []
        self.late_ms_max = 0
        self.contended = 0
        self._url = url
        self._said: set[str] = set()
        self._news = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.engine = await PostgresEngine(self._url).open()
        self.store = Store(self.engine)
        self.clock = self.store.clock
        async with Node(self.store, slots=SLOT_COUNT) as node:
            self.schedule = node.schedule
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for clerk in self.clerks:
            if clerk.process.returncode is None:
                clerk.send_signal(signal.SIGKILL)
            await clerk.process.wait()
        await asyncio.gather(*self._listening)
        await self.engine.close()

    @property
    def alive(self) -> list[Clerk]:
        return [clerk for clerk in self.clerks if clerk.alive]

    # Jobs.

    async def send(self, count: int, within_ms: int) -> None:
        """Send jobs: of each order key in the order of their numbers; a third due later."""
        while count > 0:
            some = min(count, JOBS_PER_COMMIT)
            self.sent.update(await self.store.run(lambda tx, n=some: self._send(tx, n, within_ms)))
            count -= some

    async def _send(self, tx: Transaction, count: int, within_ms: int) -> dict[str, Sent]:
        sent: dict[str, Sent] = {}
        for number in range(len(self.sent), len(self.sent) + count):
            key = self.random.choice([None, f"key {self.random.randrange(ORDER_KEYS)}"])
            later = self.random.random() < 1 / 3
            due_ms = tx.now_ms + self.random.randrange(within_ms) if later else 0
            id_ = await self.schedule.send(
                tx, QUEUE, number, JobOptions(order_key=key), due_ms=due_ms
            )
            sent[id_] = Sent(number, key, due_ms)
        return sent

    async def finished(self) -> None:
        """Wait until every job is done."""
        await self.until(lambda: not self.waiting)
        with self.engine.watch(EFFECTS) as watch:
            while unheard := sorted(self.sent.keys() - self.heard)[:100]:
                watch.clear()
                keys = [effect_key(id_) for id_ in unheard]
                found = await self.engine.get(keys, self.clock.now_ms())
                effective = {record.key[1] for record in found if record is not None}
                self.heard |= effective
                if not effective:
                    await watch.wait(1)

    # Clerks.

    async def start(self) -> Clerk:
        name = f"clerk{len(self.clerks)}"
        offset_ms = OFFSETS_MS[len(self.clerks) % len(OFFSETS_MS)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.schedule.clerk", self._url, name, str(offset_ms)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        clerk = Clerk(name, process)
        self.clerks.append(clerk)
        self._listening.append(asyncio.create_task(self._listen(clerk)))
        self._listening.append(asyncio.create_task(self._complaints(clerk)))
        await self.until(lambda: clerk.started)
        return clerk

    async def kill(self, clerk: Clerk) -> None:
        clerk.alive = False
        clerk.send_signal(signal.SIGKILL)
        await clerk.process.wait()

    async def pause(self, clerk: Clerk) -> int:
        """Stop a clerk at work for twice the lease, and wait until it is at work again; returns
        how many of its completions were refused."""
        done = clerk.done
        await self.until(lambda: clerk.done > done)
        clerk.send_signal(signal.SIGSTOP)
        await self.clock.sleep(2 * LEASE_S)
        stale, done = clerk.stale, clerk.done
        clerk.send_signal(signal.SIGCONT)
        while clerk.stale == stale and clerk.done < done + 2 * WORKERS:
            await self.send(JOBS_PER_COMMIT, 1)
            await self.until(lambda: clerk.stale > stale or not self.waiting)
        return clerk.stale - stale

    async def stop(self, clerk: Clerk) -> float:
        """Stop a clerk in good order; returns how long it took the others to take over."""
        clerk.send_signal(signal.SIGTERM)
        await self.until(lambda: clerk.stopped)
        clerk.alive = False
        stopped_ns = self.clock.elapsed_ns()
        await self.placed()
        took_s = (self.clock.elapsed_ns() - stopped_ns) / 1e9
        assert await clerk.process.wait() == 0
        return took_s

    @property
    def waiting(self) -> int:
        """How many jobs are left, at least. A clerk that was killed has not said all that it
        did: of what each of its workers had in hand."""
        killed = sum(not clerk.alive and not clerk.stopped for clerk in self.clerks)
        return max(0, len(self.sent) - len(self.heard) - WORKERS * killed)

    async def placed(self) -> None:
        """Wait until all slots are owned by clerks that live, and each has its share."""
        with self.engine.watch(SLOTS) as watch:
            while not await self._all_placed():
                await watch.wait(LEASE_S / 10)
                watch.clear()

    async def _all_placed(self) -> bool:
        now_ms = self.clock.now_ms()
        nodes = {record.key[1] for record in await self.engine.scan(NODES, now_ms)}
        slots = await self.engine.scan(SLOTS, now_ms)
        owners = [msgspec.json.decode(record.value, type=SlotOwner).owner for record in slots]
        alive = {clerk.name for clerk in self.alive}
        return (
            len(owners) == SLOT_COUNT
            and set(owners) == nodes
            and sorted(node.partition("~")[0] for node in nodes) == sorted(alive)
        )

    # What is heard.

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until what was heard makes something true."""
        while not true():
            assert not self.problems, self.problems
            self._news.clear()
            await self._news.wait()

    async def _listen(self, clerk: Clerk) -> None:
        assert clerk.process.stdout is not None
        async for line in clerk.process.stdout:
            word, _, id_ = line.decode().rstrip("\n").partition(" ")
            if word == "done":
                clerk.done += 1
                self._done(clerk, id_)
            elif word == "stale":
                clerk.stale += 1
            elif word == "contended":
                self.contended += 1
            elif word == "started":
                clerk.started = True
            elif word == "stopped":
                clerk.stopped = True
            self._news.set()

    def _done(self, clerk: Clerk, id_: str) -> None:
        if id_ in self._said:
            self.problems.append(f"{clerk.name} says that {id_} is done, and so did another")
        self._said.add(id_)
        self.heard.add(id_)
        if id_ in self.sent and self.sent[id_].due_ms:
            # This clock is behind the database's by a moment, if anything.
            late_ms = self.clock.now_ms() - self.sent[id_].due_ms
            self.late_ms_max = max(late_ms, self.late_ms_max)
            if late_ms < -50:
                self.problems.append(f"{clerk.name} was early by {-late_ms} ms with {id_}")

    async def _complaints(self, clerk: Clerk) -> None:
        assert clerk.process.stderr is not None
        text = (await clerk.process.stderr.read()).decode()
        if text:
            self.problems.append(f"{clerk.name}: {text}")
            self._news.set()

    # The judgement.

    async def judge(self) -> None:
        """Every job effective once, those of one key in order, and nothing left over."""
        assert not self.problems, self.problems
        records = await self._all_records()
        effects = {key[1]: record.value for key, record in records.items() if key[0] == EFFECTS}
        assert effects == dict.fromkeys(self.sent, b"1")
        orders: dict[str, list[int]] = defaultdict(list)
        for sent in self.sent.values():
            if sent.order_key is not None:
                orders[sent.order_key].append(sent.number)
        for order_key, numbers in orders.items():
            partition = log_partition(order_key)
            log = sorted(
                (key[1], int(r.value)) for key, r in records.items() if key[0] == partition
            )
            assert [number for _, number in log] == numbers, f"{order_key} is out of order"
        kinds = ("due", "ready", "line", "order")
        left = [key for key in records if key[0].partition("#")[0] in kinds]
        assert left == []
        assert [problem for r in records.values() for problem in _problems(r, records)] == []

    async def _all_records(self) -> dict[Key, Record]:
        target = self.engine.target
        connection = await asyncpg.connect(target.dsn)
        rows = await connection.fetch(
            f"SELECT partition, sort, value, version, expires_at_ms FROM {target.schema}.record"
        )
        await connection.close()
        return {
            (partition, sort): Record((partition, sort), value.encode(), version, expires_at_ms)
            for partition, sort, value, version, expires_at_ms in rows
        }


def _problems(record: Record, records: dict[Key, Record]) -> list[str]:
    kind = record.key[0].partition("#")[0]
    return [
        f"{record.key}: {problem}"
        for rule in RULES
        if rule.kind == kind
        for problem in rule.judge(record, records.get)
    ]
