from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward import limits
from onceward.engine.base import ABSENT, ANY, Check, Delete, Put, Record
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from onceward.store.cache import Heads
from onceward.store.transaction import Row, Transaction
from tests.quick import START_MS, change, quick_store, remove, stored

A, B, C = ("p", "a"), ("p", "b"), ("p", "c")


class CountingEngine(MemoryEngine):
    """Counts its reads."""

    reads = 0

    async def get(self, *args: Any) -> list[Record | None]:
        self.reads += 1
        return await super().get(*args)


async def begin(*sorts: str) -> Transaction:
    """A transaction on a memory engine that has these records in partition p."""
    engine = await CountingEngine().open()
    for sort in sorts:
        await engine.commit([Put(("p", sort), f'"{sort}"'.encode())], START_MS)
    return Transaction(engine, START_MS, Heads())


def version_in(tx: Transaction, key: tuple[str, str]) -> Any:
    record = tx.seen[key]
    assert record is not None
    return record.version


# Reading and writing.


async def test_it_reads_what_is_there() -> None:
    tx = await begin("a")
    assert await tx.get(A) == "a"
    assert await tx.get(B) is None
    assert await tx.get_many([B, A, B]) == [None, "a", None]


async def test_it_reads_its_own_writes() -> None:
    tx = await begin("a", "b")
    tx.put(A, 1)
    tx.delete(B)
    tx.put(C, [2])
    assert await tx.get(A) == 1
    assert await tx.get(B) is None
    assert await tx.get_many([C, B, A]) == [[2], None, 1]
    tx.put(A, {"x": 3})
    assert await tx.get(A) == {"x": 3}
    tx.delete(A)
    assert await tx.get(A) is None


async def test_what_it_puts_already_expired_it_does_not_see() -> None:
    tx = await begin("a", "b")
    tx.put(A, 1, expires_at_ms=START_MS)
    tx.put(B, 1, expires_at_ms=START_MS + 1)
    assert await tx.get(A) is None
    assert await tx.get(B) == 1
    assert [row.key for row in await tx.scan("p", limit=1)] == [B]


async def test_reads_are_repeatable() -> None:
    store = await quick_store()
    await change(store, A, 1)
    await change(store, B, 1)
    tx = Transaction(store.engine, START_MS, Heads())
    assert await tx.get(A) == 1
    assert [row.value for row in await tx.scan("p")] == [1, 1]
    await change(store, A, 2)
    await change(store, B, 2)
    assert await tx.get(A) == 1
    assert await tx.get_many([A, B]) == [1, 1]
    assert [row.value for row in await tx.scan("p")] == [1, 1]


async def test_what_was_absent_stays_absent_in_scans() -> None:
    store = await quick_store()
    tx = Transaction(store.engine, START_MS, Heads())
    assert await tx.get(A) is None
    await change(store, A, 1)
    await change(store, B, 1)
    assert [row.key for row in await tx.scan("p")] == [B]


async def test_a_key_is_read_once_from_the_engine() -> None:
    tx = await begin("a")
    assert isinstance(tx._engine, CountingEngine)
    for _ in range(3):
        await tx.get(A)
        await tx.get(B)
        await tx.get_many([A, B])
    assert tx._engine.reads == 2
    await tx.get_many([C, ("p", "d"), C])
    assert tx._engine.reads == 3, "several keys, one call"


async def test_what_was_fetched_costs_no_more_calls_and_is_checked_only_if_used() -> None:
    tx = await begin("a", "b", "c")
    await tx.fetch([A, B, C, A])
    assert tx._engine.reads == 1  # type: ignore[attr-defined]
    assert await tx.get(A) == "a"
    tx.put(B, 1)
    assert tx._engine.reads == 1  # type: ignore[attr-defined]
    assert tx.finish(write=True) == [
        Put(B, b"1", None, version_in(tx, B)),
        Check(A, version_in(tx, A)),
    ]


async def test_what_expires_by_its_time_is_absent() -> None:
    engine = await MemoryEngine().open()
    await engine.commit([Put(A, b"1", START_MS), Put(B, b"2", START_MS + 1)], START_MS - 1)
    tx = Transaction(engine, START_MS, Heads())
    assert await tx.get_many([A, B]) == [None, 2]
    assert [row.value for row in await tx.scan("p")] == [2]


async def test_what_is_added_must_not_be_there() -> None:
    tx = await begin("a")
    tx.add(A, 1)
    tx.add(B, 2, expires_at_ms=9)
    tx.put(B, 3)
    tx.delete(C)
    tx.add(C, 4)
    await tx.fetch([("p", "d")])
    tx.add(("p", "d"), 5)
    assert await tx.get(A) == 1
    assert tx.finish(write=True) == [
        Put(A, b"1", None, ABSENT),
        Put(B, b"3", None, ABSENT),
        Put(C, b"4", None, ANY),
        Put(("p", "d"), b"5", None, ABSENT),
    ]


async def test_adding_what_is_there_is_a_conflict_and_the_function_runs_again() -> None:
    store = await quick_store()
    await change(store, A, "taken")
    tried = []

    async def fn(tx: Transaction) -> None:
        tried.append([A, B][len(tried)])
        tx.add(tried[-1], 1)

    await store.run(fn)
    assert tried == [A, B]


async def test_adding_what_was_seen_to_be_there_is_an_error_at_once() -> None:
    store = await quick_store()
    await change(store, A, "taken")
    runs = []

    async def add(tx: Transaction, see: Any) -> None:
        runs.append(see)
        await see(tx)
        tx.add(A, 1)

    for see in (lambda tx: tx.get(A), lambda tx: tx.fetch([A]), lambda tx: tx.scan("p")):
        with pytest.raises(BadInput, match="exists already"):
            await store.run(lambda tx, see=see: add(tx, see))
    assert len(runs) == 3
    assert await stored(store, A) == "taken"


async def test_adding_what_is_gone_since_it_was_seen_is_tried_again() -> None:
    store = await quick_store()
    await change(store, A, "taken")

    async def fn(tx: Transaction) -> None:
        found = await tx.scan("p")
        if found:
            await remove(store, A)
        tx.add(A, 1)

    await store.run(fn)
    assert await stored(store, A) == 1


async def test_what_is_seen_only_after_it_was_added_is_not_replaced_either() -> None:
    tx = await begin("a")
    tx.add(A, 1)
    assert [row.value for row in await tx.scan("p")] == [1]
    with pytest.raises(BadInput, match="exists already"):
        tx.add(A, 2)
    assert tx.finish(write=True) == [Put(A, b"1", None, ABSENT)]


# Scans.


async def test_a_scan_shows_keys_and_values_in_order() -> None:
    tx = await begin("b", "a", "c")
    assert await tx.scan("p") == [Row(A, "a"), Row(B, "b"), Row(C, "c")]
    assert await tx.scan("p", start="b") == [Row(B, "b"), Row(C, "c")]
    assert await tx.scan("p", start="a", end="c", reverse=True) == [Row(B, "b"), Row(A, "a")]
    assert await tx.scan("other") == []


async def test_a_scan_fills_its_limit_past_own_deletes() -> None:
    tx = await begin("a", "b", "c", "d", "e")
    tx.delete(A)
    tx.delete(B)
    tx.delete(("other", "x"))
    assert [row.value for row in await tx.scan("p", limit=2)] == ["c", "d"]
    assert [row.value for row in await tx.scan("p", limit=2, reverse=True)] == ["e", "d"]
    tx.delete(("p", "e"))
    assert [row.value for row in await tx.scan("p", limit=2, reverse=True)] == ["d", "c"]


@pytest.mark.parametrize("reverse", [False, True])
async def test_the_largest_scan_fills_its_limit_past_own_deletes(
    monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    monkeypatch.setattr(limits, "SCAN_RECORDS_MAX", 3)
    tx = await begin(*"abcdefg")
    order = "gfedcba" if reverse else "abcdefg"
    for sort in order[:2]:
        tx.delete(("p", sort))
    found = await tx.scan("p", limit=3, reverse=reverse)
    assert [row.value for row in found] == list(order[2:5])


async def test_a_scan_in_several_pages_leaves_out_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_RECORDS_MAX", 3)
    tx = await begin("a", "b", "c", "c ", "c!", "d")
    tx.delete(A)
    tx.delete(B)
    assert [row.value for row in await tx.scan("p", limit=3)] == ["c", "c ", "c!"]


async def test_a_scan_puts_own_records_in_their_place() -> None:
    tx = await begin("b", "d")
    tx.put(A, "own a")
    tx.put(C, "own c")
    tx.put(("p", "d"), "own d")
    tx.put(("p", "e"), "own e")
    tx.put(("other", "a"), "elsewhere")
    everything = ["own a", "b", "own c", "own d", "own e"]
    assert [row.value for row in await tx.scan("p")] == everything
    assert [row.value for row in await tx.scan("p", reverse=True)] == everything[::-1]
    assert [row.value for row in await tx.scan("p", limit=3)] == everything[:3]
    assert [row.value for row in await tx.scan("p", start="b", end="d")] == ["b", "own c"]


sorts = st.sampled_from("abcdefgh")


@settings(max_examples=80)
@given(
    st.sets(sorts),
    st.lists(st.tuples(sorts, st.sampled_from(["put", "delete", "expired"])), max_size=8),
    sorts | st.just(""),
    sorts | st.none(),
    st.integers(1, 10),
    st.booleans(),
)
async def test_a_scan_agrees_with_a_plain_dict(
    stored_sorts: set[str],
    writes: list[tuple[str, str]],
    start: str,
    end: str | None,
    limit: int,
    reverse: bool,
) -> None:
    tx = await begin(*stored_sorts)
    model = {sort: sort for sort in stored_sorts}
    for sort, what in writes:
        key = ("p", sort)
        if what == "put":
            tx.put(key, sort * 2)
            model[sort] = sort * 2
        else:
            model.pop(sort, None)
            tx.delete(key)
            if what == "expired":
                tx.put(key, "gone", expires_at_ms=START_MS - 1)
    wanted = sorted((s for s in model if s >= start and (end is None or s < end)), reverse=reverse)
    found = await tx.scan("p", start=start, end=end, limit=limit, reverse=reverse)
    assert found == [Row(("p", sort), model[sort]) for sort in wanted[:limit]]


@pytest.mark.parametrize("limit", [0, -1, limits.SCAN_RECORDS_MAX + 1])
async def test_a_scan_with_a_limit_out_of_range_is_refused(limit: int) -> None:
    tx = await begin()
    with pytest.raises(BadInput) as refused:
        await tx.scan("p", limit=limit)
    assert refused.value.code == "bad_request"


# What it commits.


async def test_reads_become_checks_and_writes_expect_what_was_read() -> None:
    tx = await begin("a", "b", "c")
    await tx.get_many([A, B, C, ("p", "d")])
    tx.put(A, 1)
    tx.delete(B)
    writes = tx.finish(write=True)
    assert writes == [
        Put(A, b"1", None, version_in(tx, A)),
        Delete(B, version_in(tx, B)),
        Check(C, version_in(tx, C)),
        Check(("p", "d"), ABSENT),
    ]


async def test_a_write_of_what_was_not_read_is_blind() -> None:
    tx = await begin("a")
    tx.put(A, 1, expires_at_ms=7)
    tx.delete(B)
    await tx.get_many([A, B])
    assert tx.finish(write=True) == [Put(A, b"1", 7, ANY), Delete(B, ANY)]


async def test_the_last_of_several_writes_of_a_key_counts() -> None:
    tx = await begin("a")
    await tx.get(A)
    tx.delete(A)
    tx.put(A, 1)
    tx.put(B, 1)
    tx.delete(B)
    assert tx.finish(write=True) == [Put(A, b"1", None, version_in(tx, A)), Delete(B, ANY)]


async def test_scanned_records_are_checked_only_if_asked_for() -> None:
    tx = await begin("a", "b")
    await tx.get(("p", "head"))
    await tx.scan("p")
    assert tx.finish(write=True) == [Check(("p", "head"), ABSENT)]
    tx = await begin("a", "b", "c")
    await tx.scan("p", limit=2, check=True)
    assert tx.finish(write=True) == [Check(A, version_in(tx, A)), Check(B, version_in(tx, B))]


async def test_a_scanned_record_that_is_written_is_expected_unchanged() -> None:
    tx = await begin("a", "b")
    await tx.scan("p")
    tx.delete(A)
    assert tx.finish(write=True) == [Delete(A, version_in(tx, A))]


async def test_a_scan_alone_is_validated_by_a_check_that_only_waits() -> None:
    tx = await begin("a")
    await tx.scan("p")
    assert tx.finish(write=True) == [Check(("p", "scan"), ANY)]


async def test_without_writing_the_same_reads_are_validated() -> None:
    tx = await begin("a", "b")
    await tx.get_many([A, C])
    tx.put(A, 1)
    tx.put(B, 1)
    assert tx.finish(write=False) == [Check(A, version_in(tx, A)), Check(C, ABSENT)]


async def test_after_its_end_nothing_can_be_done_with_it() -> None:
    tx = await begin("a")
    tx.finish(write=True)
    for call in (
        lambda: tx.get(A),
        lambda: tx.get_many([A]),
        lambda: tx.scan("p"),
    ):
        with pytest.raises(BadInput, match="ended"):
            await call()
    for act in (
        lambda: tx.put(A, 1),
        lambda: tx.delete(A),
        lambda: tx.on_durable(print),
        lambda: tx.finish(write=True),
    ):
        with pytest.raises(BadInput, match="ended"):
            act()


# Marks.


async def test_undo_restores_what_was_replaced_since_the_mark() -> None:
    tx = await begin("a")
    tx.put(A, 1)
    tx.put(A, 2)
    outer = tx.mark()
    tx.delete(A)
    tx.put(B, 1)
    inner = tx.mark()
    tx.put(A, 3)
    tx.put(B, 2)
    tx.add(C, 1)
    tx.undo(inner)
    assert (await tx.get(A), await tx.get(B), await tx.get(C)) == (None, 1, None)
    tx.put(C, 5)  # whatever is there: it was not read before the mark
    tx.undo(outer)
    tx.undo(outer)
    assert await tx.get(A) == 2
    assert tx.written == [A]


async def test_an_add_that_cannot_be_stored_leaves_nothing() -> None:
    tx = await begin()
    with pytest.raises(BadInput):
        tx.add(C, object())
    tx.put(C, 1)
    assert tx.finish(write=True) == [Put(C, b"1", None, ANY)]


async def test_what_is_undone_is_not_written_and_what_was_read_is_checked() -> None:
    tx = await begin("a")
    tx.end_hooks = []
    heard: list[Any] = []
    tx.put(B, 1)
    mark = tx.mark()
    assert await tx.get(A) == "a"
    tx.put(A, 2)
    tx.put(B, 2)
    tx.add(C, 2)
    tx.on_durable(lambda: heard.append("durable"))
    tx.on_end(heard.append)
    tx.undo(mark)
    assert heard == [False]
    assert (await tx.get(A), await tx.get(B), await tx.get(C)) == ("a", 1, None)
    assert (tx.hooks, tx.end_hooks, tx.written) == ([], [], [B])
    tx.add(C, 3)
    assert tx.finish(write=True) == [
        Put(B, b"1", None, ANY),
        Put(C, b"3", None, ABSENT),
        Check(A, version_in(tx, A)),
    ]
    with pytest.raises(BadInput):
        tx.undo(mark)
