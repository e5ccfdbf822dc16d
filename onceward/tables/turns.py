"""Serialization of calls to one table; waiting calls share a commit.

All of them write the table's head. One after the other, each would wait for the commit before it;
where that is a journey, and other processes do the same, few get through in a second. So whoever's
turn it is takes along all who stand behind, as many as a commit holds: one after the other in one
transaction, each with an outcome of its own.

What they read is fetched with one call where that is known before: who they are at the table, and
after a conflict all that was read until then, since the time between reading and committing is
what others need to be faster again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import copy_context
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from onceward import limits
from onceward.errors import Conflict, EngineStopped, OutcomeUnknown, TooLarge, Unavailable
from onceward.keys import Key
from onceward.store import Store
from onceward.store.transaction import Transaction

T = TypeVar("T")

# What most calls write; beyond the rest of it nobody is taken along.
_CALL_WRITES = 12
_ROOM_WRITES = limits.COMMIT_WRITES_MAX - _CALL_WRITES
_CALLS_AHEAD = 20
# Where processes share a database, a table that many want something of is taken to be so for a
# while, and a turn waits a moment for more of them: a commit is a journey of several such moments.
_CROWDED_S = 0.05
_MOMENT_S = 0.002

Fetch = Callable[[Transaction, str, Sequence[str]], Awaitable[None]]
"""Reads what some users need to do anything at a table."""


class Call(NamedTuple):
    """Something to be done at a table."""

    fn: Callable[[Transaction], Awaitable[Any]]
    users: Collection[str]
    answer: "asyncio.Future[Any]"


class Turns:
    """The lines of callers of all tables, in this process."""

    def __init__(self, store: Store, fetch: Fetch) -> None:
        self._store = store
        self._fetch = fetch
        self._busy: dict[str, int] = {}
        """How many commits of a table are under way, or wait for their turn."""
        self._waiting: dict[str, deque[Call]] = {}
        self._rivals: dict[str, list[Key]] = {}
        """Of crowded tables, the heads that other processes change, too: copies here are of no
        use."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    async def run(
        self, id_: str, fn: Callable[[Transaction], Awaitable[T]], users: Collection[str] = ()
    ) -> T:
        """As `Store.run`, when it is this caller's turn at a table, of a function that is about
        these users. It may run again also for the sake of others."""
        if id_ not in self._busy:
            self._begin(id_)
            try:
                return await self._store.run(fn, line=_line(id_))
            finally:
                self._end(id_)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(id_, deque())
        waiting.append(Call(fn, users, answer))
        if len(waiting) == 1:
            self._spawn(id_, [])
        return await answer

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, id_: str) -> None:
        self._busy[id_] = self._busy.get(id_, 0) + 1

    def _end(self, id_: str) -> None:
        self._busy[id_] -= 1
        if not self._busy[id_]:
            del self._busy[id_]
            self._rivals.pop(id_, None)

    def _crowd(self, id_: str) -> None:
        """Remember for a while that many want something of a table."""
        if self._store.engine.shared and id_ not in self._rivals:
            self._rivals[id_] = []
            self._begin(id_)
            asyncio.get_running_loop().call_later(_CROWDED_S, self._end, id_)

    def _spawn(self, id_: str, calls: list[Call]) -> None:
        """Commit these calls in their turn, or those that wait when it has come."""
        self._begin(id_)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._commit(id_, calls), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, id_: str, calls: list[Call]) -> None:
        last: Transaction | None = None

        async def fn(tx: Transaction) -> list[Any]:
            nonlocal last
            if last is not None:
                self._crowd(id_)
                self._rivals[id_] = list(last.heads_used)
            await tx.fetch(list(last.seen) if last else self._rivals.get(id_, ()))
            last = tx
            return await self._run_all(id_, calls, tx)

        outcomes: list[Any]
        try:
            if id_ in self._rivals and not calls:
                await self._store.clock.sleep(_MOMENT_S)
            outcomes = await self._store.run(fn, line=_line(id_))
            if len(calls) > 1:
                self._crowd(id_)
        except Exception as error:
            if len(calls) > 1 and isinstance(error, TooLarge):
                half = len(calls) // 2
                self._spawn(id_, calls[:half])
                self._spawn(id_, calls[half:])
                return
            self._take_all(id_, calls)
            outcomes = [error] * len(calls)
        except BaseException:
            self._take_all(id_, calls)
            for call in calls:
                call.answer.cancel()
            raise
        finally:
            self._end(id_)
        for call, outcome in zip(calls, outcomes, strict=True):
            if call.answer.done():  # whoever asked for it has gone
                continue
            if isinstance(outcome, Exception):
                call.answer.set_exception(outcome)
            else:
                call.answer.set_result(outcome)

    def _take_all(self, id_: str, calls: list[Call]) -> None:
        """If its turn never came, all who relied on that are told the same."""
        if not calls:
            waiting = self._waiting.pop(id_, deque())
            calls.extend(waiting)
            waiting.clear()  # another one may be at it

    async def _run_all(self, id_: str, calls: list[Call], tx: Transaction) -> list[Any]:
        """What each returned or raised. Those who wait are taken along with the first run."""
        if calls:
            return [await _outcome(call, tx) for call in calls]
        outcomes: list[Any] = []
        waiting = self._waiting.get(id_, deque())
        await self._fetch(tx, id_, [u for c in islice(waiting, _CALLS_AHEAD) for u in c.users])
        try:
            while waiting and (not calls or tx.size < _ROOM_WRITES):
                calls.append(waiting.popleft())
                outcomes.append(await _outcome(calls[-1], tx))
        finally:
            if waiting:
                self._spawn(id_, [])  # whoever is left has relied on this one
            else:
                self._waiting.pop(id_, None)
        return outcomes


async def _outcome(call: Call, tx: Transaction) -> Any:
    """What a call returned, or raised and then wrote nothing. Raises what ends all of them."""
    mark = tx.mark()
    try:
        return await call.fn(tx)
    except (Conflict, EngineStopped, OutcomeUnknown, Unavailable):
        raise
    except Exception as error:
        tx.undo(mark)
        return error


def _line(id_: str) -> str:
    return f"table {id_}"
