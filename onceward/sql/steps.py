"""SQL steps: an effect on the application's database and its record, in one transaction there.

The transaction first locks the fence row of the job, which has the number of the last lease that
began a step. An earlier lease is refused, and a concurrent one ends first. Then it looks up the
result: a step that was committed, and whose job was then interrupted, is not run again. At the
commit, the lease is compared with the clock of that database.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from onceward import limits
from onceward.contexts import restore
from onceward.errors import BadInput, NoSuchJob, StaleToken
from onceward.json_values import encode
from onceward.schedule import job_key
from onceward.sql.connections import Rows, in_autocommit, kind_of, lacks_tables
from onceward.sql.databases import Database, database_of
from onceward.store import Store
from onceward.store.transaction import Transaction

logger = logging.getLogger("onceward.sql")

T = TypeVar("T")

Statements = Generator[tuple[str, Sequence[Any]], Rows, T]
"""Statements to run in one transaction; each is sent its rows."""

_BEGIN: Final = (
    "SELECT current, recorded, now_ms FROM onceward_step_begin("
    "CAST(? AS text), CAST(? AS text), CAST(? AS bigint), CAST(? AS bigint))"
)
_NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_FENCE: Final = f"""
INSERT INTO onceward_step_fence (job, run, kept_until_ms) VALUES (?, ?, {_NOW} + ?)
ON CONFLICT (job) DO UPDATE
SET run = max(run, excluded.run), kept_until_ms = excluded.kept_until_ms, ended = 0
"""  # noqa: S608
_FIND: Final = f"""
SELECT f.run <= ?, s.result, {_NOW} FROM onceward_step_fence AS f
LEFT JOIN onceward_step AS s ON s.job = f.job AND s.step = ? WHERE f.job = ?
"""  # noqa: S608
_RECORD: Final = {
    "postgresql": """
INSERT INTO onceward_step (job, step, result, lease_until) VALUES (
    CAST(? AS text), CAST(? AS text), CAST(? AS text),
    to_timestamp(CAST(? AS double precision) / 1000)
)
""",
    "sqlite": "INSERT INTO onceward_step (job, step, result) VALUES (?, ?, ?)",
}
_AUTOCOMMIT: Final = (
    "the database is in autocommit mode: a SQL step needs a transaction. Pass an engine without "
    "isolation_level='AUTOCOMMIT'."
)


_running: ContextVar[str] = ContextVar("onceward_sql_step", default="")
"""The job whose SQL step runs in this task or thread."""


@dataclass(slots=True)
class SqlStep:
    """One run of a SQL step."""

    job: str
    name: str
    run: int
    """The number of the lease among those of the job."""
    kept_ms: int
    """How long the record is kept at least."""
    insist: Callable[[], int]
    """Returns the remaining time of the lease in ms, or raises `StaleToken`."""
    elapsed_ns: Callable[[], int]
    database: Any
    fn: Callable[..., Any]
    args: Sequence[Any]
    admit: Callable[[Any], None] = lambda result: None
    """Raises `TooLarge` for a result that the job has no room for."""
    in_thread: Callable[..., Awaitable[Any]] | None = None
    """Runs a function in the thread of a plain handler."""
    _begun_ms: int = 0
    """The time of the database at the beginning."""
    _begun_ns: int = 0
    _ending: bool = False
    """Whether a commit may have been sent."""

    async def result(self) -> Any:
        """The result of the step, as plain JSON. Raises the errors of the function and of the
        driver, `StaleToken` and `BadInput`."""
        kind = database_of(self.database)
        if _running.get() == self.job:
            raise BadInput(
                f"the SQL step {self.name!r} was called inside of another one of its job, and "
                "would wait for it; run one after the other"
            )
        context = _running.set(self.job)
        try:
            return await self._outcome(kind)
        finally:
            restore(_running, context)

    async def _outcome(self, kind: Database) -> Any:
        try:
            text = await self._run(kind, look_only=False)
        except Exception as error:
            if not self._ending:
                raise
            # The response to the commit may be lost. A later transaction determines the outcome.
            self.insist()
            try:
                text = await self._run(kind, look_only=True)
            except Exception:
                raise error from None
            if text is None:
                raise
        assert text is not None
        return msgspec.json.decode(text)

    async def _run(self, kind: Database, *, look_only: bool) -> str | None:
        if kind.asynchronous:
            return await self._run_async(kind, look_only=look_only)
        run = partial(self._run_sync, kind, look_only=look_only)
        if self.in_thread is not None:
            found: str | None = await self.in_thread(run)
            return found
        return await asyncio.to_thread(run) if kind.threaded else run()

    def _run_sync(self, kind: Database, *, look_only: bool) -> str | None:
        with kind.begin(self.database) as connection:
            driver = kind_of(connection)
            dialect = driver.dialect(connection)
            text = drive(self._open(dialect, connection), connection)
            if text is None and not look_only:
                result = self.fn(connection, *self.args)
                text = self._encoded(result)
                drive(self._close(dialect, text), connection)
                self._ending = True
        return text

    async def _run_async(self, kind: Database, *, look_only: bool) -> str | None:
        async with kind.begin(self.database) as connection:
            driver = kind_of(connection)
            dialect = driver.dialect(connection)
            text = await drive_async(self._open(dialect, connection), connection)
            if text is None and not look_only:
                result = self.fn(connection, *self.args)
                if hasattr(result, "__await__"):
                    result = await result
                text = self._encoded(result)
                await drive_async(self._close(dialect, text), connection)
                self._ending = True
        return text

    def _encoded(self, result: Any) -> str:
        if hasattr(result, "__await__"):
            result.close()
            raise BadInput(
                f"the function of the step {self.name!r} is async, but its database is not; pass "
                "an async engine or a plain function"
            )
        text = encode(result, ("steps", "result")).decode()
        self.admit(result)
        return text

    def _open(self, dialect: str, connection: Any) -> Statements[str | None]:
        """Take the fence, and return the result if the step was committed before."""
        try:
            if dialect == "postgresql":
                rows = yield _BEGIN, (self.job, self.name, self.run, self.kept_ms)
            else:
                yield _FENCE, (self.job, self.run, self.kept_ms)
                rows = yield _FIND, (self.run, self.name, self.job)
        except Exception as error:
            if lacks_tables(error):
                raise BadInput(
                    "the database has no tables for SQL steps; run `onceward outbox migrate URL`"
                ) from error
            raise
        if dialect == "sqlite" and in_autocommit(connection):
            raise BadInput(_AUTOCOMMIT)
        [(current, found, now_ms)] = rows
        if not current:
            raise StaleToken(
                f"a later attempt of job {self.job} has begun a SQL step; stop this attempt",
                id=self.job,
            )
        self._begun_ms, self._begun_ns = now_ms, self.elapsed_ns()
        if found is None:
            try:
                yield "SAVEPOINT onceward_step", ()
            except Exception as error:
                if "can only be used in transaction blocks" in str(error):
                    raise BadInput(_AUTOCOMMIT) from error
                raise
        return None if found is None else str(found)

    def _close(self, dialect: str, text: str) -> Statements[None]:
        """Record the result, if the transaction is still the same."""
        try:
            yield "RELEASE SAVEPOINT onceward_step", ()
        except Exception as error:
            if "savepoint" in str(error).lower():
                raise BadInput(
                    f"the function of the step {self.name!r} ended the transaction; leave commit "
                    "and rollback to sql_step"
                ) from error
            raise
        left_ms = self.insist()
        values: list[Any] = [self.job, self.name, text]
        if dialect == "postgresql":
            # By the clock of the database, at most until the end of the lease.
            passed_ms = (self.elapsed_ns() - self._begun_ns) // 1_000_000
            values.append(float(self._begun_ms + passed_ms + left_ms))
        yield _RECORD[dialect], values


def drive(statements: Statements[T], connection: Any) -> T:
    """Run statements on a synchronous connection."""
    execute = kind_of(connection).execute
    try:
        query = next(statements)
        while True:
            try:
                rows = execute(connection, *query)
            except Exception as error:
                query = statements.throw(error)
            else:
                query = statements.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


async def drive_async(statements: Statements[T], connection: Any) -> T:
    """Run statements on an asynchronous connection."""
    execute = kind_of(connection).execute
    try:
        query = next(statements)
        while True:
            try:
                rows = await execute(connection, *query)
            except Exception as error:
                query = statements.throw(error)
            else:
                query = statements.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


# Purge. A row may go when its job has ended, which Onceward's database knows, and some time after
# that: a worker that was paused may wake up late.
_OLD: Final = {
    "postgresql": "SELECT job, ended FROM onceward_step_fence WHERE kept_until < clock_timestamp() "
    "ORDER BY kept_until LIMIT CAST(? AS int)",
    "sqlite": f"SELECT job, ended FROM onceward_step_fence WHERE kept_until_ms < {_NOW} "  # noqa: S608
    "ORDER BY kept_until_ms LIMIT ?",
}
_AMONG: Final = {
    "postgresql": "job IN (SELECT json_array_elements_text(CAST(CAST(? AS text) AS json)))",
    "sqlite": "job IN (SELECT value FROM json_each(?))",
}
_KEEP: Final = {
    "postgresql": "UPDATE onceward_step_fence SET ended = CAST(? AS int) = 1, "
    "kept_until = clock_timestamp() + CAST(? AS bigint) * interval '1 millisecond' WHERE ",
    "sqlite": f"UPDATE onceward_step_fence SET ended = ?, kept_until_ms = {_NOW} + ? WHERE ",  # noqa: S608
}


async def purge_sometimes(store: Store, database: Any) -> None:
    """Purge after one in a number of steps. Errors are logged."""
    kind = database_of(database)
    bound = not kind.asynchronous and not kind.threaded  # to a thread, perhaps not to this one
    if bound or store.ids.fraction() * limits.SQL_STEPS_PER_PURGE >= 1:
        return
    try:
        await purge(store, database, limits.SQL_STEP_KEPT_MS)
    except Exception as error:
        logger.warning("records of SQL steps could not be purged: %s", error)


async def purge(store: Store, database: Any, kept_ms: int) -> int:
    """Delete some records of steps whose jobs have ended long ago; returns the number of jobs."""
    found: Rows = await _in_transaction(database, _old)
    jobs = {str(job): bool(ended) for job, ended in found}
    if not jobs:
        return 0
    records = await store.run(lambda tx: asyncio.gather(*[_exists(tx, job) for job in jobs]))
    present = [job for job, known in zip(jobs, records, strict=True) if known]
    gone = [job for job in jobs if job not in present]
    delete = [job for job in gone if jobs[job]]
    ended = [job for job in gone if not jobs[job]]

    def write(dialect: str) -> Statements[None]:
        for kept, flag in ((present, 0), (ended, 1)):
            if kept:
                yield _KEEP[dialect] + _AMONG[dialect], (flag, kept_ms, _array(kept))
        for table in ("onceward_step", "onceward_step_fence") if delete else ():
            yield f"DELETE FROM {table} WHERE {_AMONG[dialect]}", (_array(delete),)  # noqa: S608

    await _in_transaction(database, write)
    return len(delete)


async def _exists(tx: Transaction, job: str) -> bool:
    try:
        return await tx.has(job_key(job))
    except NoSuchJob:  # not an id
        return False


def _old(dialect: str) -> Statements[Rows]:
    return (yield _OLD[dialect], (limits.SQL_STEPS_PURGED,))


def _array(jobs: list[str]) -> str:
    return msgspec.json.encode(jobs).decode()


async def _in_transaction(database: Any, make: Callable[[str], Statements[T]]) -> T:
    kind = database_of(database)

    def run() -> T:
        with kind.begin(database) as connection:
            return drive(make(kind_of(connection).dialect(connection)), connection)

    if kind.asynchronous:
        async with kind.begin(database) as connection:
            return await drive_async(make(kind_of(connection).dialect(connection)), connection)
    return await asyncio.to_thread(run) if kind.threaded else run()
