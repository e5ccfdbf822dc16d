"""A thousand people join one table at the same instant, on one process and on three."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from onceward.testing.postgres import PostgresServer
from tests.server_process import ServerProcess
from tests.service.tables.crowd import Crowd

SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
PEOPLE, CONNECTIONS, LEAVING = (1_000, 50, 200) if SOAK else (60, 8, 12)

pytestmark = [pytest.mark.tables, pytest.mark.timeout(600 if SOAK else 300)]


async def test_nobody_is_overtaken_or_seated_twice_on_sqlite(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        await Crowd([server.url], PEOPLE, CONNECTIONS, LEAVING).run()
        assert server.stop() == 0
    assert server.log.read_text().count("Traceback") == 0


async def test_nobody_is_overtaken_or_seated_twice_on_three_processes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer({"fsync": "off"}))
        url = f"{database.url}?schema=crowd"
        servers = []
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            server = stack.enter_context(ServerProcess(folder, "--database", url))
            servers.append(server)
        await Crowd([server.url for server in servers], PEOPLE, CONNECTIONS, LEAVING).run()
        for server in servers:
            assert server.stop() == 0
            assert server.log.read_text().count("Traceback") == 0
