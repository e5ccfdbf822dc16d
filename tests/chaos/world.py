"""Everything that is made to fail: servers, workers, wires between them, databases and disks.

On SQLite that is one server, and on PostgreSQL three nodes; each behind a wire that all callers
and the other nodes use, and each with a wire of its own to the database. Workers are processes
of their own, which work over HTTP.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

import asyncpg  # type: ignore[import-untyped]

from onceward.client import Client
from onceward.clock import Clock
from onceward.errors import OncewardError
from onceward.testing.postgres import PostgresServer, StopMode
from tests.chaos.disk import Disk
from tests.chaos.history import History
from tests.chaos.outside import Outside
from tests.chaos.processes import Process, Wall
from tests.chaos.wire import Wire
from tests.server_process import free_port

T = TypeVar("T")

Engine = Literal["sqlite", "postgres"]
NODES = {"sqlite": 1, "postgres": 3}
WORKERS = {"sqlite": 2, "postgres": 2}
# Enough for all that is written, and small enough to keep in memory.
DISK_MEGABYTES = {"sqlite": 1_024, "postgres": 2_048}
# When it is full there is so much left.
LEFT_BYTES = 256 << 10
POSTGRES = {"fsync": "off", "max_wal_size": "128MB", "min_wal_size": "32MB"}
# Whoever hears nothing for so long asks again, maybe another node.
PATIENCE_S = 2.0
ANSWER_S = 4.0
PAUSE_S = 0.1
# What passes, though a client is not to try again by itself.
PASSING = {"engine_stopped", "storage_full"}


class Node:
    """A server, and the wires that lead to it and from it."""

    def __init__(self, process: Process, wire: Wire, database: Wire | None) -> None:
        self.process = process
        self.wire = wire
        self.database = database

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"


class World:
    """Use it within `async with world.running()`."""

    def __init__(self, engine: Engine, folder: Path, history: History, seed: int) -> None:
        self.engine = engine
        self.folder = folder
        self.history = history
        self.chance = Random(f"{seed} world")
        self.outside = Outside(history, Random(f"{seed} outside"))
        self.disk: Disk | None = None
        self.postgres: PostgresServer | None = None
        self.nodes: list[Node] = []
        self.workers: list[Process] = []
        self.clients: list[Client] = []
        self.clock = Clock()
        self._seed = seed
        self._answers = 0
        self._answered = asyncio.Event()

    @property
    def database(self) -> str:
        """The engine's address, past all wires."""
        if self.postgres is not None:
            return f"{self.postgres.url}?schema=chaos"
        return f"sqlite:///{self.path}"

    @property
    def path(self) -> Path:
        """The file, on SQLite."""
        return (self.folder if self.disk is None else self.disk.folder) / "chaos.db"

    @property
    def processes(self) -> list[Process]:
        return [*[node.process for node in self.nodes], *self.workers]

    @property
    def notes(self) -> list[Path]:
        """Where workers note what they do with locks."""
        return [self.folder / f"worker{number}.notes" for number in range(WORKERS[self.engine])]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """All of it, from its start to its end."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.outside)
            self._mount(stack)
            if self.engine == "postgres":
                await self._start_postgres(stack)
            for number in range(NODES[self.engine]):
                self.nodes.append(await self._node(stack, f"node{number}"))
            for process in [node.process for node in self.nodes]:
                process.start()
                stack.push_async_callback(process.end)
            await asyncio.gather(*[node.process.ready.wait() for node in self.nodes])
            for node in self.nodes:
                client = Client(node.url, patience_s=PATIENCE_S)
                self.clients.append(await stack.enter_async_context(client))
            for number, notes in enumerate(self.notes):
                node = self.nodes[number % len(self.nodes)]
                words = (node.url, str(self.outside.ledger), str(notes), f"{self._seed}-{number}")
                command = (sys.executable, "-m", "tests.chaos.worker", *words)
                worker = Process(f"worker{number}", command, self.folder)
                self.workers.append(worker)
                worker.start()
                stack.push_async_callback(worker.end)
            await asyncio.gather(*[worker.ready.wait() for worker in self.workers])
            yield self

    def _mount(self, stack: AsyncExitStack) -> None:
        # Where the user that PostgreSQL runs as can get to.
        place = Path(tempfile.mkdtemp(prefix="onceward-chaos-"))
        stack.callback(place.rmdir)
        place.chmod(0o755)
        disk = Disk(place / "disk", DISK_MEGABYTES[self.engine], LEFT_BYTES)
        if disk.mount():
            stack.callback(disk.unmount)
            self.disk = disk

    async def _start_postgres(self, stack: AsyncExitStack) -> None:
        before = tempfile.tempdir
        try:
            if self.disk is not None:
                tempfile.tempdir = str(self.disk.folder)
            self.postgres = PostgresServer(POSTGRES)
        finally:
            tempfile.tempdir = before
        stack.callback(self.postgres.remove)
        await asyncio.to_thread(self.postgres.start)

    async def _node(self, stack: AsyncExitStack, name: str) -> Node:
        port = free_port()
        wire = await stack.enter_async_context(Wire(port))
        database, url = None, self.database
        if self.postgres is not None:
            database = await stack.enter_async_context(Wire(self.postgres.port))
            url = f"postgresql://postgres@127.0.0.1:{database.port}/postgres?schema=chaos"
        settings = {
            "CHAOS_DATABASE": url,
            "CHAOS_NAME": name,
            "CHAOS_LEDGER": str(self.outside.ledger),
        }
        command = (
            *(sys.executable, "-m", "onceward", "serve", "--app", "tests.chaos.app:app"),
            *("--port", str(port), "--advertise", f"http://127.0.0.1:{wire.port}"),
            *("--webhook-attempts", "1000", "--webhook-timeout-s", "3", "--log-level", "warning"),
        )
        wall = Wall(self.folder / f"{name}.wall")
        # Where nodes share a database, its clock counts, and not that of a node.
        keeps_wall = self.postgres is not None
        process = Process(name, command, self.folder, settings, wall, keeps_wall=keeps_wall)
        return Node(process, wire, database)

    async def restart_postgres(self, mode: StopMode) -> None:
        """Stop the database server and start it again."""
        assert self.postgres is not None
        await asyncio.to_thread(self.postgres.stop, mode)
        await asyncio.to_thread(self.postgres.start)

    async def until_postgres_serves(self) -> None:
        """Wait until it takes connections, and start it if it has ended."""
        assert self.postgres is not None
        while True:
            if self.postgres.ended:
                await self.restart_postgres("immediate")
            try:
                connection = await asyncpg.connect(self.postgres.url)
            except (OSError, asyncpg.PostgresError):
                await self.clock.sleep(PAUSE_S)
            else:
                await connection.close()
                return

    async def progress(self, answers: int) -> None:
        """Wait until callers have got so many more answers."""
        enough = self._answers + answers
        while self._answers < enough:
            self._answered.clear()
            await self._answered.wait()

    async def insist(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Ask any node, until there is an answer that is no passing trouble."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await call(self.chance.choice(self.clients))
                self._answers += 1
                self._answered.set()
                return answer
            except TimeoutError:
                self.history.troubles["no answer"] += 1
            except OncewardError as error:
                if not error.kind.retry and error.code not in PASSING:
                    raise
                self.history.troubles[error.code] += 1
            await self.clock.sleep(PAUSE_S)
