"""Onceward as a side of a benchmark: everything runs in this process and on its disk."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any

from benchmarks.measure import BODY, ORDER_KEYS, THREADS, body_of, caller_number, plain
from benchmarks.punctual import Timer, fires
from onceward.app import App
from onceward.store.user_records import UserTransaction
from onceward.work.children import ChildJob

TIMER_CALLERS = 64
# Far more than a call takes.
WAIT_S = 60
FAN_OUT_S = 300
FILL_COMMIT = 20
FILL_CALLERS = 64


class Onceward:
    """Onceward: handlers run in the same process, with one slot per caller."""

    durable = (
        "accept: the job and its idempotency key are synced; work: its lease and its "
        "result are synced as well, and a job that a crash interrupts is retried; "
        "locks and timers: synced before the response"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.app = App(url, threads=THREADS)
        self.body = BODY
        self.callers = callers
        self.fire: Callable[[int], None] = fires.add
        self._busy: set[int] = set()
        self._ended: dict[int, int] = {}

    async def open(self, measure: str) -> None:
        if measure in ("work", "waiting"):
            self._declare("bench", self._handle)
        elif measure in ("threads", "blocked"):
            self.body = body_of(measure)
            self.app.handler("bench", concurrency=max(self.callers, 16))(self._plain)
        elif measure == "fan_out":
            self._declare("bench", self._handle)
            self._declare("parents", self._fan_out)
        elif measure == "ordered":
            self._declare("ordered", self._in_order)
        elif measure == "timers":
            self._declare("timers", self._due)
        self._numbers = [0] * ORDER_KEYS
        self._locks = [asyncio.Lock() for _ in range(ORDER_KEYS)]
        await self.app.start()

    def _declare(self, queue: str, handle: Callable[[Any], Awaitable[Any]]) -> None:
        self.app.handler(queue, concurrency=max(self.callers, 16))(handle)

    async def _handle(self, job: Any) -> Any:
        return job.body["text"][:1]

    def _plain(self, job: Any) -> str:
        return plain(job.body)

    async def _in_order(self, job: Any) -> None:
        key, number = job.body
        assert key not in self._busy, "two jobs of one order key run at once"
        self._busy.add(key)
        await asyncio.sleep(0)
        self._busy.remove(key)
        assert number > self._ended.get(key, -1), "a job has overtaken another"
        self._ended[key] = number

    async def _due(self, job: Any) -> None:
        self.fire(job.body)

    async def accept(self, name: str) -> None:
        """Returns when a job is durable."""
        await self.app.send("bench", BODY, key=name)

    async def work(self, name: str) -> None:
        """Returns when a job has succeeded."""
        receipt = await self.app.send("bench", self.body, key=name)
        job = await self.app.wait(receipt.id, WAIT_S)
        assert job.state == "succeeded", job.state

    async def ordered(self, name: str) -> None:
        """The same, one at a time for each of a few order keys, each shared by many callers."""
        key = caller_number(name) % ORDER_KEYS
        async with self._locks[key]:  # so that numbers grow in the order of acceptance
            self._numbers[key] += 1
            body = [key, self._numbers[key]]
            receipt = await self.app.send("ordered", body, key=name, order_key=str(key))
        job = await self.app.wait(receipt.id, WAIT_S)
        assert job.state == "succeeded", job.history

    async def _fan_out(self, job: Any) -> int:
        found = await job.gather(*[ChildJob("bench", BODY) for _ in range(job.body)])
        assert found == ["x"] * job.body
        return len(found)

    async def fan_out(self, name: str, children: int) -> None:
        """Run a parent with that many children in the same process."""
        receipt = await self.app.send("parents", children, key=name)
        job = await self.app.wait(receipt.id, FAN_OUT_S)
        assert job.result == children, job.state

    async def lock(self, name: str) -> None:
        """Acquire and release an uncontended lock."""
        async with self.app.locks.hold(f"own-{caller_number(name)}", wait_s=WAIT_S):
            pass

    async def contend(self, name: str) -> None:
        """Acquire and release the same lock as all other callers."""
        async with self.app.locks.hold("shared", wait_s=WAIT_S):
            pass

    async def set(self, timers: list[Timer]) -> None:
        """Create timers, each made durable by a separate call."""
        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                await self.app.timers.set(queue="timers", body=number, at_ms=due_ms)

        await asyncio.gather(*[caller() for _ in range(TIMER_CALLERS)])

    async def fill(self, count: int) -> None:
        """Send a number of jobs to a queue without workers."""
        waiting = iter(range(count))

        async def several(numbers: list[int], tx: UserTransaction) -> None:
            for number in numbers:
                await self.app.send("waiting", BODY, key=f"waiting-{number}", tx=tx)

        async def caller() -> None:
            while numbers := list(islice(waiting, FILL_COMMIT)):
                await self.app.run(partial(several, numbers))

        await asyncio.gather(*[caller() for _ in range(FILL_CALLERS)])

    async def close(self) -> None:
        await self.app.stop()
