"""Lines: callers of one hot record take turns instead of racing."""

import asyncio
from typing import Any

import pytest

from onceward.engine.base import Version
from onceward.engine.memory import MemoryEngine
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import quick_store, stored

A = ("p", "a")


class Visits:
    """Transactions that wait inside until they are let go on, and who is in there."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.entered: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}

    def start(
        self, name: str, line: str | None = "line", fails: bool = False
    ) -> "asyncio.Task[None]":
        self.doors[name] = asyncio.Event()

        async def fn(tx: Transaction) -> None:
            self.entered.append(name)
            await self.doors[name].wait()
            if fails:
                raise ValueError(name)
            tx.put(("p", name), 1)

        return asyncio.create_task(self.store.run(fn, line=line))

    async def settle(self) -> list[str]:
        """Who has entered once all that can move has moved."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.entered


async def visits() -> Visits:
    return Visits(await quick_store())


async def test_callers_take_turns_first_come_first_served() -> None:
    visit = await visits()
    names = [f"{i}" for i in range(5)]
    tasks = [visit.start(name) for name in names]
    for done, name in enumerate(names, 1):
        assert await visit.settle() == names[:done]
        visit.doors[name].set()
    await asyncio.gather(*tasks)
    assert visit.store._lines == {}


async def test_lines_do_not_wait_for_each_other_nor_for_callers_without() -> None:
    visit = await visits()
    tasks = [visit.start("a", "one"), visit.start("b", "two"), visit.start("c", None)]
    assert await visit.settle() == ["a", "b", "c"]
    for name in "abc":
        visit.doors[name].set()
    await asyncio.gather(*tasks)


async def test_a_line_makes_conflicts_needless() -> None:
    store = await quick_store()
    runs = 0

    async def slowly(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        value = await tx.get(A, cached=True) or 0
        await asyncio.sleep(0)
        tx.put(A, value + 1)

    await asyncio.gather(*(store.run(slowly, line="a") for _ in range(30)))
    assert await stored(store, A) == 30
    assert runs == 30


async def test_a_turn_ends_when_the_commit_is_visible_before_it_is_durable() -> None:
    class Slow(MemoryEngine):
        async def commit(self, *args: Any) -> Version:
            version = await super().commit(*args)
            await durable.wait()
            return version

    durable = asyncio.Event()
    visit = Visits(await quick_store(Slow()))
    first, second = visit.start("first"), visit.start("second")
    visit.doors["first"].set()
    assert await visit.settle() == ["first", "second"]
    assert not first.done()
    visit.doors["second"].set()
    durable.set()
    await asyncio.gather(first, second)


async def test_a_turn_is_kept_over_a_repeat_after_a_conflict() -> None:
    store = await quick_store()
    order = []

    async def disturbed(tx: Transaction) -> None:
        order.append("first")
        await tx.get(A)
        if len(order) == 1:
            await store.run(_put_a)
        tx.put(("p", "x"), 1)

    async def second(tx: Transaction) -> None:
        order.append("second")

    await asyncio.gather(store.run(disturbed, line="l"), store.run(second, line="l"))
    assert order == ["first", "first", "second"]


async def _put_a(tx: Transaction) -> None:
    tx.put(A, "changed")


async def test_a_turn_ends_when_the_function_raises() -> None:
    visit = await visits()
    first, second = visit.start("first", fails=True), visit.start("second")
    visit.doors["first"].set()
    with pytest.raises(ValueError, match="first"):
        await first
    assert await visit.settle() == ["first", "second"]
    visit.doors["second"].set()
    await second
    assert visit.store._lines == {}


async def test_a_turn_ends_when_its_caller_is_cancelled() -> None:
    visit = await visits()
    first, second = visit.start("first"), visit.start("second")
    await visit.settle()
    first.cancel()
    assert await visit.settle() == ["first", "second"]
    assert first.cancelled()
    visit.doors["second"].set()
    await second


async def test_who_is_cancelled_in_the_line_leaves_it() -> None:
    visit = await visits()
    tasks = {name: visit.start(name) for name in "abcd"}
    await visit.settle()
    tasks["b"].cancel()
    tasks["c"].cancel()
    await visit.settle()
    visit.doors["a"].set()
    assert await visit.settle() == ["a", "d"]
    visit.doors["d"].set()
    await asyncio.gather(tasks["a"], tasks["d"])
    assert visit.store._lines == {}


@pytest.mark.parametrize("behind", [[], ["third"]], ids=["last in line", "another behind"])
async def test_who_is_cancelled_just_before_its_turn_is_passed_over(behind: list[str]) -> None:
    visit = await visits()

    async def fn(tx: Transaction) -> None:
        await entered.wait()
        tx.put(A, 1)
        second.cancel()  # the turn ends before the cancelled one can run

    entered = asyncio.Event()
    first = asyncio.create_task(visit.store.run(fn, line="line"))
    await asyncio.sleep(0)
    second, *others = (visit.start(name) for name in ("second", *behind))
    await visit.settle()
    entered.set()
    assert await visit.settle() == behind
    assert second.cancelled()
    for name in behind:
        visit.doors[name].set()
    await asyncio.gather(first, *others)
    assert visit.store._lines == {}


@pytest.mark.parametrize("behind", [[], ["third"]], ids=["last in line", "another behind"])
async def test_who_is_cancelled_with_the_turn_in_hand_passes_it_on(behind: list[str]) -> None:
    visit = await visits()
    first, second, *others = (visit.start(name) for name in ("first", "second", *behind))
    # The turn was handed over when the commit was visible, but the next has not run yet.
    visit.store.on_durable(lambda commit: second.cancel() and None)
    await visit.settle()
    visit.doors["first"].set()
    assert await visit.settle() == ["first", *behind]
    assert second.cancelled()
    for name in behind:
        visit.doors[name].set()
    await asyncio.gather(first, *others)
    assert visit.store._lines == {}
