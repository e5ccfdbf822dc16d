"""Synchronous classes. Written by `make generate` from `onceward.store.user_records`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from onceward import limits
from onceward.keys import Key
from onceward.store.transaction import Mark, Row
from onceward.store.user_records import T
from onceward.store.user_records import UserTransaction as AsyncUserTransaction
from onceward.sync.bridge import Facade


class Transaction(Facade[AsyncUserTransaction]):
    """A transaction on the records of the application."""

    def sql(self) -> Any:
        """A connection of asyncpg to Onceward's PostgreSQL database, in a READ COMMITTED
        transaction. Its statements and the writes of this transaction commit together or not at
        all."""
        return self._portal.run(self._target.sql())

    @overload
    def get(self, key: Key, *, cached: bool = False) -> Any: ...
    @overload
    def get(self, key: Key, type: type[T], *, cached: bool = False) -> T | None: ...
    def get(self, key: Key, type: Any = Any, *, cached: bool = False) -> Any:
        """Return the value of a key, or None."""
        return self._portal.run(self._target.get(key, type, cached=cached))

    @overload
    def get_many(self, keys: Sequence[Key]) -> list[Any]: ...
    @overload
    def get_many(self, keys: Sequence[Key], type: type[T]) -> list[T | None]: ...
    def get_many(self, keys: Sequence[Key], type: Any = Any) -> list[Any]:
        """Return the values of several keys, with one call to the engine."""
        return self._portal.run(self._target.get_many(keys, type))

    def fetch(self, keys: Sequence[Key]) -> None:
        """Read several keys with one call to the engine, so that `get` finds them in memory."""
        return self._portal.run(self._target.fetch(keys))

    @overload
    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        check: bool = False,
    ) -> list[Row[Any]]: ...
    @overload
    def scan(
        self,
        partition: str,
        type: type[T],
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        check: bool = False,
    ) -> list[Row[T]]: ...
    def scan(
        self, partition: str, type: Any = Any, *, start: str = "", **options: Any
    ) -> list[Row[Any]]:
        """Return the records with `start <= sort key < end` in order, own writes included."""
        return self._portal.run(self._target.scan(partition, type, start=start, **options))

    @property
    def now_ms(self) -> int:
        """The time of this transaction. Records that have expired by then are absent."""
        return self._target.now_ms

    @property
    def job(self) -> str:
        """The id of the job whose handler uses this transaction, or an empty string."""
        return self._target.job

    @property
    def size(self) -> int:
        """The number of writes and checked reads of the commit."""
        return self._target.size

    def put(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> None:
        """Write a value. If the key was read in this transaction, the commit checks that it is
        unchanged."""
        return self._target.put(key, value, expires_at_ms=expires_at_ms)

    def add(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> None:
        """Create a record. An existing record is a conflict, and the function runs again."""
        return self._target.add(key, value, expires_at_ms=expires_at_ms)

    def delete(self, key: Key) -> None:
        """Delete a record. If it was read in this transaction, the commit checks that it is
        unchanged."""
        return self._target.delete(key)

    def mark(self) -> Mark:
        """A savepoint for `undo`."""
        return self._target.mark()

    def undo(self, mark: Mark) -> None:
        """Discard all writes since a savepoint. Reads stay checked at the commit."""
        return self._target.undo(mark)

    def on_durable(self, hook: Callable[[], None]) -> None:
        """Call `hook` when the commit is durable; without writes, when the reads are checked."""
        return self._target.on_durable(hook)
