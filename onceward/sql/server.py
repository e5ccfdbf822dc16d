"""The drainer: accepts the rows of an outbox and deletes them.

One node at a time reads an outbox. Each commit that accepts rows checks and writes the record of
its lease, so a node that was paused cannot accept rows after another one has taken over. The record
names the accepted rows until their deletion is confirmed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceward import limits
from onceward.engine.base import Engine
from onceward.errors import BadInput, EngineStopped, OncewardError, QueueFull
from onceward.metric_table import METRICS
from onceward.quantities import milliseconds
from onceward.reasons import reason_of, reason_text
from onceward.schedule import Schedule
from onceward.sql.messages import Row, arguments
from onceward.sql.records import Drain, admit_name, drain_key
from onceward.sql.sources import OwnSource, Removal, Source, source_of
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.inbox import PLAIN_WRITES, Inbox, accept_writes
from onceward.work.intake import Intake

logger = logging.getLogger("onceward.sql")

ALARM = "outbox_unavailable"
_SHOWN_CHARS = 300
OWN = "onceward"
"""The name of the outbox in Onceward's own database."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """The declaration of an outbox."""

    name: str
    source: Source
    woken: asyncio.Event
    poll_s: float
    idle_poll_s: float
    lease_ms: int = limits.OUTBOX_LEASE_MS


def sql_outbox_of(
    url: str | Source,
    name: str | None,
    poll_s: float | None,
    idle_poll_s: float | None,
    lease_s: float | None,
    notify: bool,
) -> Outbox:
    """The declaration of an outbox. Raises `BadInput`."""
    poll_s = limits.OUTBOX_POLL_S if poll_s is None else poll_s
    idle_poll_s = limits.OUTBOX_IDLE_POLL_S if idle_poll_s is None else idle_poll_s
    lease_s = limits.OUTBOX_LEASE_MS / 1000 if lease_s is None else lease_s
    times = (("poll_s", poll_s), ("idle_poll_s", idle_poll_s), ("lease_s", lease_s))
    for what, seconds in times:
        if not milliseconds(seconds, what, limits.OUTBOX_POLL_S_MAX):
            raise BadInput(f"{what} must be more than 0 seconds, not {seconds}")
    woken = asyncio.Event()
    source = url
    if not isinstance(source, Source):
        source = source_of(source, woken.set if notify else None)
    admit_name(source.name if name is None else name)
    return Outbox(name or source.name, source, woken, poll_s, idle_poll_s, int(lease_s * 1000))


def own_outbox(engine: Engine) -> Outbox:
    """The outbox that Onceward's own database has, for sessions of the application."""
    source = OwnSource(engine)
    return Outbox(OWN, source, asyncio.Event(), limits.OUTBOX_POLL_S, limits.OUTBOX_IDLE_POLL_S)


@dataclass(slots=True)
class _Verdicts:
    """The verdicts on the rows of one commit."""

    accepted: list[tuple[int, str]] = field(default_factory=list)
    failed: list[Removal] = field(default_factory=list)
    full: set[str] = field(default_factory=set)
    """Queues that have reached their limit of jobs."""
    count: int = 0
    """The number of rows that were judged."""


class Drainer:
    """Accepts the rows of one outbox on one node, while the node holds the lease."""

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        inbox: Inbox,
        intake: Intake,
        node: str,
        box: Outbox,
        chosen: Callable[[], bool] | None = None,
    ) -> None:
        """`chosen` returns whether this node is the one that reads, if the nodes agree on that
        without the lease; a commit that accepts rows checks the lease in any case."""
        self._store = store
        self._schedule = schedule
        self._inbox = inbox
        self._intake = intake
        self._node = node
        self._box = box
        self._key = drain_key(box.name)
        self._token = store.ids.token(8)
        self._until_ms = 0
        """The end of the own lease; 0 without one."""
        self._pending: list[tuple[int, str]] = []
        """Accepted rows whose deletion is not confirmed."""
        self._full: dict[str, int] = {}
        """Full queues, and when their rows are read again."""
        self._last_ns = store.clock.elapsed_ns() - int(limits.OUTBOX_BUSY_S * 1e9)
        self._chosen = chosen
        # A lease keeps other nodes from reading. Without them, it is taken when there are rows.
        self._lazy = chosen is not None or not store.engine.shared
        self._alarmed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        for verdict in METRICS["outbox_rows"].labels["verdict"]:
            self._store.meters.counter("outbox_rows", outbox=self._box.name, verdict=verdict)
        self._task = asyncio.create_task(self._run(), name="onceward-outbox")

    async def stop(self) -> None:
        """Stop, and give up the lease. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            await self._store.run(self._release)
        except OncewardError:
            pass  # the lease expires
        finally:
            await self._box.source.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                pause_s = await self._turn()
                failures = 0
                if self._alarmed:
                    self._alarmed = False
                    self._store.alarms.clear(ALARM, self._box.name)
            except EngineStopped:
                return
            except Exception as error:
                failures += 1
                self._until_ms = 0  # reads the record again: a commit may have taken effect
                self._tell(error)
                pause_s = min(self._box.poll_s * 2**failures, limits.OUTBOX_PAUSE_S_MAX)
            if pause_s:
                await self._pause(pause_s)

    def _tell(self, error: Exception) -> None:
        if not isinstance(error, OncewardError):
            logger.error("outbox %s: %s", self._box.name, error, exc_info=error)
        self._alarmed = True
        self._store.alarms.raise_(
            ALARM,
            f"no messages are accepted from the outbox {self._box.name}: {reason_of(error)}",
            self._box.name,
        )

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._box.woken.wait()
        except TimeoutError:
            pass
        self._box.woken.clear()

    async def _turn(self) -> float:
        """Accept the next rows; returns the pause until the next turn."""
        if self._chosen is not None and not self._chosen():
            if self._until_ms:
                self._until_ms = 0
                await self._store.run(self._release)
            return self._box.idle_poll_s
        now_ms = self._store.clock.now_ms()
        lease_ms = self._box.lease_ms
        if self._until_ms - now_ms < lease_ms * 2 // 3:
            if self._lazy and not await self._box.source.read((), 1):
                return self._rest_s()
            until_ms = await self._store.run(self._take)
            if until_ms is not None:
                return min(max(until_ms - now_ms, 1) / 1000, lease_ms / 3000)
        if self._pending:
            await self._delete([(*row, None) for row in self._pending])
        now_ns = self._store.clock.elapsed_ns()
        self._full = {queue: at for queue, at in self._full.items() if at > now_ns}
        rows = await self._box.source.read(list(self._full), limits.OUTBOX_ROWS)
        if not rows:
            return self._rest_s()
        self._last_ns = now_ns
        progress = await self._accept_all(rows)
        return 0 if progress else self._box.poll_s

    def _rest_s(self) -> float:
        busy = self._store.clock.elapsed_ns() - self._last_ns < limits.OUTBOX_BUSY_S * 1e9
        return self._box.poll_s if busy else self._box.idle_poll_s

    async def _accept_all(self, rows: Sequence[Row]) -> bool:
        """Accept rows in a few commits and delete them; returns whether any was."""
        removals: list[Removal] = []
        start = 0
        while start < len(rows):
            found = await self._store.run(
                lambda tx, start=start: self._accept(tx, rows[start:])  # type: ignore[misc]
            )
            if found is None:  # another node has the lease
                self._until_ms = 0
                return False
            start += found.count
            self._pending += found.accepted
            removals += [(*row, None) for row in found.accepted] + found.failed
            until_ns = self._store.clock.elapsed_ns() + int(limits.QUEUE_FULL_RETRY_S * 1e9)
            self._full |= dict.fromkeys(found.full, until_ns)
            self._count(found)
        if removals:
            await self._delete(removals)
        return bool(removals)

    def _count(self, found: _Verdicts) -> None:
        meters, name = self._store.meters, self._box.name
        for verdict, rows in (("accepted", found.accepted), ("failed", found.failed)):
            for _ in rows:
                meters.count("outbox_rows", outbox=name, verdict=verdict)
        for id_, message, reason in found.failed:
            shown = ascii(message)[:_SHOWN_CHARS]  # it may be long or invalid text
            logger.error("outbox %s: row %d (%s) failed: %s", name, id_, shown, reason)

    async def _delete(self, removals: Sequence[Removal]) -> None:
        await self._box.source.remove(removals)
        self._pending = []

    async def _take(self, tx: Transaction) -> int | None:
        """Take or renew the lease; returns the end of the lease of another node, or None."""
        held = await tx.get(self._key, Drain)
        # A database with one process has no other node: the lease is that of an earlier start.
        other = held is not None and held.token != self._token and self._store.engine.shared
        if held is not None and other and held.until_ms > tx.now_ms:
            self._until_ms = 0
            return held.until_ms
        self._pending = [] if held is None else list(held.accepted)
        self._write(tx, self._pending)
        return None

    async def _release(self, tx: Transaction) -> None:
        held = await tx.get(self._key, Drain)
        if held is not None and held.token == self._token:
            tx.put(self._key, Drain(self._token, self._node, 0, held.accepted))

    def _write(self, tx: Transaction, accepted: Sequence[tuple[int, str]]) -> None:
        until_ms = tx.now_ms + self._box.lease_ms
        tx.put(self._key, Drain(self._token, self._node, until_ms, tuple(accepted)))
        self._until_ms = until_ms

    async def _accept(self, tx: Transaction, rows: Sequence[Row]) -> _Verdicts | None:
        """Accept as many rows as fit into a commit; None if another node has the lease."""
        asked = [self._arguments(row) for row in rows[: limits.COMMIT_WRITES_MAX // PLAIN_WRITES]]
        reads = [self._key]
        for message in asked:
            if not isinstance(message, str):
                queue, body, given = message
                key, options = given.get("key"), given["options"]
                reads += self._inbox.read_to_accept(queue, body, key, options=options)
        await self._inbox.fetch(tx, reads[: limits.GET_KEYS_MAX])
        held = await tx.get(self._key, Drain)
        if held is None or held.token != self._token:
            return None
        found = _Verdicts()
        for row, message in zip(rows, asked, strict=False):
            # A small row may add to a large batch.
            size_bytes = len(f"{row.body}{row.options}".encode(errors="replace")) + tx.values_bytes
            writes = PLAIN_WRITES if isinstance(message, str) else accept_writes(message[2])
            full = tx.size + writes >= limits.COMMIT_WRITES_MAX
            if found.count and (full or size_bytes > limits.OUTBOX_COMMIT_BYTES):
                break
            found.count += 1
            if row.queue not in found.full:
                await self._accept_one(tx, row, message, found)
        if found.accepted:
            self._write(tx, [*self._pending, *found.accepted])
        return found

    async def _accept_one(
        self, tx: Transaction, row: Row, message: tuple[str, Any, Any] | str, found: _Verdicts
    ) -> None:
        reason = message if isinstance(message, str) else ""
        mark = tx.mark()
        if not isinstance(message, str):
            try:
                await self._intake.accept_within(tx, *message)
            except QueueFull:
                found.full.add(row.queue)
                return
            except Exception as error:  # one row must not stop the others
                passing = isinstance(error, OncewardError) and error.kind.retry
                if passing or isinstance(error, EngineStopped):
                    raise
                tx.undo(mark)
                reason = reason_of(error) or type(error).__name__
        if reason:
            found.failed.append((row.id, row.message, reason_text(reason)))
        else:
            found.accepted.append((row.id, row.message))

    def _arguments(self, row: Row) -> tuple[str, Any, Any] | str:
        """The arguments of the message in a row, or why it cannot be accepted."""
        try:
            queue, body, found = arguments(row)
        except Exception as error:  # invalid, or a value of an unexpected type
            return reason_of(error) or type(error).__name__
        if "key" not in found and not self._schedule.settings(queue).key_fields:
            found["key"] = row.message
        return queue, body, found
