"""Reads in batches, scans, removal of expired records, and the server's clock."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.postgres.batch import joined, stored_partition
from onceward.engine.postgres.incarnation import FIND
from onceward.engine.postgres.lanes import Lanes
from onceward.engine.postgres.link import Link, Links, Lost, Rejected
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.keys import Key

# One statement has one snapshot, so a get reads at one moment.
_GET = """
SELECT asked.number, record.value, record.version, record.expires_at_ms
FROM unnest(string_to_array($2, $1), string_to_array($3, $1)) WITH ORDINALITY
    AS asked(partition, sort, number)
JOIN {schema}.record USING (partition, sort)
"""
_SCAN = """
SELECT sort, value, version, expires_at_ms FROM {schema}.record
WHERE partition = $1 AND sort >= $2 AND (expires_at_ms IS NULL OR expires_at_ms > $3)
    {end} ORDER BY sort {order} LIMIT $4
"""
# Skips rows that other transactions are writing; the next sweep removes them. The server's clock
# limits the sweep in case the caller's clock is fast: other nodes may still need the records.
_SWEEP = """
WITH swept AS (
    DELETE FROM {schema}.record WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.record WHERE expires_at_ms <= least(
            $1, (extract(epoch FROM now()) * 1000)::bigint - {slack_ms}
        )
        ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
    )) RETURNING 1
) SELECT count(*) FROM swept
"""
# Rounded down, so that the result is never in the future.
_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,"


class Get:
    """A get in progress."""

    __slots__ = ("done", "keys")

    def __init__(self, keys: Sequence[Key], done: "asyncio.Future[list[Record | None]]") -> None:
        self.keys = keys
        self.done = done


class Reads:
    """Read-only statements, on several connections."""

    def __init__(self, connect: Callable[[], Awaitable[Link]], schema: str, count: int) -> None:
        self._links = Links(connect, count)
        # The other connections are left to scans, which may take long.
        self._gets = Lanes(self._run_gets, cut, max(1, count // 2))
        self._get = _GET.format(schema=schema)
        # Four statements, because an optional bound would prevent an index range scan.
        self._scans = {
            (bounded, reverse): _SCAN.format(
                schema=schema,
                end="AND sort < $5" if bounded else "",
                order="DESC" if reverse else "ASC",
            )
            for bounded in (False, True)
            for reverse in (False, True)
        }
        self._now = FIND.format(before=_NOW, schema=schema)
        self._sweep = _SWEEP.format(schema=schema, slack_ms=limits.SWEEP_SLACK_MS)

    async def close(self) -> None:
        try:
            await self._gets.drain()
        finally:
            await self._links.close()

    async def get(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records of these keys at one moment, including expired ones."""
        for partition, sort in keys:
            _admit(partition, sort)
        done: asyncio.Future[list[Record | None]] = asyncio.get_running_loop().create_future()
        self._gets.add(Get(keys, done))
        return await done

    async def _run_gets(self, gets: list[Get]) -> None:
        gets = [get for get in gets if not get.done.done()]
        if not gets:
            return
        places = {key: place for place, key in enumerate({k: 0 for g in gets for k in g.keys}, 1)}
        try:
            separator, texts = joined(
                [stored_partition(partition) for partition, _ in places],
                [sort for _, sort in places],
            )
            rows = await self.ask(self._get, separator, *texts)
            found = {row[0]: row for row in rows}
            answers = [[_record(key, found.get(places[key])) for key in g.keys] for g in gets]
        except Exception as error:  # every caller must get a result
            failure: OncewardError = Unavailable(
                f"a get failed: {error!r}; check the database", code="storage_failed"
            )
            if isinstance(error, Unavailable | BadInput):
                failure = error
            for get in gets:
                if not get.done.done():
                    get.done.set_exception(type(failure)(failure.message, code=failure.code))
            return
        for get, records in zip(gets, answers, strict=True):
            if not get.done.done():
                get.done.set_result(records)

    async def scan(
        self, partition: str, now_ms: int, start: str, end: str | None, limit: int, reverse: bool
    ) -> list[Record]:
        _admit(partition, start + (end or ""))
        query = self._scans[end is not None, reverse]
        bounds = () if end is None else (end,)
        rows = await self.ask(query, stored_partition(partition), start, now_ms, limit, *bounds)
        return [
            Record((partition, sort), value.encode(), version, expires_at_ms)
            for sort, value, version, expires_at_ms in rows
        ]

    async def sweep(self, now_ms: int, limit: int) -> int:
        [(swept,)] = await self.ask(self._sweep, now_ms, limit)
        return int(swept)

    async def now(self, *arguments: object) -> Sequence[Any]:
        """The server's clock and the incarnation of the database; `arguments` are those of
        `FIND`."""
        [row] = await self.ask(self._now, *arguments)
        return tuple(row)

    async def ask(self, query: str, *arguments: object) -> Sequence[Any]:
        """Run a statement, and retry it once if the connection was lost.

        Raises `Unavailable`, or `BadInput` for values that the server rejects.
        """
        again = True
        while True:
            link = await self._links.take()
            try:
                return await link.fetch(query, *arguments)
            except Rejected as error:
                if error.sqlstate[:2] != "22":
                    link.drop()
                raise error.explained() from error
            except Lost as error:
                if not again or error.timed_out:
                    raise Unavailable(
                        f"the database did not respond to a read ({error}); check the database, "
                        "and retry"
                    ) from error
                again = False
            finally:
                self._links.give(link)


def cut(queue: deque[Get]) -> list[Get]:
    """The next batch of gets, limited by the keys of one statement, and at least one get."""
    gets = [queue.popleft()]
    count = len(gets[0].keys)
    while queue and count + len(queue[0].keys) <= limits.BATCH_KEYS_MAX:
        gets.append(queue.popleft())
        count += len(gets[-1].keys)
    return gets


def _admit(partition: str, sort: str) -> None:
    """Reject keys that PostgreSQL cannot represent: they would fail the whole batch."""
    text = partition + sort
    if "\0" in text:
        raise BadInput(
            f"the key {text[:100]!a} must not contain NUL; keys.join escapes it", code="bad_key"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(
                f"the key {text[:100]!a} is not valid Unicode; remove lone surrogates",
                code="bad_key",
            ) from None


def _record(key: Key, row: Any) -> Record | None:
    if row is None:
        return None
    _, value, version, expires_at_ms = row
    return Record(key, value.encode(), version, expires_at_ms)
