"""A transaction: its read set, its write set, and reads that see both."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar, overload

from onceward import limits
from onceward.engine.base import (
    ABSENT,
    ANY,
    Check,
    Delete,
    Engine,
    Expectation,
    Incarnation,
    Put,
    Record,
    Session,
    Write,
    admit_scan,
)
from onceward.errors import BadInput, OncewardError
from onceward.json_values import decode, encode
from onceward.keys import Key, after, shown_key
from onceward.server_key import ServerKeys
from onceward.store.cache import Heads

T = TypeVar("T")


class Row(NamedTuple, Generic[T]):
    """A record found by a scan."""

    key: Key
    value: T


Mark = tuple[int, int, int, int, int]
"""A savepoint: the numbers of written records, replaced writes, hooks of both kinds, and notes."""


class Transaction:
    """One run of a function. Reads are repeatable and see the transaction's own writes.

    Keys are the stored keys; applications get a `UserTransaction` with its own key space. Values
    are JSON, encoded by `msgspec` from plain data or a given type. The commit checks records that
    were read by `get`. It checks records that were returned by `scan` only with `check=True`, or if
    the key is also read by `get` or written.
    """

    server_keys: ServerKeys = ServerKeys()
    """The keys that encrypt and decrypt stored secrets."""

    def __init__(
        self, engine: Engine, now_ms: int, heads: Heads, ends_ms: int | None = None
    ) -> None:
        self.now_ms = now_ms
        """The time of this transaction. Records that have expired by then are absent."""
        self.ends_ms = now_ms if ends_ms is None else ends_ms
        """The end of that millisecond. Delays start there, so that none is too short."""
        self.seen: dict[Key, Record | None] = {}
        self.heads_used: set[Key] = set()
        self.hooks: list[Callable[[], None]] = []
        self.end_hooks: list[Callable[[bool], None]] | None = None
        """The hooks of `on_end`; None if the caller of `begin` does not support them."""
        self.outcome_unknown = False
        """Whether its commit may have taken effect although it failed."""
        self.notes: list[Any] = []
        """Values that functions of this transaction leave for hooks at its end."""
        self.job = ""
        """The id of the job whose handler uses this transaction, or an empty string."""
        self.session: Session | None = None
        """The SQL transaction that ends with this one, once the application has asked for it."""
        self.keeps = engine.shares_reads
        """Whether reading a record takes so long that a copy in memory pays."""
        self._engine = engine
        self._heads = heads
        self._checked: dict[Key, None] = {}
        self._writes: dict[Key, Put | Delete] = {}
        self._added: set[Key] = set()
        self._replaced: list[Put | Delete] = []
        """Own writes that later writes of the same key have replaced, in order."""
        self._scanned: str | None = None
        self._finished = False

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the database in which this transaction runs."""
        return self._engine.incarnation

    @overload
    async def get(self, key: Key, *, cached: bool = False) -> Any: ...
    @overload
    async def get(self, key: Key, type: type[T], *, cached: bool = False) -> T | None: ...
    async def get(self, key: Key, type: Any = Any, *, cached: bool = False) -> Any:
        """Return the value of a key, or None.

        With `cached`, a copy in memory may be used, which suits hot records. The commit checks it,
        so a stale copy costs only one more run.
        """
        self._admit(key)
        own = self._writes.get(key)
        if own is not None:
            return decode(own.value, type, key) if self._shows(own) else None
        if key not in self.seen:
            head = self._heads.records.get(key) if cached else None
            if head is not None:
                self.seen[key] = None if head.absent_at(self.now_ms) else head
            else:
                [found] = await self._engine.get([key], self.now_ms)
                # Concurrent reads of a key must return the same record; the first one counts.
                self.seen.setdefault(key, found)
        record = self.seen[key]
        self._checked[key] = None
        if cached:
            self.heads_used.add(key)
            if record is not None and key not in self._heads.records:
                self._heads.put(record)
        return None if record is None else decode(record.value, type, key)

    async def sql(self) -> Any:
        """The connection of the SQL transaction that ends with this one. Raises `BadInput` if the
        database has no SQL, and `Unavailable`."""
        self._must_be_running()
        if self.session is None:
            await self._begin_session()
        assert self.session is not None
        return self.session.connection

    async def _begin_session(self) -> None:
        session = await self._engine.session()
        if self._finished or self.session is not None:  # a concurrent call was faster
            session.discard()
            self._must_be_running()
        else:
            self.session = session

    async def has(self, key: Key) -> bool:
        """Whether a record exists, even if it is damaged. Checked at the commit, as by `get`."""
        self._must_be_running()
        own = self._writes.get(key)
        if own is not None:
            return self._shows(own)
        await self.fetch([key])
        self._checked[key] = None
        return self.seen[key] is not None

    def glance(self, key: Key) -> bytes | None:
        """The value of a key as JSON, if this transaction wrote it or a copy is in memory.

        A returned value is checked at the commit, as by `get`. None means that the value is
        unknown.
        """
        self._must_be_running()
        own = self._writes.get(key)
        if own is not None:
            return own.value if self._shows(own) else None
        record = self.seen.get(key)
        if record is None:
            record = self._heads.records.get(key)
            if record is None or key in self.seen or record.absent_at(self.now_ms):
                return None
            self.seen[key] = record
        self._checked[key] = None
        self.heads_used.add(key)
        return record.value

    @overload
    async def get_many(self, keys: Sequence[Key], *, skip_damaged: bool = False) -> list[Any]: ...
    @overload
    async def get_many(
        self, keys: Sequence[Key], type: type[T], *, skip_damaged: bool = False
    ) -> list[T | None]: ...
    async def get_many(
        self, keys: Sequence[Key], type: Any = Any, *, skip_damaged: bool = False
    ) -> list[Any]:
        """Return the values of several keys, with one call to the engine.

        With `skip_damaged`, a record that cannot be read is None and raises an alarm.
        """
        await self.fetch(keys)
        if skip_damaged:
            return [await self._get_or_none(key, type) for key in keys]
        return [await self.get(key, type) for key in keys]

    async def _get_or_none(self, key: Key, type: Any) -> Any:
        try:
            return await self.get(key, type)
        except OncewardError as error:
            if error.code != "damaged":
                raise
            self.report_damaged(key, error.message)
            return None

    def report_damaged(self, key: Key, why: str) -> None:
        """Raise an alarm for a record that cannot be read."""
        self._engine.alarms.damaged(key, why)

    async def fetch(self, keys: Sequence[Key]) -> None:
        """Read several keys with one call to the engine, so that `get` finds them in memory.

        A key that is fetched but not read by `get` is checked only if it is written.
        """
        self._must_be_running()
        for key in keys:
            self._admit(key)
        unknown = [key for key in keys if key not in self.seen and key not in self._writes]
        if unknown:
            found = await self._engine.get(unknown, self.now_ms)
            for key, record in zip(unknown, found, strict=True):
                self.seen.setdefault(key, record)

    async def fetch_unknown(self, keys: Sequence[Key]) -> None:
        """Like `fetch`, but use copies in memory, which the commit checks."""
        await self.fetch([key for key in keys if not self.keeps or self.glance(key) is None])

    def assume_absent(self, key: Key) -> None:
        """Read a key with a new id as absent, without a call. The commit checks it."""
        self.seen.setdefault(key, None)

    def keep(self, key: Key) -> None:
        """Keep a copy of the record of this key in memory, as this transaction writes it."""
        if self.keeps:
            self.heads_used.add(key)

    def expiry(self, key: Key) -> int | None:
        """The expiry of a record that was read; None if it is absent or does not expire."""
        record = self.seen.get(key)
        return None if record is None else record.expires_at_ms

    def peek(self, key: Key, type: type[T]) -> T | None:
        """The value of a fetched key, or None, without a check at the commit.

        For overviews whose records need not be consistent with each other.
        """
        record = self.seen.get(key)
        value: T | None = None if record is None else decode(record.value, type, key)
        return value

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
        skip_damaged: bool = False,
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
        skip_damaged: bool = False,
    ) -> list[Row[T]]: ...
    async def scan(
        self,
        partition: str,
        type: Any = Any,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        check: bool = False,
        skip_damaged: bool = False,
    ) -> list[Row[Any]]:
        """Return the records with `start <= sort key < end` in order, own writes included.

        With `check`, the commit checks every returned record, and each one counts towards its
        limit. New records in the range are not detected; check a head record for that. With
        `skip_damaged`, records that cannot be read are skipped and raise an alarm.
        """
        admit_scan(limit)
        self._admit((partition, start))
        if end is not None:
            self._admit((partition, end))
        own = {
            key: write
            for key, write in self._writes.items()
            if key[0] == partition and start <= key[1] and (end is None or key[1] < end)
        }
        hidden = sum(1 for write in own.values() if not self._shows(write))
        found = await self._scan(partition, start, end, limit + hidden, reverse, skip_damaged)
        values: dict[Key, bytes] = {}
        for record in found:
            seen = self.seen.setdefault(record.key, record)
            if seen is not None:
                values[record.key] = seen.value
        for key, write in own.items():
            if self._shows(write):
                values[key] = write.value
            else:
                values.pop(key, None)
        chosen = sorted(values, reverse=reverse)[:limit]
        if check:
            self._checked.update(dict.fromkeys(chosen))
        if not skip_damaged:
            return [Row(key, decode(values[key], type, key)) for key in chosen]
        rows: list[Row[Any]] = []
        for key in chosen:
            try:
                rows.append(Row(key, decode(values[key], type, key)))
            except OncewardError as error:
                self.report_damaged(key, error.message)
        if len(rows) < limit == len(chosen) and not reverse:
            # Callers interpret a short page as the end.
            rows += await self.scan(
                partition,
                type,
                start=after(chosen[-1][1]),
                end=end,
                limit=limit - len(rows),
                check=check,
                skip_damaged=True,
            )
        return rows

    async def sorts(self, partition: str, limit: int, start: str = "") -> list[str]:
        """The sort keys of a partition in order, own writes included, without reading values.

        Records whose key is damaged are skipped.
        """
        self._must_be_running()
        admit_scan(limit)
        own = {key[1]: write for key, write in self._writes.items() if key[0] == partition}
        found = await self._scan(partition, start, None, limit + len(own), False, True)
        shown = {record.key[1] for record in found}
        for sort, write in own.items():
            if sort >= start and self._shows(write):
                shown.add(sort)
            else:
                shown.discard(sort)
        return sorted(shown)[:limit]

    async def _scan(
        self,
        partition: str,
        start: str,
        end: str | None,
        count: int,
        reverse: bool,
        skip_damaged: bool,
    ) -> list[Record]:
        """The first `count` records, which may take several scans."""
        self._scanned = partition
        found: list[Record] = []
        while True:
            limit = min(count - len(found), limits.SCAN_RECORDS_MAX)
            page = await self._engine.scan(
                partition,
                self.now_ms,
                start=start,
                end=end,
                limit=limit,
                reverse=reverse,
                skip_damaged=skip_damaged,
            )
            found += page
            if len(page) < limit or len(found) == count:
                return found
            if reverse:
                end = page[-1].key[1]
            else:
                start = after(page[-1].key[1])

    def put(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> bytes:
        """Write a value and return it as JSON. If the key was read, the commit checks that it is
        unchanged.

        If the key was not read, the write is blind and replaces any value.
        """
        self._admit(key)
        expect = self._expectation(key)
        text = encode(value, key)
        own = self._writes.get(key)
        if own is not None:
            self._replaced.append(own)
        self._writes[key] = Put(key, text, expires_at_ms, expect)
        return text

    def add(self, key: Key, value: Any, *, expires_at_ms: int | None = None) -> None:
        """Create a record. An existing record is a conflict, and the function runs again.

        Raises `BadInput` if this transaction has read or written a value of the key, because
        another run would not help. Cheaper than a blind `put` on engines that then need no lookup.
        """
        self._admit(key)
        own = self._writes.get(key)
        if own is None:
            there = self.seen.get(key) is not None
            if there:
                self._checked[key] = None  # so that the commit validates this error
        else:
            there = self._shows(own)
        if there:
            raise BadInput(f"{shown_key(key)} exists already; use `put` to replace it")
        text = encode(value, key)
        if own is None:
            self._added.add(key)
        else:
            self._replaced.append(own)
        self._writes[key] = Put(key, text, expires_at_ms, ABSENT)

    def delete(self, key: Key) -> None:
        """Delete a record. If it was read in this transaction, the commit checks that it is
        unchanged.
        """
        self._admit(key)
        own = self._writes.get(key)
        if own is not None:
            self._replaced.append(own)
        self._writes[key] = Delete(key, self._expectation(key))

    def mark(self) -> Mark:
        """A savepoint for `undo`."""
        end_hooks = self.end_hooks
        return (
            len(self._writes),
            len(self._replaced),
            len(self.hooks),
            len(end_hooks) if end_hooks else 0,
            len(self.notes),
        )

    def undo(self, mark: Mark) -> None:
        """Discard all writes since a savepoint, and call the end hooks registered since then with
        False.

        Reads stay checked at the commit, because the result depends on them.
        """
        self._must_be_running()
        writes, replaced, hooks, end_hooks, notes = mark
        while len(self._replaced) > replaced:
            own = self._replaced.pop()
            self._writes[own.key] = own
        while len(self._writes) > writes:
            key, _ = self._writes.popitem()  # the newest
            self._added.discard(key)
        del self.hooks[hooks:], self.notes[notes:]
        if self.end_hooks:
            failed = self.end_hooks[end_hooks:]
            del self.end_hooks[end_hooks:]
            for hook in failed:
                hook(False)

    @property
    def size(self) -> int:
        """The number of writes and checked reads of the commit."""
        return len(self._writes.keys() | self._checked.keys())

    @property
    def writes(self) -> int:
        """The number of written records."""
        return len(self._writes)

    @property
    def values_bytes(self) -> int:
        """The size of all written values."""
        return sum(len(own.value) for own in self._writes.values() if isinstance(own, Put))

    @property
    def written(self) -> list[Key]:
        """The keys of all puts."""
        return [key for key, own in self._writes.items() if isinstance(own, Put)]

    def on_durable(self, hook: Callable[[], None]) -> None:
        """Call `hook` when the commit is durable; without writes, when the reads are checked.

        It is not called if the transaction fails. If the caller is cancelled during the commit,
        `Store.on_durable` applies.
        """
        self._must_be_running()
        self.hooks.append(hook)

    def on_end(self, hook: Callable[[bool], None]) -> bool:
        """Call `hook` once when the transaction has ended: with True when its commit is durable,
        with False if it failed or its outcome is unknown.

        Returns whether hooks are supported, which is the case in `Store.run`.
        """
        if self._finished:
            raise _over()
        if self.end_hooks is None:
            return False
        self.end_hooks.append(hook)
        return True

    def finish(self, *, write: bool) -> list[Write]:
        """End the transaction and return its commit, or with `write=False` only the checks of its
        reads.
        """
        if self._finished:
            raise _over()
        self._finished = True
        writes: list[Write] = []
        if write:
            for key, own in self._writes.items():
                if own.expect is not ANY and (own.expect is not ABSENT or key in self._added):
                    writes.append(own)
                    continue
                expect = self._expectation(key)
                if own.expect == expect:
                    writes.append(own)
                elif isinstance(own, Put):  # it was read after it was written
                    writes.append(Put(own.key, own.value, own.expires_at_ms, expect))
                else:
                    writes.append(Delete(own.key, expect))
        for key in self._checked:
            if not write or key not in self._writes:
                writes.append(Check(key, self._expectation(key)))
        if not writes and self._scanned is not None:
            # A scan may have returned records that are not durable yet; the commit waits for them.
            writes.append(Check((self._scanned, "scan"), ANY))
        return writes

    def _expectation(self, key: Key) -> Expectation:
        if key in self._added:
            return ABSENT
        if key not in self.seen:
            return ANY
        record = self.seen[key]
        return ABSENT if record is None else record.version

    def _shows(self, own: Put | Delete) -> TypeGuard[Put]:
        """Whether a read shows this write at the transaction's time."""
        return isinstance(own, Put) and (
            own.expires_at_ms is None or own.expires_at_ms > self.now_ms
        )

    def _admit(self, key: Any) -> None:
        """Raise `BadInput` if the transaction has ended or the key is invalid."""
        if self._finished:
            raise _over()
        if not (
            type(key) is tuple and len(key) == 2 and type(key[0]) is str and type(key[1]) is str
        ):
            admit_key(key)

    def _must_be_running(self) -> None:
        if self._finished:
            raise _over()


def admit_key(key: Any) -> None:
    """Raise `BadInput` unless the key is a tuple of two strings."""
    if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(t, str) for t in key)):
        raise BadInput(
            "a key must be a partition and a sort key, both strings, not "
            f'{str(key)[:200]!r}: tx.get(("stock", "7"))',
            code="bad_key",
        )


def _over() -> BadInput:
    return BadInput("this transaction has ended; use the one that your function receives")
