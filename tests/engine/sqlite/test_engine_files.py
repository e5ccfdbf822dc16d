"""What an engine does about the files of its database beyond their contents."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import CannotOpen
from tests.databases import commit

# Takes the lock that SQLite takes to find out, at closing, whether it is the last one. Whoever
# gets it removes SQLite's log.
_AM_I_ALONE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except BlockingIOError:
        print("no")
    else:
        print("yes")
"""


async def _someone_else_is_alone_with(path: Path) -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _AM_I_ALONE, str(path), stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate()
    return answer.strip() == b"yes"


async def test_a_second_engine_in_the_process_does_not_give_up_the_locks_of_the_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("p", "a"): b"1"})
        with pytest.raises(CannotOpen) as caught:
            await SQLiteEngine(str(path)).open()
        assert caught.value.code == "database_in_use"
        assert not await _someone_else_is_alone_with(path)


async def test_a_database_has_one_owner_under_all_its_names(tmp_path: Path) -> None:
    path, link = tmp_path / "a.db", tmp_path / "link.db"
    link.symlink_to(path)
    async with SQLiteEngine(str(link)):
        with pytest.raises(CannotOpen) as caught:
            await SQLiteEngine(str(path)).open()
        assert caught.value.code == "database_in_use"
        assert {file.name for file in tmp_path.glob("link*")} == {"link.db"}


async def test_files_are_for_their_owner_alone_whatever_the_system_would_allow(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        async with SQLiteEngine(str(tmp_path / "a.db")) as engine:
            await commit(engine, {("p", "a"): b"1"})
            files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"a.db", "a.db-owner", "a.db-wal", "a.db-shm"} < files.keys()
    assert any(name.startswith("a.db-log.") for name in files)
    assert set(files.values()) == {0o600}, files


async def test_a_file_that_is_shared_on_purpose_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)):
        pass
    path.chmod(0o640)
    async with SQLiteEngine(str(path)) as engine:
        await commit(engine, {("p", "a"): b"1"})
    assert path.stat().st_mode & 0o777 == 0o640
