"""The engine contract: ordered, versioned records with atomic commits.

An engine is an ordered set of records, `(partition, sort key) -> value, version, expires_at_ms`,
changed only by atomic commits. Every engine gives these guarantees, and
`onceward.testing.certify_engine` checks them:

- A commit is applied completely or not at all, and all its puts get one version. Versions are
  compared for equality only. A version is never reused, even after a restart or when a key is
  deleted and put again.
- `commit` returns when the commit is durable. Reads may show a commit earlier. A response that
  depends on reads is therefore sent only after a commit that checks them.
- A record with `expires_at_ms <= now_ms` is absent for every call with that `now_ms`.
- `scan` returns records in the order of their sort keys as bytes. It does not protect against
  phantoms: a decision that is based on a scan must check a head record.
- Values are JSON text in UTF-8, never empty. Limits are the same on all engines.
- Stored data that fails verification is never returned as data. The record has the value `DAMAGED`,
  or the call raises `Damaged`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec

from onceward import forks, limits
from onceward.alarms import Alarms
from onceward.clock import Clock
from onceward.errors import BadInput, Conflict, OncewardError, TooLarge, Unavailable
from onceward.keys import Key, shown_key

Version = int | str


class Expect(Enum):
    """The expectations of a write, besides a certain version."""

    ANY = "any"
    ABSENT = "absent"


ANY: Final = Expect.ANY
ABSENT: Final = Expect.ABSENT
Expectation = Literal[Expect.ANY, Expect.ABSENT] | Version


DAMAGED: Final = b"\xff"
"""The value of a record whose stored value failed verification. It is not JSON, so decoding it
raises `damaged`.
"""


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stored value with its key, version and expiry."""

    key: Key
    value: bytes
    version: Version
    expires_at_ms: int | None = None

    def absent_at(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a value."""

    key: Key
    value: bytes
    expires_at_ms: int | None = None
    expect: Expectation = ANY


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Delete a record. A missing record is no error unless the expectation requires it."""

    key: Key
    expect: Expectation = ANY


class Check(msgspec.Struct, frozen=True, gc=False):
    """Change nothing, but fail the commit unless the expectation holds."""

    key: Key
    expect: Expectation


Write = Put | Delete | Check


class Incarnation(msgspec.Struct, frozen=True):
    """One incarnation of a database. A restore, a failover or a clone starts a new one.

    Commits that an earlier incarnation acknowledged may be missing in this one.
    """

    id: str
    """Random and unique."""
    number: int = 1
    """Greater than the numbers of all earlier incarnations."""
    since_ms: int = 0
    """When this incarnation started; 0 for the first one."""


class Session(ABC):
    """A transaction of the application on an SQL database that has the records as well. The commit
    of records is part of it."""

    connection: Any
    """The connection of the driver, for statements of the application."""

    @abstractmethod
    def conflicts(self, error: BaseException) -> bool:
        """Whether an error of a statement was caused by concurrent transactions."""

    @abstractmethod
    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        """End the transaction with a commit, as by `Engine.commit`. `Conflict` also means that the
        database aborted the transaction. Raises errors of constraints, and `BadInput` if the
        application has ended the transaction."""

    @abstractmethod
    async def rollback(self) -> None:
        """Roll back. Idempotent."""

    @abstractmethod
    def discard(self) -> None:
        """End the transaction without waiting, if it has not ended. Idempotent."""


class Engine(ABC):
    """The interface of storage engines."""

    shared: bool = True
    """Whether other nodes can use the same database at the same time."""
    shares_commits: bool = True
    """Whether several transactions are cheaper in one commit. False if the conflict of one cancels
    the others, or if each write is billed.
    """
    outbox_url: str = ""
    """The URL of the SQL outbox that the database has; empty without one."""
    shares_reads: bool = False
    """Whether a read is a network round trip, so that batching the reads of several transactions is
    cheaper.
    """

    inherited = False
    """Whether it was open when this process was forked. It is then closed, and cannot be opened."""

    def forked(self) -> None:
        """Close it in a forked process, without any effect on the parent. Engines call
        `forks.watch` when they open."""
        self.inherited = True
        forks.keep(self)

    def closed_error(self, what: str) -> OncewardError:
        """The error of calls while it is closed."""
        if self.inherited:
            return forks.forked_error(what)
        return Unavailable(
            f"{what} is not open; open it first, or use it before it is closed",
            code="engine_closed",
        )

    @cached_property
    def alarms(self) -> Alarms:
        """The alarms of the node that uses this engine. The store sets their clock."""
        return Alarms(Clock().now_ms)

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation that this node uses now. Engines whose database cannot be restored while
        it is open use this default.
        """
        return Incarnation("")

    @cached_property
    def _incarnation_hooks(self) -> list[Callable[[Incarnation], None]]:
        return []

    def on_incarnation(self, hook: Callable[[Incarnation], None]) -> Callable[[], None]:
        """Call `hook` when the incarnation changes, before the database is read or written again.

        Records read before may be gone, so the hook must clear caches. Versions of lost records are
        not reused. A hook must not block or raise. Returns a function that removes the hook.
        """
        self._incarnation_hooks.append(hook)
        return lambda: self._incarnation_hooks.remove(hook)

    def incarnation_changed(self, incarnation: Incarnation) -> None:
        """Call all hooks. For use by the engine."""
        for hook in tuple(self._incarnation_hooks):
            try:
                hook(incarnation)
            except Exception as error:  # the other hooks must run as well
                context = {"message": "a hook failed at a new incarnation", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    @abstractmethod
    async def open(self) -> Self:
        """Open the database. Raises `CannotOpen` with a code for the reason."""

    @abstractmethod
    async def close(self) -> None:
        """Finish pending calls and release all resources. Idempotent."""

    async def session(self) -> Session:
        """Begin a transaction for statements of the application. Raises `BadInput` if the engine
        has no SQL database that the application can share, and `Unavailable`."""
        raise BadInput(
            "this database does not take SQL statements of the application: use PostgreSQL as "
            "Onceward's database, or `job.sql_step` for another database"
        )

    async def ask_sql(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Run one statement on the SQL database that the engine has, in a transaction of its own;
        returns its rows. It may run twice. Raises `BadInput` and `Unavailable`."""
        raise BadInput("this database takes no SQL statements; use PostgreSQL")

    @abstractmethod
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        """Return the records of these keys in the same order, read at one moment."""

    @abstractmethod
    async def scan(
        self,
        partition: str,
        now_ms: int,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> list[Record]:
        """Return the first `limit` records with `start <= sort key < end`, or with `reverse` the
        last.

        With `skip_damaged`, records whose key fails verification are skipped and raise an alarm.
        Otherwise the scan raises `Damaged`.
        """

    @abstractmethod
    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        """Apply all writes if all expectations hold, and return their version when they are
        durable.

        `visible` is called with the version as soon as reads show the writes, possibly before they
        are durable. A commit that consists of checks waits until all commits that its reads may
        have seen are durable.

        If a response is lost, the engine determines the outcome itself and prevents a late
        application. `OutcomeUnknown` means that it could not determine it.

        Raises:
            Conflict: Nothing was applied; `details["keys"]` lists the failed expectations.
            TooLarge, BadInput: The call can never succeed.
            Unavailable: Nothing was applied.
            OutcomeUnknown: The commit may or may not have been applied.
            EngineStopped: The engine has stopped after a failed write.
        """

    async def make_room(self, size_bytes: int) -> None:  # noqa: B027
        """Raise the error of a commit of that size if the storage is full.

        It is an estimate and changes no records.
        """

    def own_key(self) -> bytes | None:
        """The server key of an engine whose records end with the process, or None for durable
        engines, whose server key is stored elsewhere.
        """
        return None

    @abstractmethod
    def watch(self, partition: str) -> "Watch":
        """Watch a partition for changes. Close the watch after use."""

    @abstractmethod
    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        """Remove up to `limit` records that expired before `now_ms`; return the number removed.

        An engine with its own clock may keep records that expired only recently by that clock.
        """

    @property
    def verified(self) -> bool:
        """Whether all stored data has been verified since the database was opened, or needs no
        verification.
        """
        return True

    async def verify(self) -> None:  # noqa: B027
        """Verify stored data that reads might not cover. May take long. Raises `CannotOpen`
        (damaged).
        """

    async def now_ms(self) -> int | None:
        """Return the time of the database's clock, which all nodes share.

        None means that the engine has no clock; nodes use the machine's clock then.
        """
        return None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()


class Watch:
    """A flag that is set when a partition may have changed.

    Create the watch, call `clear`, read, then `wait`: this order misses no change. It is only a
    hint. It may be set without a change, and some engines never set it, so always wait with a
    timeout.
    """

    def __init__(self, partition: str, watchers: "Watchers") -> None:
        self.partition = partition
        self.on_hint: Callable[[], None] | None = None
        """Called at each hint, for callers that watch many partitions at once."""
        self.others_only = False
        """Ignore this node's commits, because the store reports them. Engines that cannot
        distinguish them send hints for all commits.
        """
        self._watchers = watchers
        self._changed = asyncio.Event()

    def clear(self) -> None:
        self._changed.clear()

    def hint(self, *, own: bool = False) -> None:
        """Set the flag. `own` marks a commit of this engine, whose caller receives its result."""
        if own and self.others_only:
            return
        self._changed.set()
        if self.on_hint is not None:
            self.on_hint()

    async def wait(self, timeout_s: float) -> bool:
        """Return True on a hint, False on timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._watchers.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class Watchers:
    """The watches of one engine, by partition."""

    def __init__(self) -> None:
        self.by_partition: dict[str, list[Watch]] = {}

    def add(self, partition: str) -> Watch:
        watch = Watch(partition, self)
        self.by_partition.setdefault(partition, []).append(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        watches = self.by_partition.get(watch.partition, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self.by_partition[watch.partition]

    def hint(self, writes: Sequence[Write], *, own: bool = False) -> None:
        watched = self.by_partition
        if watched.keys().isdisjoint([write.key[0] for write in writes]):
            return
        changed = [write.key[0] for write in writes if type(write) is not Check]
        for partition in dict.fromkeys(changed):
            for watch in tuple(watched.get(partition, ())):
                watch.hint(own=own)


def admit(writes: Sequence[Write]) -> int:
    """Reject a commit that exceeds the limits, equally on every engine; return its size in
    bytes."""
    if not 0 < len(writes) <= limits.COMMIT_WRITES_MAX:
        raise TooLarge(
            f"a commit must have 1 to {limits.COMMIT_WRITES_MAX} writes and checks, not "
            f"{len(writes)}"
        )
    # Every commit passes here, so all names are checked at once. Keys are checked one by one only
    # if that finds something unusual.
    names: list[str] = []
    values_bytes = 0
    for write in writes:
        names += write.key
        if type(write) is Put:
            value_bytes = len(write.value)
            values_bytes += value_bytes
            if (
                not 0 < value_bytes <= limits.VALUE_BYTES_MAX
                or type(write.value) is not bytes
                or not write.value.isascii()
                or write.expires_at_ms is not None
            ):
                _admit_put(write)
    text = "".join(names)
    names_bytes = len(text)
    if (
        (names_bytes > limits.SORT_BYTES_MAX and len(max(names, key=len)) > limits.SORT_BYTES_MAX)
        or "\x00" in text
        or not text.isascii()
        or not all(names)
    ):
        names_bytes = sum([key_bytes(write.key) for write in writes])
    size_bytes = names_bytes + values_bytes
    if size_bytes > limits.COMMIT_BYTES_MAX:
        raise TooLarge(
            f"a commit has at most {limits.COMMIT_BYTES_MAX} bytes, not {size_bytes}: "
            "split it, or commit one head record and finish the rest in a job"
        )
    count = len(writes)
    if len(set(names[1::2])) < count and len({write.key for write in writes}) < count:
        twice = next(
            one for one, count in Counter(write.key for write in writes).items() if count > 1
        )
        raise BadInput(
            f"a commit has two writes for the key {str(twice)[:100]}; write it once",
            code="bad_request",
        )
    return size_bytes


def _admit_put(write: Put) -> None:
    """Reject values that some engines could store but others could not read."""
    value, expires_at_ms = write.value, write.expires_at_ms
    if not value:
        raise BadInput(
            f"the value of {shown_key(write.key)} is empty; it must be JSON", code="bad_value"
        )
    if len(value) > limits.VALUE_BYTES_MAX:
        raise TooLarge(
            f"the value of {shown_key(write.key)} has {len(value)} bytes; it must have at "
            f"most {limits.VALUE_BYTES_MAX}",
            code="value_too_large",
        )
    try:
        bytes.decode(value)
    except (TypeError, UnicodeDecodeError):
        raise BadInput(
            f"the value of {shown_key(write.key)} must be JSON text in UTF-8, as bytes",
            code="bad_value",
        ) from None
    if expires_at_ms is not None and (
        type(expires_at_ms) is not int or not 0 <= expires_at_ms < 1 << 63
    ):
        raise BadInput(
            f"{shown_key(write.key)} has the invalid expiry {expires_at_ms!r}; "
            "use milliseconds since 1970"
        )


def key_bytes(key: Key) -> int:
    """The size of a key in bytes; raises `BadInput` if it exceeds the limits."""
    partition, sort = key
    if "\x00" in partition or "\x00" in sort:
        raise BadInput(
            f"the key {str(key)[:100]} must not contain NUL; keys.join escapes it", code="bad_key"
        )
    partition_bytes = _utf8_bytes(partition)
    sort_bytes = _utf8_bytes(sort)
    if not 0 < partition_bytes <= limits.PARTITION_BYTES_MAX:
        raise BadInput(
            f"a partition must have 1 to {limits.PARTITION_BYTES_MAX} bytes, not {partition_bytes}",
            code="bad_key",
        )
    if not 0 < sort_bytes <= limits.SORT_BYTES_MAX:
        raise BadInput(
            f"a sort key must have 1 to {limits.SORT_BYTES_MAX} bytes, not {sort_bytes}",
            code="bad_key",
        )
    return partition_bytes + sort_bytes


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(
            f"the key {text[:100]!a} is not valid Unicode; remove lone surrogates", code="bad_key"
        ) from None


def too_many_keys(count: int) -> TooLarge:
    return TooLarge(f"a get must have at most {limits.GET_KEYS_MAX} keys, not {count}")


def admit_scan(limit: int) -> None:
    if type(limit) is not int or not 0 < limit <= limits.SCAN_RECORDS_MAX:
        raise BadInput(f"a scan must request 1 to {limits.SCAN_RECORDS_MAX} records, not {limit!r}")


def judge(writes: Sequence[Write], current: Callable[[Key], Record | None]) -> None:
    """Raise `Conflict` with all keys whose expectation fails; `current` returns the stored
    record."""
    failed: list[Key] = []
    for write in writes:
        expect = write.expect
        if expect is ANY:
            continue
        record = current(write.key)
        version = ABSENT if record is None else record.version
        if version != expect:
            failed.append(write.key)
    if failed:
        raise Conflict(
            "changed by another transaction: "
            f"{', '.join('/'.join(shown_key(k)) for k in failed)}; read again and retry",
            keys=failed,
        )
