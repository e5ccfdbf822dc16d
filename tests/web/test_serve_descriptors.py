"""File descriptors that run out under a server: connections are rejected before the engine is."""

import asyncio
import os
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onceward import limits
from onceward.clock import Clock
from tests.web.wire import ANSWER_S, Connection, Served, served

pytestmark = pytest.mark.timeout(400)  # for processes on a busy machine

BODY = "x" * 300_000  # so that the journal needs more than one segment
FILES = 200
ACCEPTS = 60


def allow(server: Served, files: int | None) -> None:
    """Let the server's process have so many files open; None: as many as before."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    soft = hard if files is None else files
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def open_files(server: Served) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def accept(connection: Connection, key: str) -> tuple[int, Any]:
    await connection.ask("POST", "/v1/inbox/mail", {"body": BODY, "key": key})
    return await connection.answer()


async def accept_many(connection: Connection, prefix: str, ids: dict[str, str]) -> Counter[int]:
    """Send messages one after the other; what is refused has to be worth another try."""
    statuses = Counter[int]()
    for number in range(ACCEPTS):
        status, receipt = await accept(connection, f"{prefix}-{number}")
        statuses[status] += 1
        if status == 202:
            ids[f"{prefix}-{number}"] = receipt["id"]
        else:
            assert (status, receipt["code"], receipt["retry"]) == (503, "overloaded", True)
    return statuses


async def all_are_there(connection: Connection, ids: dict[str, str]) -> None:
    for key, id_ in ids.items():
        await connection.ask("GET", f"/v1/jobs/{id_}")
        status, job = await connection.answer()
        assert (status, job["key"]) == (200, key)


async def alarms(server: Served) -> set[str]:
    """The codes of all alarms, by a connection of its own."""
    connection = await server.connect()
    await connection.ask("GET", "/readyz")
    status, health = await connection.answer()
    await connection.close()
    return {alarm["code"] for alarm in health.get("alarms", [])} if status == 200 else {"not ready"}


async def refused(flood: list[Connection]) -> bool:
    """Wait until one of the connections was refused; idle ones are closed without an answer."""

    async def verdict(one: Connection) -> tuple[int, str, bool] | None:
        try:
            status, problem = await one.answer()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return status, problem["code"], problem["retry"]

    waiting = [asyncio.create_task(verdict(one)) for one in flood]
    try:
        for done in asyncio.as_completed(waiting):
            if (found := await done) is not None:
                return found == (503, "too_many_connections", True)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
    return False


async def log_of(server: Served) -> list[str]:
    """What it has logged, once it has ended."""
    assert server.process.stderr is not None
    assert await server.stop() == 0
    return (await server.process.stderr.read()).decode().splitlines()


async def test_connections_leave_the_engine_its_file_descriptors(tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    async with asyncio.timeout(8 * ANSWER_S), served(tmp_path) as server:
        connection = await server.connect()
        ids["first"] = (await accept(connection, "first"))[1]["id"]
        allow(server, FILES)
        flood = await asyncio.gather(*(server.connect() for _ in range(2 * FILES)))
        assert await refused(flood)
        while open_files(server) > FILES - limits.DESCRIPTORS_RESERVED // 2:
            await Clock().sleep(0.02)
        assert await accept_many(connection, "flooded", ids) == {202: ACCEPTS}

        for one in flood:
            await one.close()
        while await alarms(server):
            await Clock().sleep(0.02)
        assert await accept_many(connection, "after", ids) == {202: ACCEPTS}
        await connection.close()
        lines = [line for line in await log_of(server) if "connections_refused" in line]
        assert len(lines) == 2, "one for each change of state"
        assert "connections are rejected" in lines[0]
        assert "cleared" in lines[1]
    async with asyncio.timeout(4 * ANSWER_S), served(tmp_path) as server:
        connection = await server.connect()
        await all_are_there(connection, ids)
        await connection.close()


async def test_without_any_descriptor_messages_are_refused_for_now(tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    async with asyncio.timeout(8 * ANSWER_S), served(tmp_path) as server:
        connection = await server.connect()
        ids["first"] = (await accept(connection, "first"))[1]["id"]
        allow(server, 3)
        statuses = await accept_many(connection, "none", ids)
        assert set(statuses) == {202, 503}
        await all_are_there(connection, ids)

        allow(server, None)
        assert await accept_many(connection, "after", ids) == {202: ACCEPTS}
        while await alarms(server):
            await Clock().sleep(0.02)
        await all_are_there(connection, ids)
        await connection.close()
        lines = await log_of(server)
        assert len([line for line in lines if "no_journal_segment" in line]) == 2
        assert len([line for line in lines if "[overloaded]" in line]) == 1
