"""Storage in trouble under a server: it says so, serves what it can, and nothing is lost."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.clock import Clock
from onceward.errors import TABLE
from onceward.testing.postgres import PostgresServer
from tests.conftest import UNSYNCED
from tests.web.failing import FOLDER
from tests.web.process import Process

BODY = "x" * 20_000


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB: the first journal segment fits, the next does not."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs here: {error}")
    yield folder
    run("umount", str(folder))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


async def send_until_accepted(process: Process, key: str) -> str:
    """Send a message again and again; returns its job's id."""
    clock = Clock()
    while (answer := await process.send(key, BODY)).status not in (200, 202):
        assert answer.body["retry"], answer
        await clock.sleep(0.02)
    id_: str = answer.body["id"]
    return id_


async def insist_all_are_there(process: Process, ids: dict[str, str]) -> None:
    """Every key that was acknowledged leads to the job that it had then."""
    for key, id_ in ids.items():
        answer = await process.call("GET", f"/v1/jobs/{id_}")
        assert (answer.status, answer.body["key"]) == (200, key)


async def test_a_full_disk_is_told_of_and_served_again_once_it_has_space(tmpfs: Path) -> None:
    options = ("--database", f"sqlite:///{tmpfs}/app.db")
    ids: dict[str, str] = {}
    async with asyncio.timeout(50), Process(*options) as process:
        while (answer := await process.send(f"key-{len(ids)}", BODY)).status == 202:
            ids[f"key-{len(ids)}"] = answer.body["id"]
        assert (answer.status, answer.code) == (507, "storage_full")
        assert answer.body["detail"].startswith("no space is left on the disk")
        assert len(ids) > 10

        ready = await process.call("GET", "/readyz")
        assert (ready.status, ready.code) == (507, "storage_full")
        assert (await process.call("GET", "/healthz")).status == 200
        await insist_all_are_there(process, ids)
        again = await process.send("key-0", BODY)
        assert (again.status, again.body["id"]) == (200, ids["key-0"])

        run("mount", "-o", "remount,size=64M", str(tmpfs))
        refused = f"key-{len(ids)}"
        ids[refused] = await send_until_accepted(process, refused)
        await process.until(200, "/readyz")
    async with asyncio.timeout(50), Process(*options) as process:
        await insist_all_are_there(process, ids)


async def test_a_postgresql_that_is_down_is_told_of_and_used_again_once_it_is_back() -> None:
    ids: dict[str, str] = {}
    with PostgresServer(UNSYNCED) as server:
        async with asyncio.timeout(50), Process("--database", server.url) as process:
            ids["before"] = await send_until_accepted(process, "before")
            server.stop("immediate")
            answer = await process.send("while", BODY)
            assert (answer.status, answer.code) == (503, "engine_unreachable")
            assert "cannot be reached" in answer.body["detail"]
            ready = await process.call("GET", "/readyz")
            assert (ready.status, ready.code) == (503, "engine_unreachable")
            assert (await process.call("GET", "/healthz")).status == 200

            server.start()
            ids["while"] = await send_until_accepted(process, "while")
            await process.until(200, "/readyz")
            await insist_all_are_there(process, ids)


async def test_a_disk_that_fails_ends_the_process_so_that_it_is_started_again(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    environment = {FOLDER: str(tmp_path)}
    options = ("--app", "tests.web.failing:app")
    ids: dict[str, str] = {}
    async with asyncio.timeout(50), Process(*options, environment=environment) as process:
        ids["before"] = await send_until_accepted(process, "before")
        broken.touch()
        answer = await process.send("while", BODY)
        assert (answer.status, answer.code) == (503, "engine_stopped")
        assert "could not be written" in answer.body["detail"]
        assert await process.ended() == TABLE["engine_stopped"].exit
    broken.unlink()
    async with asyncio.timeout(50), Process(*options, environment=environment) as process:
        await insist_all_are_there(process, ids)
        ids["while"] = await send_until_accepted(process, "while")
        await insist_all_are_there(process, ids)
