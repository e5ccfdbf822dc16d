"""Engines that break one guarantee each, and an honest one that lags; `CAUGHT_BY` says
which check must find each of them out."""

import heapq
import unicodedata
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from onceward.engine.base import ABSENT, ANY, Check, Delete, Put, Record, Version, Write, judge
from onceward.engine.memory import MemoryEngine
from onceward.errors import Conflict, Unavailable
from onceward.keys import Key
from onceward.limits import COMMIT_WRITES_MAX, VALUE_BYTES_MAX

CAUGHT_BY: dict[type[MemoryEngine], str] = {}


def caught_by(check: str) -> Any:
    def note(kind: type[MemoryEngine]) -> type[MemoryEngine]:
        CAUGHT_BY[kind] = check
        return kind

    return note


# Versions.


@caught_by("versions_are_never_reused")
class CountsFromOneAfterADelete(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        version = await super().commit(writes, *rest)
        if any(type(write) is Delete for write in writes):
            self.memory.version = 0
        return version


@caught_by("versions_are_not_reused_after_reopening")
class CountsFromOneWhenReopened(MemoryEngine):
    async def open(self) -> Any:
        self.memory.version = 0
        return await super().open()


@caught_by("one_commit_has_one_version")
class GivesEachPutItsOwnVersion(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        version = await super().commit(writes, *rest)
        for write in writes[1:]:
            record = self.memory.table.get(write.key)
            if type(write) is Put and record is not None:
                self.memory.version += 1
                self.memory.table.put(replace(record, version=self.memory.version))
        return version


# Expectations and atomicity.


class Rewrites(MemoryEngine):
    """Changes every write before it is committed."""

    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        return await super().commit([self.rewrite(write) for write in writes], *rest)

    def rewrite(self, write: Any) -> Any:
        raise NotImplementedError


@caught_by("one_insert_wins")
class ForgetsToExpectAbsence(Rewrites):
    def rewrite(self, write: Any) -> Any:
        return replace(write, expect=ANY) if write.expect is ABSENT else write


@caught_by("expectations_hold_or_conflict")
class SkipsChecksForAbsence(Rewrites):
    def rewrite(self, write: Any) -> Any:
        phantom = type(write) is Check and write.expect is ABSENT
        return replace(write, expect=ANY) if phantom else write


@caught_by("no_update_is_lost")
class LosesUpdates(Rewrites):
    def rewrite(self, write: Any) -> Any:
        return write if write.expect is ABSENT else replace(write, expect=ANY)


@caught_by("a_check_guards_the_other_writes")
class IgnoresChecks(Rewrites):
    def rewrite(self, write: Any) -> Any:
        return replace(write, expect=ANY) if type(write) is Check else write


@caught_by("expectations_hold_or_conflict")
class DeletesWhatMovedOn(Rewrites):
    def rewrite(self, write: Any) -> Any:
        return replace(write, expect=ANY) if type(write) is Delete else write


@caught_by("a_failed_expectation_applies_nothing")
class AppliesWhatComesBeforeTheConflict(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        try:
            return await super().commit(writes, now_ms, visible)
        except Conflict:
            for write in writes:
                await super().commit([write], now_ms)
            raise


@caught_by("a_failed_expectation_applies_nothing")
class KeepsTheDeletesOfAConflict(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        try:
            return await super().commit(writes, now_ms, visible)
        except Conflict:
            for write in writes:
                if type(write) is Delete and write.expect is ANY:
                    self.memory.table.drop(write.key)
            raise


@caught_by("conflict_names_the_failing_keys")
class NamesAllKeysInAConflict(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        try:
            return await super().commit(writes, *rest)
        except Conflict as conflict:
            raise Conflict(conflict.message, keys=[write.key for write in writes]) from None


@caught_by("conflict_names_the_failing_keys")
class NamesTheFirstKeyInAConflict(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        try:
            return await super().commit(writes, *rest)
        except Conflict as conflict:
            named: Any = conflict.details["keys"]
            raise Conflict(conflict.message, keys=named[:1]) from None


# Gets and keys.


@caught_by("get_answers_in_the_order_asked")
class AnswersInKeyOrder(MemoryEngine):
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await super().get(sorted(keys), now_ms)


@caught_by("get_answers_in_the_order_asked")
class AnswersDuplicatesOnce(MemoryEngine):
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await super().get(list(dict.fromkeys(keys)), now_ms)


@caught_by("partitions_are_apart")
class GluesKeys(Rewrites):
    def rewrite(self, write: Any) -> Any:
        return replace(write, key=("all", "".join(write.key)))

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await super().get([("all", "".join(key)) for key in keys], now_ms)


@caught_by("every_character_survives")
class NormalisesText(Rewrites):
    def rewrite(self, write: Any) -> Any:
        if type(write) is not Put:
            return write
        return replace(write, value=unicodedata.normalize("NFC", write.value.decode()).encode())


# Scans.


class ChangesScans(MemoryEngine):
    """Scans with other bounds than those asked for."""

    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        return await super().scan(partition, now_ms, **self.change(bounds))

    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


@caught_by("a_scan_keeps_its_bounds")
class IncludesTheEnd(ChangesScans):
    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "end": bounds["end"] + "!"} if bounds.get("end") else bounds


@caught_by("a_scan_keeps_its_bounds")
class ExcludesTheStart(ChangesScans):
    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "start": bounds["start"] + "!"} if bounds.get("start") else bounds


@caught_by("a_reverse_scan_goes_backwards")
class IgnoresReverse(ChangesScans):
    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "reverse": False}


@caught_by("a_scan_spans_pages")
class ReturnsOnePage(ChangesScans):
    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "limit": min(bounds.get("limit", 1_000), 1_000)}


@caught_by("a_scan_sorts_as_bytes")
class ScansInOrderOfInsertion(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        found = await super().scan(partition, now_ms, **bounds)
        return sorted(found, key=lambda record: int(record.version))


@caught_by("a_scan_sorts_as_bytes")
class SortsAsUtf16(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        found = await super().scan(partition, now_ms, **bounds)
        return sorted(found, key=lambda record: record.key[1].encode("utf-16-be"))


@caught_by("a_scan_stops_at_its_limit")
class ReversesTheFirstPage(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        found = await super().scan(partition, now_ms, **{**bounds, "reverse": False})
        return found[::-1] if bounds.get("reverse") else found


@caught_by("a_scan_keeps_to_its_partition")
class ScansByPrefix(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        found = []
        for name in sorted(self.memory.table.partitions):
            if name.startswith(partition):
                found += await super().scan(name, now_ms, **bounds)
        return found


# Expiry.


@caught_by("an_expired_record_is_absent_for_get")
class GetsWhatExpired(MemoryEngine):
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await super().get(keys, 0)


@caught_by("an_expired_record_is_absent_for_scan")
class ScansWhatExpired(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        return await super().scan(partition, 0, **bounds)


@caught_by("an_expired_record_is_absent_for_scan")
class CountsTheExpiredTowardsTheLimit(MemoryEngine):
    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        found = await super().scan(partition, 0, **bounds)
        return [record for record in found if not record.absent_at(now_ms)]


@caught_by("an_expired_record_is_absent_for_expectations")
class ExpectsWhatExpired(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        return await super().commit(writes, 0, visible)


@caught_by("the_time_of_the_call_decides")
class RemembersTheLatestTime(MemoryEngine):
    latest_ms = 0

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        self.latest_ms = max(self.latest_ms, now_ms)
        return await super().get(keys, self.latest_ms)


@caught_by("a_put_replaces_the_expiry")
class KeepsTheFirstExpiry(Rewrites):
    def rewrite(self, write: Any) -> Any:
        old = self.memory.table.get(write.key)
        if type(write) is Put and old is not None and old.expires_at_ms is not None:
            return replace(write, expires_at_ms=old.expires_at_ms)
        return write


@caught_by("a_sweep_removes_what_expired_alone")
class SweepsTooEarly(MemoryEngine):
    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        return await super().sweep(now_ms + 60_000, limit)


@caught_by("a_sweep_spares_what_was_put_again")
class SweepsWhatWasPutAgain(MemoryEngine):
    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        swept, expiries = 0, self.memory.expiries
        while expiries and expiries[0][0] <= now_ms and swept < limit:
            self.memory.table.drop(heapq.heappop(expiries)[1])
            swept += 1
        return swept


@caught_by("a_sweep_removes_what_expired_alone")
class NeverSweeps(MemoryEngine):
    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        return 0


@caught_by("a_sweep_keeps_to_its_limit")
class SweepsWithoutLimit(MemoryEngine):
    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        return await super().sweep(now_ms, 1_000_000)


# Limits.


@caught_by("a_commit_has_so_many_writes")
class DropsWritesOverTheLimit(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        return await super().commit(writes[:COMMIT_WRITES_MAX], *rest)


@caught_by("a_value_has_so_many_bytes")
class CutsValuesOff(Rewrites):
    def rewrite(self, write: Any) -> Any:
        if type(write) is not Put:
            return write
        return replace(write, value=write.value[:VALUE_BYTES_MAX] or b"null")


@caught_by("a_commit_has_one_write_for_each_key")
class LetsTheLastWriteWin(MemoryEngine):
    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        return await super().commit(list({write.key: write for write in writes}.values()), *rest)


@caught_by("a_read_has_so_many_records")
class TakesAnyLimit(ChangesScans):
    def change(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "limit": min(max(bounds.get("limit", 1_000), 1), 10_000)}


class Unlimited(MemoryEngine):
    """Applies whatever it is given."""

    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        if not self._open:
            raise Unavailable("closed", code="engine_closed")
        judge(writes, lambda key: self._current(key, now_ms))
        self.memory.version += 1
        self.apply(writes, self.memory.version)
        self.memory.watchers.hint(writes)
        if visible:
            visible(self.memory.version)
        return self.memory.version

    def apply(self, writes: Sequence[Write], version: Version) -> None:
        for write in writes:
            if type(write) is Put:
                self.memory.table.put(Record(write.key, write.value, version, write.expires_at_ms))
            elif type(write) is Delete:
                self.memory.table.drop(write.key)


@caught_by("a_commit_has_so_many_bytes")
class TakesAnyNumberOfBytes(Unlimited):
    pass


@caught_by("a_key_has_so_many_bytes")
class TakesAnyKey(Unlimited):
    pass
