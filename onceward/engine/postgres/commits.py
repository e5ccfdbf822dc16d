"""What waits to be committed: sent in batches, and answered one by one.

An answer that was lost is never guessed at: its members are told that the outcome is
unknown. A batch that the server rolled back was not applied, so it is sent again.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from onceward import limits
from onceward.clock import boot_ns
from onceward.engine.base import Write
from onceward.engine.postgres.batch import CALL, Batch, Member
from onceward.engine.postgres.lanes import Lanes
from onceward.engine.postgres.link import Link, Links, Lost, Rejected, Target
from onceward.errors import Conflict, OutcomeUnknown, Unavailable

STATEMENT: Final = "onceward_commit"
"""The name of the prepared statement, as it goes over the wire."""

# Rolled back for the sake of others: a record went away meanwhile, or a deadlock.
_AGAIN: Final = ("40001", "40P01")
_TOO_LATE: Final = "OW001"
_LOCKED: Final = "55P03"
# One member may be to blame for these, so each is tried alone: what it writes cannot be stored, or
# someone else holds a record that it needs.
_BLAME: Final = ("22", "23", "54", _LOCKED, "57014")


class CommitLink(Link):
    """A connection with the statement prepared, and the server's clock compared with ours."""

    async def _get_ready(self, target: Target) -> None:
        await super()._get_ready(target)
        self._lock_ms = limits.LOCK_MS
        self._call = await self.prepare(STATEMENT, CALL.format(schema=target.schema))
        before_s = boot_ns() / 1e9
        [(server_s,)] = await self.fetch(
            "SELECT extract(epoch FROM clock_timestamp())::double precision"
        )
        self._ahead_s = server_s - before_s

    async def wait_for_locks(self, lock_ms: int) -> None:
        """Have the server wait so long for a lock, from now on."""
        if lock_ms != self._lock_ms:
            await self.run(f"SET lock_timeout = {lock_ms}")
            self._lock_ms = lock_ms

    async def commit(self, batch: Batch) -> list[int | Conflict]:
        """The verdict for each member; raises `Rejected` or `Lost`.

        The server refuses a batch that reaches it long after it was sent. So a lost one cannot
        turn up when the record that fences it out is gone.
        """
        deadline_s = boot_ns() / 1e9 + self._ahead_s + limits.BATCH_LIFE_S
        [(base, failed, _)] = await self._call(deadline_s, *batch.arguments)
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

    async def close(self) -> None:
        """Wait until everything is answered, and close the connections."""
        try:
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
            self._answer(members, await self._commit(Batch(members), lock_ms or limits.LOCK_MS))
        except Rejected as error:
            if error.sqlstate.startswith(_BLAME) and len(members) > 1:
                await self._run_one_by_one(members, error)
            else:
                _fail(members, error.explained)
        except Lost as error:
            text = f"no answer came to a commit ({error}): it may or may not have been applied"
            _fail(members, lambda: OutcomeUnknown(text))
            for member in members:
                self._changed(member.writes, False)
        except Unavailable as error:
            text, code = error.message, error.code
            _fail(members, lambda: Unavailable(text, code=code))
        except Exception as error:
            # Our own mistake: no one may be left waiting.
            text = f"a commit failed unexpectedly ({error!r}): it may or may not have been applied"
            _fail(members, lambda: OutcomeUnknown(text))

    async def _run_one_by_one(self, members: Sequence[Member], error: Rejected) -> None:
        """So that those who are not to blame do not fail with the one who is; but not for ever,
        and without waiting long for locks again: others come behind them."""
        lock_ms = limits.LOCK_ALONE_MS if error.sqlstate == _LOCKED else None
        until_ns = boot_ns() + int(limits.ALONE_S * 1e9)
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
                    # The server's clock was set, it became a standby, its plans are out of
                    # date: better a new connection.
                    link.drop()
                tries += 1
                if error.sqlstate not in (*_AGAIN, _TOO_LATE) or tries == limits.BATCH_TRIES_MAX:
                    raise
            finally:
                self._links.give(link)

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
