"""Members of a line wait for the commit before theirs, share the next, and each has its outcome."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Check
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, TooLarge, Unavailable
from onceward.store import Store
from onceward.store.sharing import SharedCommits
from onceward.store.transaction import Transaction
from tests.quick import QuickClock

HEAD = ("table#t", "head")


class SlowEngine(MemoryEngine):
    """Its commits wait for a test, and can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[Any]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.fails: list[Exception] = []

    async def commit(self, writes: Any, now_ms: int, visible: Any = None) -> Any:
        await self.may_go.wait()
        if self.fails:
            raise self.fails.pop()
        found = await super().commit(writes, now_ms, visible)
        if not all(type(write) is Check for write in writes):
            self.commits.append(list(writes))
        return found


async def begin() -> tuple[SlowEngine, SharedCommits]:
    engine = SlowEngine()
    await engine.open()
    return engine, SharedCommits(Store(engine, QuickClock()), fetch)


async def fetch(tx: Transaction, users: Sequence[str]) -> None:
    await tx.fetch([("stand", user) for user in users])


def joining(user: str, writes: int = 1) -> Any:
    async def join(tx: Transaction) -> int:
        there = await tx.get(HEAD, list[str], cached=True) or []
        tx.put(HEAD, [*there, user])
        for number in range(writes - 1):
            tx.put((user, str(number)), number)
        return len(there) + 1

    return join


async def refused(tx: Transaction) -> None:
    await joining("nobody")(tx)
    raise BadInput("no")


async def rest(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def crowd(sharing: SharedCommits, calls: list[Any]) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(sharing.run(call, writes=12, line="t")) for call in calls]
    await rest()
    return tasks


async def there(engine: SlowEngine) -> list[str]:
    store = Store(engine, QuickClock())
    return await store.run(lambda tx: tx.get(HEAD, list[str])) or []


async def test_a_lone_caller_has_a_commit_of_its_own() -> None:
    engine, sharing = await begin()
    for user in ("ann", "ben"):
        await sharing.run(joining(user), writes=12, line="t")
    assert len(engine.commits) == 2
    await sharing.finish()


async def test_all_who_wait_share_the_next_commit_in_the_order_they_came() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining(f"u{number}") for number in range(30)])
    engine.may_go.set()
    assert [await task for task in tasks] == list(range(1, 31))
    assert len(engine.commits) == 2
    assert await there(engine) == [f"u{number}" for number in range(30)]


async def test_what_one_raises_is_nobody_elses_and_leaves_nothing() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("ann"), joining("ben"), refused, joining("cas"), refused])
    engine.may_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, int, BadInput, int, BadInput]
    assert await there(engine) == ["ann", "ben", "cas"]
    assert len(engine.commits) == 2


async def test_no_more_are_taken_along_than_a_commit_holds() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining(f"u{number}", 30) for number in range(20)])
    engine.may_go.set()
    assert [await task for task in tasks] == list(range(1, 21))
    assert all(len(commit) < limits.COMMIT_WRITES_MAX for commit in engine.commits)
    assert 5 < len(engine.commits) < 20


async def test_those_who_are_too_many_together_go_on_in_halves() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    sizes = [1, 60, 60, 60, 200, 5]
    tasks = await crowd(sharing, [joining(f"u{at}", size) for at, size in enumerate(sizes)])
    engine.may_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, int, int, int, TooLarge, int]
    assert sorted(await there(engine)) == ["u0", "u1", "u2", "u3", "u5"]


async def test_a_commit_that_fails_fails_for_all_in_it_and_for_no_others() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("ann"), joining("ben"), joining("cas")])
    engine.fails = [Unavailable("away")]
    engine.may_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, int, int]
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("dan"), joining("eve"), joining("fay")])
    last = tasks[0]
    engine.may_go.set()
    await last
    engine.fails = [Unavailable("away")]
    outcomes = await asyncio.gather(*tasks[1:], return_exceptions=True)
    assert len({type(outcome) for outcome in outcomes}) == 1
    engine.fails = []
    assert await sharing.run(joining("gus"), writes=12, line="t") >= 4


async def test_when_one_loses_the_engine_those_behind_it_go_on() -> None:
    engine, sharing = await begin()
    lost = True

    async def unlucky(tx: Transaction) -> int:
        nonlocal lost
        if lost:
            lost = False
            raise Unavailable("away")
        return await joining("unlucky")(tx)

    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("ann"), joining("ben"), unlucky, joining("cas")])
    engine.may_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, Unavailable, Unavailable, int]
    assert await there(engine) == ["ann", "cas"]


async def test_who_gives_up_holds_nobody_up() -> None:
    engine, sharing = await begin()
    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("ann"), joining("ben"), joining("cas"), joining("dan")])
    for task in tasks[:3]:
        task.cancel()
    await rest()
    engine.may_go.set()
    await tasks[3]
    await sharing.finish()
    assert "dan" in await there(engine)
    assert await sharing.run(joining("eve"), writes=12, line="t") == len(await there(engine))


async def test_when_the_engine_is_away_before_a_turn_comes_everyone_hears_of_it() -> None:
    _, sharing = await begin()
    store = sharing._store
    run = store.run

    async def away(fn: Any, **options: Any) -> Any:
        await rest(3)
        raise Unavailable("away")

    store.run = away  # type: ignore[method-assign]
    tasks = await crowd(sharing, [joining("ann"), joining("ben"), joining("cas")])
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    store.run = run  # type: ignore[method-assign]
    assert await sharing.run(joining("dan"), writes=12, line="t") == 1


async def test_other_tables_wait_for_nobody() -> None:
    _, sharing = await begin()
    held = asyncio.Event()

    async def hold(tx: Transaction) -> None:
        await held.wait()
        tx.put(("held", "t"), 1)

    task = asyncio.create_task(sharing.run(hold, writes=12, line="t"))
    await rest()
    await sharing.run(joining("ann"), writes=12, line="other")
    held.set()
    await task


@pytest.mark.parametrize("conflicts", [1, 3])
async def test_a_conflict_lets_all_of_them_run_again(conflicts: int) -> None:
    engine, sharing = await begin()
    runs = 0
    other = Store(engine, QuickClock())

    async def disturbed(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        count = await joining("ann")(tx)
        if runs <= conflicts:
            await other.run(joining(f"other{runs}"))
        return count

    engine.may_go.clear()
    tasks = await crowd(sharing, [joining("first"), disturbed, joining("ben")])
    engine.may_go.set()
    assert [await task for task in tasks] == [1, 2 + conflicts, 3 + conflicts]
    assert len(await there(engine)) == 3 + conflicts


async def test_what_callers_read_is_fetched_with_one_call_and_after_a_conflict_all_of_it() -> None:
    engine, sharing = await begin()
    reads: list[int] = []
    get = engine.get

    async def counting(keys: Any, now_ms: int) -> Any:
        reads.append(len(keys))
        return await get(keys, now_ms)

    engine.get = counting  # type: ignore[method-assign]
    other = Store(engine, QuickClock())
    disturbed = False

    def joining_as(user: str) -> Any:
        async def fn(tx: Transaction) -> int:
            nonlocal disturbed
            await tx.get(("stand", user))
            count = await joining(user)(tx)
            if user == "u9" and not disturbed:
                disturbed = True
                await other.run(joining("other"))
                reads.clear()
            return count

        return fn

    engine.may_go.clear()
    users = [f"u{number}" for number in range(10)]
    first = asyncio.create_task(sharing.run(joining("first"), writes=12, line="t"))
    await rest()
    calls = [sharing.run(joining_as(user), reads=[user], writes=12, line="t") for user in users]
    tasks = [asyncio.create_task(call) for call in calls]
    await rest()
    engine.may_go.set()
    assert await first == 1
    assert [await task for task in tasks] == list(range(3, 13))
    assert reads == [11]
