"""Nodes with locks, and tasks that hold them for as long as a test wants."""

import asyncio
from typing import Any

from onceward.locks import LockTable
from onceward.locks.server import Lock, Locks
from onceward.node import Node
from tests.schedule.cluster import Cluster, Member


class Locker(Member):
    """A node of a cluster, with its locks."""

    locks: Locks


def locks_of(node: Node) -> Locks:
    """The locks of a node without an application."""
    node.act_on_parts()
    return Locks(node.store, node.parts.get(LockTable))


async def start(cluster: Cluster) -> Locker:
    member = await cluster.start()

    async def make() -> Locks:
        return locks_of(member.node)

    locker = Locker(member.process, member.engine, member.node)
    locker.locks = await member.do(make())
    return locker


class Holder:
    """A task in a node's process that holds locks until told to let go."""

    def __init__(self, locker: Locker, *names: str, **options: Any) -> None:
        self.locker = locker
        self.lock: Lock | None = None
        self.got = asyncio.Event()
        self.let_go = asyncio.Event()
        self.error: BaseException | None = None
        self.task = locker.process.spawn(self._run(names, options))

    async def _run(self, names: tuple[str, ...], options: dict[str, Any]) -> None:
        try:
            async with self.locker.locks.hold(*names, **options) as self.lock:
                self.got.set()
                await self.let_go.wait()
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise

    async def hold(self) -> Lock:
        await self.got.wait()
        assert self.lock is not None
        return self.lock

    async def end(self) -> BaseException | None:
        """Let go, and return what it ended with."""
        self.let_go.set()
        await asyncio.wait([self.task])
        return self.error
