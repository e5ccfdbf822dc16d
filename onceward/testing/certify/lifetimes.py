"""Checks of close, reopen and crash: acknowledged commits are durable and complete."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onceward.engine.base import ABSENT, ANY, Check, Delete, Expectation, Put, Version
from onceward.errors import Conflict, Unavailable
from onceward.testing.certify.lab import (
    HOUR_MS,
    Lab,
    Violation,
    abandon,
    holds,
    refused,
    same,
    version_of,
)


async def closing_twice_is_closing_once(lab: Lab) -> None:
    """A second close does nothing."""
    await lab.put("a")
    await lab.engine.close()
    try:
        await lab.engine.close()
    except Exception as error:
        raise Violation(f"the second close raised {error!r}") from error


async def a_closed_engine_refuses(lab: Lab) -> None:
    """Every call on a closed engine raises `engine_closed`."""
    await lab.put("a")
    engine, now_ms = lab.engine, lab.now_ms
    await engine.close()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "a get": lambda: engine.get([lab.key("a")], now_ms),
        "a scan": lambda: engine.scan(lab.partition, now_ms),
        "a commit": lambda: engine.commit([Put(lab.key("a"), b"2")], now_ms),
        "a commit of checks": lambda: engine.commit([Check(lab.key("b"), ABSENT)], now_ms),
        "a sweep": lambda: engine.sweep(now_ms),
    }
    for what, call in calls.items():
        with refused(Unavailable, "engine_closed", f"{what} on a closed engine"):
            await call()


async def closing_settles_what_is_under_way(lab: Lab) -> None:
    """A commit during a close either returns and is durable, or is rejected and not applied."""
    lab.need("reopen")
    tasks = {
        sort: asyncio.create_task(lab.put(sort, f'"{sort}"'.encode()))
        for sort in (f"{i:02}" for i in range(20))
    }
    await asyncio.sleep(0)
    await lab.engine.close()
    try:
        await asyncio.wait(tasks.values(), timeout=10)
        for sort, task in tasks.items():
            holds(task.done(), f"commit {sort} never ended after the engine was closed")
    finally:
        await abandon(*tasks.values())
    await lab.reopen()
    for sort, task in tasks.items():
        error = task.exception()
        if error is not None:
            same(getattr(error, "code", error), "engine_closed", "what a late commit raised")
        seen = await lab.values([sort])
        wanted = f'"{sort}"'.encode() if error is None else None
        same(seen, [wanted], f"the record of a commit that {'failed' if error else 'returned'}")


async def reopening_keeps_everything(lab: Lab) -> None:
    """Values, versions, expiries and deletions are the same after closing and reopening."""
    lab.need("reopen")
    lab.go_back()
    due_ms = lab.now_ms + HOUR_MS
    for sort in "abcde":
        await lab.put(sort, f'"{sort}"'.encode())
    await lab.put("b", b'"changed"')
    await lab.put("c", expires_at_ms=due_ms)
    await lab.commit(Delete(lab.key("d")))
    before = await lab.get_many("abcdef")
    for _ in range(2):
        await lab.reopen()
        same(await lab.get_many("abcdef"), before, "the records after reopening")
        same(await lab.scan(), list("abce"), "a scan after reopening")
        same(await lab.scan(reverse=True), list("ecba"), "a reverse scan after reopening")
        same(await lab.values("c", now_ms=due_ms), [None], "an expired record after reopening")
    await lab.put("a", b'"next"', expect=version_of(before[0]))
    await lab.put("d", b'"next"', expect=ABSENT)
    while await lab.engine.sweep(due_ms):
        pass
    await lab.reopen()
    wanted = [b'"next"', b'"changed"', None, b'"next"']
    same(await lab.values("abcd"), wanted, "the records after reopening once more")


async def versions_are_not_reused_after_reopening(lab: Lab) -> None:
    """A version is never reused after a restart, even if its record was deleted."""
    lab.need("reopen")
    versions: list[Version] = []
    for _ in range(3):
        versions += [await lab.put("a"), await lab.put("b"), await lab.put("a", b"2")]
        await lab.commit(Delete(lab.key("a")), Delete(lab.key("b")))
        await lab.reopen()
    versions.append(await lab.put("a"))
    same(len(set(versions)), len(versions), f"how many different versions in {versions}")
    with refused(Conflict, "conflict", "a version from before the restart"):
        await lab.put("a", b"3", expect=versions[0])


async def an_answered_commit_survives_a_crash(lab: Lab) -> None:
    """Acknowledged commits survive a crash; other commits are complete or absent."""
    lab.need("crash")
    for round_ in range(8):
        answered = await _write_until_crash(lab, f"{round_}", 1 + 10 * round_)
        for name in sorted(answered):
            seen = await lab.values([name + part for part in "abc"])
            same(seen, [f'"{name}"'.encode()] * 3, "an answered commit after a crash")
        found = await lab.scan(start=f"{round_}.", end=f"{round_}/", limit=10_000)
        whole = {sort[:-1] for sort in found}
        same(found, sorted(n + part for n in whole for part in "abc"), "what the crash left")


async def _write_until_crash(lab: Lab, prefix: str, answers_min: int) -> set[str]:
    """Crash the engine under load after a number of responses; returns the acknowledged commits."""
    answered: set[str] = set()
    enough = asyncio.Event()
    engine = lab.engine

    async def write(caller: int) -> None:
        for turn in range(1_000):
            name = f"{prefix}.{caller}.{turn}"
            puts = [Put(lab.key(name + part), f'"{name}"'.encode()) for part in "abc"]
            await engine.commit(puts, lab.now_ms)
            answered.add(name)
            if len(answered) >= answers_min:
                enough.set()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(write(caller)) for caller in range(8)]
    waiting = asyncio.create_task(enough.wait())
    try:
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await _a_moment(lab)
        await lab.crash()
    finally:
        await abandon(waiting, *tasks)
    return answered


async def what_survives_has_its_past(lab: Lab) -> None:
    """If a commit survives a crash, all commits that it was based on survive."""
    lab.need("crash")
    for _ in range(4):
        await _count_until_crash(lab)
        [head] = await lab.values(["head"])
        counted = int(head or b"0")
        wanted = [f"log{number:04}" for number in range(1, counted + 1)]
        found = await lab.scan(start="log", limit=10_000)
        same(found, wanted, f"the log when the head says {counted}")


async def _a_moment(lab: Lab) -> None:
    """Wait for some turns of the loop or some time, so that crashes hit commits in any state."""
    if lab.random.random() < 0.3:
        await asyncio.sleep(lab.random.random() * 0.003)
    else:
        for _ in range(lab.random.randint(0, 25)):
            await asyncio.sleep(0)


async def _count_until_crash(lab: Lab) -> None:
    """Commit a chain, each link as soon as the previous one is visible, and crash in the middle."""
    engine = lab.engine
    links: list[asyncio.Task[Any]] = []

    async def count_up() -> None:
        head = await lab.get("head")
        start = 0 if head is None else int(head.value)
        expect: Expectation = ABSENT if head is None else head.version
        for number in range(start + 1, start + 40):
            visible = asyncio.get_running_loop().create_future()
            writes = [
                Put(lab.key("head"), str(number).encode(), None, expect),
                Put(lab.key(f"log{number:04}"), b"1", None, ABSENT),
            ]
            links.append(asyncio.create_task(engine.commit(writes, lab.now_ms, visible.set_result)))
            await asyncio.wait([visible, links[-1]], return_when=asyncio.FIRST_COMPLETED)
            expect = visible.result()

    counting = asyncio.create_task(count_up())
    try:
        await _a_moment(lab)
        await lab.crash()
    finally:
        await abandon(counting, *links)


async def a_checked_read_survives_a_crash(lab: Lab) -> None:
    """After a check of a read has returned, the record that was read survives a crash."""
    lab.need("crash")
    for turn in range(12):
        engine, key = lab.engine, lab.key(f"{turn}")
        deletes = turn % 3 == 2
        if deletes:
            await engine.commit([Put(key, b'"old"')], lab.now_ms)
        write = Delete(key) if deletes else Put(key, b'"new"')
        seen = asyncio.get_running_loop().create_future()
        commit = asyncio.create_task(engine.commit([write], lab.now_ms, seen.set_result))
        await asyncio.wait([seen, commit], return_when=asyncio.FIRST_COMPLETED)
        [record] = await engine.get([key], lab.now_ms)
        expect: Expectation = ABSENT if record is None else record.version
        # A check without an expectation waits as well: it represents the result of a scan.
        await engine.commit([Check(key, ANY if turn % 3 == 1 else expect)], lab.now_ms)
        await lab.crash()
        await abandon(commit)
        after = await lab.get(f"{turn}")
        same(after and after.value, record and record.value, "a checked read after a crash")


async def versions_are_not_reused_after_a_crash(lab: Lab) -> None:
    """An acknowledged version is never reused, even after a crash and a delete."""
    lab.need("crash")
    versions: list[Version] = []
    for _ in range(4):
        versions += [await lab.put("a"), await lab.put("b")]
        await lab.commit(Delete(lab.key("a")), Delete(lab.key("b")))
        await lab.crash()
    versions.append(await lab.put("a"))
    same(len(set(versions)), len(versions), f"how many different versions in {versions}")


CHECKS = (
    closing_twice_is_closing_once,
    a_closed_engine_refuses,
    closing_settles_what_is_under_way,
    reopening_keeps_everything,
    versions_are_not_reused_after_reopening,
    an_answered_commit_survives_a_crash,
    what_survives_has_its_past,
    a_checked_read_survives_a_crash,
    versions_are_not_reused_after_a_crash,
)
