"""Shared commits: concurrent transactions are committed together.

A lone one has a commit of its own. While one is under way, those that come in the same turn
of the event loop share a transaction, one after the other, each with an outcome of its own:
that costs little more than half as much for each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from onceward import limits
from onceward.errors import BadInput, Contention, EngineStopped, OutcomeUnknown, Unavailable
from onceward.keys import Key
from onceward.store.store import Store
from onceward.store.transaction import Transaction

T = TypeVar("T")

# After so many conflicts in a row those who share a transaction go on in halves: one of them
# may read what others never leave alone.
_TRIES = 4


class Call(NamedTuple):
    """A function that shares a transaction with others."""

    fn: Callable[[Transaction], Awaitable[Any]]
    writes: int
    reads: Sequence[Key]
    answer: "asyncio.Future[Any]"


class _Spoiled(Exception):
    """A function has written something and then failed: the others cannot go on with that."""


class SharedCommits:
    """Runs transactions on one store, several in one commit where several come at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way = 0
        self._waiting: list[Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()

    async def run(
        self, fn: Callable[[Transaction], Awaitable[T]], *, writes: int, reads: Sequence[Key] = ()
    ) -> T:
        """As `Store.run`, of a function that makes about so many writes and checked reads, and
        reads these keys for sure. It may run again also for the sake of others."""
        if not self._under_way:
            running: Awaitable[T] = self._store.run(fn)
        else:
            running = self._join(fn, writes, reads)
        self._under_way += 1
        try:
            return await running
        finally:
            self._under_way -= 1

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _join(
        self, fn: Callable[[Transaction], Awaitable[Any]], writes: int, reads: Sequence[Key]
    ) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._go, context=self._context)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(Call(fn, writes, reads, answer))
        return answer

    def _go(self) -> None:
        """Run all that has come in this turn of the loop."""
        waiting, self._waiting = self._waiting, []
        piece: list[Call] = []
        room = limits.COMMIT_WRITES_MAX
        for call in waiting:
            if call.writes > room and piece:
                self._spawn(piece)
                piece, room = [], limits.COMMIT_WRITES_MAX
            piece.append(call)
            room -= call.writes
        self._spawn(piece)

    def _spawn(self, calls: list[Call]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._commit(calls), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, calls: list[Call]) -> None:
        outcomes: Sequence[Any]
        try:
            if len(calls) == 1:
                outcomes = [await self._store.run(calls[0].fn)]
            else:
                outcomes = await self._store.run(partial(_run_all, calls), attempts_max=_TRIES)
        except Exception as error:
            if len(calls) > 1 and isinstance(error, BadInput | Contention | _Spoiled):
                # They are too many, or one of them is to blame.
                half = len(calls) // 2
                self._spawn(calls[:half])
                self._spawn(calls[half:])
                return
            outcomes = [error] * len(calls)
        except BaseException:
            for call in calls:
                call.answer.cancel()
            raise
        for call, outcome in zip(calls, outcomes, strict=True):
            if call.answer.done():  # whoever asked for it has gone
                continue
            if isinstance(outcome, Exception):
                call.answer.set_exception(outcome)
            else:
                call.answer.set_result(outcome)


async def _run_all(calls: list[Call], tx: Transaction) -> list[Any]:
    """What each returned or raised."""
    reads = [key for call in calls for key in call.reads]
    if reads:
        await tx.fetch(reads)
    outcomes: list[Any] = []
    for call in calls:
        changes, hooks = tx.changes, len(tx.hooks)
        try:
            outcomes.append(await call.fn(tx))
        except (EngineStopped, OutcomeUnknown, Unavailable):
            raise
        except Exception as error:
            if tx.changes != changes:
                raise _Spoiled from error
            del tx.hooks[hooks:]
            outcomes.append(error)
    return outcomes
