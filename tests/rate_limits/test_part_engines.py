"""Rate limits on every engine: nodes that take at once, restarts and crashes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from onceward import engine as engines
from onceward.engine.memory import Memory, MemoryEngine
from onceward.rate_limits import RateLimits
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.rate_limits.buckets import race

# For tests in real time: nothing is refilled meanwhile.
SLOW = {"rate": 0.001, "burst": 10}


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Store]]:
    """Two nodes on one database; SQLite has one."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            memory = Memory()
            made = [MemoryEngine(memory), MemoryEngine(memory)]
        elif request.param == "sqlite":
            made = [engines.create(f"sqlite:///{tmp_path}/limits.db")]
        else:
            made = [engines.create(request.getfixturevalue("url")) for _ in range(2)]
        yield [Store(await stack.enter_async_context(engine)) for engine in made]


async def test_takes_at_once_never_exceed_the_bucket(nodes: list[Store]) -> None:
    assert await race(nodes, burst=10, takes=30) == 10


async def test_a_take_commits_with_the_writes_beside_it(nodes: list[Store]) -> None:
    limits = RateLimits()

    async def send(tx: Transaction, *, fails: bool = False) -> None:
        assert await limits.take(tx, "k", 3, **SLOW)
        tx.put(("u#sent", "n"), (await tx.get(("u#sent", "n"), int) or 0) + 1)
        if fails:
            raise ArithmeticError

    await nodes[0].run(send)
    with pytest.raises(ArithmeticError):
        await nodes[-1].run(lambda tx: send(tx, fails=True))
    await nodes[-1].run(send)

    async def state(tx: Transaction) -> tuple[int, int | None]:
        left = await limits.take(tx, "k", 0, **SLOW)
        return round(left.remaining), await tx.get(("u#sent", "n"), int)

    assert [await node.run(state) for node in nodes] == [(4, 2)] * len(nodes)


async def test_a_crash_keeps_committed_takes_and_undoes_others(tmp_path: Path) -> None:
    limits, after = RateLimits(), tmp_path / "after"
    after.mkdir()
    async with engines.create(f"sqlite:///{tmp_path}/limits.db") as engine:
        store = Store(engine)
        await store.run(lambda tx: limits.take(tx, "k", 4, **SLOW))

        async def crashes(tx: Transaction) -> None:
            assert await limits.take(tx, "k", 5, **SLOW)
            # The files as they are when the process ends before the commit.
            names = [str(file) for file in tmp_path.glob("limits.db*") if "draft" not in file.name]
            copying = await asyncio.create_subprocess_exec("cp", "--", *names, str(after))
            assert await copying.wait() == 0

        await store.run(crashes)
    async with engines.create(f"sqlite:///{after}/limits.db") as engine:
        left = await Store(engine).run(lambda tx: limits.take(tx, "k", 0, **SLOW))
    assert round(left.remaining) == 6
