"""One transaction: its read set, its write set, and reads that see both."""

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
"""A savepoint of a transaction: how many records it had written by then, how many writes it had
replaced, its hooks of both kinds, and its notes."""


class Transaction:
    """The view of one run of a function: reads are repeatable and see its own writes. Keys are as
    they are stored; applications get a `records.UserTransaction`, which has its own key space.

    Values are JSON: what `msgspec` encodes, as plain data or as a given type. What `get`
    returned is checked at the commit; what `scan` returned only if asked for, or if the
    same key is also read by `get` or written.
    """

    server_keys: ServerKeys = ServerKeys()
    """What encrypts and decrypts stored secrets."""

    def __init__(
        self, engine: Engine, now_ms: int, heads: Heads, ends_ms: int | None = None
    ) -> None:
        self.now_ms = now_ms
        """The time of this transaction; what expires by it is absent."""
        self.ends_ms = now_ms if ends_ms is None else ends_ms
        """When that millisecond ends: delays count from there on, so that none is too short."""
        self.seen: dict[Key, Record | None] = {}
        self.heads_used: set[Key] = set()
        self.hooks: list[Callable[[], None]] = []
        self.end_hooks: list[Callable[[bool], None]] | None = None
        """For `on_end`; None if nobody sees to it that they are called."""
        self.notes: list[Any] = []
        """Values that the functions of this transaction leave for hooks of its end."""
        self.job = ""
        """The id of the job whose handler this is the transaction of, if it is one's."""
        self._engine = engine
        self._heads = heads
        self._checked: dict[Key, None] = {}
        self._writes: dict[Key, Put | Delete] = {}
        self._added: set[Key] = set()
        self._replaced: list[Put | Delete] = []
        """Own writes that others of the same key have replaced, in order."""
        self._scanned: str | None = None
        self._finished = False

    @property
    def incarnation(self) -> Incarnation:
        """The life of the database in which this transaction runs."""
        return self._engine.incarnation

    @overload
    async def get(self, key: Key, *, cached: bool = False) -> Any: ...
    @overload
    async def get(self, key: Key, type: type[T], *, cached: bool = False) -> T | None: ...
    async def get(self, key: Key, type: Any = Any, *, cached: bool = False) -> Any:
        """The value under a key, or None.

        With `cached`, a copy in memory will do, if there is one: right for hot heads,
        since the commit checks it; a stale copy costs one more run.
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
                # Who reads the same key at the same time must see the same: the first counts.
                self.seen.setdefault(key, found)
        record = self.seen[key]
        self._checked[key] = None
        if cached:
            self.heads_used.add(key)
            if record is not None and key not in self._heads.records:
                self._heads.put(record)
        return None if record is None else decode(record.value, type, key)

    async def has(self, key: Key) -> bool:
        """Whether something stands under a key, be it damaged; checked as by `get`."""
        self._must_be_running()
        own = self._writes.get(key)
        if own is not None:
            return self._shows(own)
        await self.fetch([key])
        self._checked[key] = None
        return self.seen[key] is not None

    def glance(self, key: Key) -> bytes | None:
        """What stands under a key as JSON, if this transaction has put it there or a copy is in
        memory: then it is checked at the commit, as by `get`. None says nothing."""
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
        """The values under several keys, with one call to the engine. With `skip_damaged`, None
        for a record that cannot be read, which raises an alarm."""
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
        """Raise the alarm for a record that cannot be read."""
        self._engine.alarms.damaged(key, why)

    async def fetch(self, keys: Sequence[Key]) -> None:
        """Get several keys with one call to the engine, so that `get` need not ask for each.

        What is fetched but not read by `get` is checked only if it is written.
        """
        self._must_be_running()
        for key in keys:
            self._admit(key)
        unknown = [key for key in keys if key not in self.seen and key not in self._writes]
        if unknown:
            found = await self._engine.get(unknown, self.now_ms)
            for key, record in zip(unknown, found, strict=True):
                self.seen.setdefault(key, record)

    def expiry(self, key: Key) -> int | None:
        """When the record expires that was read under a key; None if there is none, or never."""
        record = self.seen.get(key)
        return None if record is None else record.expires_at_ms

    def peek(self, key: Key, type: type[T]) -> T | None:
        """The value under a key that was fetched, or None. It is not checked at the commit: for
        a look at many things, of which each is true by itself."""
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
        """The records with `start <= sort key < end` in order, own writes included.

        With `check`, every record returned is checked at the commit (and counts towards
        its limit). New neighbours are never noticed: check a head record for that. With
        `skip_damaged`, records that cannot be read are left out and raise an alarm, so that one
        of them does not keep the others away.
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
            # Callers take a short answer for the end.
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
        """The sort keys of a partition in order, own writes included, whatever stands there.
        Records whose key is damaged are left out."""
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
        """The first `count` records, which may be more than one scan returns."""
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
        """Write a value; if the key was read in this transaction, only if unchanged since.
        Returns it as JSON.

        Without having read it, the write is blind: it replaces whatever is there.
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
        """Write a value under a key of its own, where nothing stands; if something does, that
        is a conflict, and the function runs again. Raises `BadInput` if this transaction has
        seen or put something there: to run again would not help.

        Cheaper than a blind `put` on engines that then need not look for what it replaces.
        """
        self._admit(key)
        own = self._writes.get(key)
        if own is None:
            there = self.seen.get(key) is not None
            if there:
                self._checked[key] = None  # so that this answer is validated, too
        else:
            there = self._shows(own)
        if there:
            raise BadInput(f"{shown_key(key)} is there already; `put` replaces it")
        text = encode(value, key)
        if own is None:
            self._added.add(key)
        else:
            self._replaced.append(own)
        self._writes[key] = Put(key, text, expires_at_ms, ABSENT)

    def delete(self, key: Key) -> None:
        """Remove a record; if the key was read in this transaction, only if unchanged since."""
        self._admit(key)
        own = self._writes.get(key)
        if own is not None:
            self._replaced.append(own)
        self._writes[key] = Delete(key, self._expectation(key))

    def mark(self) -> Mark:
        """Where it is, for `undo`."""
        end_hooks = self.end_hooks
        return (
            len(self._writes),
            len(self._replaced),
            len(self.hooks),
            len(end_hooks) if end_hooks else 0,
            len(self.notes),
        )

    def undo(self, mark: Mark) -> None:
        """Write nothing of what was written since a mark; hooks of then hear that it failed. What
        was read stays so, and is checked at the commit: what came of it depends on that."""
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
        """How many writes and checked reads its commit has so far."""
        return len(self._writes.keys() | self._checked.keys())

    @property
    def writes(self) -> int:
        """How many records it has written so far."""
        return len(self._writes)

    @property
    def written(self) -> list[Key]:
        """The keys under which it has put something so far."""
        return [key for key, own in self._writes.items() if isinstance(own, Put)]

    def on_durable(self, hook: Callable[[], None]) -> None:
        """Call `hook` once this transaction's commit is durable; never for one that failed. One
        that only read has no commit: `hook` is called once its reads are checked.

        If the caller was cancelled meanwhile: as `Store.on_durable` says.
        """
        self._must_be_running()
        self.hooks.append(hook)

    def on_end(self, hook: Callable[[bool], None]) -> bool:
        """Call `hook` when this transaction has ended, once: with True as soon as its commit is
        durable, with False if it failed. Says whether it will be: of those by `Store.run`."""
        if self._finished:
            raise _over()
        if self.end_hooks is None:
            return False
        self.end_hooks.append(hook)
        return True

    def finish(self, *, write: bool) -> list[Write]:
        """End the transaction: the commit that makes it true, or only validates its reads."""
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
            # A scan may have shown what is not durable yet: an answer waits for that.
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
        """Whether this transaction's own write leaves something to see by its time."""
        return isinstance(own, Put) and (
            own.expires_at_ms is None or own.expires_at_ms > self.now_ms
        )

    def _admit(self, key: Any) -> None:
        """Raise `BadInput` if it is over, or for what is no key."""
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
    """Raise `BadInput` for what is no partition and sort key: text both of them."""
    if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(t, str) for t in key)):
        raise BadInput(
            f"a key is a partition and a sort key, both text, not {str(key)[:200]!r}: "
            'tx.get(("stock", "7"))',
            code="bad_key",
        )


def _over() -> BadInput:
    return BadInput("this transaction is over; use the one given to the function")
