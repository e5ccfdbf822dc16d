"""Shared commits: members that arrive while a commit is in flight share the next one.

A single caller gets a separate commit. The members of a commit run one after the other in one
transaction, and each has its own result: the writes of a member that raises are undone. Members
with the same line, such as all callers of one table, wait until the previous commit is visible.
Other members wait only for the end of the turn of the event loop.

Declared reads of all members are fetched with one call. After a conflict, all previous reads are
fetched in advance, since a shorter transaction has fewer conflicts. If a commit is too large or
conflicts repeatedly, its members are split into halves, because one of them may be the cause.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextvars import copy_context
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from onceward import limits
from onceward.errors import BadInput, Contention, EngineStopped, OutcomeUnknown, Unavailable
from onceward.keys import Key
from onceward.store.store import Store
from onceward.store.transaction import Transaction

T = TypeVar("T")

# The maximum number of members of a commit, and of members whose reads are fetched together.
_MEMBERS_MAX = 100
_READERS_MAX = 34
# How many commits `run_together` makes at a time: those of one call of PostgreSQL.
_TOGETHER_MAX = 20
# After this many consecutive conflicts the members of a commit are split into halves. Members with
# a line all read the same record, so they are not split.
_ATTEMPTS_MAX = 4
# On a shared database, a line with several concurrent members counts as busy for `_BUSY_S`. Its
# next commit waits `_MOMENT_S` for more members, which is short compared to a commit.
_BUSY_S = 0.05
_MOMENT_S = 0.002

Fetch = Callable[[Transaction, Sequence[Any]], Awaitable[None]]
"""Fetches the declared reads of members: keys, unless a `SharedCommits` has another function."""


class Member(Protocol):
    """A participant of a shared commit."""

    @property
    def writes(self) -> int:
        """The approximate number of writes and checked reads."""

    @property
    def reads(self) -> Sequence[Any]:
        """The reads that it certainly makes."""

    def attempt(self, tx: Transaction, /) -> Awaitable[Any]:
        """Read and write; return the result. It may run again, for example because of other
        members.
        """

    def on_undo(self) -> None:
        """Called when its writes were undone because it raised."""

    def on_outcome(self, outcome: Any, /) -> None:
        """Called with its result once that is durable, or with the exception of its failure."""


class Call(NamedTuple):
    """A function as a member; a future receives its result."""

    attempt: Callable[[Transaction], Awaitable[Any]]
    writes: int
    reads: Sequence[Any] = ()
    answer: "asyncio.Future[Any] | None" = None

    def on_undo(self) -> None:
        pass

    def on_outcome(self, outcome: Any) -> None:
        answer = self.answer
        if answer is None or answer.done():  # the caller was cancelled
            return
        if not isinstance(outcome, BaseException):
            answer.set_result(outcome)
        elif isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.cancel()


class _Line:
    """The members that wait for the next commit, and the number of commits before it."""

    __slots__ = ("commits", "name", "rivals", "scheduled", "waiting")

    def __init__(self, name: str | None) -> None:
        self.name = name
        """None if members do not wait for each other's commits."""
        self.commits = 0
        """The number of commits in flight or waiting."""
        self.waiting: deque[Member] = deque()
        self.scheduled = False
        """Whether a commit is scheduled that takes the waiting members."""
        self.rivals: Collection[Key] | None = None
        """The cached records that other nodes change, whose copies are useless; None if it is not
        busy.
        """


class SharedCommits:
    """Runs transactions on one store, and batches concurrent ones into one commit."""

    def __init__(self, store: Store, fetch: Fetch = Transaction.fetch) -> None:
        self._store = store
        self._fetch = fetch
        self._lines: dict[str | None, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    async def run(
        self,
        fn: Callable[[Transaction], Awaitable[T]],
        *,
        writes: int,
        reads: Sequence[Any] = (),
        line: str | None = None,
    ) -> T:
        """Run a function like `Store.run`, possibly in a shared commit.

        Args:
            fn: The function. It may run again, for example because of other members.
            writes: The approximate number of writes and checked reads.
            reads: The reads that it certainly makes.
            line: Members with the same line commit one after the other.
        """
        engine = self._store.engine
        if line is None and not engine.shares_commits:
            return await self._store.run(self._reading(fn, reads) if len(reads) > 1 else fn)
        if line not in self._lines:
            if line is None and engine.shares_reads:
                fn = self._reading(fn, reads)
            own = self._begin(line)
            try:
                return await self._store.run(fn, line=line)
            finally:
                self._end(own)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.add(Call(fn, writes, reads, answer), line)
        return await answer

    def add(self, member: Member, line: str | None = None) -> None:
        """Add a member to the next commit."""
        known = self._lines.get(line)
        if known is None:
            known = self._lines[line] = _Line(line)
        known.waiting.append(member)
        if not known.scheduled:
            self._schedule(known)

    async def run_all(self, calls: Iterable[Call]) -> list[Any]:
        """Run calls in order in as few commits as possible; return the result or exception of each.

        Raises the errors that fail a whole commit. Earlier commits are durable then, and later
        calls were not started.
        """
        outcomes: list[Any] = []
        line, most = _Line(None), _MEMBERS_MAX
        line.waiting.extend(calls)
        while line.waiting:
            taken: list[Member] = []
            try:
                outcomes += await self._run(line, taken, most)
            except (BadInput, Contention):
                if len(taken) < 2:
                    raise
                line.waiting.extendleft(reversed(taken))
                most = len(taken) // 2
            else:
                most = min(2 * most, _MEMBERS_MAX)
        return outcomes

    async def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Like `run_all`, for calls that do not depend on each other: several commits at a time,
        so that engines can make them durable together.

        Raises the first error that fails a whole commit; the others may be durable.
        """
        parts: list[list[Call]] = []
        room = 0
        for call in calls:
            if call.writes > room:
                parts.append([])
                room = limits.COMMIT_WRITES_MAX
            parts[-1].append(call)
            room -= call.writes
        outcomes: list[Any] = []
        for start in range(0, len(parts), _TOGETHER_MAX):
            running = [self.run_all(part) for part in parts[start : start + _TOGETHER_MAX]]
            found = await asyncio.gather(*running, return_exceptions=True)
            for one in found:
                if isinstance(one, BaseException):
                    raise one
                outcomes += one
        return outcomes

    async def finish(self) -> None:
        """Wait for all commits that are in flight or scheduled."""
        while self._tasks or any(line.scheduled for line in self._lines.values()):
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(0))

    def _reading(
        self, fn: Callable[[Transaction], Awaitable[T]], reads: Sequence[Any]
    ) -> Callable[[Transaction], Awaitable[T]]:
        async def reading(tx: Transaction) -> T:
            await self._fetch(tx, reads)
            return await fn(tx)

        return reading

    def _begin(self, name: str | None) -> _Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line(name)
        line.commits += 1
        return line

    def _end(self, line: _Line) -> None:
        line.commits -= 1
        if not line.commits:
            del self._lines[line.name]

    def _busy(self, line: _Line, rivals: Collection[Key] = ()) -> None:
        """Mark a line as busy for a while, because several members or nodes use it concurrently."""
        if line.name is None or not self._store.engine.shared:
            return
        if line.rivals is None:
            self._begin(line.name)
            asyncio.get_running_loop().call_later(_BUSY_S, self._end, line)
        line.rivals = rivals or line.rivals or ()

    def _schedule(self, line: _Line) -> None:
        """Schedule a commit for the waiting members.

        With a line it starts after the previous commit. Without one it takes the members that
        arrive in this turn of the event loop.
        """
        line.scheduled = True
        if line.name is not None:
            self._spawn(line, [])
        else:
            line.commits += 1
            asyncio.get_running_loop().call_soon(self._divide, line, context=self._context)

    def _divide(self, line: _Line) -> None:
        """Divide the waiting members into commits that respect the size limit.

        All start in the same turn, so that engines can make them durable together.
        """
        waiting, line.waiting, line.scheduled = line.waiting, deque(), False
        part: list[Member] = []
        room = limits.COMMIT_WRITES_MAX
        for member in waiting:
            if member.writes > room and part:
                self._spawn(line, part)
                part, room = [], limits.COMMIT_WRITES_MAX
            part.append(member)
            room -= member.writes
        self._spawn(line, part)
        self._end(line)

    def _spawn(self, line: _Line, members: list[Member]) -> None:
        line.commits += 1
        loop = asyncio.get_running_loop()
        task = loop.create_task(
            self._commit(line, members), name="onceward-commit", context=self._context.copy()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, line: _Line, members: list[Member]) -> None:
        try:
            if line.rivals is not None and not members:
                await self._store.clock.sleep(_MOMENT_S)
            outcomes = await self._run(line, members, _MEMBERS_MAX)
            if len(members) > 1:
                self._busy(line)
        except BaseException as error:
            if isinstance(error, BadInput | Contention) and len(members) > 1:
                half = len(members) // 2
                self._spawn(line, members[:half])
                self._spawn(line, members[half:])
                return
            if not members:  # the commit never started: all members that wait for it fail
                line.scheduled = False
                members.extend(line.waiting)
                line.waiting.clear()
            for member in members:
                member.on_outcome(error)
            if not isinstance(error, Exception):
                raise
            return
        finally:
            self._end(line)
        for member, outcome in zip(members, outcomes, strict=True):
            member.on_outcome(outcome)

    async def _run(self, line: _Line, members: list[Member], most: int) -> list[Any]:
        """Run members, or as many waiting members as fit, in one transaction; return their results.

        The first attempt determines the members.
        """
        last: Transaction | None = None

        async def fn(tx: Transaction) -> list[Any]:
            nonlocal last
            if last is not None:
                self._busy(line, last.heads_used)
                await tx.fetch(list(last.seen)[: limits.GET_KEYS_MAX])
            else:
                if line.rivals:
                    await tx.fetch(list(line.rivals))
                readers = islice(members or line.waiting, _READERS_MAX)
                reads = [read for member in readers for read in member.reads]
                if reads:
                    await self._fetch(tx, reads[: limits.GET_KEYS_MAX])
            last = tx
            if members:
                return await _outcomes(members, tx)
            try:
                return await _outcomes(_fitting(line.waiting, members, most, tx), tx)
            finally:
                if line.commits:
                    line.scheduled = False
                    if line.waiting:
                        self._schedule(line)

        if line.name is None and min(most, len(members or line.waiting)) > 1:
            return await self._store.run(fn, attempts_max=_ATTEMPTS_MAX)
        return await self._store.run(fn, line=line.name)


def _fitting(
    waiting: deque[Member], taken: list[Member], most: int, tx: Transaction
) -> Iterator[Member]:
    """Move members into a transaction, one at a time, while it has space."""
    room = limits.COMMIT_WRITES_MAX
    while waiting and len(taken) < most:
        member = waiting[0]
        if member.writes > room and taken:
            room = limits.COMMIT_WRITES_MAX - tx.size  # several may have written the same records
            if member.writes > room:
                return
        before = tx.writes
        taken.append(waiting.popleft())
        yield member
        room -= max(member.writes, tx.writes - before)


async def _outcomes(members: Iterable[Member], tx: Transaction) -> list[Any]:
    """The result or exception of each member. Members that raise write nothing.

    Raises errors that fail the whole commit.
    """
    outcomes: list[Any] = []
    for member in members:
        mark = tx.mark()
        try:
            outcomes.append(await member.attempt(tx))
        except (EngineStopped, OutcomeUnknown, Unavailable):
            raise
        except Exception as error:
            tx.undo(mark)
            member.on_undo()
            outcomes.append(error)
    return outcomes
