"""The queue of commits: sends them in batches and resolves each one.

The outcome of a batch whose response was lost is never guessed. The client queries the server,
which also prevents a late application. If the batch was not applied, it is sent again. The outcome
stays unknown only if the server cannot be reached.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from onceward import limits
from onceward.clock import boot_ns
from onceward.engine.base import Write
from onceward.engine.postgres.batch import CALL, Batch, Member
from onceward.engine.postgres.lanes import Lanes
from onceward.engine.postgres.link import Link, Links, Lost, Rejected, Target
from onceward.errors import Conflict, OutcomeUnknown, Unavailable

STATEMENT: Final = "onceward_commit"
"""The names of the prepared statements in the wire protocol."""
QUESTION: Final = "onceward_settle"

_OPEN: Final = "SELECT {schema}.open_lane()"
_ASK: Final = "SELECT known, base, failed FROM {schema}.settle_batch($1, $2)"

# Rolled back because of concurrent transactions: a record was deleted, or a deadlock.
_AGAIN: Final = ("40001", "40P01")
# The server removed the lane because it was unused for too long.
_GIVEN_UP: Final = "OW001"
_LOCKED: Final = "55P03"
# A single member may cause these, so each is then committed alone: it cannot be stored, or another
# session holds a lock that it needs.
_BLAME: Final = ("22", "23", "54", _LOCKED, "57014")


class Ticket(NamedTuple):
    """The identity of a batch: its lane, and its number in the lane."""

    lane: int
    number: int


class LostBatch(Exception):
    """The response to a batch was lost; `ticket` identifies the batch."""

    def __init__(self, ticket: Ticket, error: Lost) -> None:
        self.ticket = ticket
        super().__init__(str(error))


class CommitLink(Link):
    """A connection with a lane and prepared statements."""

    async def _get_ready(self, target: Target) -> None:
        await super()._get_ready(target)
        schema = target.schema
        self._lock_ms = limits.LOCK_MS
        self._call = await self.prepare(STATEMENT, CALL.format(schema=schema))
        self._ask = await self.prepare(QUESTION, _ASK.format(schema=schema))
        [(self._lane,)] = await self.fetch(_OPEN.format(schema=schema))
        self._number = 0
        self._note(self._lane, 0)

    def _note(self, lane: int, number: int) -> None:
        if self._admission is not None:
            self._admission.acknowledged(lane, number)

    async def wait_for_locks(self, lock_ms: int) -> None:
        """Set the lock timeout of the session."""
        if lock_ms != self._lock_ms:
            await self.run(f"SET lock_timeout = {lock_ms}")
            self._lock_ms = lock_ms

    async def commit(self, batch: Batch) -> list[int | Conflict]:
        """Commit a batch and return the verdict for each member. Raises `Rejected` or
        `LostBatch`."""
        # A rejected batch uses no number: the server expects the successor of the last one.
        ticket = Ticket(self._lane, self._number + 1)
        try:
            [(base, failed)] = await self._call(*ticket, *batch.arguments)
        except Lost as error:
            raise LostBatch(ticket, error) from error
        self._number += 1
        self._note(*ticket)
        return batch.verdicts(base, failed)

    async def settle(self, batch: Batch, ticket: Ticket) -> list[int | Conflict] | None:
        """The verdicts for a batch whose response was lost, or None if it will never be applied.

        Raises `OutcomeUnknown` if its lane was removed, `Rejected` or `Lost`.
        """
        [(known, base, failed)] = await self._ask(*ticket)
        if not known:
            raise OutcomeUnknown(
                f"the outcome of a commit of {len(batch.members)} transactions cannot be "
                "determined any longer; read the records to find out"
            )
        if base is None:
            return None
        self._note(*ticket)
        return batch.verdicts(base, failed)


class Commits:
    """Commits in progress."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[CommitLink]],
        lanes: int,
        changed: Callable[[Sequence[Write], bool], None],
    ) -> None:
        """`changed` is called with writes that were, or may have been, applied, and with a flag
        that is true if the caller receives the result.
        """
        self._links = Links(connect, lanes)
        self._lanes = Lanes(self._run, cut, lanes)
        self.changed = changed
        self._asking: set[asyncio.Task[None]] = set()
        self._closing = False

    async def close(self) -> None:
        """Wait for all results and close the connections."""
        self._closing = True
        try:
            await self._lanes.drain()
            while self._asking:
                await asyncio.wait(self._asking)
                await asyncio.sleep(0)  # so that the callbacks remove finished tasks
                await self._lanes.drain()
        finally:
            await self._links.close()

    def add(self, member: Member) -> None:
        """Add a commit to the queue. Its `done` receives the version or an error."""
        self._lanes.add(member)

    async def _run(self, members: list[Member], lock_ms: int | None = None) -> None:
        # Skip commits that were cancelled before they were sent.
        members = [member for member in members if not member.done.done()]
        if not members:
            return
        try:
            batch = Batch(members)
            self._answer(members, await self._commit(batch, lock_ms or limits.LOCK_MS))
        except LostBatch as error:
            # Outside the lanes, so that other commits fail fast while the server is unreachable.
            self._spawn(self._find_out(batch, error))
        except Rejected as error:
            if error.sqlstate.startswith(_BLAME) and len(members) > 1:
                await self._run_one_by_one(members, error)
            else:
                _fail(members, error.explained)
        except Unavailable as error:
            text, code = error.message, error.code
            _fail(members, lambda: Unavailable(text, code=code))
        except Exception as error:
            _fail_unexpectedly(members, error)

    async def _run_one_by_one(self, members: Sequence[Member], error: Rejected) -> None:
        """Commit each member alone, so that only the faulty ones fail.

        The time and the wait for locks are limited, because further commits are waiting.
        """
        lock_ms = limits.LOCK_ALONE_MS if error.sqlstate == _LOCKED else None
        until_ns = boot_ns() + int(limits.BATCH_ALONE_S * 1e9)
        for member in members:
            if boot_ns() < until_ns:
                await self._run([member], lock_ms)
            else:
                _fail([member], error.explained)

    async def _commit(self, batch: Batch, lock_ms: int) -> list[int | Conflict]:
        tries = 0
        while True:
            link = await self._links.take()
            try:
                await link.wait_for_locks(lock_ms)
                return await link.commit(batch)
            except Rejected as error:
                if not error.sqlstate.startswith((*_AGAIN, *_BLAME)):
                    # The lane is gone, the server became a standby, or its plans are out of date:
                    # use a new connection.
                    link.drop()
                tries += 1
                if error.sqlstate not in (*_AGAIN, _GIVEN_UP) or tries == limits.BATCH_TRIES_MAX:
                    raise
            except Lost as error:
                # The batch was not sent.
                tries += 1
                if tries == limits.BATCH_TRIES_MAX:
                    raise Unavailable(
                        f"the database did not respond ({error}); nothing was changed; check the "
                        "database, and retry"
                    ) from error
            finally:
                self._links.give(link)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="onceward-postgres-outcome")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _find_out(self, batch: Batch, lost: LostBatch) -> None:
        """Resolve a batch whose response was lost, or send its members again."""
        members = batch.members
        try:
            verdicts = await self.settle(batch, lost)
            if verdicts is not None:
                self._answer(members, verdicts)
                return
        except OutcomeUnknown as error:
            text = error.message
            _fail(members, lambda: OutcomeUnknown(text))
            for member in members:
                self.changed(member.writes, False)
        except Exception as error:
            _fail_unexpectedly(members, error)
        else:
            self._send_again(members, lost)

    def _send_again(self, members: Sequence[Member], lost: LostBatch) -> None:
        text = f"the connection was lost in every attempt to commit ({lost}); nothing was changed"
        for member in members:
            member.losses += 1
            if member.losses < limits.BATCH_TRIES_MAX:
                self._lanes.add(member)
            else:
                _fail([member], lambda: Unavailable(text))

    async def settle(self, batch: Batch, lost: LostBatch) -> list[int | Conflict] | None:
        """Query the outcome of a batch until the server responds, up to a time limit. None: it will
        never be applied. Raises `OutcomeUnknown`."""
        pause_ms = 1
        until_ns = boot_ns() + limits.OUTCOME_MS_MAX * 1_000_000
        while boot_ns() < until_ns:
            try:
                link = await self._links.take()
                try:
                    return await link.settle(batch, lost.ticket)
                finally:
                    self._links.give(link)
            except (Rejected, Lost, Unavailable):
                if self._closing:
                    break
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, limits.OUTCOME_PAUSE_MS_MAX)
        raise OutcomeUnknown(
            f"the database responded neither to a commit ({lost}) nor to queries of its "
            "outcome: it may or may not have been applied. Read the records to find out"
        )

    def _answer(self, members: Sequence[Member], verdicts: Sequence[int | Conflict]) -> None:
        for member, verdict in zip(members, verdicts, strict=True):
            done = member.done
            if isinstance(verdict, Conflict):
                if not done.done():
                    done.set_exception(verdict)
                continue
            self.changed(member.writes, not done.done())
            if done.done():
                continue
            try:
                if member.visible is not None:
                    member.visible(verdict)
                done.set_result(verdict)
            except Exception as error:  # must not affect the other members
                done.set_exception(
                    OutcomeUnknown(
                        f"a commit was applied, but a callback failed: {error!r}. Correct "
                        "the callback, and do not repeat the commit"
                    )
                )


def cut(queue: deque[Member]) -> list[Member]:
    """The next batch: as many members as one call may hold, and at least one."""
    members = [queue.popleft()]
    writes = len(members[0].rows)
    size_bytes = members[0].size_bytes
    while queue and len(members) < limits.BATCH_COMMITS_MAX:
        writes += len(queue[0].rows)
        size_bytes += queue[0].size_bytes
        if writes > limits.BATCH_WRITES_MAX or size_bytes > limits.BATCH_BYTES_MAX:
            break
        members.append(queue.popleft())
    return members


def _fail(members: Sequence[Member], error: Callable[[], Exception]) -> None:
    for member in members:
        if not member.done.done():
            member.done.set_exception(error())


def _fail_unexpectedly(members: Sequence[Member], error: Exception) -> None:
    """Fail all members after a bug of the engine, so that no caller waits indefinitely."""
    text = f"a commit failed unexpectedly ({error!r}): it may or may not have been applied"
    _fail(members, lambda: OutcomeUnknown(text))
