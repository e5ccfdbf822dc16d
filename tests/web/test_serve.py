"""`onceward serve` as a process: where it starts, and how it stops."""

import asyncio
import gc
import json
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import TABLE, OncewardError
from onceward.web import serve
from onceward.web.auth import Auth
from onceward.web.server import Server
from onceward.web.settings import Settings
from tests.web.wire import ANSWER_S, Connection, launch, served

# Holds a commit until the test lets go of the connection that it makes then, so that a request is
# at hand for as long as it takes.
SLOW_APP = """
import asyncio

import onceward
from onceward.engine.memory import MemoryEngine


class SlowEngine(MemoryEngine):
    async def commit(self, writes, now_ms, visible=None):
        if any(write.key[0].startswith("inbox#") for write in writes):
            reader, writer = await asyncio.open_connection("127.0.0.1", {port})
            try:
                await reader.read()
            finally:
                writer.close()
        return await super().commit(writes, now_ms, visible)


app = onceward.App(SlowEngine())
not_an_app = 5
"""

BROKEN_APP = """
import onceward
from onceward.engine.memory import MemoryEngine
from onceward.errors import EngineStopped


class BrokenEngine(MemoryEngine):
    broken = False

    async def commit(self, writes, now_ms, visible=None):
        self.broken = self.broken or any(write.key[0].startswith("inbox#") for write in writes)
        if self.broken:
            raise EngineStopped("the disk is gone")
        return await super().commit(writes, now_ms, visible)


app = onceward.App(BrokenEngine(), node_lease_s=0.4)
"""


class Held:
    """The commit that an application holds until it may go on."""

    def __init__(self) -> None:
        self.came, self.go_on = asyncio.Event(), asyncio.Event()
        self.connections: set[asyncio.Task[Any] | None] = set()

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        self.came.set()
        await self.go_on.wait()
        writer.close()
        with suppress(ConnectionError):  # its process may have ended
            await writer.wait_closed()


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    held = Held()
    server = await asyncio.start_server(held.hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "shop.py").write_text(SLOW_APP.format(port=port))
    async with server:
        yield held
        held.go_on.set()
        await asyncio.gather(*filter(None, held.connections))


async def ended(*arguments: str, folder: Path, **environment: str) -> tuple[int | None, str]:
    """The exit code and the complaint of a server that does not start."""
    process = await launch(folder, *arguments, **environment)
    out, error = await asyncio.wait_for(process.communicate(), ANSWER_S)
    assert out == b""
    return process.returncode, error.decode()


async def test_told_to_stop_it_answers_what_is_at_hand_and_ends_well(
    tmp_path: Path, held: Held
) -> None:
    async with served(tmp_path, "--app", "shop:app") as server:
        claim, idle, send = [await server.connect() for _ in range(3)]
        await claim.ask("POST", "/v1/queues/q/claim", {"wait_ms": 60_000})
        await idle.ask("GET", "/healthz")
        await idle.answer()
        await send.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        await asyncio.wait_for(held.came.wait(), ANSWER_S)
        server.process.send_signal(signal.SIGTERM)
        # Who waits is let go, who does nothing is cut off, and what is at hand is finished.
        assert await claim.answer() == (200, {"jobs": []})
        assert await idle.ended()
        held.go_on.set()
        status, receipt = await send.answer()
        assert (status, receipt["state"]) == (202, "queued")
        assert await asyncio.wait_for(server.process.wait(), ANSWER_S) == 0
        for connection in (claim, idle, send):
            assert await connection.ended()
            await connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_was_accepted_is_there_after_a_stop(tmp_path: Path, number: int) -> None:
    async with served(tmp_path, ONCEWARD_SERVER_KEY="5e" * 32) as server:
        connection = await server.connect()
        await connection.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        _, receipt = await connection.answer()
        server.process.send_signal(number)
        assert await asyncio.wait_for(server.process.wait(), ANSWER_S) == 0
        assert server.process.stderr is not None
        assert await server.process.stderr.read() == b""
        await connection.close()
    async with App(f"sqlite:///{tmp_path}/onceward.db") as app:
        assert (await app.job(receipt["id"])).state == "queued"


async def test_a_server_in_this_process_ends_on_a_signal() -> None:
    """As the others, but where it can be seen what it does."""
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = Settings(database="memory://", port=0)
    app = App(settings.database)
    serving = asyncio.create_task(serve._serve(settings, app, Auth(dev=True), announced.set_result))
    port = int((await announced).rpartition(":")[2])
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    await connection.ask("GET", "/readyz")
    assert await connection.answer() == (200, {"status": "ready"})
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(serving, ANSWER_S)
    assert await connection.ended()
    await connection.close()
    gc.unfreeze()


async def test_a_second_signal_ends_it_at_once(tmp_path: Path, held: Held) -> None:
    async with served(tmp_path, "--app", "shop:app", "--drain-s", "3600") as server:
        claim, send = [await server.connect() for _ in range(2)]
        await claim.ask("POST", "/v1/queues/q/claim", {"wait_ms": 60_000})
        await send.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        await asyncio.wait_for(held.came.wait(), ANSWER_S)
        server.process.send_signal(signal.SIGTERM)
        await claim.answer()  # it has heard the first one
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(server.process.wait(), ANSWER_S) == 0
        for connection in (claim, send):
            await connection.close()


async def test_what_takes_longer_than_it_may_is_given_up(tmp_path: Path, held: Held) -> None:
    async with served(tmp_path, "--app", "shop:app", "--drain-s", "0.1") as server:
        send = await server.connect()
        await send.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        await asyncio.wait_for(held.came.wait(), ANSWER_S)
        assert await server.stop() == 0
        # Without an answer: the sender knows that it has to ask again.
        assert await send.ended()
        await send.close()


async def test_a_claim_is_given_back_when_its_connection_ends(tmp_path: Path) -> None:
    async with served(tmp_path, "--database", "memory://") as server:
        gone, other = [await server.connect() for _ in range(2)]
        ask = {"wait_ms": 60_000, "lease_ms": 3_600_000}
        await gone.ask("POST", "/v1/queues/q/claim", ask)
        await other.ask("POST", "/v1/queues/q/claim", ask)
        await gone.close()
        sender = await server.connect()
        jobs = []
        for key in ("a", "b"):
            await sender.ask("POST", "/v1/inbox/q", {"body": key, "key": key})
            await sender.answer()
            _, found = await other.answer()
            jobs += found["jobs"]
            await other.ask("POST", "/v1/queues/q/claim", ask)
        # Whatever had been handed to the connection that has ended came back.
        assert sorted(job["body"] for job in jobs) == ["a", "b"]
        await server.stop()
        for connection in (other, sender):
            await connection.close()


async def test_a_result_that_comes_when_the_caller_has_gone_is_undone() -> None:
    async def gone() -> None: ...

    async def claim() -> list[str]:
        return ["job"]

    undone: list[list[str]] = []
    request: Any = SimpleNamespace(gone=gone)
    server: Any = SimpleNamespace(draining=asyncio.Event())
    assert await Server.patiently(server, request, claim(), undone.append) is None
    assert undone == [["job"]]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of open files that this process has had, as far as it knows."""
    had = [(100, 700)]
    monkeypatch.setattr(resource, "getrlimit", lambda what: had[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: had.append(limit))
    return had


def test_a_server_may_have_as_many_files_open_as_the_system_grants(
    files: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    serve.allow_files(200)
    serve.allow_files(200)
    assert files == [(100, 700), (700, 700)]
    assert caplog.messages == []


@pytest.mark.usefixtures("files")
def test_a_limit_too_low_for_the_outward_calls_is_told(caplog: pytest.LogCaptureFixture) -> None:
    serve.allow_files(201)
    [told] = caplog.messages
    assert "the limit of 700 open files is too low for 201 concurrent webhook calls" in told


async def test_it_refuses_to_let_others_in_without_keys(tmp_path: Path) -> None:
    code, error = await ended("--host", "0.0.0.0", folder=tmp_path)
    assert code == TABLE["bad_settings"].exit
    assert "onceward token" in error
    assert error.endswith("[bad_settings]\n")
    assert not (tmp_path / "onceward.db").exists()


async def test_with_keys_it_serves_at_any_address(tmp_path: Path) -> None:
    key = '[{"name":"a","digest":"sha256:' + "0" * 64 + '","scopes":["all"]}]'
    arguments = ("--host", "0.0.0.0", "--database", "memory://")
    async with served(tmp_path, *arguments, ONCEWARD_KEYS=key) as server:
        connection = await server.connect()
        await connection.ask("GET", "/v1/queues")
        assert (await connection.answer())[0] == 401
        await connection.close()
        assert await server.stop() == 0


async def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = await ended("--port", str(port), folder=tmp_path)
    assert code == TABLE["bad_settings"].exit
    assert f"cannot listen on 127.0.0.1:{port}" in error
    assert not (tmp_path / "onceward.db").exists()


async def test_a_database_in_use_is_told(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        code, error = await ended(folder=tmp_path)
        assert code == TABLE["database_in_use"].exit == 65
        assert error.endswith("[database_in_use]\n")
        assert await server.stop() == 0


async def test_storage_that_fails_ends_the_server_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(BROKEN_APP)
    async with served(tmp_path, "--app", "shop:app", "--log", "json") as server:
        connection = await server.connect()
        await connection.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        status, problem = await connection.answer()
        assert (status, problem["code"]) == (503, "engine_stopped")
        # By itself: who has started it may start it again.
        code = await asyncio.wait_for(server.process.wait(), ANSWER_S)
        assert code == TABLE["engine_stopped"].exit == 74
        assert server.process.stderr is not None
        *logged, last = (await server.process.stderr.read()).decode().splitlines()
        assert {"error"} <= {json.loads(line)["level"] for line in logged}
        assert last == "onceward: the disk is gone [engine_stopped]"
        await connection.close()


def test_settings_are_checked_before_anything_is_opened() -> None:
    for settings in (Settings(host="0.0.0.0"), Settings(app="json:loads")):
        with pytest.raises(OncewardError) as refused:
            serve.serve(settings, lambda url: None)
        assert refused.value.code == "bad_settings"


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(OncewardError, match="cannot listen on") as refused:
        serve.serve(Settings(database="memory://", port=port), lambda url: None)
    assert refused.value.code == "bad_settings"
