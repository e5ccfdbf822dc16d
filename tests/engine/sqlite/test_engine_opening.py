"""What stands in the way of opening is named, each kind with a code of its own."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from onceward.engine.base import Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.owner import Owner
from onceward.engine.sqlite.table import FORMAT
from onceward.errors import CannotOpen
from onceward.testing.disk import Faults, Strike, Watched
from tests.engine.sqlite.victim import Acknowledged, Victim

KEY = ("p", "s")


async def fill(path: Path) -> None:
    async with SQLiteEngine(str(path)) as engine:
        await engine.commit([Put(KEY, b"1")], 0)


async def refusal(path: Path) -> CannotOpen:
    with pytest.raises(CannotOpen) as refused:
        await SQLiteEngine(str(path)).open()
    assert str(path) in refused.value.message or str(path.parent) in refused.value.message
    return refused.value


def sql(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def snapshot(folder: Path) -> dict[str, bytes]:
    """The files, but for the lock beside the database."""
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and not file.name.endswith("-owner")
    }


def make_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 1_000)


def make_short(path: Path) -> None:
    path.write_bytes(b"SQLite")


def make_foreign(path: Path) -> None:
    sql(path, "CREATE TABLE invoice (id)")


def make_another_kind(path: Path) -> None:
    sql(path, "PRAGMA application_id = 252006673", "CREATE TABLE t (a)")


def make_zeros(path: Path) -> None:
    path.write_bytes(bytes(8_192))


@pytest.mark.parametrize(
    "make", [make_text, make_short, make_foreign, make_another_kind, make_zeros]
)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "app.db"
    make(path)
    before = snapshot(tmp_path)
    refused = await refusal(path)
    assert refused.code == "not_a_database"
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("format_", [FORMAT - 1, FORMAT + 1])
async def test_a_file_of_another_format_is_refused_and_left_alone(
    tmp_path: Path, format_: int
) -> None:
    path = tmp_path / "app.db"
    await fill(path)
    sql(path, f"PRAGMA user_version = {format_}")
    before = snapshot(tmp_path)
    refused = await refusal(path)
    assert refused.code == "unsupported_format"
    assert f"file format {format_}" in refused.message
    assert snapshot(tmp_path) == before


async def test_a_file_that_lacks_its_own_number_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await fill(path)
    sql(path, "DELETE FROM meta WHERE name = 'database_id'")
    assert (await refusal(path)).code == "damaged"


async def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await fill(path)
    os.truncate(path, 5_000)
    refused = await refusal(path)
    assert refused.code == "damaged"


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert (await refusal(tmp_path)).code == "is_a_directory"


async def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "app.db"
    assert (await refusal(path)).code == "no_such_file"
    assert not path.parent.exists()


async def test_a_read_only_file_is_refused_also_for_root(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await fill(path)
    path.chmod(0o444)
    before = snapshot(tmp_path)
    assert (await refusal(path)).code == "read_only"
    assert snapshot(tmp_path) == before


async def test_a_journal_without_its_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    engine = await SQLiteEngine(str(path)).open()
    await engine.commit([Put(KEY, b"1")], 0)
    (tmp_path / "copy").mkdir()
    for file in tmp_path.glob("app.db-log.0*"):  # without the one that is being made
        (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
    await engine.close()
    before = snapshot(tmp_path / "copy")
    refused = await refusal(tmp_path / "copy" / "app.db")
    assert refused.code == "damaged"
    assert "journal" in refused.message
    assert snapshot(tmp_path / "copy") == before


async def test_a_second_engine_in_the_same_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with SQLiteEngine(str(path)) as engine:
        refused = await refusal(path)
        assert refused.code == "database_in_use"
        assert f"process {os.getpid()}" in refused.message
        await engine.commit([Put(KEY, b"1")], 0)
    await fill(path)


async def test_a_second_process_learns_who_holds_the_file_until_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.db"
    refused: list[CannotOpen] = []

    def heard(victim: Victim) -> None:
        if b"open" in victim.said and not refused:
            refused.append(second(path))
            assert f"process {victim.process.pid}" in refused[0].message
            victim.kill()

    await Victim(Acknowledged()).live(str(path), heard=heard)
    assert refused[0].code == "database_in_use"
    assert "child.py" in refused[0].message, "the command is named"
    assert "Stop that process" in refused[0].message, "what to do is said"
    await fill(path)


def second(path: Path) -> CannotOpen:
    """What another attempt to own the file meets, without an event loop."""
    with pytest.raises(CannotOpen) as refused:
        Owner(str(path))
    return refused.value


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errno.EROFS, "read_only"),
        (errno.EACCES, "read_only"),
        (errno.EDQUOT, "storage_full"),
        (errno.EMFILE, "storage_failed"),
    ],
)
async def test_what_the_system_refuses_is_told_apart(error: int, code: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with Watched(Faults(Strike("disk.open", 2, error))) as watched:
        engine = SQLiteEngine(str(path), disk=watched.disk, vfs=watched.vfs)
        with pytest.raises(CannotOpen) as refused:
            await engine.open()
    assert refused.value.code == code
    assert str(path) in refused.value.message
    await fill(path)


async def test_several_may_open_it_while_it_is_being_closed(tmp_path: Path) -> None:
    async with SQLiteEngine(str(tmp_path / "app.db")) as engine:
        await engine.commit([Put(KEY, b"1")], 0)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        opened = await asyncio.gather(*(engine.open() for _ in range(3)))
        assert opened == [engine] * 3
        assert closing.done()
        assert await engine.get([KEY], 0) != [None]


async def test_one_who_waits_to_open_it_waits_also_when_another_closes_it_again(
    tmp_path: Path,
) -> None:
    async with SQLiteEngine(str(tmp_path / "app.db")) as engine:

        async def open_and_close() -> None:
            await engine.open()
            await engine.close()

        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        await asyncio.gather(open_and_close(), engine.open(), open_and_close(), engine.open())
        await closing
        await engine.open()
        await engine.commit([Put(KEY, b"1")], 0)


async def test_it_opens_again_after_a_closing_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteEngine(str(tmp_path / "app.db")) as engine:
        await engine.commit([Put(KEY, b"1")], 0)

        async def fail() -> bool:
            raise RuntimeError("a bug")

        monkeypatch.setattr(engine._folder, "fold_all", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            await engine.close()
        await engine.open()
        assert await engine.get([KEY], 0) != [None]
