"""The engine contract: ordered, versioned records with atomic commits.

An engine is an ordered set of records, `(partition, sort key) -> value, version,
expires_at_ms`, changed only by atomic commits. What every engine guarantees, and
`onceward.testing.certify_engine` checks:

- A commit is applied whole or not at all, and all its puts get one version. Versions
  are compared for equality only and never used twice, also not after a delete and a
  new put of the key, or a restart.
- `commit` returns when the commit is durable. A read may show a commit earlier; so
  an answer that depends on reads leaves only after a commit that checks them.
- A record with `expires_at_ms <= now_ms` is absent for every call with that `now_ms`.
- `scan` returns records in the order of their sort keys as bytes. It gives no
  protection against new neighbours: what decides from a scan checks a head record.
- Values are JSON text in UTF-8, never empty. Limits are the same on all engines.
- Stored data that does not verify is never returned as data: a record has the value `DAMAGED`,
  or the call raises `Damaged`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

from onceward import limits
from onceward.alarms import Alarms
from onceward.clock import Clock
from onceward.errors import BadInput, Conflict, TooLarge
from onceward.keys import Key, shown_key

Version = int | str


class Expect(Enum):
    """What a write expects of its key, apart from a certain version."""

    ANY = "any"
    ABSENT = "absent"


ANY: Final = Expect.ANY
ABSENT: Final = Expect.ABSENT
Expectation = Literal[Expect.ANY, Expect.ABSENT] | Version


DAMAGED: Final = b"\xff"
"""The value of a record whose stored value did not verify. It is not JSON: decoding it raises
`damaged`, and nobody takes it for data."""


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What stands under a key."""

    key: Key
    value: bytes
    version: Version
    expires_at_ms: int | None = None

    def absent_at(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a value under a key."""

    key: Key
    value: bytes
    expires_at_ms: int | None = None
    expect: Expectation = ANY


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove what stands under a key; removing nothing is fine unless expected."""

    key: Key
    expect: Expectation = ANY


class Check(msgspec.Struct, frozen=True, gc=False):
    """Change nothing, but let the commit fail unless the expectation holds."""

    key: Key
    expect: Expectation


Write = Put | Delete | Check


class Incarnation(msgspec.Struct, frozen=True):
    """One life of a database: a restore, a failover or a clone begins another one.

    What was acknowledged in an earlier one may be missing in this one.
    """

    id: str
    """Random, never used again."""
    number: int = 1
    """Larger than that of all incarnations before it."""
    since_ms: int = 0
    """When it began; 0 for the first one."""


class Engine(ABC):
    """The six methods, `open` and `close` counted as one, and the sweeper's."""

    shared: bool = True
    """Whether other nodes may use the same database at the same time."""
    shares_commits: bool = True
    """Whether several transactions cost less in one commit. Not where a conflict of one cancels the
    others, or where each write has its price."""
    shares_reads: bool = False
    """Whether a read is a round trip, so that reads of several transactions cost less together."""

    @cached_property
    def alarms(self) -> Alarms:
        """The alarms of the node that uses this engine. The store sets its clock."""
        return Alarms(Clock().now_ms)

    @property
    def incarnation(self) -> Incarnation:
        """The life of the database that this node uses now. Engines whose database outlives no
        restore while they are open need no other."""
        return Incarnation("")

    @cached_property
    def _incarnation_hooks(self) -> list[Callable[[Incarnation], None]]:
        return []

    def on_incarnation(self, hook: Callable[[Incarnation], None]) -> Callable[[], None]:
        """Call `hook` when the database is another incarnation, before it is read or written.
        What was read before may be gone: forget it. Versions of lost records are not given
        again. Returns a function that takes the hook out again. A hook must not block or raise.
        """
        self._incarnation_hooks.append(hook)
        return lambda: self._incarnation_hooks.remove(hook)

    def incarnation_changed(self, incarnation: Incarnation) -> None:
        """Call all hooks. The engine calls it."""
        for hook in tuple(self._incarnation_hooks):
            try:
                hook(incarnation)
            except Exception as error:  # the others must forget what they know all the same
                context = {"message": "a hook failed at a new incarnation", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    @abstractmethod
    async def open(self) -> Self:
        """Make the records available; raises `CannotOpen` with a code that says why not."""

    @abstractmethod
    async def close(self) -> None:
        """Settle what is under way and let go of everything; twice is once."""

    @abstractmethod
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        """The records under these keys, all of one moment, in the order asked."""

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
        """The first `limit` records with `start <= sort key < end`, or the last, reversed.

        With `skip_damaged`, records whose key did not verify are left out and raise an alarm;
        otherwise they raise `Damaged`.
        """

    @abstractmethod
    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        """Apply all writes if all expectations hold; returns their version, once durable.

        `visible` is called with the version when later reads show the writes, maybe before they
        are durable. Raises `Conflict` (nothing was applied; `details["keys"]` are those
        whose expectation failed), `TooLarge` or `BadInput` (the same call can never
        work), `Unavailable` (nothing was applied), `OutcomeUnknown`, or `EngineStopped`.
        If an answer is lost, the engine itself finds out what became of the commit, and keeps it
        from being applied later; `OutcomeUnknown` means that it could not.
        A commit of checks alone waits until all that its reads may have seen is durable.
        """

    async def make_room(self, size_bytes: int) -> None:  # noqa: B027
        """Raise what a commit of that size would be refused with for want of space, as far as
        the engine can tell without one. Changes nothing that a read would show."""

    def own_key(self) -> bytes | None:
        """The server key of an engine whose records end with the process. None: they outlive it,
        and their server key must be kept elsewhere."""
        return None

    @abstractmethod
    def watch(self, partition: str) -> "Watch":
        """A hint when something changes in the partition; close it after use."""

    @abstractmethod
    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        """Remove up to `limit` records that expired before `now_ms`; returns how many.

        An engine with a clock of its own may spare what has not long expired by that one.
        """

    @property
    def verified(self) -> bool:
        """Whether all stored data has been verified since it was opened, or need not be."""
        return True

    async def verify(self) -> None:  # noqa: B027
        """Look for damage to stored data that reads might not notice. May take long; raises
        `CannotOpen` (damaged)."""

    async def now_ms(self) -> int | None:
        """What time it is by the database's own clock, which counts for all its nodes.

        None if it has none: the machine's clock will do then.
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
    """Remembers whether a partition may have changed since `clear`.

    Register it, `clear`, read, then `wait`: a change in between is not missed. It is a
    hint: it may come without a change, and on some engines it does not come at all, so
    always wait with a time limit.
    """

    def __init__(self, partition: str, watchers: "Watchers") -> None:
        self.partition = partition
        self.on_hint: Callable[[], None] | None = None
        """Called at each hint, for those who watch many partitions at once."""
        self.others_only = False
        """For those whom the store tells of this node's own commits: these need give no hint.
        Engines that cannot tell them from others' hint all the same."""
        self._watchers = watchers
        self._changed = asyncio.Event()

    def clear(self) -> None:
        self._changed.clear()

    def hint(self, *, own: bool = False) -> None:
        """Something may have changed; `own`: by a commit of this engine that its caller will
        be told of."""
        if own and self.others_only:
            return
        self._changed.set()
        if self.on_hint is not None:
            self.on_hint()

    async def wait(self, timeout_s: float) -> bool:
        """True when hinted, False when the time is up."""
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
        self._by_partition: dict[str, list[Watch]] = {}

    def add(self, partition: str) -> Watch:
        watch = Watch(partition, self)
        self._by_partition.setdefault(partition, []).append(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        watches = self._by_partition.get(watch.partition, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._by_partition[watch.partition]

    def hint(self, writes: Sequence[Write], *, own: bool = False) -> None:
        watched = self._by_partition
        if not watched or watched.keys().isdisjoint([write.key[0] for write in writes]):
            return
        changed = [write.key[0] for write in writes if type(write) is not Check]
        for partition in dict.fromkeys(changed):
            for watch in tuple(watched.get(partition, ())):
                watch.hint(own=own)


def admit(writes: Sequence[Write]) -> int:
    """Refuse a commit over the limits, on every engine alike; returns its size in bytes."""
    if not 0 < len(writes) <= limits.COMMIT_WRITES_MAX:
        raise TooLarge(
            f"a commit has 1 to {limits.COMMIT_WRITES_MAX} writes and checks, not {len(writes)}"
        )
    # Every commit comes through here, so the names are looked at all together; only when
    # that finds something unusual is each key looked at by itself.
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
            "split it, or make it true by one head record and finish it in a job"
        )
    count = len(writes)
    if len(set(names[1::2])) < count and len({write.key for write in writes}) < count:
        raise BadInput("a commit has at most one write for each key", code="bad_request")
    return size_bytes


def _admit_put(write: Put) -> None:
    """What one engine would store and another could not read must not get in."""
    value, expires_at_ms = write.value, write.expires_at_ms
    if not value:
        raise BadInput(f"the value of {shown_key(write.key)} is empty, not JSON", code="bad_value")
    if len(value) > limits.VALUE_BYTES_MAX:
        raise TooLarge(
            f"the value of {shown_key(write.key)} has {len(value)} bytes; "
            f"a record holds at most {limits.VALUE_BYTES_MAX}",
            code="value_too_large",
        )
    try:
        bytes.decode(value)
    except (TypeError, UnicodeDecodeError):
        raise BadInput(
            f"the value of {shown_key(write.key)} is not JSON text in UTF-8, as bytes",
            code="bad_value",
        ) from None
    if expires_at_ms is not None and (
        type(expires_at_ms) is not int or not 0 <= expires_at_ms < 1 << 63
    ):
        raise BadInput(
            f"{shown_key(write.key)} is to expire at {expires_at_ms!r}, "
            "which is no time in ms since 1970"
        )


def key_bytes(key: Key) -> int:
    """The size of a key; raises `BadInput` when it is over the limits."""
    partition, sort = key
    if "\x00" in partition or "\x00" in sort:
        raise BadInput("a key may not contain NUL; keys.join escapes it", code="bad_key")
    partition_bytes = _utf8_bytes(partition)
    sort_bytes = _utf8_bytes(sort)
    if not 0 < partition_bytes <= limits.PARTITION_BYTES_MAX:
        raise BadInput(
            f"a partition has 1 to {limits.PARTITION_BYTES_MAX} bytes, not {partition_bytes}",
            code="bad_key",
        )
    if not 0 < sort_bytes <= limits.SORT_BYTES_MAX:
        raise BadInput(
            f"a sort key has 1 to {limits.SORT_BYTES_MAX} bytes, not {sort_bytes}", code="bad_key"
        )
    return partition_bytes + sort_bytes


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise BadInput("a key may not contain lone surrogates", code="bad_key") from None


def too_many_keys(count: int) -> TooLarge:
    return TooLarge(f"one get has at most {limits.GET_KEYS_MAX} keys, not {count}")


def admit_scan(limit: int) -> None:
    if type(limit) is not int or not 0 < limit <= limits.SCAN_RECORDS_MAX:
        raise BadInput(f"a scan returns 1 to {limits.SCAN_RECORDS_MAX} records, not {limit!r}")


def judge(writes: Sequence[Write], current: Callable[[Key], Record | None]) -> None:
    """Raise `Conflict` with all keys whose expectation fails, given what stands there now."""
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
            f"changed meanwhile: {', '.join('/'.join(shown_key(k)) for k in failed)}", keys=failed
        )
