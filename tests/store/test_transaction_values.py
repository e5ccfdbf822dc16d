"""Values and limits: what a transaction takes, and what it refuses."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.engine.memory import MemoryEngine
from onceward.engine.sqlite.engine import SQLiteEngine
from onceward.errors import BadInput, OncewardError, TooLarge
from onceward.store import Store
from onceward.store.cache import Heads
from onceward.store.transaction import Row, Transaction
from tests.quick import START_MS, WatchedEngine, change, quick_store, stored

A, B = ("p", "a"), ("p", "b")


class Seat(msgspec.Struct):
    name: str
    since_ms: int = 0


async def begin() -> Transaction:
    return Transaction(await MemoryEngine().open(), START_MS, Heads())


async def test_values_come_back_as_the_type_asked_for() -> None:
    tx = await begin()
    tx.put(A, Seat("Ada", 5))
    assert await tx.get(A, Seat) == Seat("Ada", 5)
    assert await tx.get(A) == {"name": "Ada", "since_ms": 5}
    assert await tx.get_many([A, B], Seat) == [Seat("Ada", 5), None]
    assert await tx.scan("p", Seat) == [Row(A, Seat("Ada", 5))]
    tx.put(B, [1, 2])
    assert await tx.get(B, list[int]) == [1, 2]
    assert await tx.get(B, tuple[int, int]) == (1, 2)


async def test_what_json_cannot_say_is_not_written() -> None:
    tx = await begin()
    with pytest.raises(BadInput) as refused:
        tx.put(A, {"a": (None, math.nan)})
    assert refused.value.code == "bad_value"
    assert tx.finish(write=True) == []


async def test_a_record_of_another_shape_is_reported_as_damaged() -> None:
    store = await quick_store()
    await change(store, A, {"name": 5})

    async def read(tx: Transaction) -> Seat | None:
        return await tx.get(A, Seat)

    with pytest.raises(OncewardError, match="name") as damaged:
        await store.run(read)
    assert damaged.value.code == "damaged"


# Limits, at the commit.


@pytest.mark.parametrize(
    "key", [("", "a"), ("p", ""), ("p", "\ud800"), ("p", "k" * 2_000), ("p" * 3_000, "a")]
)
async def test_a_bad_key_is_refused_at_the_commit(key: tuple[str, str]) -> None:
    store = await quick_store()

    async def put(tx: Transaction) -> None:
        tx.put(("p", "good"), 1)
        tx.put(key, 1)

    async def get(tx: Transaction) -> None:
        tx.put(("p", "good"), 1)
        await tx.get(key)

    for fn in (put, get):
        with pytest.raises(BadInput) as refused:
            await store.run(fn)
        assert refused.value.code == "bad_key"
    assert await stored(store, ("p", "good")) is None


async def test_a_value_over_the_limit_is_refused_at_the_commit() -> None:
    store = await quick_store()

    async def put(tx: Transaction) -> None:
        tx.put(A, "x" * limits.VALUE_BYTES_MAX)

    with pytest.raises(TooLarge) as refused:
        await store.run(put)
    assert refused.value.code == "value_too_large"


async def test_a_transaction_has_room_for_100_writes_and_reads() -> None:
    store = await quick_store()

    def puts(count: int) -> Any:
        async def fn(tx: Transaction) -> None:
            await tx.get(A)
            for i in range(count - 1):
                tx.put(("p", f"{i:03}"), i)

        return fn

    await store.run(puts(100))
    with pytest.raises(TooLarge, match="1 to 100 writes") as refused:
        await store.run(puts(101))
    assert refused.value.code == "commit_too_large"
    assert await stored(store, ("p", "099")) is None


async def test_100_keys_can_be_read_and_validated() -> None:
    store = await quick_store()
    many = [("p", f"{i:03}") for i in range(100)]

    async def read(tx: Transaction) -> int:
        return len(await tx.get_many(many))

    assert await store.run(read) == 100


MANY = [("p", f"{i:03}") for i in range(350)]


async def read_and_refuse(tx: Transaction) -> None:
    for start in range(0, len(MANY), 50):
        await tx.get_many(MANY[start : start + 50])
    raise ValueError("my own")


async def test_an_error_after_more_reads_than_a_commit_takes_is_still_that_error() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    for key in MANY[:260]:
        await change(store, key, 1)
    engine.commits.clear()
    with pytest.raises(ValueError, match="my own"):
        await store.run(read_and_refuse)
    assert [len(checks) for checks in engine.commits] == [100, 100, 100, 50]
    assert {check.key for check in engine.commits[0]} > set(MANY[260:]), "the absent ones"
    assert {check.key for checks in engine.commits for check in checks} == set(MANY)


async def test_an_error_after_many_reads_of_which_one_has_changed_is_no_answer() -> None:
    store = await quick_store()
    for key in MANY:
        await change(store, key, 1)
    runs = []

    async def fn(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:
            await tx.get(MANY[-1])
            await change(store, MANY[-1], 2)
        await read_and_refuse(tx)

    with pytest.raises(ValueError, match="my own"):
        await store.run(fn)
    assert len(runs) == 2


async def test_more_that_was_absent_than_a_commit_takes_is_too_large_because_of_the_error() -> None:
    store = await quick_store()
    with pytest.raises(TooLarge) as refused:
        await store.run(read_and_refuse)
    assert isinstance(refused.value.__cause__, ValueError)


NO_KEYS: list[Any] = [
    *(("stock", 7), ("a",), ("a", "b", "c"), "ab", ["a", "b"], (None, "a"), (b"a", "b"), None, 7),
]


@pytest.mark.parametrize("key", NO_KEYS)
async def test_what_is_no_key_is_refused_and_spoils_nothing(key: Any, tmp_path: Path) -> None:
    async with SQLiteEngine(str(tmp_path / "app.db")) as engine:
        store = Store(engine)

        async def fn(tx: Transaction) -> None:
            tx.put(("stock", "lamp"), 1)
            for act in (tx.get(key), tx.get(key, cached=True), tx.get_many([A, key])):
                with pytest.raises(BadInput) as refused:
                    await act
                assert refused.value.code == "bad_key"
            for write in (tx.delete, lambda key: tx.put(key, 1), lambda key: tx.add(key, 1)):
                with pytest.raises(BadInput):
                    write(key)

        await store.run(fn)
        assert await store.run(lambda tx: tx.get(("stock", "lamp"))) == 1
        assert await store.run(lambda tx: tx.get(("stock", "sofa"))) is None


async def test_a_scan_takes_text_alone() -> None:
    tx = await begin()
    for act in (tx.scan(7), tx.scan("p", start=7), tx.scan("p", end=b"b")):  # type: ignore[call-overload]
        with pytest.raises(BadInput):
            await act


async def test_a_key_may_be_of_a_kind_of_text() -> None:
    class Name(str):
        pass

    tx = await begin()
    tx.put((Name("p"), "a"), 1)
    assert await tx.get(A) == 1
