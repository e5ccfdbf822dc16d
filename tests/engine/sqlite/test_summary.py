from pathlib import Path

import pytest

from onceward import keys, limits
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.summary import Amount, summarise
from tests.bank import Bank
from tests.databases import Contents, closed, commit, crashed, running

NOW_MS = 1_000_000


def due(slot: int, at_ms: int) -> tuple[str, str]:
    return keys.join("due", slot), keys.join(at_ms, "job")


async def test_records_are_counted_by_kind_whether_folded_or_not(tmp_path: Path) -> None:
    folded: list[Contents] = [
        {("room", "a"): b"11", ("room#1", "b"): b"22", ("room#1", "c"): b"33"},
        {("seat#1", "a"): b"44", ("seat#ü", "a"): b'"\xc3\xbc"', ("roomy", "a"): b"55"},
    ]
    unfolded: list[Contents] = [
        {("room#1", "b"): b"2222", ("room#1", "c"): None, ("seat#9", "a"): b"9"},
        {("seat#1", "a"): None, ("line", "a"): b"1"},
        {("line", "a"): None},
    ]
    path = await crashed(tmp_path / "a.db", folded, unfolded)
    found = summarise(str(path), NOW_MS)
    assert found.kinds == {
        "room": Amount(2, 4 + 1 + 2 + 6 + 1 + 4),
        "roomy": Amount(1, 5 + 1 + 2),
        "seat": Amount(2, 7 + 1 + 4 + 6 + 1 + 1),
    }
    assert found.total == Amount(5, 47 - 2 + 1)
    assert (found.table_records, found.folded_seq, found.last_seq) == (6, 2, 5)
    assert (found.journal.commits, found.journal.records) == (3, 5)
    assert found.owner is None


async def test_a_closed_and_reopened_database_counts_the_same(tmp_path: Path) -> None:
    contents: list[Contents] = [{("a#1", "x"): b"1"}, {("b", "x"): b"2", ("a#1", "x"): b"33"}]
    before = summarise(str(await crashed(tmp_path / "a.db", [], contents)), NOW_MS)
    after = summarise(str(await closed(tmp_path / "b.db", *contents)), NOW_MS)
    assert (before.kinds, before.total) == (after.kinds, after.total)
    assert (before.journal.commits, after.journal.commits) == (2, 0)
    assert (before.journal.segments > 0, after.journal.segments) == (True, 0)


async def test_partitions_that_are_no_words_are_counted_once(tmp_path: Path) -> None:
    names = ["a", "a\x01", "a!", "a#", "a#b", "a$", "a$#", "b"]
    path = await closed(tmp_path / "a.db", {(name, "x"): b"1" for name in names})
    found = summarise(str(path), NOW_MS)
    assert found.total.records == len(names)
    assert {kind: amount.records for kind, amount in found.kinds.items()} == {
        "a": 3,
        "a\x01": 1,
        "a!": 1,
        "a$": 2,
        "b": 1,
    }


@pytest.mark.parametrize("folded", [True, False])
async def test_too_many_kinds_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folded: bool
) -> None:
    monkeypatch.setattr(limits, "SUMMARY_KINDS_MAX", 3)
    contents: Contents = {(f"kind{number}#1", "x"): b"1" for number in range(9)}
    path = tmp_path / "a.db"
    if folded:
        await closed(path, contents)
    else:
        await crashed(path, [], [contents])
    found = summarise(str(path), NOW_MS)
    assert list(found.kinds) == ["(others)", "kind0", "kind1", "kind2"]
    assert found.kinds["(others)"].records == 6
    assert found.total.records == 9


async def test_expired_records_are_counted_whether_folded_or_not(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("p", "a"): b"1", ("p", "b"): b"1"}, expires_at_ms=NOW_MS)
        await commit(engine, {("p", "c"): b"1"}, expires_at_ms=NOW_MS + 1)
    assert summarise(str(path), NOW_MS).expired_records == 2
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("p", "a"): b"2"})
        await commit(engine, {("p", "d"): b"1"}, expires_at_ms=NOW_MS - 1)
        assert summarise(str(path), NOW_MS).expired_records == 2
        assert summarise(str(path), NOW_MS + 1).expired_records == 3


async def test_the_oldest_due_entry_of_all_slots_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    folded: Contents = {due(1, 500): b"1", due(1, 700): b"1", due(2, 600): b"1"}
    async with running(path, [folded], []) as engine:
        found = summarise(str(path), NOW_MS).oldest_due
        assert found is not None
        assert (found.partition, found.due_ms, found.late_ms) == (
            due(1, 500)[0],
            500,
            NOW_MS - 500,
        )
        await commit(engine, {due(1, 500): None, ("due#odd", "odd"): b"1"})
        found = summarise(str(path), NOW_MS).oldest_due
        assert found is not None
        assert (found.partition, found.sort) == due(2, 600)
        await commit(engine, {due(3, 550): b"1"}, expires_at_ms=NOW_MS)
        await commit(engine, {due(3, 560): b"1"})
        found = summarise(str(path), NOW_MS).oldest_due
        assert found is not None
        assert (found.partition, found.sort) == due(3, 560)


async def test_nothing_due_is_said_as_nothing(tmp_path: Path) -> None:
    path = await closed(tmp_path / "a.db", {("duet", "a"): b"1"})
    assert summarise(str(path), NOW_MS).oldest_due is None


def test_the_owner_of_a_running_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with Bank(path) as bank:
        bank.work()
        for _ in range(5):
            transfers = len(bank.work(20))
            found = summarise(str(path), NOW_MS)
            assert found.owner is not None
            assert f"process {bank.pid} on " in found.owner
            assert found.kinds["account"].records == 64
            assert found.kinds["transfer"].records >= transfers
            assert f"{path.name}-wal" in found.file_bytes
        bank.close()
    assert summarise(str(path), NOW_MS).owner is None


@pytest.mark.parametrize("folded", [0, 1, 2])
async def test_records_of_the_application_have_a_section_of_their_own(
    tmp_path: Path, folded: int
) -> None:
    contents: list[Contents] = [
        {("u#order", "7"): b"1", ("u#order#de", "8"): b"2", ("u#u", "1"): b"3"},
        {("order#0000", "k"): b"4", ("u#zone", "1"): b"5"},
    ]
    path = await crashed(tmp_path / "a.db", contents[:folded], contents[folded:])
    found = summarise(str(path), NOW_MS)
    assert {kind: amount.records for kind, amount in found.kinds.items()} == {"order": 1}
    user = {kind: amount.records for kind, amount in found.user.items()}
    assert user == {"order": 2, "u": 1, "zone": 1}
    assert found.total.records == 5
