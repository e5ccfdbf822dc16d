"""The queue of commits: sends them in batches and resolves each one.

An answer that was lost is never guessed at: the server is asked what became of the batch, and
keeps it from being applied later. If it was not applied, it is sent again. Only while the
server cannot be asked, the outcome is unknown.
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
"""The name of the prepared statement, as it goes over the wire; and of the one that asks."""
QUESTION: Final = "onceward_settle"

_OPEN: Final = "SELECT {schema}.open_lane()"
_ASK: Final = "SELECT known, base, failed FROM {schema}.settle_batch($1, $2)"

# Rolled back for the sake of others: a record went away meanwhile, or a deadlock.
_AGAIN: Final = ("40001", "40P01")
# The lane was not used for so long that it is gone.
_GIVEN_UP: Final = "OW001"
_LOCKED: Final = "55P03"
# One member may be to blame for these, so each is tried alone: what it writes cannot be stored, or
# someone else holds a record that it needs.
_BLAME: Final = ("22", "23", "54", _LOCKED, "57014")


class Ticket(NamedTuple):
    """By which a batch can be asked for: its lane, and its number there."""

    lane: int
    number: int


class LostBatch(Exception):
    """No answer came to a batch; `ticket` finds it."""

    def __init__(self, ticket: Ticket, error: Lost) -> None:
        self.ticket = ticket
        super().__init__(str(error))


class CommitLink(Link):
    """A connection with the statements prepared, and a lane of its own."""

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
        """Have the server wait so long for a lock, from now on."""
        if lock_ms != self._lock_ms:
            await self.run(f"SET lock_timeout = {lock_ms}")
            self._lock_ms = lock_ms

    async def commit(self, batch: Batch) -> list[int | Conflict]:
        """The verdict for each member; raises `Rejected` or `LostBatch`."""
        # Rejected batches leave no number behind: the server expects the one after the last.
        ticket = Ticket(self._lane, self._number + 1)
        try:
            [(base, failed)] = await self._call(*ticket, *batch.arguments)
        except Lost as error:
            raise LostBatch(ticket, error) from error
        self._number += 1
        self._note(*ticket)
        return batch.verdicts(base, failed)

    async def settle(self, batch: Batch, ticket: Ticket) -> list[int | Conflict] | None:
        """The verdicts for a batch whose answer was lost; None: it will never be applied.

        Raises `OutcomeUnknown` if its lane is gone, `Rejected` or `Lost`.
        """
        [(known, base, failed)] = await self._ask(*ticket)
        if not known:
            raise OutcomeUnknown("it is too late to ask what became of a commit")
        if base is None:
            return None
        self._note(*ticket)
        return batch.verdicts(base, failed)


class Commits:
    """Commits on their way to the server."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[CommitLink]],
        lanes: int,
        changed: Callable[[Sequence[Write], bool], None],
    ) -> None:
        """`changed` is called with what was, or may have been, written, and whether its caller
        is told so."""
        self._links = Links(connect, lanes)
        self._lanes = Lanes(self._run, cut, lanes)
        self._changed = changed
        self._asking: set[asyncio.Task[None]] = set()
        self._closing = False

    async def close(self) -> None:
        """Wait until everything is answered, and close the connections."""
        self._closing = True
        try:
            await self._lanes.drain()
            while self._asking:
                await asyncio.wait(self._asking)
                await asyncio.sleep(0)  # so that those that are done are taken out
                await self._lanes.drain()
        finally:
            await self._links.close()

    def add(self, member: Member) -> None:
        """Commit it soon; its `done` is told the version, or what went wrong."""
        self._lanes.add(member)

    async def _run(self, members: list[Member], lock_ms: int | None = None) -> None:
        # Who was cancelled before his commit was sent has none.
        members = [member for member in members if not member.done.done()]
        if not members:
            return
        try:
            batch = Batch(members)
            self._answer(members, await self._commit(batch, lock_ms or limits.LOCK_MS))
        except LostBatch as error:
            # Beside the lanes: they shall tell others at once that the server is away.
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
        """So that those who are not to blame do not fail with the one who is; but not for ever,
        and without waiting long for locks again: others come behind them."""
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
                    # The lane is gone, the server became a standby, its plans are out of date:
                    # better a new connection.
                    link.drop()
                tries += 1
                if error.sqlstate not in (*_AGAIN, _GIVEN_UP) or tries == limits.BATCH_TRIES_MAX:
                    raise
            except Lost as error:
                # The batch was not sent yet.
                tries += 1
                if tries == limits.BATCH_TRIES_MAX:
                    raise Unavailable(f"no answer came ({error}); nothing was changed") from error
            finally:
                self._links.give(link)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _find_out(self, batch: Batch, lost: LostBatch) -> None:
        """Answer a batch whose answer was lost, or send its members again."""
        members = batch.members
        try:
            verdicts = await self._settle(batch, lost)
            if verdicts is not None:
                self._answer(members, verdicts)
                return
        except OutcomeUnknown as error:
            text = error.message
            _fail(members, lambda: OutcomeUnknown(text))
            for member in members:
                self._changed(member.writes, False)
        except Exception as error:
            _fail_unexpectedly(members, error)
        else:
            self._send_again(members, lost)

    def _send_again(self, members: Sequence[Member], lost: LostBatch) -> None:
        text = f"a commit was lost again and again ({lost}); nothing was changed"
        for member in members:
            member.losses += 1
            if member.losses < limits.BATCH_TRIES_MAX:
                self._lanes.add(member)
            else:
                _fail([member], lambda: Unavailable(text))

    async def _settle(self, batch: Batch, lost: LostBatch) -> list[int | Conflict] | None:
        """Ask until there is an answer, for as long as a server may reasonably be away."""
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
            f"no answer came to a commit ({lost}), nor to the question what became of it: "
            "it may or may not have been applied"
        )

    def _answer(self, members: Sequence[Member], verdicts: Sequence[int | Conflict]) -> None:
        for member, verdict in zip(members, verdicts, strict=True):
            done = member.done
            if isinstance(verdict, Conflict):
                if not done.done():
                    done.set_exception(verdict)
                continue
            self._changed(member.writes, not done.done())
            if done.done():
                continue
            try:
                if member.visible is not None:
                    member.visible(verdict)
                done.set_result(verdict)
            except Exception as error:  # those behind him have nothing to do with it
                done.set_exception(OutcomeUnknown(f"a commit was applied, but then: {error!r}"))


def cut(queue: deque[Member]) -> list[Member]:
    """The next batch: as much as one call may hold, and at least one member."""
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
    """Our own mistake: no one may be left waiting."""
    text = f"a commit failed unexpectedly ({error!r}): it may or may not have been applied"
    _fail(members, lambda: OutcomeUnknown(text))
