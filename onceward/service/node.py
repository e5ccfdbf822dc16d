"""A node: one process's store, its share of the slots, and what runs on them."""

import asyncio
from types import TracebackType
from typing import Self

import msgspec

from onceward import limits
from onceward.clock import Clock
from onceward.engine.base import Engine
from onceward.errors import BadInput
from onceward.ids import Ids
from onceward.parts.schedule import Schedule
from onceward.service.dispatcher import Dispatcher
from onceward.service.placement import Placement
from onceward.service.sweeper import Sweeper
from onceward.store import Store
from onceward.transaction import Transaction

_CONFIG = ("config", "schedule")


class Config(msgspec.Struct):
    """What was chosen when the database was created."""

    slots: int


class Node:
    """Runs a database's schedule on an open engine, alone or together with other nodes."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        name: str = "node",
        slots: int = limits.SLOTS_DEFAULT,
        lease_ms: int = limits.NODE_LEASE_MS,
    ) -> None:
        """`slots` counts only for a new database; nodes that share one share its number."""
        if not 0 < slots <= limits.SLOTS_MAX:
            raise BadInput(f"a database has 1 to {limits.SLOTS_MAX} slots, not {slots}")
        self.store = Store(engine, clock, ids)
        self._name = name
        self._slots = slots
        self._lease_ms = lease_ms
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Self:
        """Join the other nodes, take a share of the slots and begin to act on them."""
        config = await self.store.run(self._configure)
        self.schedule = Schedule(self.store.ids, config.slots)
        self.placement = Placement(
            self.store, config.slots, name=self._name, lease_ms=self._lease_ms
        )
        self.dispatcher = Dispatcher(self.store, self.schedule, self.placement)
        self.sweeper = Sweeper(self.store, self.placement)
        await self.placement.step()
        self._tasks = [
            asyncio.create_task(service.run(), name=f"onceward-{type(service).__name__.lower()}")
            for service in (self.placement, self.dispatcher, self.sweeper)
        ]
        return self

    async def _configure(self, tx: Transaction) -> Config:
        config = await tx.get(_CONFIG, Config)
        if config is None:
            config = Config(self._slots)
            tx.put(_CONFIG, config)
        return config

    async def stop(self) -> None:
        """Finish the turn under way and hand the slots over at once."""
        placement, dispatcher, sweeper = self._tasks
        self.dispatcher.stop()
        sweeper.cancel()
        await asyncio.wait([dispatcher, sweeper])
        await self.placement.stop()
        await asyncio.wait([placement])
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()
