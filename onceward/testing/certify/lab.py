"""The fixture of a check: an open engine, its own partition, and assertions."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from onceward.engine.base import ANY, Engine, Expectation, Put, Record, Version
from onceward.errors import Conflict, OncewardError
from onceward.keys import Key

Remake = Callable[[Any], Engine | Awaitable[Engine]]
"""Creates another unopened engine on the database of the given one."""

HOUR_MS = 3_600_000


class Violation(Exception):
    """An engine violated a guarantee; the message has the observed behaviour."""


class NotApplicable(Exception):
    """A check needs a function that is missing, such as one to reopen the engine."""


class Lab:
    """An engine under test with the state of one check.

    Checks use partitions that start with `partition`, so that all can share one database. `now_ms`
    is the default time of every call. It is close to the real time, for engines that also expire
    records by themselves.
    """

    def __init__(
        self,
        engine: Engine,
        partition: str,
        now_ms: int,
        seed: int,
        *,
        reopen: Remake | None = None,
        second: Remake | None = None,
        crash: Remake | None = None,
        hints: bool = True,
    ) -> None:
        self.engine = engine
        self.partition = partition
        self.now_ms = now_ms
        self.random = random.Random(seed)
        self.hints = hints
        self._ways = {"reopen": reopen, "second": second, "crash": crash}
        self._made: list[Engine] = []

    async def __aenter__(self) -> "Lab":
        await self._open(self.engine)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for engine in reversed(self._made):
            try:
                await engine.close()
            except Exception:
                if error is None:  # otherwise the error of the check is more informative
                    raise

    def can(self, way: str) -> bool:
        return self._ways[way] is not None

    def need(self, way: str) -> None:
        """End the check here unless the function `way` was given."""
        if not self.can(way):
            raise NotApplicable(f"no way to {way} was given")

    async def reopen(self) -> None:
        """Close the engine and continue with another one on the same database."""
        await self.engine.close()
        self.engine = await self._another("reopen")

    async def crash(self) -> None:
        """Drop all data that is not durable and continue with the rest."""
        # Closing would write data that the crash must lose.
        self._made.remove(self.engine)
        self.engine = await self._another("crash")

    async def both(self) -> list[Engine]:
        """Two engines on the same database if the engine can be shared, else one."""
        if not self.can("second"):
            return [self.engine]
        return [self.engine, await self._another("second")]

    def go_back(self) -> None:
        """Continue a day earlier, so that expired records may be swept by any clock of the
        engine."""
        self.now_ms -= 24 * HOUR_MS

    def key(self, sort: str, apart: str = "") -> Key:
        return self.partition + apart, sort

    async def put(
        self,
        sort: str,
        value: bytes = b"1",
        *,
        expires_at_ms: int | None = None,
        expect: Expectation = ANY,
        now_ms: int | None = None,
    ) -> Version:
        return await self.commit(Put(self.key(sort), value, expires_at_ms, expect), now_ms=now_ms)

    async def commit(self, *writes: Any, now_ms: int | None = None) -> Version:
        return await self.engine.commit(writes, self.now_ms if now_ms is None else now_ms)

    async def get(self, sort: str, *, now_ms: int | None = None) -> Record | None:
        [record] = await self.get_many([sort], now_ms=now_ms)
        return record

    async def get_many(
        self, sorts: Sequence[str], *, now_ms: int | None = None
    ) -> list[Record | None]:
        keys = [self.key(sort) for sort in sorts]
        records = await self.engine.get(keys, self.now_ms if now_ms is None else now_ms)
        same(len(records), len(keys), "the number of answers to a get")
        return records

    async def values(
        self, sorts: Sequence[str], *, now_ms: int | None = None
    ) -> list[bytes | None]:
        records = await self.get_many(sorts, now_ms=now_ms)
        return [None if record is None else record.value for record in records]

    async def scan(self, *, now_ms: int | None = None, **bounds: Any) -> list[str]:
        """The sort keys that a scan of the check's partition finds."""
        now_ms = self.now_ms if now_ms is None else now_ms
        return [r.key[1] for r in await self.engine.scan(self.partition, now_ms, **bounds)]

    async def _open(self, engine: Engine) -> Engine:
        self._made.append(engine)
        return await engine.open()

    async def _another(self, way: str) -> Engine:
        self.need(way)
        remake = self._ways[way]
        assert remake is not None
        made = remake(self.engine)
        return await self._open(await made if inspect.isawaitable(made) else made)


def same(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise Violation(f"{what}: {_short(seen)}, not {_short(wanted)}")


def holds(truth: object, otherwise: str) -> None:
    if not truth:
        raise Violation(otherwise)


def version_of(record: Record | None) -> Version:
    if record is None:
        raise Violation("a record that was put is missing")
    return record.version


class Refusal:
    """The error that `refused` has caught."""

    error: OncewardError


@contextmanager
def refused(kind: type[OncewardError], code: str, what: str) -> Iterator[Refusal]:
    """The calls inside must raise this error with this code."""
    refusal = Refusal()
    try:
        yield refusal
    except kind as error:
        if error.code != code:
            raise Violation(f"{what}: refused with {error.code}, not {code}") from error
        refusal.error = error
    except (Violation, NotApplicable):
        raise
    except Exception as error:
        raise Violation(f"{what}: {error!r}, not {kind.__name__} ({code})") from error
    else:
        raise Violation(f"{what}: accepted, not refused with {code}")


async def sharing(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run all calls concurrently; returns their results. If one fails, the others are cancelled."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        await abandon(*tasks)
    for task in tasks:
        holds(not task.cancelled(), "a call ended as cancelled although nothing cancelled it")
    return [task.result() for task in tasks]


async def race(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run all calls concurrently; returns their results, or the `Conflict` they raised."""

    async def outcome(call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await call
        except Conflict as conflict:
            return conflict

    return await sharing(*map(outcome, calls))


async def abandon(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel running tasks, and wait until they have ended with any result."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"
