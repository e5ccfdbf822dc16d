"""The PostgreSQL engine: implements the contract with commits, reads and hints."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from onceward import forks, limits
from onceward.engine.base import (
    ANY,
    Check,
    Engine,
    Incarnation,
    Record,
    Session,
    Version,
    Watch,
    Write,
    admit,
    admit_scan,
    judge,
    too_many_keys,
)
from onceward.engine.postgres.batch import Member, admit_time
from onceward.engine.postgres.commits import CommitLink, Commits
from onceward.engine.postgres.hints import HashedWatchers, Hints
from onceward.engine.postgres.incarnation import Incarnations, warn_of_unsafe_standbys
from onceward.engine.postgres.link import Link, Links, Lost, Rejected, Target, cannot_connect
from onceward.engine.postgres.reads import Reads
from onceward.engine.postgres.schema import migrate
from onceward.engine.postgres.sessions import PostgresSession, SessionLink
from onceward.errors import CannotOpen, Unavailable
from onceward.keys import Key


class PostgresEngine(Engine):
    """Records in one schema of a PostgreSQL database, shared by all nodes that open it.

    Lost connections are replaced as soon as the server is reachable. Until then, calls raise
    `Unavailable` immediately. If a connection is lost after a commit was sent, the engine
    determines the outcome; it raises `OutcomeUnknown` if that takes too long.
    """

    shares_reads = True

    def __init__(
        self,
        url: str,
        *,
        lanes: int = limits.BATCH_LANES,
        readers: int = limits.READERS,
        answer_s: float = limits.ANSWER_S,
    ) -> None:
        """Create an engine; `open` connects it.

        Args:
            url: `postgresql://user:password@host/database?schema=onceward`.
            lanes: The number of connections for commits.
            readers: The number of connections for reads.
            answer_s: The response time after which a connection is closed.
        """
        self.target = Target.parse(url)
        self.outbox_url = url
        self._lanes = lanes
        self._readers = readers
        self._answer_s = answer_s
        self._watchers = HashedWatchers()
        self._opened = False

    @property
    def incarnation(self) -> Incarnation:
        self._must_be_open()
        assert self._incarnations.current is not None
        return self._incarnations.current

    async def open(self) -> Self:
        """Connect and migrate the schema."""
        if self._opened:
            return self
        if self.inherited:
            raise self.closed_error(self.target.label)
        target = self.target
        self._incarnations = Incarnations(target, self.alarms, self._changed)
        link = await Link.connect(target, self._answer_s)
        try:
            await migrate(link, target)
            await self._look_at_server(link)
        finally:
            await link.close()
        self._hints = Hints(self._connect, f"onceward_{target.schema}", self._watchers)
        self._commits = Commits(
            lambda: CommitLink.connect(target, self._answer_s, self._incarnations),
            self._lanes,
            self._hints.tell,
        )
        self._reads = Reads(self._connect, target.schema, self._readers)
        self._sessions = self._links_of_sessions(target)
        self._hints.open()
        self._opened = True
        forks.watch(self)
        return self

    def forked(self) -> None:
        if self._opened:
            self._opened = False
            super().forked()

    async def _look_at_server(self, link: Link) -> None:
        try:
            await self._incarnations.admit(link)
            await warn_of_unsafe_standbys(link, self.target)
        except (Lost, Rejected) as error:
            raise cannot_connect(self.target, error) from error

    async def _connect(self) -> Link:
        return await Link.connect(self.target, self._answer_s, self._incarnations)

    def _changed(self, incarnation: Incarnation) -> None:
        """Clear caches of the previous incarnation."""
        self.incarnation_changed(incarnation)
        self._watchers.hint_all()

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        async with AsyncExitStack() as closing:  # close all of them, even if one raises
            for part in (self._hints, self._reads, self._commits, self._sessions):
                closing.push_async_callback(part.close)

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        self._must_be_open()
        if len(keys) > limits.GET_KEYS_MAX:
            raise too_many_keys(len(keys))
        if not keys:
            return []
        return [
            None if record is None or record.absent_at(now_ms) else record
            for record in await self._reads.get(keys)
        ]

    async def scan(
        self,
        partition: str,
        now_ms: int,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> list[Record]:
        self._must_be_open()
        admit_scan(limit)
        admit_time(now_ms)
        return await self._reads.scan(partition, now_ms, start, end, limit, reverse)

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        self._must_be_open()
        size_bytes = admit(writes)
        if all(type(write) is Check for write in writes):
            return await self._check(writes, now_ms, visible)
        done: asyncio.Future[Version] = asyncio.get_running_loop().create_future()
        self._commits.add(Member(writes, now_ms, size_bytes, visible, done))
        return await done

    def _links_of_sessions(self, target: Target) -> Links[SessionLink]:
        return Links(
            lambda: SessionLink.connect(target, self._answer_s, self._incarnations),
            limits.SESSIONS,
        )

    async def move_sessions(self, target: Target) -> None:
        """Use another address of the same database for sessions, for tests."""
        await self._sessions.close()
        self._sessions = self._links_of_sessions(target)

    async def session(self) -> Session:
        self._must_be_open()
        return await PostgresSession.begin(self._sessions, self._commits)

    async def ask_sql(self, statement: str, *arguments: object) -> Sequence[Any]:
        self._must_be_open()
        return await self._reads.ask(statement, *arguments)

    async def _check(
        self,
        checks: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None,
    ) -> Version:
        """Evaluate a commit that consists of checks, by a read without locks.

        Reads show only durable data here. Such a commit has version 0.
        """
        keys = [check.key for check in checks if check.expect is not ANY]
        records = await self.get(keys, now_ms)
        judge(checks, dict(zip(keys, records, strict=True)).__getitem__)
        if visible is not None:
            visible(0)
        return 0

    def watch(self, partition: str) -> Watch:
        return self._watchers.add(partition)

    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        self._must_be_open()
        admit_time(now_ms)
        return await self._reads.sweep(now_ms, limit)

    async def now_ms(self) -> int:
        """The time of the server's clock, which all nodes share."""
        self._must_be_open()
        now_ms, *found = await self._reads.now(*self._incarnations.arguments)
        try:
            self._incarnations.found(found)  # a pooler may have switched to another server
        except CannotOpen as error:
            raise Unavailable(error.message) from error
        return int(now_ms)

    def _must_be_open(self) -> None:
        if not self._opened:
            raise self.closed_error(self.target.label)
