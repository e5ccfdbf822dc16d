from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onceward.engine import memtable
from onceward.engine.base import Record
from onceward.engine.memtable import ROW_OVERHEAD_BYTES, STALE_KEYS_MAX, Memtable, row_bytes

partitions = st.sampled_from(["p", "q"])
sorts = st.sampled_from(["a", "a#", "a#1", "b", "é", "\uffff", "\U00010000"])
values = st.binary(min_size=1, max_size=20)


def scan(
    table: Memtable,
    partition: str = "p",
    start: str = "",
    end: str | None = None,
    reverse: bool = False,
) -> list[str]:
    return [record.key[1] for record in table.range(partition, start, end, reverse)]


def filled(*sorts: str) -> Memtable:
    table = Memtable()
    for version, sort in enumerate(sorts, 1):
        table.put(Record(("p", sort), b"1", version))
    return table


class AgainstASortedDict(RuleBasedStateMachine):
    """Whatever is put, dropped and scanned in between, it is a sorted dict."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Memtable()
        self.model: dict[tuple[str, str], Record] = {}
        self.version = 0

    @rule(partition=partitions, sort=sorts, value=values)
    def put(self, partition: str, sort: str, value: bytes) -> None:
        self.version += 1
        record = Record((partition, sort), value, self.version)
        self.table.put(record)
        self.model[record.key] = record

    @rule(partition=partitions, sort=sorts)
    def mark_deleted(self, partition: str, sort: str) -> None:
        self.version += 1
        record = Record((partition, sort), b"", self.version)
        self.table.put(record)
        self.model[record.key] = record

    @rule(partition=partitions, sort=sorts)
    def drop(self, partition: str, sort: str) -> None:
        self.table.drop((partition, sort))
        self.model.pop((partition, sort), None)

    @rule(partition=partitions, sort=sorts)
    def get(self, partition: str, sort: str) -> None:
        assert self.table.get((partition, sort)) == self.model.get((partition, sort))

    @rule(
        partition=partitions,
        start=sorts | st.just(""),
        end=sorts | st.none(),
        reverse=st.booleans(),
        count=st.integers(0, 8),
    )
    def scan(self, partition: str, start: str, end: str | None, reverse: bool, count: int) -> None:
        wanted = sorted(
            (
                key
                for key, record in self.model.items()
                if key[0] == partition
                and start <= key[1]
                and (end is None or key[1] < end)
                and record.value
            ),
            reverse=reverse,
        )
        rows = self.table.range(partition, start, end, reverse)
        # A scan may stop before its end.
        seen = [record for record, _ in zip(rows, range(count), strict=False)]
        assert seen == [self.model[key] for key in wanted[:count]]

    @rule(upto=st.integers(0, 60))
    def move_older(self, upto: int) -> None:
        upto = self.version * upto // 60
        older = Memtable()
        for _ in self.table.move_older(upto, older):
            pass
        assert all(int(record.version) <= upto for record in rows_of(older))
        for record in rows_of(older):
            assert self.model[record.key] == record
        # Back in again, as if the older ones had never left.
        for record in rows_of(older):
            self.table.put(record)

    @invariant()
    def it_knows_its_size(self) -> None:
        assert self.table.count == len(self.model)
        assert self.table.size_bytes == sum(map(row_bytes, self.model.values()))
        assert set(self.table.partitions) == {partition for partition, _ in self.model}


def rows_of(table: Memtable) -> list[Record]:
    return [record for part in table.partitions.values() for record in part.rows.values()]


TestAgainstASortedDict: Any = AgainstASortedDict.TestCase
TestAgainstASortedDict.settings = settings(max_examples=40, stateful_step_count=40)


def test_a_row_costs_its_text_and_an_overhead() -> None:
    table = filled()
    table.put(Record(("part", "sort"), b"value", 1))
    assert table.size_bytes == 4 + 4 + 5 + ROW_OVERHEAD_BYTES
    table.put(Record(("part", "sort"), b"v", 2))
    assert table.size_bytes == 4 + 4 + 1 + ROW_OVERHEAD_BYTES
    table.drop(("part", "sort"))
    table.drop(("part", "sort"))
    assert (table.size_bytes, table.count) == (0, 0)


def test_a_key_removed_and_added_again_between_scans_shows_once() -> None:
    table = filled("a", "b", "c")
    assert scan(table) == ["a", "b", "c"]
    for _ in range(3):
        table.drop(("p", "b"))
        table.put(Record(("p", "b"), b"2", 9))
    assert scan(table) == ["a", "b", "c"]
    assert scan(table, reverse=True) == ["c", "b", "a"]
    table.drop(("p", "b"))
    assert scan(table) == ["a", "c"]


def test_a_deletion_is_there_for_those_who_ask_for_it_and_in_no_scan() -> None:
    table = filled("a", "b", "c")
    for version, scanned in ((4, False), (7, True)):
        table.put(Record(("p", "b"), b"", version))
        assert table.get(("p", "b")) == Record(("p", "b"), b"", version)
        assert scan(table) == ["a", "c"]
        table.put(Record(("p", "b"), b"1", version + 1))
        if scanned:
            assert scan(table) == ["a", "b", "c"]
        table.put(Record(("p", "b"), b"", version + 2))
    assert scan(table) == ["a", "c"]
    assert list(table.partitions["p"].index or ()) == ["a", "c"]


def test_a_partition_that_has_become_empty_leaves_nothing_behind() -> None:
    table = filled("a")
    scan(table)
    table.drop(("p", "a"))
    assert table.partitions == {}
    assert scan(table) == []
    assert table.get(("p", "a")) is None


def test_keys_that_come_and_go_unscanned_do_not_pile_up() -> None:
    table = filled("head")
    assert scan(table, start="x") == []
    for version in range(5 * STALE_KEYS_MAX):
        key = ("p", f"job{version}")
        table.put(Record(key, b"1", version))
        table.drop(key)
        if version % 100 == 0:
            assert scan(table, start="x") == [], "scans that never come by those keys"
        partition = table.partitions["p"]
        assert len(partition.index or ()) + len(partition.added) <= STALE_KEYS_MAX + 10
    assert scan(table) == ["head"]


def test_the_key_that_made_an_index_too_large_is_in_the_next_one() -> None:
    table = filled("head")
    assert scan(table) == ["head"]
    for version in range(2 * STALE_KEYS_MAX):
        table.drop(("p", f"job{version - 1}"))
        table.put(Record(("p", f"job{version}"), b"1", version))
        if not table.partitions["p"].added:
            break
    assert table.partitions["p"].added == []
    assert scan(table) == ["head", f"job{version}"]


@pytest.mark.parametrize("count", [2, 2_000])
def test_an_index_is_kept_as_long_as_most_of_it_is_there(count: int) -> None:
    table = filled(*[f"{number:04}" for number in range(count)])
    scan(table)
    index = table.partitions["p"].index
    table.put(Record(("p", "new"), b"1", 9_000))
    for _ in range(2):
        assert scan(table)[-1] == "new"
        assert table.partitions["p"].index is index
        assert index is not None
        assert len(index) == count + 1, "each key is there once"


@pytest.mark.parametrize("order", [1, -1])
def test_an_index_of_which_much_has_moved_is_built_anew(order: int) -> None:
    names = [f"{number:04}" for number in range(4_000)]
    table, older = filled(*names[::order]), Memtable()
    assert scan(table) == names
    table.drop(("p", "2222"))
    assert len(scan(table)) == 3_999
    index = table.partitions["p"].index
    assert index is not None, "for one it is cleaned"
    for _ in table.move_older(2_000, older):
        pass
    left = [record.key[1] for record in rows_of(table)]
    assert scan(table) == sorted(left)
    assert table.partitions["p"].index is None
    assert len(index) == 3_999, "not one by one"
    table.put(Record(("p", "new"), b"1", 5_000))
    assert scan(table) == [*sorted(left), "new"]
    assert len(table.partitions["p"].index or ()) == len(left) + 1


def test_older_rows_move_while_others_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memtable, "ROWS_AT_ONCE", 2)
    table, older = Memtable(), Memtable()
    for version, key in enumerate(["xa", "ya", "yb", "za", "zb", "wa", "va"], 1):
        table.put(Record((key[0], key[1]), b"1", version))
    table.partitions["x"].fresh.add("a")
    whole = table.size_bytes
    move = table.move_older(5, older)
    next(move)  # xa and ya have moved
    assert {record.key for record in rows_of(older)} == {("x", "a"), ("y", "a")}
    table.put(Record(("y", "a"), b"1", 8))
    table.put(Record(("y", "b"), b"1", 9))
    table.drop(("z", "a"))
    table.drop(("w", "a"))
    assert len(list(move)) == 1
    assert {record.key for record in rows_of(older)} == {("x", "a"), ("y", "a"), ("z", "b")}
    assert {record.key for record in rows_of(table)} == {("y", "a"), ("y", "b"), ("v", "a")}
    assert older.size_bytes + table.size_bytes == whole - row_bytes(Record(("w", "a"), b"1", 6))
    table.put(Record(("x", "a"), b"1", 10))
    assert not table.drop_fresh(("x", "a")), "it is in the older table too"


def test_rows_move_on_behind_a_partition_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memtable, "ROWS_AT_ONCE", 1)
    table, older = Memtable(), Memtable()
    for version, key in enumerate(["xa", "ya", "za", "zb"], 1):
        table.put(Record((key[0], key[1]), b"1", version))
    table.partitions["z"].fresh.add("a")
    move = table.move_older(3, older)
    next(move)
    table.drop(("y", "a"))
    for _ in move:
        pass
    assert {record.key for record in rows_of(older)} == {("x", "a"), ("z", "a")}
    table.put(Record(("z", "a"), b"1", 5))
    assert not table.drop_fresh(("z", "a")), "it is in the older table too"


def test_a_row_known_to_be_nowhere_else_can_be_dropped_for_good() -> None:
    table = filled("a", "b")
    table.partitions["p"].fresh.add("a")
    assert table.drop_fresh(("p", "a"))
    assert not table.drop_fresh(("p", "a"))
    assert not table.drop_fresh(("p", "b"))
    assert not table.drop_fresh(("none", "b"))
    assert scan(table) == ["b"]


def test_many_rows_of_a_partition_are_dropped_at_once() -> None:
    table, kept = filled("a", "b", "c"), filled("c")
    table.drop_all("p", [Record(("p", sort), b"", 9) for sort in ("a", "b", "gone")])
    assert scan(table) == ["c"]
    assert (table.count, table.size_bytes) == (kept.count, kept.size_bytes)
    table.drop_all("q", [Record(("q", "c"), b"1", 1)])
    table.drop_all("p", [Record(("p", "c"), b"1", 1)])
    assert (table.count, table.size_bytes, table.partitions) == (0, 0, {})
