"""Memtable, frozen memtable, cache and table together are one plain dictionary."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import limits
from onceward.engine import memtable
from onceward.engine.base import ABSENT, ANY, Check, Delete, Expectation, Put, Record, Write
from onceward.engine.sqlite import filters as filters_module
from onceward.engine.sqlite import fold as fold_module
from onceward.engine.sqlite import layers as layers_module
from onceward.engine.sqlite.fold import in_order
from onceward.engine.sqlite.layers import Layers
from onceward.engine.sqlite.table import Table
from onceward.errors import Conflict
from onceward.keys import Key

pytestmark = pytest.mark.no_cover

NOW_MS = 1_000


@contextmanager
def opened(path: Path, cache_bytes: int = 100_000) -> Iterator[tuple[Layers, Table]]:
    table = Table(str(path), bytes(16), 1 << 20, None)
    try:
        yield Layers(table, cache_bytes), table
    finally:
        table.close()


def rows_in_order(layers: Layers) -> list[Record]:
    return [row for row in in_order(layers.frozen) if row is not None]


def frozen(layers: Layers, upto_seq: int, last_seq: int | None = None) -> list[Record]:
    """Freeze all up to the given commit, which is the last one if nothing else is said."""
    assert list(layers.freeze(upto_seq, last_seq or upto_seq)) == []
    return rows_in_order(layers)


class Pair:
    """The layers and a plain dictionary, always asked the same."""

    def __init__(self, layers: Layers, table: Table, seed: int) -> None:
        self.layers = layers
        self.table = table
        self.random = Random(seed)
        self.model: dict[Key, Record] = {}
        self.seq = 0
        self.folding: list[Record] = []
        self.making: Iterator[None] = iter(())

    def key(self) -> Key:
        return self.random.choice("pq"), f"{self.random.randrange(30):02}"

    def present(self, key: Key) -> Record | None:
        record = self.model.get(key)
        return None if record is None or record.absent_at(NOW_MS) else record

    def expectation(self, key: Key) -> Expectation:
        record = self.present(key)
        right: Expectation = ABSENT if record is None else record.version
        return self.random.choice((ANY, right, right, right, 999_999))

    def commit(self) -> None:
        writes: list[Write] = []
        for key in {self.key() for _ in range(self.random.randint(1, 4))}:
            expect = self.expectation(key)
            kind = self.random.random()
            if kind < 0.45:
                expires_at_ms = self.random.choice((None, None, NOW_MS, NOW_MS + 1))
                writes.append(Put(key, b"%d" % self.seq, expires_at_ms, expect))
            elif kind < 0.9:
                writes.append(Delete(key, expect))
            else:
                writes.append(Check(key, expect))
        wrong = {w.key for w in writes if w.expect not in (ANY, self.right(w.key))}
        if wrong:
            with pytest.raises(Conflict) as conflict:
                self.layers.judge(writes, NOW_MS)
            assert set(conflict.value.details["keys"]) == wrong  # type: ignore[call-overload]
            return
        self.seq += 1
        nowhere = self.layers.judge(writes, NOW_MS)
        rows = self.layers.apply(writes, self.seq, nowhere)
        assert [row.key for row in rows] == [w.key for w in writes if type(w) is not Check]
        for write in writes:
            if type(write) is Put:
                row = Record(write.key, write.value, self.seq, write.expires_at_ms)
                self.model[write.key] = row
            elif type(write) is Delete:
                self.model.pop(write.key, None)

    def right(self, key: Key) -> Expectation:
        record = self.present(key)
        return ABSENT if record is None else record.version

    def get(self) -> None:
        key = self.key()
        assert self.layers.current(key, NOW_MS) == self.present(key)

    def scan(self) -> None:
        partition, start = self.key()
        end = self.random.choice((None, f"{self.random.randrange(30):02}"))
        reverse, limit = self.random.random() < 0.5, self.random.choice((1, 3, 100))
        found = self.layers.range(partition, start, end, reverse, NOW_MS, limit)
        wanted = [
            self.model[key]
            for key in sorted(self.model, reverse=reverse)
            if key[0] == partition and start <= key[1] and (end is None or key[1] < end)
        ]
        assert found == [row for row in wanted if not row.absent_at(NOW_MS)][:limit]

    def drain(self) -> None:
        """Take what is in front, as from a queue."""
        partition = self.random.choice("pq")
        end = self.random.choice((None, None, "15"))
        for row in self.layers.range(partition, "", end, False, NOW_MS, self.random.randint(1, 9)):
            self.seq += 1
            self.layers.apply([Delete(row.key)], self.seq, [])
            del self.model[row.key]

    def check_gaps(self) -> None:
        for gaps in (self.layers._gaps, self.layers._fronts):
            for partition, (start, end) in gaps.items():
                for row in self.table.range(partition, start, end, False):
                    covers = self.layers.active.get(row.key) or self.layers.frozen.get(row.key)
                    assert covers, f"{row.key} is in a gap"

    def make_filters(self) -> None:
        """Go on with the making of filters, or begin it."""
        if next(self.making, "over") == "over":
            self.making = self.layers.filters.make()

    def check_filters(self) -> int:
        """How many keys the filters deny; none that the table has and memory does not."""
        denied = 0
        for key in ((partition, f"{n:02}") for partition in "pq" for n in range(30)):
            if self.layers.filters.lacks(*key):
                denied += 1
                there = self.table.seek(key)
                hidden = self.layers.in_memory(key) is not None
                assert there is None or there.key != key or hidden, f"{key} is denied"
        return denied

    def fold(self) -> None:
        """A step of a fold, or the beginning of one."""
        if not self.folding:
            if not self.layers.frozen.count:
                for _ in self.layers.freeze(self.random.randint(0, self.seq), self.seq):
                    self.random.choice((self.get, self.scan, self.commit))()
                self.folding = rows_in_order(self.layers)
            return
        step = self.folding[: self.random.randint(1, 8)]
        self.table.fold(step)
        if self.random.random() < 0.5:  # the table shows it before the layers let go of it
            self.get()
            self.scan()
            self.commit()
        self.layers.release(step)
        del self.folding[: len(step)]

    def check_all(self) -> None:
        for partition in "pq":
            found = self.layers.range(partition, "", None, False, 0, 100)
            assert found == [self.model[k] for k in sorted(self.model) if k[0] == partition]


@pytest.mark.parametrize("seed", range(4))
def test_the_layers_agree_with_a_dictionary_whatever_is_folded_when(
    seed: int, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memtable, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(fold_module, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(filters_module, "ROWS_AT_ONCE", 3)
    with opened(memory_path / "app.db", cache_bytes=10_000 if seed % 2 else 0) as (layers, table):
        pair = Pair(layers, table, seed)
        actions = [pair.commit, pair.commit, pair.get, pair.scan, pair.fold, pair.make_filters]
        if seed % 4 < 2:
            actions.append(pair.drain)
        learned = denied = 0
        for _ in range(3_000):
            pair.random.choice(actions)()
            pair.check_gaps()
            denied += pair.check_filters()
            learned += len(layers._gaps) + len(layers._fronts)
        pair.check_all()
    assert learned > 1_000
    assert denied > 1_000


def put(layers: Layers, sort: str, seq: int, partition: str = "p") -> None:
    writes = [Put((partition, sort), b"1", None, ABSENT)]
    layers.apply(writes, seq, layers.judge(writes, NOW_MS))


def delete(layers: Layers, sort: str, seq: int) -> None:
    layers.apply([Delete(("p", sort))], seq, [])


def fold(layers: Layers, table: Table, upto_seq: int, last_seq: int | None = None) -> list[Record]:
    rows = frozen(layers, upto_seq, last_seq)
    table.fold(rows)
    layers.release(rows)
    return rows


def test_what_came_and_went_between_two_folds_never_touches_the_table(memory_path: Path) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "a", 1)
        delete(layers, "a", 2)
        assert layers.size_bytes == 0
        assert fold(layers, table, 2) == []


def test_what_was_folded_is_removed_from_the_table_when_it_is_deleted(memory_path: Path) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "a", 1)
        fold(layers, table, 1)
        delete(layers, "a", 2)
        assert layers.current(("p", "a"), NOW_MS) is None
        assert [row.value for row in fold(layers, table, 2)] == [b""]
        assert table.seek(("p", "a")) is None


def test_what_is_being_folded_is_removed_too_when_it_is_deleted_meanwhile(
    memory_path: Path,
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "a", 1)
        rows = frozen(layers, 1)
        delete(layers, "a", 2)
        table.fold(rows)
        layers.release(rows)
        assert layers.current(("p", "a"), NOW_MS) is None
        fold(layers, table, 2)
        assert table.seek(("p", "a")) is None


def test_new_keys_behind_all_others_do_not_ask_the_table(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "1000", 1)
        fold(layers, table, 1)
        list(layers.filters.make())
        asked: list[Key] = []
        seek = table.seek
        monkeypatch.setattr(table, "seek", lambda key: asked.append(key) or seek(key))
        for number in range(2, 50):
            put(layers, f"1{number:03}", number)
        assert asked == [("p", "1002")], "one look tells that nothing is behind it"
        assert layers.range("p", "1002", None, False, NOW_MS, 100)


def test_new_keys_in_no_order_hardly_ever_ask_the_table(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        table.fold([Record(("p", f"{number:04}"), b"1", 1) for number in range(0, 2_000, 2)])
        numbers = [number * 7 % 2_000 for number in range(1, 2_000, 2)]
        for number in numbers[:10]:
            put(layers, f"{number:04}", 2)
        list(layers.filters.make())
        asked: list[Key] = []
        seek = table.seek
        monkeypatch.setattr(table, "seek", lambda key: asked.append(key) or seek(key))
        for number in numbers[10:]:
            put(layers, f"{number:04}", 3)
        assert len(asked) < 50, "some three in a hundred"


def test_a_gap_ends_where_the_table_has_something(memory_path: Path) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "b", 1)
        put(layers, "d", 2)
        fold(layers, table, 2)
        assert layers.current(("p", "c"), NOW_MS) is None
        assert layers.current(("p", "a"), NOW_MS) is None
        assert layers.current(("p", "b"), NOW_MS) is not None
        assert layers.current(("p", "d"), NOW_MS) is not None
        assert len(layers.range("p", "a", "b", False, NOW_MS, 9)) == 0
        assert len(layers.range("p", "a", None, False, NOW_MS, 9)) == 2


def test_gaps_are_remembered_for_a_bounded_number_of_partitions(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GAPS_MAX", 10)
    with opened(memory_path / "app.db") as (layers, _):
        for number in range(100):
            assert layers.current((f"p{number}", "a"), NOW_MS) is None
        assert len(layers._gaps) <= 10


def test_a_fold_leaves_what_changed_since_in_memory(memory_path: Path) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        put(layers, "a", 1)
        put(layers, "b", 2)
        layers.apply([Put(("p", "a"), b"2")], 3, [])
        assert [row.key for row in fold(layers, table, 2, 3)] == [("p", "b")]
        assert table.seek(("p", "a")) == Record(("p", "b"), b"1", 2)
        assert layers.current(("p", "a"), NOW_MS) == Record(("p", "a"), b"2", 3)


def test_expired_records_of_the_table_are_found_unless_something_newer_covers_them(
    memory_path: Path,
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        for seq in range(1, 9):
            layers.apply([Put(("p", f"{seq}"), b"1", seq)], seq, [])
        fold(layers, table, 8)
        delete(layers, "1", 9)
        layers.apply([Put(("p", "2"), b"1")], 10, [])
        assert layers.expired(7, limit=3) == [("p", "3"), ("p", "4"), ("p", "5")]
        assert layers.expired(7, limit=3) == [("p", "6"), ("p", "7")]
        assert layers.expired(7, limit=3) is None
        assert layers.expired(7, limit=3) == [("p", "3"), ("p", "4"), ("p", "5")], "from the start"


def test_expired_records_are_looked_for_a_few_at_a_time(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers_module, "ROWS_AT_ONCE", 3)
    with opened(memory_path / "app.db") as (layers, table):
        for seq in range(1, 9):
            layers.apply([Put(("p", f"{seq}"), b"1", seq)], seq, [])
        fold(layers, table, 8)
        for seq in range(1, 6):
            delete(layers, f"{seq}", 8 + seq)
        monkeypatch.setattr(table, "seek", None)
        found = [layers.expired(7, limit=9) for _ in range(4)]
        assert found == [[], [("p", "6")], [("p", "7")], None]
        assert [len(rows) for rows in layers.copies()] == [3, 2]


def test_a_scan_that_finds_nothing_in_the_table_is_not_asked_for_again(tmp_path: Path) -> None:
    with opened(tmp_path / "a.db") as (layers, table):
        asked = []
        table_range = table.range

        def counted(*arguments: Any) -> Iterator[Record]:
            asked.append(arguments)
            return table_range(*arguments)

        table.range = counted  # type: ignore[method-assign]

        def scan(start: str = "", end: str | None = None) -> list[str]:
            found = layers.range("p", start, end, False, NOW_MS, 10)
            return [record.key[1] for record in found]

        for seq, sort in enumerate("abc", 1):
            assert scan() == list("abc")[: seq - 1]
            assert scan("b", "c") == (["b"] if seq > 2 else [])
            layers.apply([Put(("p", sort), b"1")], seq, [])
        assert len(asked) == 1
        rows = frozen(layers, 3)
        assert scan() == ["a", "b", "c"]
        assert len(asked) == 1, "what is being folded is still in memory"
        table.fold(rows, 3)
        layers.release(rows)
        assert scan() == ["a", "b", "c"]
        assert scan() == ["a", "b", "c"]
        assert len(asked) == 3
        assert scan("d") == scan("e", "f") == []
        assert len(asked) == 4


class CountedRows:
    """Counts the rows that are read from a table."""

    def __init__(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._range = table.range
        monkeypatch.setattr(table, "range", self._counted)

    def _counted(self, *arguments: Any) -> Iterator[Record]:
        for row in self._range(*arguments):
            self.count += 1
            yield row


def test_what_is_deleted_in_front_and_not_yet_folded_is_passed_once(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        for number in range(300):
            put(layers, f"{number:03}", number + 1)
        fold(layers, table, 300)
        rows = CountedRows(table, monkeypatch)
        for number in range(200):
            found = layers.range("p", "", None, False, NOW_MS, 1)
            assert [row.key[1] for row in found] == [f"{number:03}"]
            delete(layers, f"{number:03}", 301 + number)
        assert rows.count < 3 * 200
        # While they are folded, and when they are.
        step = frozen(layers, 500)
        table.fold(step[:100])
        layers.release(step[:100])
        rows.count = 0
        for reverse, first in ((False, "200"), (True, "299")):
            found = layers.range("p", "", None, reverse, NOW_MS, 100)
            assert len(found) == 100
            assert found[0].key[1] == first
        assert rows.count < 220
        # What moves into the table ends the gap that it stands in.
        layers.apply([Put(("p", "050"), b"1")], 501, [])
        table.fold(step[100:])
        layers.release(step[100:])
        fold(layers, table, 501)
        assert len(layers.range("p", "", None, False, NOW_MS, 1_000)) == 101


def test_a_scan_passes_no_more_of_what_is_newer_in_memory_than_it_shows(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(memory_path / "app.db") as (layers, table):
        for seq in (1, 2):
            layers.apply([Put(("p", f"{n:03}"), b"%d" % seq) for n in range(300)], seq, [])
            if seq == 1:
                fold(layers, table, 1)
        rows = CountedRows(table, monkeypatch)
        assert len(layers.range("p", "", None, False, NOW_MS, 10)) == 10
        assert rows.count < 15


def test_what_replaced_frozen_rows_hides_them_whatever_was_scanned_when(memory_path: Path) -> None:
    with opened(memory_path / "app.db") as (layers, _):
        for number in range(20):
            put(layers, f"{number:02}", number + 1)
        frozen(layers, 20)
        assert len(layers.range("p", "", None, False, NOW_MS, 100)) == 20
        for number in range(10):
            delete(layers, f"{number:02}", 21 + number)
        for _ in range(2):
            found = layers.range("p", "", None, False, NOW_MS, 100)
            assert [row.key[1] for row in found] == [f"{number}" for number in range(10, 20)]
        layers.apply([Put(("p", "05"), b"1")], 31, [])
        assert layers.range("p", "", None, False, NOW_MS, 1)[0].key[1] == "05"
