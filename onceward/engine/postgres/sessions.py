"""Sessions: transactions of the application on Onceward's database, which end with a commit.

The application runs statements on a connection with the default settings of the server. The commit
of records is the last statement, so both take effect together. A lost response is resolved by the
lane of the connection, as for any commit.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from onceward import limits
from onceward.engine.base import ANY, Check, Delete, Session, Version, Write, admit
from onceward.engine.postgres.batch import Batch, Member
from onceward.engine.postgres.commits import CommitLink, Commits, LostBatch, Ticket
from onceward.engine.postgres.link import Links, Lost, Rejected
from onceward.errors import BadInput, Conflict, OutcomeUnknown, Unavailable

# Settings, roles, temporary tables and locks that statements of an earlier transaction have left.
_RESET: Final = """
RESET SESSION AUTHORIZATION;
RESET ALL;
SET application_name = 'onceward session';
CLOSE ALL;
UNLISTEN *;
DISCARD TEMP;
SELECT pg_advisory_unlock_all();
"""
_BEGUN: Final = f"""
SELECT set_config('idle_in_transaction_session_timeout', '{limits.SESSION_IDLE_MS}', true),
    set_config('onceward.session', '{{mark}}', true);
"""
# The settings of the engine, since the plans of the commit function must not depend on the size of
# the table. The mark is missing if the application has ended the transaction.
_READY: Final = f"""
SELECT current_setting('onceward.session', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('lock_timeout', '{limits.LOCK_MS}', true), set_config('role', 'none', true),
    set_config('statement_timeout', '0', true)
"""
_AGAIN: Final = ("40001", "40P01", "55P03")
_ABORTED: Final = "25P02"
_REFUSED: Final = ("25006", "42501")


class SessionLink(CommitLink):
    """A connection with a lane, and with the default settings of the server."""

    ready = "SELECT pg_is_in_recovery(), set_config('application_name', 'onceward session', false)"

    @property
    def driver(self) -> Any:
        """The connection of the driver."""
        return self._connection

    _transaction: Any = None
    """That of the driver, which makes savepoints in it."""

    async def begin(self) -> Ticket:
        """Begin a transaction; returns its ticket."""
        ticket = Ticket(self._lane, self._number + 1)
        if self._transaction is not None:
            await self.run(_RESET)
        self._transaction = self._connection.transaction(isolation="read_committed")
        await self._answer(self._transaction.start())
        await self.run(_BEGUN.format(mark=f"{ticket.lane}.{ticket.number}"))
        return ticket

    async def commit_session(self) -> None:
        await self._answer(self._transaction.commit())

    async def rollback_session(self) -> None:
        """Roll back, or close the connection if that is not possible."""
        if self._connection.is_in_transaction():
            try:
                await self._answer(self._transaction.rollback())
            except (Lost, Rejected):
                self.drop()
        else:  # a statement has ended the transaction, or the commit has failed
            self.drop()

    async def stage(self, batch: Batch, ticket: Ticket) -> int | Conflict:
        """Run the commit function as the last statement but COMMIT; returns its verdict."""
        [(mark, *_)] = await self.fetch(_READY)
        if mark != f"{ticket.lane}.{ticket.number}":
            raise BadInput(
                "the transaction of the SQL connection was ended by a statement; leave COMMIT and "
                "ROLLBACK to Onceward, and use savepoints (`connection.transaction()`)"
            )
        [(base, failed)] = await self._call(*ticket, *batch.arguments)
        return batch.verdicts(base, failed)[0]

    def committed(self, ticket: Ticket) -> None:
        self._number = ticket.number
        self._note(*ticket)


class PostgresSession(Session):
    """One transaction. It ends with `commit`, `rollback` or `discard`."""

    def __init__(
        self, links: Links[SessionLink], link: SessionLink, ticket: Ticket, commits: Commits
    ) -> None:
        self._links = links
        self._link: SessionLink | None = link
        self._ticket = ticket
        self._commits = commits
        self.connection = link.driver

    @classmethod
    async def begin(cls, links: Links[SessionLink], commits: Commits) -> "PostgresSession":
        """Raises `Unavailable`."""
        while True:
            try:
                async with asyncio.timeout(limits.SESSION_WAIT_S):
                    link = await links.take()
            except TimeoutError:
                raise Unavailable(
                    f"no SQL connection became free within {limits.SESSION_WAIT_S:g} s: a node has "
                    f"{limits.SESSIONS}. Do not open a second transaction inside one of them."
                ) from None
            try:
                ticket = await link.begin()
            except (Lost, Rejected):  # it was idle for long; an unreachable server ends the loop
                link.drop()
                links.give(link)
                continue
            except BaseException:
                link.drop()
                links.give(link)
                raise
            return cls(links, link, ticket, commits)

    def conflicts(self, error: BaseException) -> bool:
        """Whether the server aborted a statement because of concurrent transactions."""
        return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _AGAIN[:2]

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        link = self._link
        assert link is not None
        # The outcome of the application's statements is recovered by the lane even if they are all.
        if all(type(write) is Check and write.expect is ANY for write in writes):
            writes = [Delete(("session", str(self._ticket.lane)))]
        member = Member(writes, now_ms, admit(writes), visible, None)
        batch = Batch([member])
        sent = False
        try:
            verdict = await link.stage(batch, self._ticket)
            if isinstance(verdict, Conflict):
                await self.rollback()
                raise verdict
            sent = True
            await link.commit_session()
            link.committed(self._ticket)
        except Rejected as error:
            await self.rollback()
            raise _explained(error) from error
        except Lost as error:
            verdict = await self._settled(batch, error, sent)
        finally:
            self.discard()
        if visible is not None:
            visible(verdict)
        self._commits.changed(member.writes, True)
        return verdict

    async def _settled(self, batch: Batch, error: Lost, sent: bool) -> int:
        """The version, if a commit whose response was lost has taken effect."""
        again = Conflict(
            f"the connection was lost before the commit ({error}), so nothing was changed; retry"
        )
        if not sent:
            raise again
        try:
            verdicts = await self._commits.settle(batch, LostBatch(self._ticket, error))
        except OutcomeUnknown:
            self._commits.changed(batch.members[0].writes, False)
            raise
        if verdicts is None:
            raise again
        [verdict] = verdicts
        assert not isinstance(verdict, Conflict)
        return verdict

    async def rollback(self) -> None:
        """Roll back. Idempotent."""
        link = self._link
        if link is not None and not link.closed:
            await link.rollback_session()
            self._link = None
            self._links.give(link)

    def discard(self) -> None:
        """Close the connection, unless the transaction has ended. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            if not self._ended(link):
                link.drop()
            self._links.give(link)

    def _ended(self, link: SessionLink) -> bool:
        return link.closed or not link.driver.is_in_transaction()


def _explained(error: Rejected) -> Exception:
    if error.sqlstate in _AGAIN:
        return Conflict(f"the database aborted the transaction: {error}; retry it")
    if error.sqlstate == _ABORTED:
        return BadInput(
            "a statement on the SQL connection failed, and its error was caught: nothing can be "
            "committed. Use a savepoint for statements that may fail (`connection.transaction()`)."
        )
    if error.sqlstate in _REFUSED:
        return BadInput(
            f"the SQL transaction cannot commit records: {error}. Leave its access mode as it is."
        )
    if error.sqlstate[:2] == "23" and isinstance(error.__cause__, Exception):
        return error.__cause__  # of a constraint that is checked at the commit
    return error.explained()
