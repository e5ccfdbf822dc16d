"""Storage in trouble under a server: it says so, serves what it can, and nothing is lost."""

import asyncio
from pathlib import Path
from typing import Any

from onceward.clock import Clock
from onceward.errors import TABLE
from onceward.testing.postgres import PostgresServer
from tests.conftest import UNSYNCED, enlarge
from tests.web.failing import FOLDER
from tests.web.wire import Connection, served

BODY = "x" * 20_000


async def send(connection: Connection, key: str) -> tuple[int, Any]:
    await connection.ask("POST", "/v1/inbox/mail", {"body": BODY, "key": key})
    return await connection.answer()


async def get(connection: Connection, path: str) -> tuple[int, Any]:
    await connection.ask("GET", path)
    return await connection.answer()


async def send_until_accepted(connection: Connection, key: str) -> str:
    """Send a message again and again; returns its job's id."""
    clock = Clock()
    while (answer := await send(connection, key))[0] not in (200, 202):
        assert answer[1]["retry"], answer
        await clock.sleep(0.02)
    id_: str = answer[1]["id"]
    return id_


async def insist_it_says_so(connection: Connection, status: int, code: str) -> None:
    """It is not ready, for the same reason; but alive."""
    ready, problem = await get(connection, "/readyz")
    assert (ready, problem["status"], problem["code"]) == (status, status, code)
    assert (await get(connection, "/healthz"))[0] == 200


async def insist_it_is_ready(connection: Connection) -> None:
    clock = Clock()
    while (await get(connection, "/readyz"))[0] != 200:
        await clock.sleep(0.02)


async def insist_all_are_there(connection: Connection, ids: dict[str, str]) -> None:
    """Every key that was acknowledged leads to the job that it had then."""
    for key, id_ in ids.items():
        status, job = await get(connection, f"/v1/jobs/{id_}")
        assert (status, job["key"]) == (200, key)


async def test_a_full_disk_is_told_of_and_used_again_once_it_has_space(
    tmp_path: Path, tmpfs: Path
) -> None:
    options = ("--database", f"sqlite:///{tmpfs}/app.db")
    ids: dict[str, str] = {}
    async with asyncio.timeout(50), served(tmp_path, *options) as server:
        connection = await server.connect()
        while (answer := await send(connection, f"key-{len(ids)}"))[0] == 202:
            ids[f"key-{len(ids)}"] = answer[1]["id"]
        status, problem = answer
        assert (status, problem["code"]) == (507, "storage_full")
        assert problem["detail"].startswith("not enough disk space")
        await insist_it_says_so(connection, 507, "storage_full")
        # What needs no space is done.
        await insist_all_are_there(connection, ids)
        status, receipt = await send(connection, "key-0")
        assert (status, receipt["id"]) == (200, ids["key-0"])

        enlarge(tmpfs)
        refused = f"key-{len(ids)}"
        ids[refused] = await send_until_accepted(connection, refused)
        await insist_it_is_ready(connection)
        await connection.close()
    async with asyncio.timeout(50), served(tmp_path, *options) as server:
        connection = await server.connect()
        await insist_all_are_there(connection, ids)
        await connection.close()


async def test_a_postgresql_that_is_down_is_told_of_and_used_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    ids: dict[str, str] = {}
    with PostgresServer(UNSYNCED) as postgres:
        async with asyncio.timeout(50), served(tmp_path, "--database", postgres.url) as server:
            connection = await server.connect()
            ids["before"] = await send_until_accepted(connection, "before")
            postgres.stop("immediate")
            status, problem = await send(connection, "while")
            assert (status, problem["code"]) == (503, "engine_unreachable")
            assert "cannot connect to" in problem["detail"]
            await insist_it_says_so(connection, 503, "engine_unreachable")

            postgres.start()
            ids["while"] = await send_until_accepted(connection, "while")
            await insist_it_is_ready(connection)
            await insist_all_are_there(connection, ids)
            await connection.close()


async def test_a_disk_that_fails_ends_the_process_so_that_it_is_started_again(
    tmp_path: Path,
) -> None:
    ids: dict[str, str] = {}
    options, environment = ("--app", "tests.web.failing:app"), {FOLDER: str(tmp_path)}
    async with asyncio.timeout(50), served(tmp_path, *options, **environment) as server:
        connection = await server.connect()
        ids["before"] = await send_until_accepted(connection, "before")
        (tmp_path / "broken").touch()
        status, problem = await send(connection, "while")
        assert (status, problem["code"]) == (503, "engine_stopped")
        assert "could not be written" in problem["detail"]
        assert await server.process.wait() == TABLE["engine_stopped"].exit == 74
        await connection.close()
    (tmp_path / "broken").unlink()
    async with asyncio.timeout(50), served(tmp_path, *options, **environment) as server:
        connection = await server.connect()
        await insist_all_are_there(connection, ids)
        await send_until_accepted(connection, "while")
        await connection.close()
