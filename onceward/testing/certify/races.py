"""Checks of concurrent commits and reads, cancelled commits, and `visible`.

If the engine can be shared, half of the callers use a second engine on the same database.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from onceward.engine.base import ABSENT, Check, Delete, Engine, Put, Version, Write
from onceward.errors import Conflict
from onceward.testing.certify.lab import (
    Lab,
    Violation,
    abandon,
    holds,
    race,
    refused,
    same,
    sharing,
    version_of,
)

_CALLERS = 16
_TRIES_MAX = 500


async def _turns(count: int) -> None:
    """Yield to other tasks of this event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _retry(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call until it has no conflict."""
    for turn in range(_TRIES_MAX):
        try:
            return await call()
        except Conflict:
            await _turns(turn % 7)
    raise Violation(f"{_TRIES_MAX} conflicts in a row: no progress")


async def no_update_is_lost(lab: Lab) -> None:
    """Concurrent increments of one record by compare-and-set with retries all count."""
    engines = await lab.both()
    key = lab.key("counter")
    await lab.put("counter", b"0")

    async def count_up(engine: Engine) -> None:
        [record] = await engine.get([key], lab.now_ms)
        version = version_of(record)
        assert record is not None
        value = str(int(record.value) + 1).encode()
        await asyncio.sleep(0)  # so that the callers overlap on engines that never wait
        await engine.commit([Put(key, value, None, version)], lab.now_ms)

    async def caller(number: int) -> None:
        for _ in range(5):
            await _retry(lambda: count_up(engines[number % len(engines)]))

    await sharing(*map(caller, range(_CALLERS)))
    same(await lab.values(["counter"]), [str(5 * _CALLERS).encode()], "the counter at the end")


async def one_insert_wins(lab: Lab) -> None:
    """Of concurrent puts of the same absent key, one succeeds and all others conflict."""
    engines = await lab.both()
    for round_ in range(5):
        key = lab.key(f"{round_}")
        answers = await race(
            *(
                engines[caller % len(engines)].commit(
                    [Put(key, str(caller).encode(), None, ABSENT)], lab.now_ms
                )
                for caller in range(_CALLERS)
            )
        )
        winners = [i for i, answer in enumerate(answers) if not isinstance(answer, Conflict)]
        same(len(winners), 1, "how many of the callers that inserted one key succeeded")
        record = await lab.get(f"{round_}")
        same(record and record.value, str(winners[0]).encode(), "the value of the winner")
        same(record and record.version, answers[winners[0]], "the version of the winner")


async def opposite_orders_do_not_deadlock(lab: Lab) -> None:
    """Commits with the same keys in opposite orders all end."""
    engines = await lab.both()
    sorts = [f"{i}" for i in range(8)]

    async def caller(number: int) -> None:
        order = sorts if number % 2 else sorts[::-1]
        for turn in range(4):
            value = f'"{number}.{turn}"'.encode()
            writes = [Put(lab.key(sort), value) for sort in order]
            await engines[number // 2 % len(engines)].commit(writes, lab.now_ms)

    await sharing(*map(caller, range(_CALLERS)))
    records = await lab.get_many(sorts)
    same(len({version_of(r) for r in records}), 1, "how many commits the last state comes from")
    same(len({r and r.value for r in records}), 1, "how many callers the last state comes from")


async def crossed_checks_exclude_each_other(lab: Lab) -> None:
    """Two commits that each write a record that the other checks cannot both succeed."""
    engines = await lab.both()
    for round_ in range(8):
        a, b = lab.key(f"{round_}a"), lab.key(f"{round_}b")
        expect_a: Version | Any = ABSENT
        expect_b: Version | Any = ABSENT
        if round_ % 2:
            expect_a = expect_b = await lab.commit(Put(a, b"0"), Put(b, b"0"))
        answers = await race(
            engines[0].commit([Check(a, expect_a), Put(b, b"1")], lab.now_ms),
            engines[-1].commit([Check(b, expect_b), Put(a, b"1")], lab.now_ms),
        )
        lost = sum(isinstance(answer, Conflict) for answer in answers)
        holds(lost > 0, f"both of two crossed commits succeeded (expecting {expect_a})")


async def a_get_is_of_one_moment(lab: Lab) -> None:
    """A get of several keys never shows one part of a commit without the other."""
    engines = await lab.both()
    sorts = [f"{i}" for i in range(6)]
    keys = [lab.key(sort) for sort in sorts]
    running = True

    async def write() -> None:
        nonlocal running
        try:
            for turn in range(60):
                value = str(turn).encode()
                order = keys if turn % 2 else keys[::-1]
                if turn % 5 == 4:
                    await lab.engine.commit([Delete(key) for key in order], lab.now_ms)
                else:
                    await lab.engine.commit([Put(key, value) for key in order], lab.now_ms)
                await _turns(turn % 3)
        finally:
            running = False

    async def read(engine: Engine) -> None:
        while running:
            records = await engine.get(keys, lab.now_ms)
            seen = [record and record.value for record in records]
            same(len(set(seen)), 1, f"how many commits one get shows, having read {seen}")
            await asyncio.sleep(0)

    await sharing(write(), *(read(engine) for engine in engines for _ in range(2)))


async def transfers_keep_the_sum(lab: Lab) -> None:
    """Concurrent transfers between records keep the total."""
    engines = await lab.both()
    sorts = [f"{i}" for i in range(5)]
    await lab.commit(*(Put(lab.key(sort), b"100") for sort in sorts))

    async def transfer(engine: Engine, source: str, target: str, amount: int) -> None:
        records = await engine.get([lab.key(source), lab.key(target)], lab.now_ms)
        writes = []
        for record, change in zip(records, (-amount, amount), strict=True):
            version = version_of(record)
            assert record is not None
            value = str(int(record.value) + change).encode()
            writes.append(Put(record.key, value, None, version))
        await asyncio.sleep(0)
        await engine.commit(writes, lab.now_ms)

    async def caller(number: int) -> None:
        engine = engines[number % len(engines)]
        for _ in range(4):
            source, target = lab.random.sample(sorts, 2)
            amount = lab.random.randint(1, 9)
            await _retry(lambda: transfer(engine, source, target, amount))  # noqa: B023

    await sharing(*map(caller, range(_CALLERS)))
    total = sum(int(value or b"0") for value in await lab.values(sorts))
    same(total, 500, "the sum of all records")


async def an_answered_commit_is_seen_by_all(lab: Lab) -> None:
    """After a commit has returned, every read shows it, on every engine of the database."""
    engines = await lab.both()
    for turn in range(10):
        writer, reader = engines[turn % len(engines)], engines[(turn + 1) % len(engines)]
        value = str(turn).encode()
        version = await writer.commit([Put(lab.key("a"), value)], lab.now_ms)
        [record] = await reader.get([lab.key("a")], lab.now_ms)
        same(record and (record.value, record.version), (value, version), "a get after the answer")
        found = await reader.scan(lab.partition, lab.now_ms)
        same([r.version for r in found], [version], "a scan after the answer")
        await reader.commit([Check(lab.key("a"), version)], lab.now_ms)


async def visible_comes_once(lab: Lab) -> None:
    """`visible` is called once, with the version, before or when the commit returns."""
    calls: list[Version] = []
    for turn in range(3):
        calls.clear()
        put = Put(lab.key("a"), str(turn).encode())
        version = await lab.engine.commit([put], lab.now_ms, calls.append)
        same(calls, [version], "the calls of visible when the commit returned")
        await _turns(5)
        same(calls, [version], "the calls of visible a little later")
    calls.clear()
    with refused(Conflict, "conflict", "a put of a key that is there, expecting absence"):
        await lab.engine.commit([Put(lab.key("a"), b"9", None, ABSENT)], lab.now_ms, calls.append)
    await _turns(5)
    same(calls, [], "the calls of visible for a commit that conflicted")


async def visible_means_readable(lab: Lab) -> None:
    """From `visible` on, reads show the commit, and its version is the expected one."""
    engine, key = lab.engine, lab.key("a")
    tasks: list[asyncio.Task[Any]] = []

    async def look(version: Version, value: bytes) -> None:
        [record] = await engine.get([key], lab.now_ms)
        same(record and (record.value, record.version), (value, version), "a get after visible")
        found = await engine.scan(lab.partition, lab.now_ms)
        same([r.version for r in found], [version], "a scan after visible")
        await engine.commit([Check(key, version)], lab.now_ms)

    for turn in range(5):
        value = str(turn).encode()

        def visible(version: Version, value: bytes = value) -> None:
            tasks.append(asyncio.create_task(look(version, value)))

        try:
            await engine.commit([Put(key, value)], lab.now_ms, visible)
            await asyncio.gather(*tasks)
        finally:
            await abandon(*tasks)


async def _moments(lab: Lab) -> list[Callable[[], Awaitable[None]]]:
    """Increasing delays for a commit in progress: turns of the loop, then time."""
    clock = asyncio.get_running_loop().time
    start = clock()
    await lab.put("measured")
    usual_s = clock() - start
    moments: list[Callable[[], Awaitable[None]]] = [partial(_turns, n) for n in range(8)]
    return [*moments, *(partial(asyncio.sleep, usual_s * n / 6) for n in range(1, 9))]


async def a_cancelled_commit_is_whole(lab: Lab) -> None:
    """A commit cancelled at any moment is complete or absent; once visible, it stays."""
    for number, pause in enumerate(await _moments(lab)):
        sorts = [f"{number}.{i}" for i in range(5)]
        await lab.put(sorts[0], b'"old"')
        visible: list[Version] = []
        writes: list[Write] = [Delete(lab.key(sorts[0]))]
        writes += [Put(lab.key(sort), b'"new"') for sort in sorts[1:]]
        task = asyncio.create_task(lab.engine.commit(writes, lab.now_ms, visible.append))
        await pause()
        await abandon(task)
        before, after = [b'"old"', *[None] * 4], [None, *[b'"new"'] * 4]
        # It may still be in flight: it must be complete or absent at any time.
        for _ in range(5):
            seen = await lab.values(sorts)
            holds(seen in (before, after), f"commit {number}, cancelled, left {seen}")
            await _turns(3)
        if visible:
            same(await lab.values(sorts), after, "a commit cancelled after it was visible")
        version = await lab.put("probe", str(number).encode())
        await lab.put("probe", b'"again"', expect=version)


async def cancelling_one_spares_the_others(lab: Lab) -> None:
    """Cancelling one of several concurrent commits does not affect the others."""
    for number, pause in enumerate(await _moments(lab)):
        tasks = [
            asyncio.create_task(lab.put(f"{number}.{i}", str(i).encode(), expect=ABSENT))
            for i in range(6)
        ]
        await pause()
        await abandon(tasks[2])
        others = [task for task in tasks if task is not tasks[2]]
        try:
            versions = await asyncio.gather(*others)
        finally:
            await abandon(*tasks)
        same(len(set(versions)), 5, "how many different versions the other five commits got")
        seen = await lab.values([f"{number}.{i}" for i in range(6)])
        del seen[2]
        same(seen, [str(i).encode() for i in (0, 1, 3, 4, 5)], "what the other five commits wrote")


CHECKS = (
    no_update_is_lost,
    one_insert_wins,
    opposite_orders_do_not_deadlock,
    crossed_checks_exclude_each_other,
    a_get_is_of_one_moment,
    transfers_keep_the_sum,
    an_answered_commit_is_seen_by_all,
    visible_comes_once,
    visible_means_readable,
    a_cancelled_commit_is_whole,
    cancelling_one_spares_the_others,
)
