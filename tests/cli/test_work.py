"""`onceward work` with its options: queues, concurrency, the time to drain, health and metrics."""

import asyncio
import signal
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from onceward.app import App
from onceward.errors import BadInput
from tests.cli.test_serve_work import start
from tests.server_process import free_port

# Each job holds a connection to the test, until the test closes it.
SHOP = """
import asyncio

import onceward

app = onceward.App("sqlite:///shop.db")


@app.handler("orders", concurrency=2)
async def order(job):
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    try:
        writer.write(job.id.encode() + b"\\n")
        await reader.read()
    finally:
        writer.close()
    return "sold"


@app.handler("mails", batch=5)
async def mail(jobs):
    raise AssertionError("these are for another process")
"""


class Jobs:
    """The jobs that a process has begun."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[tuple[str, asyncio.StreamWriter]] = asyncio.Queue()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun.put_nowait(((await reader.readline()).decode().strip(), writer))


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    jobs = Jobs()
    server = await asyncio.start_server(jobs.connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "shop.py").write_text(SHOP.format(port=port))
    yield jobs
    server.close()


async def sent(folder: Path, **queues: int) -> list[str]:
    async with App(f"sqlite:///{folder / 'shop.db'}") as app:
        names = [name for name, count in queues.items() for _ in range(count)]
        return [(await app.send(name, None)).id for name in names]


async def states(folder: Path, ids: list[str]) -> list[tuple[str, int]]:
    async with App(f"sqlite:///{folder / 'shop.db'}") as app:
        return [(job.state, job.attempt) for job in [await app.job(id_) for id_ in ids]]


def get(url: str, path: str) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=50)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def test_health_is_served_until_running_jobs_have_ended(tmp_path: Path, jobs: Jobs) -> None:
    [id_] = await sent(tmp_path, orders=1)
    with start(tmp_path, "work", "shop:app", "--health-port", "0") as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told.startswith("working on the jobs of shop:app, health at http://127.0.0.1:")
        url = told.split()[8].rstrip(";")
        assert await asyncio.to_thread(get, url, "/readyz") == (200, '{"status":"ready"}')
        status, text = await asyncio.to_thread(get, url, "/metrics")
        assert (status, "onceward_build_info{" in text) == (200, True)
        assert (await asyncio.to_thread(get, url, "/v1/jobs"))[0] == 404
        _, writer = await jobs.begun.get()
        process.terminate()
        while (await asyncio.to_thread(get, url, "/readyz"))[0] != 503:
            pass
        assert await asyncio.to_thread(get, url, "/healthz") == (200, '{"status":"ok"}')
        writer.close()
        assert await asyncio.to_thread(process.wait, 50) == 0
    assert await states(tmp_path, [id_]) == [("succeeded", 1)]


async def test_some_queues_run_with_another_concurrency(tmp_path: Path, jobs: Jobs) -> None:
    *orders, mail = await sent(tmp_path, orders=2, mails=1)
    (tmp_path / "my.toml").write_text('app = "shop:app"\nqueues = ["mails"]\nlog = "json"\n')
    options = ("--config", "my.toml", "--queue", "orders", "--concurrency", "1")
    with start(tmp_path, "work", *options) as process:
        first, writer = await jobs.begun.get()
        writer.close()
        second, other = await jobs.begun.get()
        assert {first, second} == set(orders)
        process.send_signal(signal.SIGTERM)
        other.close()
        out, err = await asyncio.to_thread(process.communicate, None, 50)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[0] == "working on the jobs of shop:app in orders; Ctrl-C stops it"
    found = await states(tmp_path, [*orders, mail])
    assert found == [("succeeded", 1), ("succeeded", 1), ("queued", 0)]


async def test_jobs_that_outlast_the_drain_are_released(tmp_path: Path, jobs: Jobs) -> None:
    ids = await sent(tmp_path, orders=2)
    with start(tmp_path, "work", "shop:app", "--drain-s", "0") as process:
        writers = [(await jobs.begun.get())[1] for _ in ids]
        process.terminate()
        assert await asyncio.to_thread(process.wait, 50) == 0
    for writer in writers:
        writer.close()
    assert [state for state, _ in await states(tmp_path, ids)] == ["queued", "queued"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("shop:app", "--queue", "nope"), "no handler for 'nope'; use one of: mails, orders"),
        ((), "no application to run; use `onceward work shop:app`, or set app in onceward.toml"),
        (("shop:app", "--concurrency", "-1"), "Expected `int` >= 0 - at `$.concurrency`"),
        (("shop:app", "--health-port", "http"), "at `$.health_port` (from --health-port)"),
        (("shop:app", "--config", "none.toml"), "file none.toml not found"),
    ],
    ids=["queue", "app", "concurrency", "port", "config"],
)
@pytest.mark.usefixtures("jobs")
async def test_settings_without_sense_are_one_line(
    tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    with start(tmp_path, "work", *options) as process:
        out, err = await asyncio.to_thread(process.communicate, None, 50)
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
    assert process.returncode == (70 if "none.toml" in options else 78)


@pytest.mark.usefixtures("jobs")
async def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    port = free_port()
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    with start(tmp_path, "work", "shop:app", "--health-port", str(port)) as process:
        _, err = await asyncio.to_thread(process.communicate, None, 50)
    taken.close()
    assert process.returncode == 78
    assert err.startswith(f"onceward: cannot listen on 127.0.0.1:{port}: ")


async def test_work_is_limited_before_the_start_and_by_valid_values() -> None:
    app = App("memory://")

    @app.handler("orders")
    async def order(job: object) -> None: ...

    for values in ({"queues": ["x"]}, {"concurrency": True}, {"concurrency": -1}, {"drain_s": -1}):
        with pytest.raises(BadInput):
            app.limit_work(**values)
    async with app:
        with pytest.raises(BadInput, match="before it starts"):
            app.limit_work(["orders"])
