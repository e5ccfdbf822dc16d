"""Checks of expiry: expired records are absent from every read."""

import asyncio

from onceward import limits
from onceward.engine.base import ABSENT, ANY, Check, Delete, Put
from onceward.errors import Conflict
from onceward.testing.certify.lab import (
    HOUR_MS,
    Lab,
    holds,
    refused,
    same,
    sharing,
    version_of,
)


async def an_expired_record_is_absent_for_get(lab: Lab) -> None:
    """A get returns a record until the last millisecond before its expiry."""
    due_ms = lab.now_ms + HOUR_MS
    await lab.put("a", expires_at_ms=due_ms)
    await lab.put("b")
    same(await lab.values("ab", now_ms=due_ms - 1), [b"1", b"1"], "a millisecond before")
    same(await lab.values("ab", now_ms=due_ms), [None, b"1"], "at the time of expiry")
    same(await lab.values("ab", now_ms=due_ms + 1), [None, b"1"], "a millisecond after")


async def an_expired_record_is_absent_for_scan(lab: Lab) -> None:
    """A scan omits expired records, and continues until its limit is reached."""
    due_ms = lab.now_ms + HOUR_MS
    for sort in "abcdefgh":
        await lab.put(sort, expires_at_ms=due_ms if sort in "abdeh" else None)
    same(await lab.scan(now_ms=due_ms - 1), list("abcdefgh"), "a scan a millisecond before")
    same(await lab.scan(now_ms=due_ms), list("cfg"), "a scan at the time of expiry")
    same(await lab.scan(now_ms=due_ms, limit=2), list("cf"), "two records in order")
    same(await lab.scan(now_ms=due_ms, limit=2, reverse=True), list("gf"), "two from the end")


async def an_expired_record_is_absent_for_expectations(lab: Lab) -> None:
    """An expectation of absence holds for an expired record; its version is a conflict."""
    due_ms = lab.now_ms + HOUR_MS
    versions = {sort: await lab.put(sort, expires_at_ms=due_ms) for sort in "abcdef"}
    for sort, version in versions.items():
        await lab.commit(Check(lab.key(sort), version), now_ms=due_ms - 1)
        with refused(Conflict, "conflict", "to expect absence a millisecond before expiry"):
            await lab.commit(Check(lab.key(sort), ABSENT), now_ms=due_ms - 1)
        with refused(Conflict, "conflict", "to check for the version of an expired record"):
            await lab.commit(Check(lab.key(sort), version), now_ms=due_ms)
    with refused(Conflict, "conflict", "to put expecting the version of an expired record"):
        await lab.put("a", b"2", expect=versions["a"], now_ms=due_ms)
    with refused(Conflict, "conflict", "to delete expecting the version of an expired record"):
        await lab.commit(Delete(lab.key("a"), versions["a"]), now_ms=due_ms)
    await lab.commit(
        Check(lab.key("a"), ABSENT),
        Put(lab.key("b"), b"2", None, ABSENT),
        Put(lab.key("c"), b"2", None, ANY),
        Delete(lab.key("d"), ABSENT),
        Delete(lab.key("e"), ANY),
        now_ms=due_ms,
    )
    seen = await lab.values("abcdef", now_ms=due_ms)
    same(seen, [None, b"2", b"2", None, None, None], "what is there after these commits")


async def a_deleted_expired_record_is_gone(lab: Lab) -> None:
    """Deleting a record that is expired by the commit's time removes it for every time."""
    due_ms = lab.now_ms + HOUR_MS
    await lab.put("a", expires_at_ms=due_ms)
    await lab.commit(Delete(lab.key("a")), now_ms=due_ms)
    same(await lab.values("a", now_ms=due_ms - 1), [None], "the record, seen from before")
    same(await lab.scan(now_ms=due_ms - 1), [], "a scan, seen from before")


async def the_time_of_the_call_decides(lab: Lab) -> None:
    """Only the `now_ms` of a call counts, regardless of earlier calls, within the sweep's slack."""
    due_ms = lab.now_ms + limits.SWEEP_SLACK_MS // 2
    later_ms = due_ms + limits.SWEEP_SLACK_MS // 3
    version = await lab.put("a", expires_at_ms=due_ms)
    for _ in range(2):
        same(await lab.values("a", now_ms=later_ms), [None], "seen from later")
        same(await lab.scan(now_ms=later_ms), [], "a scan from later")
        await lab.commit(Check(lab.key("a"), ABSENT), now_ms=later_ms)
        same(await lab.values("a"), [b"1"], "seen from before, after a call from later")
        same(await lab.scan(), ["a"], "a scan from before, after a call from later")
        await lab.commit(Check(lab.key("a"), version))


async def what_is_put_expired_is_absent(lab: Lab) -> None:
    """A put with a past expiry leaves the record absent, including any older value."""
    await lab.put("a")
    for expires_at_ms in (lab.now_ms, lab.now_ms - 1, 1):
        await lab.put("a", b"2", expires_at_ms=expires_at_ms)
        same(await lab.values("a"), [None], "a record put when it had expired already")
        same(await lab.scan(), [], "a scan of a record put when it had expired already")
    await lab.put("a", b"3", expect=ABSENT)
    same(await lab.values("a"), [b"3"], "a record put after that")


async def a_put_replaces_the_expiry(lab: Lab) -> None:
    """The last put determines the expiry of a record: later, sooner, or never."""
    lab.go_back()
    soon_ms, late_ms = lab.now_ms + HOUR_MS, lab.now_ms + 2 * HOUR_MS
    for sort, before, after in (
        ("later", soon_ms, late_ms),
        ("never", soon_ms, None),
        ("sooner", late_ms, soon_ms),
        ("after-all", None, soon_ms),
    ):
        await lab.put(sort, expires_at_ms=before)
        await lab.put(sort, b"2", expires_at_ms=after)
        there = after is None or after > soon_ms
        wanted = [b"2" if there else None]
        same(await lab.values([sort], now_ms=soon_ms), wanted, f"a record to expire {sort}")
        same(await lab.scan(now_ms=soon_ms, start=sort, end=sort + "#"), [sort] * there, "a scan")
    await drain(lab, late_ms)
    same(await lab.values(["never"], now_ms=late_ms), [b"2"], "a record that never expires, swept")


async def drain(lab: Lab, now_ms: int) -> int:
    """Sweep until nothing is left; returns the number of removed records."""
    total = 0
    while swept := await lab.engine.sweep(now_ms):
        total += swept
    return total


async def _settle(lab: Lab) -> None:
    """Reopen the engine: a sweep may skip records that the engine has not yet moved to the
    table."""
    if lab.can("reopen"):
        await lab.reopen()


async def a_sweep_removes_what_expired_alone(lab: Lab) -> None:
    """A sweep removes every record that has expired by its time, and no other."""
    lab.go_back()
    due_ms = lab.now_ms + HOUR_MS
    await drain(lab, due_ms)
    await lab.put("at", expires_at_ms=due_ms)
    await lab.put("before", expires_at_ms=due_ms - 1)
    await lab.put("later", expires_at_ms=due_ms + 1)
    await lab.put("never")
    await lab.put("deleted", expires_at_ms=due_ms)
    await lab.commit(Delete(lab.key("deleted")))
    await _settle(lab)
    before = await lab.get_many(["later", "never"])
    same(await drain(lab, due_ms - 2), 0, "how many a sweep before the time removed")
    same(await lab.scan(), ["at", "before", "later", "never"], "what a sweep before the time left")
    same(await drain(lab, due_ms), 2, "how many of two expired records a sweep removed")
    same(await lab.scan(), ["later", "never"], "what is left, seen from before the expiry")
    same(await lab.get_many(["later", "never"]), before, "the records that have not expired")


async def a_sweep_spares_what_was_put_again(lab: Lab) -> None:
    """A replaced expiry removes nothing, even if the record was deleted and put again."""
    lab.go_back()
    due_ms = lab.now_ms + HOUR_MS
    await drain(lab, due_ms)
    for sort in ("forever", "longer", "anew"):
        await lab.put(sort, expires_at_ms=due_ms)
    await _settle(lab)
    await lab.put("forever", b"2")
    await lab.put("longer", b"2", expires_at_ms=due_ms + HOUR_MS)
    await lab.commit(Delete(lab.key("anew")))
    await lab.put("anew", b"2", expect=ABSENT)
    same(await drain(lab, due_ms), 0, "how many of three renewed records a sweep removed")
    same(await lab.scan(), ["anew", "forever", "longer"], "the records put again, after a sweep")
    version = version_of(await lab.get("longer"))
    await lab.put("longer", b"3", expect=version)
    await _settle(lab)
    same(await drain(lab, due_ms + HOUR_MS), 0, "how many a sweep removed after the last renewal")
    same(await lab.values(["longer"]), [b"3"], "a record renewed twice, after sweeps")


async def a_sweep_spares_what_is_put_meanwhile(lab: Lab) -> None:
    """Records that are put again during a sweep are kept."""
    lab.go_back()
    due_ms = lab.now_ms + HOUR_MS
    sorts = [f"{i:03}" for i in range(200)]
    for start in range(0, len(sorts), 50):
        some = sorts[start : start + 50]
        await lab.commit(*(Put(lab.key(sort), b"1", due_ms) for sort in some))
    await _settle(lab)

    async def renew(number: int) -> None:
        for sort in sorts[number::8]:
            await lab.put(sort, b"2", expect=ABSENT, now_ms=due_ms)
            await asyncio.sleep(0)

    async def sweep() -> None:
        swept = 1
        while swept:
            swept = await lab.engine.sweep(due_ms, limit=20)
            await asyncio.sleep(0)

    await sharing(*map(renew, range(4)), sweep(), sweep())
    renewed = sorted(sort for number in range(4) for sort in sorts[number::8])
    same(await lab.scan(now_ms=due_ms), renewed, "the records put again during a sweep")


async def a_sweep_keeps_to_its_limit(lab: Lab) -> None:
    """A sweep returns the number of removed records, at most `limit`; 0 means none are left."""
    lab.go_back()
    due_ms = lab.now_ms + HOUR_MS
    await drain(lab, due_ms)
    sorts = [f"{i:02}" for i in range(25)]
    await lab.commit(*(Put(lab.key(sort), b"1", due_ms) for sort in sorts))
    await _settle(lab)
    left = len(sorts)
    while left:
        swept = await lab.engine.sweep(due_ms, limit=4)
        holds(0 < swept <= 4, f"a sweep with limit 4 and {left} to remove says {swept}")
        left -= swept
        same(len(await lab.scan(limit=limits.SCAN_RECORDS_MAX)), left, "the records left")
    same(await lab.engine.sweep(due_ms, limit=4), 0, "a sweep when nothing is left")


CHECKS = (
    an_expired_record_is_absent_for_get,
    an_expired_record_is_absent_for_scan,
    an_expired_record_is_absent_for_expectations,
    a_deleted_expired_record_is_gone,
    the_time_of_the_call_decides,
    what_is_put_expired_is_absent,
    a_put_replaces_the_expiry,
    a_sweep_removes_what_expired_alone,
    a_sweep_spares_what_was_put_again,
    a_sweep_spares_what_is_put_meanwhile,
    a_sweep_keeps_to_its_limit,
)
