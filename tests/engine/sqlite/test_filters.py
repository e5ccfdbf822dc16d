"""A filter never denies what was added, and is right about most of the rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite import filters as filters_module
from onceward.engine.sqlite.filters import Filter, Filters
from onceward.engine.sqlite.table import Table


@pytest.fixture
def table(memory_path: Path) -> Iterator[Table]:
    table = Table(str(memory_path / "app.db"), bytes(16), 1 << 20, None)
    yield table
    table.close()


def fold(table: Table, sorts: list[str], partition: str = "p") -> None:
    table.fold([Record((partition, sort), b"1", 1) for sort in sorts])


def want(filters: Filters, partition: str = "p") -> None:
    for _ in range(filters_module._MISSES):
        filters.missed(partition)


@given(st.lists(st.text(), max_size=600))
def test_what_was_added_is_never_denied(texts: list[str]) -> None:
    found = Filter()
    for text in texts:
        found.add(text)
    assert not any(found.lacks(text) for text in texts)


def test_almost_all_others_are_denied_however_large_it_has_grown() -> None:
    found = Filter()
    assert found.lacks("anything")
    for n in range(30_000):
        found.add(f"in {n}")
    assert not any(found.lacks(f"in {n}") for n in range(30_000))
    wrong = sum(not found.lacks(f"out {n}") for n in range(10_000))
    assert wrong < 300, "some three in a hundred"
    assert found.size_bytes < 6 * 30_000


def test_a_partition_that_was_empty_has_one_at_once(table: Table) -> None:
    filters = Filters(table, 1 << 20)
    assert not filters.lacks("p", "a")
    want(filters)
    assert filters.lacks("p", "a")
    filters.add("p", ["a"])
    assert not filters.lacks("p", "a")
    assert filters.lacks("p", "b")
    assert not filters.lacks("q", "b"), "of others it knows nothing"


def test_one_that_has_rows_is_read_a_little_at_a_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "ROWS_AT_ONCE", 2)
    fold(table, list("bdfh"))
    fold(table, list("bdfh"), "q")
    filters = Filters(table, 1 << 20)
    want(filters)
    making = filters.make()
    next(making)
    assert not filters.lacks("p", "a"), "it is not ready"
    fold(table, ["a", "z"])  # one before what it has read, one behind
    filters.add("p", ["a", "z"])
    assert list(making) == [None] * 2
    assert not any(filters.lacks("p", sort) for sort in "bdfhaz")
    assert filters.lacks("p", "c")
    assert list(filters.make()) == []


def test_few_looks_in_vain_are_not_worth_one(table: Table) -> None:
    fold(table, ["b"])
    filters = Filters(table, 1 << 20)
    for _ in range(10):
        for _ in range(filters_module._MISSES - 1):
            filters.missed("p")
        assert list(filters.make()) == []
    assert not filters.lacks("p", "a")


def test_when_they_take_too_much_the_largest_are_done_without(table: Table) -> None:
    filters = Filters(table, 3_000)
    for partition in "abcdef":
        want(filters, partition)
        filters.add(partition, ["x"] * (400 if partition == "d" else 1))
    assert all(filters.lacks(partition, "y") for partition in "abcdef")
    assert list(filters.make()) == []
    kept = [partition for partition in "abcdef" if filters.lacks(partition, "y")]
    assert len(kept) == 3
    assert "d" not in kept
    for partition in "abcdef":
        want(filters, partition)
    assert list(filters.make()) == [], "nor are they made again"


def test_no_more_are_made_than_there_is_room_for(table: Table) -> None:
    for partition in "abcdef":
        fold(table, ["x"], partition)
    filters = Filters(table, 2_000)
    for partition in "abcdef":
        want(filters, partition)
    list(filters.make())
    assert [partition for partition in "abcdef" if filters.lacks(partition, "y")] == ["a", "b"]


def test_small_ones_are_made_with_stops_in_between(table: Table) -> None:
    for partition in "abc":
        fold(table, ["x"], partition)
    filters = Filters(table, 1 << 20)
    for partition in "abc":
        want(filters, partition)
    assert list(filters.make()) == [None] * 3


@pytest.mark.parametrize("misses", [1, filters_module._MISSES])
def test_however_many_partitions_there_are_few_are_remembered(
    table: Table, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    monkeypatch.setattr(limits, "GAPS_MAX", 10)
    filters = Filters(table, 1 << 20)
    for n in range(100):
        for _ in range(misses):
            filters.missed(f"p{n}")
    assert len(filters._misses) <= 10
    assert len(filters._ready) <= 20
    list(filters.make())
    assert len(filters._ready) <= 10


@pytest.mark.parametrize("empty", [True, False])
def test_a_partition_too_large_for_one_has_none(
    table: Table, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    monkeypatch.setattr(filters_module, "_FIRST_KEYS", 8)
    monkeypatch.setattr(filters_module, "_LAST_KEYS", 8)
    sorts = [f"{n:03}" for n in range(50)]
    if not empty:
        fold(table, sorts)
    filters = Filters(table, 1 << 20)
    want(filters)
    assert filters.lacks("p", "x") == empty
    filters.add("p", sorts)
    list(filters.make())
    assert not filters.lacks("p", "x")
    want(filters)
    list(filters.make())
    assert not filters.lacks("p", "x"), "it is not tried again"


def test_what_was_too_large_is_not_remembered_for_ever(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "_FIRST_KEYS", 8)
    monkeypatch.setattr(filters_module, "_LAST_KEYS", 8)
    filters = Filters(table, 1 << 20)
    want(filters)
    filters.add("p", [f"{n:03}" for n in range(50)])
    assert filters._too_large
    monkeypatch.setattr(limits, "GAPS_MAX", 0)
    list(filters.make())
    assert not filters._too_large
