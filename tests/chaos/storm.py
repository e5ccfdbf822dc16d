"""One run: all parts under load, everything fails, then all comes to rest and is judged."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceward.clock import Clock
from tests.chaos.auditor import Slack, Violation, audit
from tests.chaos.faults import Faults
from tests.chaos.history import Found, History
from tests.chaos.loads import locks
from tests.chaos.loads.messages import Messages
from tests.chaos.loads.rooms import Rooms
from tests.chaos.loads.tables import Tables
from tests.chaos.loads.timers import Timers
from tests.chaos.minimum import shortcomings
from tests.chaos.rest import find_at_rest
from tests.chaos.world import Engine, World

PROGRESS_S = 30.0
# Nodes that share a database each have a clock, which is behind it by what an answer takes.
SLACK = {"sqlite": Slack(), "postgres": Slack(lease_ns=500_000_000, delay_ms=500.0)}


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how much."""

    engine: Engine
    seed: int
    seconds: float
    """So long things go wrong, at least; and each kind at least once."""
    fault_pause_s: float
    pause_s: float
    """Of each caller between two calls, on average."""
    patience_s: float
    """How long it may take until all has come to rest."""
    soak: bool = False


@dataclass(slots=True)
class Outcome:
    """What happened, and what was found."""

    plan: Plan
    seconds: float = 0.0
    drained_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """When each began, in seconds."""
    faults: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


class Storm:
    """Does what a plan says."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.history, self.found = History(), Found()
        self.world = World(plan.engine, folder, self.history, plan.seed)
        seed, pause_s = plan.seed, plan.pause_s
        self._messages = Messages(self.world, seed, pause_s)
        self._timers = Timers(self.world, seed, 2 * pause_s)
        self._rooms = Rooms(self.world, seed, pause_s)
        self._tables = Tables(self.world, seed, pause_s / 2)
        self._clock = Clock()
        self._begun_ns = self._clock.elapsed_ns()
        self.stages: dict[str, float] = {}
        self._enter("starts")

    async def run(self) -> Outcome:
        """All of it. Raises what no caller should ever see, and `TimeoutError` if it does not
        come to rest."""
        outcome = Outcome(self.plan)
        async with self.world.running():
            faults = Faults(self.world, self.plan.seed, lasting=self.plan.soak)
            async with self._told(faults):
                await self._blow(faults, outcome)
        outcome.violations = audit(self.history, self.found, SLACK[self.plan.engine])
        outcome.faults, outcome.left_out = dict(faults.tally), faults.left_out
        outcome.operations = self.figures()
        outcome.troubles, outcome.stages = dict(self.history.troubles), self.stages
        self._enter("is over")
        return outcome

    async def _blow(self, faults: Faults, outcome: Outcome) -> None:
        begun_ns, stopped = self._clock.elapsed_ns(), asyncio.Event()

        def passed_s() -> float:
            return (self._clock.elapsed_ns() - begun_ns) / 1e9

        async with self._rooms.joined():
            await self._tables.open()
            loads = (self._messages, self._timers, self._rooms, self._tables)
            async with asyncio.TaskGroup() as group:
                for load in loads:
                    group.create_task(load.run(stopped))
                self._enter("storms")
                over: Callable[[], bool] = lambda: passed_s() >= self.plan.seconds  # noqa: E731
                await faults.rage(self.plan.fault_pause_s, over)
                await self._until_enough()
                outcome.seconds = passed_s()
                self._enter("comes to rest")
                stopped.set()
            async with asyncio.timeout(self.plan.patience_s):
                await self._settle()
            outcome.drained_s = passed_s() - outcome.seconds
        await self._stop()

    async def _until_enough(self) -> None:
        """A busy machine may need longer until enough was done to mean anything."""
        soak = self.plan.soak
        # Large messages are sent by those who fill disks, and not by anyone who goes on.
        filled = ["disk full"]
        with suppress(TimeoutError):
            async with asyncio.timeout(self.plan.patience_s):
                while shortcomings({}, self.figures(), filled, soak=soak):
                    await self.world.progress(5)
                    locks.read_uses(self.world.notes, self.history)

    async def _settle(self) -> None:
        await asyncio.gather(
            self._messages.settle(),
            self._timers.settle(),
            self._rooms.settle(),
            self._tables.settle(),
        )
        await asyncio.gather(self._rooms.find(self.found), self._tables.find(self.found))
        # Those who use locks do so until they are told to stop.
        await asyncio.gather(*[worker.leave() for worker in self.world.workers])
        await locks.settle_locks(self.world)
        await locks.find_locks(self.world, self.found)

    async def _stop(self) -> None:
        """End all servers in good order, and look at what they leave."""
        self._enter("stops")
        found, world = self.found, self.world
        codes = await asyncio.gather(*[node.process.leave() for node in world.nodes])
        for node, code in zip(world.nodes, codes, strict=True):
            if code:
                found.problems.append(f"{node.process.name} ended with {code}")
        for process in world.processes:
            found.problems += process.ends
        locks.read_uses(world.notes, self.history)
        self._enter("is judged")
        await find_at_rest(world, self.history, found)
        self._enter("ends")

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self.stages[stage] = round((self._clock.elapsed_ns() - self._begun_ns) / 1e9, 1)

    def figures(self) -> dict[str, int]:
        """How much was done."""
        calls = self.history.calls
        return {
            **self._messages.figures,
            "steps run": sum(call.what in ("first", "second") for call in calls),
            "jobs of workers over HTTP": sum(call.what == "order" for call in calls),
            **locks.figures(self.history),
            **self._timers.figures,
            **self._rooms.figures,
            **self._tables.figures,
        }

    @asynccontextmanager
    async def _told(self, faults: Faults) -> AsyncIterator[None]:
        """Say every now and then how far it is."""
        begun_ns = self._clock.elapsed_ns()

        async def tell() -> None:
            while True:
                await self._clock.sleep(PROGRESS_S)
                passed_s = (self._clock.elapsed_ns() - begun_ns) / 1e9
                figures = self.figures()
                print(
                    f"{self.plan.engine} {self._stage}, {passed_s:.0f} s: "
                    f"{faults.tally.total()} faults, {figures['messages accepted']} messages, "
                    f"{figures['messages in order']} in order, {figures['firings arrived']} "
                    f"firings, {figures['room steps acknowledged']} room steps, "
                    f"{figures['moves acknowledged']} moves",
                    flush=True,
                )

        async with _beside(tell()):
            yield


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def show_logs(world: World) -> None:
    """What the processes have said, where someone looks for what went wrong."""
    for process in world.processes:
        text = process.log.read_text(errors="replace") if process.log.exists() else ""
        print(f"--- {process.name} {dict(process.tally)}\n{text[-4_000:]}", file=sys.stderr)
    if world.postgres is not None:
        print(f"--- PostgreSQL\n{world.postgres.log[-4_000:]}", file=sys.stderr)
