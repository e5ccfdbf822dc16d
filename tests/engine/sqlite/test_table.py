import os
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from onceward.engine.base import Record
from onceward.engine.sqlite import table as table_module
from onceward.engine.sqlite.table import (
    APPLICATION_ID,
    FORMAT,
    Table,
    explained,
    inspect_path,
    transaction,
    unreadable,
)
from onceward.errors import CannotOpen, StorageFull
from onceward.testing.disk import Faults, Observer, Operation, Strike, Watched


@pytest.fixture
def table(memory_path: Path) -> Iterator[Table]:
    table = Table(str(memory_path / "app.db"), bytes(range(16)), 1 << 20, None)
    yield table
    table.close()


def row(sort: str, version: int = 1, *, partition: str = "p", expires: int | None = None) -> Record:
    return Record((partition, sort), b'{"n":%d}' % version, version, expires)


def gone(sort: str) -> Record:
    return Record(("p", sort), b"", 9)


def sorts(table: Table, start: str = "", end: str | None = None, reverse: bool = False) -> str:
    return "".join(record.key[1] for record in table.range("p", start, end, reverse))


def test_what_is_folded_is_found_and_a_fold_removes_too(table: Table) -> None:
    table.fold([row("a"), row("b"), row("c", partition="q")], 3)
    assert table.seek(("p", "a")) == row("a")
    table.fold([row("a", 4), gone("b"), gone("never was")], 7)
    assert table.seek(("p", "a")) == row("a", 4)
    assert sorts(table) == "a"
    assert table.folded_seq == 7


@pytest.mark.parametrize("count", [1, 7, 8, 47, 999, 1_000, 1_249, 2_001])
def test_any_number_of_rows_is_folded(table: Table, count: int) -> None:
    rows = [row(f"{number:04}") for number in range(count)]
    table.fold(rows)
    assert list(table.range("p", "", None, False)) == rows
    changed = [row(f"{number:04}", 2) for number in range(0, count, 2)]
    table.fold(changed + [Record(one.key, b"", 3) for one in rows[1::2]])
    assert list(table.range("p", "", None, False)) == changed


def test_what_is_folded_is_synced_with_how_far_it_is_folded_and_not_before(
    memory_path: Path,
) -> None:
    faults = Faults()
    with Watched(faults) as watched:
        table = Table(str(memory_path / "app.db"), bytes(16), 1 << 20, watched.vfs)
        table.fold([row("a")], 1)  # the log has begun
        before = faults.counts["vfs.sync"]
        table.fold([row("b")])
        table.fold([gone("a")])
        assert faults.counts["vfs.sync"] == before
        table.fold([], 3)
        assert faults.counts["vfs.sync"] > before
        table.close()


def test_the_next_record_of_the_partition_is_found_where_there_is_none(table: Table) -> None:
    table.fold([row("b"), row("a", partition="q")])
    assert table.seek(("p", "a")) == row("b")
    assert table.seek(("p", "c")) is None


def test_ranges_are_half_open_and_go_both_ways(table: Table) -> None:
    table.fold([row(sort) for sort in "abcde"])
    assert sorts(table) == "abcde"
    assert sorts(table, "b", "d") == "bc"
    assert sorts(table, "b", "d", reverse=True) == "cb"
    assert sorts(table, "c", reverse=True) == "edc"
    assert sorts(table, "c", "c") == ""


def test_text_of_all_kinds_is_kept_as_it_is(table: Table) -> None:
    value = '"\\ud800 é 😀 \\u0000 \\" \x7f"'.encode()
    for sort in ("é", "😀", "\x01", "1e5", "null", "\ufffd", '"'):
        record = Record((f"p{sort}", sort), value, 2**53 + 1, 2**62)
        table.fold([record])
        assert table.seek(record.key) == record


def test_a_read_after_a_fold_sees_it_whatever_was_read_before(table: Table) -> None:
    table.fold([row("a")])
    assert table.seek(("p", "a")) == row("a")
    half_used = table.range("p", "", None, False)
    next(half_used)
    half_used.close()  # type: ignore[attr-defined]
    table.fold([row("b")])
    assert sorts(table) == "ab"


def test_reads_leave_nothing_that_keeps_the_log_from_being_used_again(table: Table) -> None:
    for version in range(1, 50):
        table.fold([row("a", version)])
        assert table.seek(("p", "a")) == row("a", version)
        table.checkpoint()
    assert os.path.getsize(f"{table.path}-wal") < 50_000


def test_a_fold_goes_on_in_another_thread_while_reads_go_on(table: Table) -> None:
    table.fold([row("a")])
    folding = threading.Thread(
        target=lambda: [table.fold([row("a", version)]) for version in range(2, 200)]
    )
    folding.start()
    versions = []
    while folding.is_alive():
        found = table.seek(("p", "a"))
        assert found is not None
        versions.append(found.version)
    folding.join()
    assert versions == sorted(versions)
    assert table.seek(("p", "a")) == row("a", 199)


def test_expired_records_are_found_in_order_from_behind_another(table: Table) -> None:
    table.fold([row("d", expires=1), row("c", expires=2), row("b", expires=2), row("a")])
    found = table.expired(2, None, 2)
    assert [record.key[1] for record in found] == ["d", "b"]
    assert [record.key[1] for record in table.expired(2, found[-1], 2)] == ["c"]
    assert table.expired(0, None, 2) == []


def test_every_statement_finds_its_rows_by_key(table: Table) -> None:
    connection = apsw.Connection(table.path)
    plans = {
        "from": (table_module._FROM, ("p", "s")),
        "before": (table_module._BEFORE, ("p", "s")),
        "sorts": (table_module._SORTS, ("p", "s", 1)),
        "remove": (table_module._REMOVE, ("[]",)),
        "expired": (table_module._EXPIRED, (1, 1, "p", "s", 1)),
    }
    for name, (text, values) in plans.items():
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        steps = [str(step[3]) for step in plan]
        found = [step for step in steps if "record" in step]
        assert found, name
        index = "USING COVERING INDEX record_expiry" if name == "expired" else "USING PRIMARY KEY"
        assert all(index in step and "(" in step for step in found), f"{name}: {steps}"
        assert not any("TEMP B-TREE" in step for step in steps), f"{name} sorts: {steps}"
    connection.close()


def test_anyone_can_read_it_with_sqlite(table: Table) -> None:
    table.fold([row("a", 5)], 5)
    table.close()
    connection = apsw.Connection(table.path, flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute("SELECT partition, sort, value, version, expires_at_ms FROM record")
    assert rows.fetchall() == [("p", "a", '{"n":5}', 5, None)]
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == FORMAT
    assert connection.pragma("journal_mode") == "wal"
    connection.close()


def test_a_file_keeps_its_id_and_how_far_it_is_folded(table: Table) -> None:
    table.fold([], 42)
    table.close()
    again = Table(table.path, bytes(16), 1 << 20, None)
    assert (again.database_id, again.folded_seq) == (bytes(range(16)), 42)
    again.close()


def test_a_fold_for_which_there_is_no_space_changes_nothing(memory_path: Path) -> None:
    faults = Faults()
    with Watched(faults) as watched:
        table = Table(str(memory_path / "app.db"), bytes(16), 1 << 20, watched.vfs)
        table.fold([row("a")], 1)
        for number in range(1, 4):
            faults.strike = Strike("vfs.write", faults.counts["vfs.write"] + number, 28)
            with pytest.raises(StorageFull, match="not enough disk space"):
                table.fold([row("a", 2), row("b")], 2)
            assert table.seek(("p", "a")) == row("a")
            assert table.folded_seq == 1
        faults.heal()
        table.fold([row("a", 2)], 2)
        faults.strike = Strike("vfs.write", faults.counts["vfs.write"] + 1, 28)
        with pytest.raises(StorageFull):
            table.checkpoint()
        faults.heal()
        table.checkpoint()
        table.close()


@pytest.mark.parametrize(
    ("told", "raised"),
    [(apsw.SQLITE_IOERR_SHMSIZE, StorageFull), (apsw.SQLITE_IOERR_WRITE, apsw.IOError)],
)
def test_no_space_for_the_index_of_the_log_is_no_space(
    table: Table, monkeypatch: pytest.MonkeyPatch, told: int, raised: type[Exception]
) -> None:
    class Broken:
        in_transaction = False

        def execute(self, *_: object) -> None:
            raise apsw.exception_for(told)

        def wal_checkpoint(self, mode: int) -> None:
            raise apsw.exception_for(told)

    with monkeypatch.context() as patched:
        patched.setattr(table, "_fold", Broken())
        with pytest.raises(raised):
            table.fold([row("a")], 1)
        with pytest.raises(raised):
            table.checkpoint()
    table.fold([row("a")], 1)
    assert table.seek(("p", "a")) == row("a")


def test_a_checkpoint_that_someone_else_is_making_is_left_to_them(table: Table) -> None:
    class Meanwhile(Observer):
        met = False

        def after(self, operation: Operation) -> None:
            if operation.kind == "vfs.write" and not self.met:
                self.met = True
                table.checkpoint()

    table.fold([row("a")], 1)
    meanwhile = Meanwhile()
    with Watched(meanwhile) as watched:
        other = apsw.Connection(table.path, vfs=watched.vfs)
        assert other.execute("SELECT count(*) FROM record").get == 1
        other.wal_checkpoint()
        other.close()
    assert meanwhile.met


def test_a_transaction_that_fails_leaves_none_behind(table: Table) -> None:
    connection = apsw.Connection(table.path)
    with pytest.raises(apsw.SQLError), transaction(connection):
        connection.execute("INSERT INTO meta VALUES ('x', 'y'); SELECT nonsense")
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM meta WHERE name = 'x'").get == 0
    connection.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (apsw.NotADBError("x"), "not_a_database"),
        (apsw.CorruptError("x"), "damaged"),
        (apsw.FullError("x"), "storage_full"),
        (apsw.ReadOnlyError("x"), "read_only"),
        (apsw.IOError("x"), "storage_failed"),
    ],
)
def test_errors_of_sqlite_at_opening_are_explained(
    error: apsw.Error, code: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "app.db")
    with pytest.raises(CannotOpen) as refused, explained(path):
        raise error
    assert refused.value.code == code
    assert path in refused.value.message


def test_a_read_that_fails_says_whether_the_file_is_damaged() -> None:
    assert unreadable("app.db", apsw.IOError("x")).code == "storage_failed"
    assert unreadable("app.db", apsw.CorruptError("x")).code == "damaged"


def test_a_folder_that_may_not_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CannotOpen) as refused:
        inspect_path(str(tmp_path / "app.db"))
    assert refused.value.code == "read_only"


def test_a_file_whose_creation_was_cut_off_is_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    path.write_bytes(bytes(4_096))
    with pytest.raises(CannotOpen):
        inspect_path(str(path))
    (tmp_path / "app.db-journal").touch()
    inspect_path(str(path))
