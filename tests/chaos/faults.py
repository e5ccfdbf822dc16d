"""What goes wrong, drawn from a seed: each kind once in a round, in any order, some at a time."""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

from onceward.client import Client
from onceward.errors import OncewardError
from tests.chaos.history import Message
from tests.chaos.processes import FAKETIME, Process
from tests.chaos.terms import LEASE_S
from tests.chaos.wire import DOWN, UP, Wire
from tests.chaos.world import Node, World

Fault = Callable[["Faults", Random], Awaitable[None]]

AT_ONCE = {"sqlite": 2, "postgres": 4}
"""So many faults are there at the same time, at the most."""
PROGRESS = 8
"""So many calls are answered between the beginnings of two."""
DELAY_S = 0.1
JUMPS_S = (3_600, -3_600, 86_400, -600, 45)
NO_SPACE = os.strerror(errno.ENOSPC)
FULL_S = 300.0
"""So long it may take until somebody was refused, on a busy machine."""
LOAD_BYTES = 300_000
LOADS = 5
"""Of the messages that fill a disk: how large, and how many go at once."""


class Faults:
    """Makes trouble for a world."""

    def __init__(self, world: World, seed: int, *, lasting: bool) -> None:
        """With `lasting`, half of the half-open connections stay so until someone notices."""
        self.world = world
        self._seed = seed
        self.tally: Counter[str] = Counter()
        self.kinds = dict(SQLITE if world.engine == "sqlite" else POSTGRES)
        hindered = ("disk full",) * (world.disk is None) + ("wall clock",) * (FAKETIME is None)
        self.left_out = [kind for kind in self.kinds if kind.startswith(hindered)]
        for kind in self.left_out:
            del self.kinds[kind]
        self.tally.update(dict.fromkeys(self.kinds, 0))
        self._lasting = lasting
        self._database = asyncio.Lock()
        self._loads = 0

    async def rage(self, pause_s: float, over: Callable[[], bool]) -> None:
        """One round after the other, at least one, until it is over."""
        room = asyncio.Semaphore(AT_ONCE[self.world.engine])
        async with asyncio.TaskGroup() as group:
            for number in count():
                if number >= len(self.kinds) and over():
                    return
                kind, chance = self._drawn(number)
                await room.acquire()
                group.create_task(self._one(kind, chance, room))
                await self.world.clock.sleep(chance.uniform(0.2, 1.8) * pause_s)
                # There has to be something that can fail.
                await self.world.progress(PROGRESS)

    def _drawn(self, number: int) -> tuple[str, Random]:
        """Which one comes, and the chance by which it chooses: the same for the same seed,
        however long those before it have taken."""
        turn, place = divmod(number, len(self.kinds))
        kinds = Random(f"{self._seed} round {turn}").sample(list(self.kinds), len(self.kinds))
        return kinds[place], Random(f"{self._seed} fault {number}")

    async def _one(self, kind: str, chance: Random, room: asyncio.Semaphore) -> None:
        try:
            await self.kinds[kind](self, chance)
            self.tally[kind] += 1
        finally:
            room.release()

    # Processes.

    def _node(self, chance: Random) -> Node:
        return chance.choice(self.world.nodes)

    async def kill_server(self, chance: Random) -> None:
        await self._kill(self._node(chance).process)

    async def kill_worker(self, chance: Random) -> None:
        await self._kill(chance.choice(self.world.workers))

    async def _kill(self, process: Process) -> None:
        async with process.busy:
            await process.kill()

    async def stop_server(self, chance: Random) -> None:
        await self._stop(self._node(chance).process, chance)

    async def stop_worker(self, chance: Random) -> None:
        await self._stop(chance.choice(self.world.workers), chance)

    async def _stop(self, process: Process, chance: Random) -> None:
        """For longer than its leases."""
        async with process.busy:
            still = await process.stop_for(chance.uniform(1.2, 2) * LEASE_S)
            self.world.history.stills.append(still)

    async def jump(self, chance: Random) -> None:
        """Set a wall clock, and later set it right again. On SQLite a server that starts would
        rightly take it for the time: by then it is right."""
        process = self._node(chance).process
        assert process.wall is not None
        await process.ready.wait()
        process.wall.set(chance.choice(JUMPS_S))
        try:
            await self.world.clock.sleep(chance.uniform(2, 4))
        finally:
            process.wall.set(0)

    # Wires.

    def _to_server(self, chance: Random) -> Wire:
        return self._node(chance).wire

    def _to_database(self, chance: Random) -> Wire:
        wire = self._node(chance).database
        assert wire is not None
        return wire

    async def cut_callers(self, chance: Random) -> None:
        self._to_server(chance).cut()

    async def deafen_callers(self, chance: Random) -> None:
        await self._half_open(self._to_server(chance), UP, chance)

    async def mute_callers(self, chance: Random) -> None:
        await self._half_open(self._to_server(chance), DOWN, chance)

    async def delay_callers(self, chance: Random) -> None:
        await self._delay(self._to_server(chance), chance)

    async def cut_database(self, chance: Random) -> None:
        self._to_database(chance).cut()

    async def deafen_database(self, chance: Random) -> None:
        await self._half_open(self._to_database(chance), UP, chance)

    async def mute_database(self, chance: Random) -> None:
        await self._half_open(self._to_database(chance), DOWN, chance)

    async def delay_database(self, chance: Random) -> None:
        await self._delay(self._to_database(chance), chance)

    async def _half_open(self, wire: Wire, direction: str, chance: Random) -> None:
        lasting = self._lasting and chance.random() < 0.5
        async with wire.half_open(direction, lasting=lasting):
            await self.world.clock.sleep(chance.uniform(0.5, 1.5) * LEASE_S)

    async def _delay(self, wire: Wire, chance: Random) -> None:
        async with wire.delayed(chance.uniform(0.2, 1) * DELAY_S):
            await self.world.clock.sleep(chance.uniform(1, 3))

    # Databases and disks.

    async def restart_fast(self, chance: Random) -> None:
        async with self._database:
            await self.world.restart_postgres("fast")

    async def restart_crashed(self, chance: Random) -> None:
        async with self._database:
            await self.world.restart_postgres("immediate")

    async def restart_killed(self, chance: Random) -> None:
        async with self._database:
            await self.world.restart_postgres("kill")

    async def fill_disk(self, chance: Random) -> None:
        """Let the server's disk be full, until someone was refused for it."""
        assert self.world.disk is not None
        process = self.world.nodes[0].process
        async with process.busy:
            await process.ready.wait()
            process.may_end = True
            await self._load_some(chance)
            async with self.world.disk.full():
                await self._load_until_refused(chance)
            process.may_end = False

    async def fill_database(self, chance: Random) -> None:
        """The same for that of PostgreSQL, which may not survive it."""
        world = self.world
        assert world.disk is not None
        assert world.postgres is not None
        async with self._database:
            await self._load_some(chance)
            async with world.disk.full():
                await self._load_until_refused(chance)
            await world.until_postgres_serves()

    async def _load_some(self, chance: Random) -> None:
        """While there is room for it."""
        while not await self._load(chance.choice(self.world.clients), chance):
            pass

    async def _load_until_refused(self, chance: Random) -> None:
        """Send what is large, until the disk was found full."""
        before = self._refusals
        async with asyncio.timeout(FULL_S):
            while self._refusals == before:
                await self._load(chance.choice(self.world.clients), chance)

    @property
    def _refusals(self) -> int:
        """How often callers, or a log, were told that a disk is full. Where there is no space even
        to start, nobody answers callers."""
        postgres = self.world.postgres
        told = self.world.history.troubles["storage_full"]
        if postgres is None:
            return told + self.world.nodes[0].process.log.read_text().count("[storage_full]")
        return told + postgres.log.count(NO_SPACE) + postgres.ended

    async def _load(self, client: Client, chance: Random) -> bool:
        """Send messages at once; says whether some were accepted."""
        history, messages = self.world.history, []
        for _ in range(LOADS):
            self._loads += 1
            key = f"load {self._loads}"
            history.messages[key] = Message(key, counted=False)
            load = chance.randbytes(LOAD_BYTES // 2).hex()
            messages.append({"key": key, "body": {"load": load}})
        try:
            verdicts = await client.send_many("ballast", messages)
        except OncewardError as error:
            history.troubles[error.code] += 1
            await self.world.clock.sleep(0.1)
            return False
        for message, verdict in zip(messages, verdicts, strict=True):
            if isinstance(verdict, OncewardError):
                history.troubles[verdict.code] += 1
            else:
                history.messages[str(message["key"])].ids.add(verdict.id)
        return any(history.messages[str(message["key"])].ids for message in messages)


BOTH: dict[str, Fault] = {
    "server killed": Faults.kill_server,
    "server stopped for longer than its lease": Faults.stop_server,
    "worker killed": Faults.kill_worker,
    "worker stopped for longer than its lease": Faults.stop_worker,
    "wall clock set": Faults.jump,
    "connections to a server cut": Faults.cut_callers,
    "connections to a server half open, requests lost": Faults.deafen_callers,
    "connections to a server half open, answers lost": Faults.mute_callers,
    "connections to a server delayed": Faults.delay_callers,
}
SQLITE: dict[str, Fault] = {**BOTH, "disk full": Faults.fill_disk}
POSTGRES: dict[str, Fault] = {
    **BOTH,
    "connections to the database cut": Faults.cut_database,
    "connections to the database half open, requests lost": Faults.deafen_database,
    "connections to the database half open, answers lost": Faults.mute_database,
    "connections to the database delayed": Faults.delay_database,
    "PostgreSQL restarted": Faults.restart_fast,
    "PostgreSQL crashed": Faults.restart_crashed,
    "PostgreSQL killed": Faults.restart_killed,
    "disk full of PostgreSQL": Faults.fill_database,
}
