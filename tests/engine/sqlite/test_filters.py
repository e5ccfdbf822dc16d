"""A filter never denies what was added, and is right about most of the rest."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite import filters as filters_module
from onceward.engine.sqlite.filters import Filter, Filters
from onceward.engine.sqlite.table import Table
from onceward.keys import Key

# What a filter takes, with room for no key and for the first 256.
EMPTY_BYTES, SMALL_BYTES = 256, 768


class Rows(Table):
    """What filters ask a table for; `test_layers.py` tries them with a real one."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def seek(self, key: Key) -> Record | None:
        found = [one for one in sorted(self._keys) if one[0] == key[0] and one >= key]
        return Record(found[0], b"1", 1) if found else None

    def sorts(self, partition: str, after: str, limit: int) -> list[str]:
        return [s for p, s in sorted(self._keys) if p == partition and s > after][:limit]

    def put(self, sorts: list[str], partition: str = "p") -> None:
        self._keys |= {(partition, sort) for sort in sorts}


@pytest.fixture
def table() -> Rows:
    return Rows()


def want(filters: Filters, partition: str = "p") -> None:
    """Look for something in vain as often as makes a filter worth it."""
    filters.missed(partition)
    filters.missed(partition)


def denying(filters: Filters, partitions: str = "abcdef") -> str:
    """The partitions that have a filter."""
    return "".join(partition for partition in partitions if filters.lacks(partition, "no such"))


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


@pytest.mark.parametrize(
    ("texts", "room"),
    [(0, 0), (1, 256), (256, 256), (257, 1_280), (1_280, 1_280), (1_281, 5_376), (5_377, 21_760)],
)
def test_it_grows_by_levels_with_two_bytes_for_each_text(texts: int, room: int) -> None:
    found = Filter()
    for _ in range(texts):
        found.add("x")
    assert found.size_bytes == EMPTY_BYTES + 2 * room
    assert not found.full


def test_it_takes_as_much_memory_as_it_says() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = Filter()
        for _ in range(5_376):
            found.add("x")
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 2 * 5_376 < taken_bytes < 3 * found.size_bytes


def test_it_is_full_when_six_levels_are_and_does_not_grow_much_larger() -> None:
    found = Filter()
    for _ in range(349_440):
        found.add("x")
    assert not found.full
    before_bytes = found.size_bytes
    assert before_bytes == EMPTY_BYTES + 2 * 349_440
    found.add("x")
    assert found.full
    assert found.size_bytes - before_bytes == 2 * 262_144, "no more than the level before"


def test_a_partition_that_was_empty_has_one_at_once(table: Rows) -> None:
    filters = Filters(table, 1 << 20)
    assert not filters.lacks("p", "a")
    want(filters)
    assert filters.lacks("p", "a")
    filters.add("p", ["a"])
    assert not filters.lacks("p", "a")
    assert filters.lacks("p", "b")
    assert not filters.lacks("q", "b"), "of others it knows nothing"


def test_one_that_is_there_is_kept_however_often_something_is_looked_for_in_vain(
    table: Rows,
) -> None:
    filters = Filters(table, 1 << 20)
    want(filters)
    filters.add("p", ["a"])
    want(filters)
    assert not filters.lacks("p", "a")
    assert filters.lacks("p", "b")


def test_a_partition_is_empty_only_if_it_has_nothing_at_all(table: Rows) -> None:
    table.put(["b"])
    table.put(["x"], "q")
    filters = Filters(table, 1 << 20)
    want(filters)
    want(filters, "empty")
    assert not filters.lacks("p", "a"), "its filter is yet to be made"
    assert filters.lacks("empty", "a")
    assert list(filters.make()) == [None]
    assert filters.lacks("p", "a")
    assert not filters.lacks("p", "b")


def test_one_that_has_rows_is_read_a_little_at_a_time(
    table: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "ROWS_AT_ONCE", 2)
    table.put(list("bdfh"))
    table.put(list("bdfh"), "q")
    filters = Filters(table, 1 << 20)
    want(filters)
    making = filters.make()
    next(making)
    assert not filters.lacks("p", "a"), "it is not ready"
    table.put(["a", "z"])  # one before what it has read, one behind
    filters.add("p", ["a", "z"])
    filters.add("q", ["c"])
    assert list(making) == [None] * 2
    assert not any(filters.lacks("p", sort) for sort in "bdfhaz")
    assert filters.lacks("p", "c")
    assert list(filters.make()) == []


def test_what_is_added_where_no_filter_is_or_is_being_made_is_not_even_looked_at(
    table: Rows,
) -> None:
    table.put(["x"], "a")
    table.put(["x"], "b")
    filters = Filters(table, SMALL_BYTES)
    unread = iter(["y"])
    filters.add("a", unread)
    want(filters, "a")
    want(filters, "b")
    making = filters.make()
    next(making)
    filters.add("b", unread)
    assert list(making) == [], "there is no room for another"
    filters.add("b", unread)
    assert denying(filters) == "a"
    assert list(unread) == ["y"]


def test_few_looks_in_vain_are_not_worth_one(table: Rows) -> None:
    table.put(["b"])
    filters = Filters(table, 1 << 20)
    for _ in range(10):
        filters.missed("p")
        filters.missed("empty")
        assert list(filters.make()) == []
    assert not filters.lacks("p", "a")
    assert not filters.lacks("empty", "a")


def test_when_they_take_too_much_the_largest_are_done_without(table: Rows) -> None:
    filters = Filters(table, 3_000)
    for partition in "abcdef":
        want(filters, partition)
        filters.add(partition, ["x"] * (400 if partition == "d" else 1))
    assert denying(filters) == "abcdef"
    assert list(filters.make()) == []
    kept = denying(filters)
    assert len(kept) == 3
    assert "d" not in kept
    for partition in "abcdef":
        want(filters, partition)
    assert list(filters.make()) == [], "nor are they made again"
    assert denying(filters) == kept


@pytest.mark.parametrize(
    ("size_bytes_max", "kept"),
    [(3 * SMALL_BYTES, 3), (3 * SMALL_BYTES - 1, 2), (2 * SMALL_BYTES, 2), (SMALL_BYTES - 1, 0)],
)
def test_as_many_are_kept_as_there_is_room_for(table: Rows, size_bytes_max: int, kept: int) -> None:
    filters = Filters(table, size_bytes_max)
    for partition in "abc":
        want(filters, partition)
        filters.add(partition, ["x"])
    list(filters.make())
    assert len(denying(filters)) == kept


@pytest.mark.parametrize(
    ("size_bytes_max", "made"),
    [(2 * SMALL_BYTES, "ab"), (2 * SMALL_BYTES - 1, "a"), (SMALL_BYTES - 1, ""), (EMPTY_BYTES, "")],
)
def test_no_more_are_made_than_there_is_room_for(
    table: Rows, size_bytes_max: int, made: str
) -> None:
    for partition in "abcdef":
        table.put(["x"], partition)
    filters = Filters(table, size_bytes_max)
    for partition in "abcdef":
        want(filters, partition)
    list(filters.make())
    assert denying(filters) == made
    assert not any(filters.lacks(partition, "x") for partition in "abcdef")
    for partition in "abcdef":
        want(filters, partition)
    assert list(filters.make()) == [], "nor are the others tried again"


def test_those_that_are_there_leave_less_room_for_more(table: Rows) -> None:
    table.put(["x"], "b")
    table.put(["x"], "c")
    filters = Filters(table, 2 * SMALL_BYTES)
    for partition in "abc":
        want(filters, partition)
    filters.add("a", ["x"])
    list(filters.make())
    assert denying(filters) == "ab"


def test_one_that_fills_its_room_exactly_has_all_rows(
    table: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "ROWS_AT_ONCE", 2)
    table.put(list("bdfh"))
    filters = Filters(table, SMALL_BYTES)
    want(filters)
    list(filters.make())
    assert filters.lacks("p", "c")
    assert not any(filters.lacks("p", sort) for sort in "bdfh")


def test_small_ones_are_made_with_stops_in_between(table: Rows) -> None:
    for partition in "abc":
        table.put(["x"], partition)
    filters = Filters(table, 1 << 20)
    for partition in "abc":
        want(filters, partition)
    assert list(filters.make()) == [None] * 3


@pytest.mark.parametrize("misses", [1, 2])
def test_however_many_partitions_there_are_few_are_remembered(
    table: Rows, monkeypatch: pytest.MonkeyPatch, misses: int
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


def test_however_many_would_be_worth_one_few_are_made(
    table: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GAPS_MAX", 10)
    names = [f"p{n}" for n in range(25)]
    filters = Filters(table, 1 << 20)
    for name in names:
        table.put(["x"], name)
        want(filters, name)
    list(filters.make())
    assert 0 < sum(filters.lacks(name, "y") for name in names) <= 10


@pytest.mark.parametrize(("most", "kept"), [(4, "abc"), (3, "")])
def test_all_are_forgotten_when_they_are_too_many_to_be_remembered(
    table: Rows, monkeypatch: pytest.MonkeyPatch, most: int, kept: str
) -> None:
    filters = Filters(table, 3 * SMALL_BYTES)
    for partition in "abcd":
        want(filters, partition)
        filters.add(partition, ["x"] * (257 if partition == "d" else 1))
    table.put(["x"], "e")
    want(filters, "e")
    monkeypatch.setattr(limits, "GAPS_MAX", most)
    list(filters.make())
    # With three that are kept and a fourth, too large, there is no room; with none there is.
    assert denying(filters) == (kept or "e")
    want(filters, "d")
    assert denying(filters) == (kept or "de"), "also what was too large"


@pytest.mark.parametrize("empty", [True, False])
def test_a_partition_too_large_for_one_has_none(
    table: Rows, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    monkeypatch.setattr(filters_module, "_FIRST_KEYS", 8)
    monkeypatch.setattr(filters_module, "_LAST_KEYS", 8)
    sorts = [f"{n:03}" for n in range(50)]
    if not empty:
        table.put(sorts)
    filters = Filters(table, 1 << 20)
    want(filters)
    assert filters.lacks("p", "x") == empty
    filters.add("p", sorts)
    list(filters.make())
    assert not filters.lacks("p", "x")
    want(filters)
    list(filters.make())
    assert not filters.lacks("p", "x"), "it is not tried again"


def test_one_that_grows_too_large_while_it_is_made_is_given_up(
    table: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "_FIRST_KEYS", 8)
    monkeypatch.setattr(filters_module, "_LAST_KEYS", 8)
    monkeypatch.setattr(filters_module, "ROWS_AT_ONCE", 2)
    table.put(list("bdfh"))
    filters = Filters(table, 1 << 20)
    want(filters)
    making = filters.make()
    next(making)
    filters.add("p", [f"{n:03}" for n in range(50)])
    assert list(making) == []
    assert not filters.lacks("p", "x")
