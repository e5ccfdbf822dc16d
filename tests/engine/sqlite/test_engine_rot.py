"""Bit rot, copies and mix-ups of files: detected or harmless, never served as data."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from onceward import limits
from onceward.engine.base import ABSENT, DAMAGED, Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.backup import back_up
from onceward.engine.sqlite.check import check
from onceward.errors import CannotOpen, Damaged, OncewardError
from onceward.keys import Key
from onceward.store import Store
from tests.databases import Contents, closed, commit, corrupt, crashed, segments

PARTITIONS = ("due#0001", "job#01", "key#ann", "ready#0001#q")
FLIPS_PER_PAGE = 10
FLIPS_IN_JOURNAL = 120


def contents(count: int = 60, value_bytes: int = 150) -> Contents:
    random = Random(7)
    return {
        (partition, f"{number:04d}-{random.getrandbits(40):010x}"): b'{"n":%d,"x":"%s"}'
        % (number, b"x" * random.randrange(value_bytes))
        for partition in PARTITIONS
        for number in range(count)
    }


async def filled(path: Path) -> dict[Key, bytes]:
    """A closed database of several pages, with long values and records that expire."""
    first = contents()
    async with SQLiteEngine(str(path)) as engine:
        items = list(first.items())
        for start in range(0, len(items), 50):
            puts = [
                Put(key, value or b"", 1 << 50 if number % 3 == 0 else None)
                for number, (key, value) in enumerate(items[start : start + 50])
            ]
            await engine.commit(puts, 0)
        long: Contents = {("job#01", "long"): b'"%s"' % (b"y" * 9_000)}
        await commit(engine, long)
    return {key: value for key, value in {**first, **long}.items() if value is not None}


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def flips(path: Path, page_bytes: int, count: int) -> Iterator[int]:
    """Some bits of each page; more of its head, which is not large and counts for much."""
    random = Random(11)
    for start in range(0, path.stat().st_size, page_bytes):
        for number in range(count):
            within = 100 if number % 3 == 0 else page_bytes
            yield (start + random.randrange(within)) * 8 + random.randrange(8)


async def served(path: Path, expected: dict[Key, bytes]) -> bool:
    """Read everything in every way; whether damage was detected. Fails for wrong data."""
    engine = SQLiteEngine(str(path))
    with suppress(CannotOpen):
        await engine.open()
    if not engine._opened:
        return True
    detected = False
    try:
        for key, value in expected.items():
            try:
                [record] = await engine.get([key], 0)
            except Damaged:
                detected = True
                continue
            assert record is not None, f"{key} is missing"
            detected |= record.value == DAMAGED
            assert record.value in (value, DAMAGED)
        for partition in PARTITIONS:
            for reverse in (False, True):
                try:
                    found = await engine.scan(partition, 0, limit=1_000, reverse=reverse)
                except Damaged:
                    detected = True
                    continue
                detected |= any(record.value == DAMAGED for record in found)
                whole = {r.key: r.value for r in found if r.value != DAMAGED}
                keys = [key for key in expected if key[0] == partition]
                assert sorted(record.key for record in found) == sorted(keys)
                assert whole.items() <= expected.items()
        assert await engine.scan("nobody", 0) == []
    except Damaged:
        detected = True
    finally:
        with suppress(OncewardError, apsw.Error):
            await engine.close()
    return detected


async def test_every_flipped_bit_of_the_file_is_detected_or_harmless(memory_path: Path) -> None:
    whole = memory_path / "whole.db"
    expected = await filled(whole)
    page_bytes = 4_096
    assert whole.stat().st_size >= 12 * page_bytes
    detected = unnoticed_by_check = 0
    for number, bit in enumerate(flips(whole, page_bytes, FLIPS_PER_PAGE)):
        folder = memory_path / f"{number}"
        folder.mkdir()
        path = folder / "app.db"
        shutil.copy(whole, path)
        flip(path, bit)
        try:
            problems = check(str(path)).problems
        except CannotOpen:
            problems = ["it cannot be opened"]
        if await served(path, expected):
            detected += 1
            unnoticed_by_check += not problems
        shutil.rmtree(folder)
    assert detected > 50
    assert unnoticed_by_check == 0


async def test_every_flipped_bit_of_the_journal_is_detected_or_harmless(
    memory_path: Path,
) -> None:
    folded, unfolded = contents(5), [{key: b'"new"'} for key in list(contents(8))[:30]]
    whole = memory_path / "whole"
    whole.mkdir()
    await crashed(whole / "app.db", [folded], [*unfolded])
    shutil.rmtree(whole / "running")
    expected = {**folded, **{key: value for one in unfolded for key, value in one.items()}}
    [first, *_] = segments(whole / "app.db")
    used = len(first.read_bytes().rstrip(b"\0"))
    random, detected = Random(3), 0
    for _ in range(FLIPS_IN_JOURNAL):
        folder = memory_path / "flipped"
        shutil.copytree(whole, folder)
        flip(folder / first.name, random.randrange(used * 8))
        detected += await served(folder / "app.db", _present(expected))
        shutil.rmtree(folder)
    assert detected > FLIPS_IN_JOURNAL // 10


def _present(expected: Contents) -> dict[Key, bytes]:
    return {key: value for key, value in expected.items() if value is not None}


async def test_a_large_file_is_verified_after_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VERIFY_AT_OPEN_BYTES", 0)
    path = tmp_path / "app.db"
    await filled(path)
    async with SQLiteEngine(str(path)) as engine:
        assert not engine.verified
        await engine.verify()
        assert engine.verified
    page = 4_096 * 4  # a leaf loses half of its rows
    content = bytearray(path.read_bytes())
    cells = next(
        at for at in range(page, len(content), 4_096) if content[at] == 10 and content[at + 4] > 8
    )
    content[cells + 4] //= 2
    path.write_bytes(content)
    engine = SQLiteEngine(str(path))
    await engine.open()
    with pytest.raises(CannotOpen) as found:
        await engine.verify()
    assert found.value.code == "damaged"
    await engine.close()


@pytest.mark.parametrize("size_bytes", [1, 100, 4_000, 4_096, 20_000])
async def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, size_bytes: int) -> None:
    path = tmp_path / "app.db"
    await filled(path)
    os.truncate(path, size_bytes)
    assert await refusal(path) in ("damaged", "not_a_database")


async def test_a_file_that_was_emptied_is_refused_until_it_is_removed(tmp_path: Path) -> None:
    path = await closed(tmp_path / "app.db", contents(1))
    os.truncate(path, 0)
    assert await refusal(path) == "damaged"
    assert await refusal(path) == "damaged"
    path.unlink()
    await closed(path, contents(1))


async def test_a_copy_without_its_journal_is_refused(tmp_path: Path) -> None:
    """The journal of a killed process has commits that are nowhere else."""
    await crashed(tmp_path / "app.db", [contents(2)], [contents(3), contents(4)])
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "app.db", copy)
    assert await refusal(copy / "app.db") == "journal_missing"
    assert check(str(copy / "app.db"), []).problems == ["journal: it is missing or truncated"]
    with pytest.raises(CannotOpen) as refused:
        back_up(str(copy / "app.db"), str(copy / "other.db"))
    assert "missing" in refused.value.message


async def test_a_copy_of_the_file_of_a_running_server_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "app.db", tmp_path / "copy.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, contents(1))
        copying = await asyncio.create_subprocess_exec("cp", "--", str(path), str(copy))
        assert await copying.wait() == 0
    assert await refusal(copy) == "journal_missing"
    async with SQLiteEngine(str(path)):
        copying = await asyncio.create_subprocess_exec("cp", "--", str(path), str(copy))
        assert await copying.wait() == 0
    assert await refusal(copy) == "journal_missing", "also of one that was closed before"


async def test_a_journal_that_lacks_its_end_is_refused(tmp_path: Path) -> None:
    """The table knows up to where the journal was durable when it was folded."""
    path = tmp_path / "app.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, contents(1))
        await commit(engine, contents(2))
        await engine._folder.fold(1)
        # A file that is removed meanwhile ends the copy.
        copying = await asyncio.create_subprocess_shell(
            f"until mkdir {tmp_path}/copy && cp {path}* {tmp_path}/copy; "
            f"do rm -r {tmp_path}/copy; done"
        )
        assert await copying.wait() == 0
    copy = tmp_path / "copy" / "app.db"
    content = segments(copy)[0].read_bytes()
    segments(copy)[0].write_bytes(content[:512].ljust(len(content), b"\0"))
    assert await refusal(copy) == "journal_missing"


async def test_a_copy_of_all_files_and_a_restored_backup_open(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "app.db", [contents(2)], [contents(3)])
    expected = _present({**contents(2), **contents(3)})
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("app.db*"):
        shutil.copy(file, copy)
    assert not await served(copy / "app.db", expected)
    back_up(str(path), str(tmp_path / "backup.db"))
    back_up(str(tmp_path / "backup.db"), str(path), force=True)
    assert not await served(path, expected)
    assert not await served(path, expected), "and again after an orderly close"


async def test_a_database_swapped_for_another_is_refused_beside_its_journal(
    tmp_path: Path,
) -> None:
    path = await crashed(tmp_path / "app.db", [contents(2)], [contents(3)])
    other = await closed(tmp_path / "other.db", contents(1))
    for log in tmp_path.glob("app.db-wal"):
        log.unlink()
    shutil.copy(other, path)
    assert await refusal(path) == "damaged"


async def test_damage_raises_an_alarm_and_reads_of_it_fail(tmp_path: Path) -> None:
    path = await closed(tmp_path / "app.db", {("p", "a"): b'"plain"', ("p", "b"): b"2"})
    corrupt(path, b'"plain"', b'"plaid"')
    assert check(str(path)).problems == ["record p a: its checksum is wrong"]
    async with SQLiteEngine(str(path)) as engine:
        found = await engine.get([("p", "a"), ("p", "b")], 0)
        assert [record and record.value for record in found] == [DAMAGED, b"2"]
        [alarm] = engine.alarms
        assert alarm.code == "damaged_records"
        assert "('p', 'a')" in alarm.message
        store = Store(engine)
        with pytest.raises(OncewardError) as refused:
            await store.run(lambda tx: tx.get(("p", "a")))
        assert refused.value.code == "damaged"


async def test_a_scan_skips_a_damaged_key_only_if_it_is_asked_to(tmp_path: Path) -> None:
    rows: Contents = {("p", sort): b"1" for sort in ("aa", "bb", "cc")}
    path = await closed(tmp_path / "app.db", rows)
    corrupt(path, b"pbb", b"pbd")
    async with SQLiteEngine(str(path)) as engine:
        with pytest.raises(Damaged):
            await engine.scan("p", 0)
        found = await engine.scan("p", 0, skip_damaged=True)
        assert [record.key[1] for record in found] == ["aa", "cc"]
        with pytest.raises(Damaged):
            await engine.get([("p", "bb")], 0)
        with pytest.raises(Damaged):
            await engine.commit([Put(("p", "bb"), b"2", None, ABSENT)], 0)


async def refusal(path: Path) -> str:
    with pytest.raises(CannotOpen) as refused:
        await SQLiteEngine(str(path)).open()
    return refused.value.code
