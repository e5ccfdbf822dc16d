"""User records: the key space of applications.

An application reads and writes records through a `UserTransaction`, which is public as
`onceward.Transaction`. It adds the partition prefix `keys.USER` to every key and removes it from
returned keys, so applications cannot address internal records. Internal code uses
`onceward.store.transaction.Transaction` with the stored keys.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from onceward import limits
from onceward.errors import BadInput
from onceward.functions import admit_awaitable
from onceward.keys import USER, Key, shown_key, user_key
from onceward.store.transaction import Mark, Row, Transaction, admit_key
from onceward.threads import Run

T = TypeVar("T")
P = ParamSpec("P")
Self_ = TypeVar("Self_")

PARTITION_BYTES_MAX = limits.PARTITION_BYTES_MAX - len(USER)
# A character has at most four bytes, so shorter partitions need no encoding to be measured.
_PARTITION_CHARS_SAFE = PARTITION_BYTES_MAX // 4


class UserWrites:
    """The part of a transaction on the records of the application that needs no read: writes."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _tx(self) -> Transaction: ...

    @property
    def now_ms(self) -> int:
        """The time of this transaction. Records that have expired by then are absent."""
        return self._tx.now_ms

    @property
    def job(self) -> str:
        """The id of the job whose handler uses this transaction, or an empty string."""
        return self._tx.job

    @property
    def size(self) -> int:
        """The number of writes and checked reads of the commit."""
        return self._tx.size

    def put(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> None:
        """Write a value. If the key was read in this transaction, the commit checks that it is
        unchanged.

        If the key was not read, the write is blind and replaces any value.
        """
        self._tx.put(stored_key(key), value, expires_at_ms=expires_at_ms)

    def add(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> None:
        """Create a record. An existing record is a conflict, and the function runs again.

        Raises `BadInput` if this transaction has read or written a value of the key. Cheaper than a
        blind `put` on engines that then need no lookup.
        """
        self._tx.add(stored_key(key), value, expires_at_ms=expires_at_ms)

    def delete(self, key: Key) -> None:
        """Delete a record. If it was read in this transaction, the commit checks that it is
        unchanged.
        """
        self._tx.delete(stored_key(key))

    def mark(self) -> Mark:
        """A savepoint for `undo`."""
        return self._tx.mark()

    def undo(self, mark: Mark) -> None:
        """Discard all writes since a savepoint. Reads stay checked at the commit."""
        self._tx.undo(mark)

    def on_durable(self, hook: Callable[[], None]) -> None:
        """Call `hook` when the commit is durable; without writes, when the reads are checked.

        It is not called if the transaction fails.
        """
        self._tx.on_durable(hook)


class UserTransaction(UserWrites):
    """A transaction on the records of the application.

    Reads are repeatable and see the transaction's own writes. Values are JSON, encoded by `msgspec`
    from plain data or a given type. The commit checks records that were read by `get`. It checks
    records that were returned by `scan` only with `check=True`, or if the key is also read by `get`
    or written. Partitions can have any name of up to `PARTITION_BYTES_MAX` bytes.
    """

    __slots__ = ("_tx",)

    def __init__(self, tx: Transaction) -> None:
        self._tx: Transaction = tx

    async def sql(self) -> Any:
        """A connection of asyncpg to Onceward's PostgreSQL database, in a READ COMMITTED
        transaction. Its statements and the writes of this transaction commit together or not at
        all.

        Reads of the connection are not validated: lock rows that you decide from (`SELECT … FOR
        UPDATE`). Do not commit or roll back. Raises `BadInput` on other databases.
        """
        return await self._tx.sql()

    @overload
    async def get(self, key: Key, *, cached: bool = False) -> Any: ...
    @overload
    async def get(self, key: Key, type: type[T], *, cached: bool = False) -> T | None: ...
    async def get(self, key: Key, type: Any = Any, *, cached: bool = False) -> Any:
        """Return the value of a key, or None.

        With `cached`, a copy in memory may be used. The commit checks it, so a stale copy costs
        only one more run.
        """
        return await self._tx.get(stored_key(key), type, cached=cached)

    @overload
    async def get_many(self, keys: Sequence[Key]) -> list[Any]: ...
    @overload
    async def get_many(self, keys: Sequence[Key], type: type[T]) -> list[T | None]: ...
    async def get_many(self, keys: Sequence[Key], type: Any = Any) -> list[Any]:
        """Return the values of several keys, with one call to the engine."""
        return await self._tx.get_many([stored_key(key) for key in keys], type)

    async def fetch(self, keys: Sequence[Key]) -> None:
        """Read several keys with one call to the engine, so that `get` finds them in memory.

        A key that is fetched but not read by `get` is checked only if it is written.
        """
        await self._tx.fetch([stored_key(key) for key in keys])

    @overload
    async def scan(
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
    async def scan(
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
    async def scan(
        self, partition: str, type: Any = Any, *, start: str = "", **options: Any
    ) -> list[Row[Any]]:
        """Return the records with `start <= sort key < end` in order, own writes included.

        With `check`, the commit checks every returned record, and each one counts towards its
        limit. New records in the range are not detected; check a head record for that.
        """
        stored, start = stored_key((partition, start))
        rows = await self._tx.scan(stored, type, start=start, **options)
        return [Row(shown_key(row.key), row.value) for row in rows]


class SyncTransaction(UserWrites):
    """The transaction of a plain function: a `UserTransaction` whose reads wait for the event
    loop. Use it in the thread of that function only."""

    __slots__ = ("_run", "_user_tx")

    def __init__(self, tx: UserTransaction, run: Run) -> None:
        self._user_tx = tx
        self._run = run

    @property
    def _tx(self) -> Transaction:
        self._run.must_be_here("tx")
        return self._user_tx._tx

    @overload
    def get(self, key: Key, *, cached: bool = False) -> Any: ...
    @overload
    def get(self, key: Key, type: type[T], *, cached: bool = False) -> T | None: ...
    def get(self, key: Key, type: Any = Any, *, cached: bool = False) -> Any:
        """See `UserTransaction.get`."""
        return self._run.call(self._user_tx.get, key, type, cached=cached)

    @overload
    def get_many(self, keys: Sequence[Key]) -> list[Any]: ...
    @overload
    def get_many(self, keys: Sequence[Key], type: type[T]) -> list[T | None]: ...
    def get_many(self, keys: Sequence[Key], type: Any = Any) -> list[Any]:
        """See `UserTransaction.get_many`."""
        found: list[Any] = self._run.call(self._user_tx.get_many, keys, type)
        return found

    def fetch(self, keys: Sequence[Key]) -> None:
        """See `UserTransaction.fetch`."""
        self._run.call(self._user_tx.fetch, keys)

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
    def scan(self, partition: str, type: Any = Any, **options: Any) -> list[Row[Any]]:
        """See `UserTransaction.scan`."""
        found: list[Row[Any]] = self._run.call(self._user_tx.scan, partition, type, **options)
        return found


AnyTransaction = Transaction | UserTransaction | SyncTransaction


def admit_tx(tx: Any) -> Transaction:
    """The stored transaction of a `tx` argument. Raises `BadInput` for any other type."""
    if type(tx) is UserTransaction:
        return tx._tx
    if isinstance(tx, Transaction):
        return tx
    if type(tx) is SyncTransaction:
        return tx._user_tx._tx
    raise BadInput(
        f"`tx` must be the transaction that a function receives, not {type(tx).__name__}"
    )


def joins(
    fn: Callable[Concatenate[Self_, Transaction, P], T],
) -> Callable[Concatenate[Self_, AnyTransaction, P], T]:
    """Decorate a public method with a `tx` argument, so that it accepts a `UserTransaction` as
    well.
    """

    @wraps(fn)
    def call(self: Self_, tx: AnyTransaction, /, *args: P.args, **options: P.kwargs) -> T:
        if type(tx) is not Transaction:
            tx = admit_tx(tx)
        return fn(self, tx, *args, **options)

    return call


def by_user(fn: Callable[[UserTransaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
    """Wrap a function of an application for `Store.run`. Raises `BadInput` if it is not async; then
    nothing is written."""
    if not callable(fn):
        raise BadInput(f"a transaction must be an async function, not {type(fn).__name__}")
    return lambda tx: admit_awaitable(fn(UserTransaction(tx)), fn, "a transaction")


def stored_key(key: Any) -> Key:
    """The stored form of a key. Raises `BadInput` for an invalid key."""
    admit_key(key)
    partition = key[0]
    if not 0 < len(partition) <= _PARTITION_CHARS_SAFE:
        size_bytes = len(partition.encode(errors="replace"))
        if not 0 < size_bytes <= PARTITION_BYTES_MAX:
            raise BadInput(
                f"a partition must have 1 to {PARTITION_BYTES_MAX} bytes, not {size_bytes}",
                code="bad_key",
            )
    return user_key(key)
