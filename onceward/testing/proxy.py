"""A proxy for PostgreSQL that cuts connections at chosen moments.

    async with Proxy(server.port, marker=b"onceward_commit", plan=plan) as proxy:
        engine = PostgresEngine(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")

It parses the protocol only enough to separate requests and responses. For each request that
contains `marker`, `plan` returns None or a `Cut`. So a test can lose a commit before it arrives,
during its execution, or its response. It can also deliver a commit after its sender has given up.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from onceward.errors import BadInput

_CHUNK_BYTES: Final = 1 << 16
# The messages that end a request (Sync, Query, Flush, Terminate, a password) and a response
# (ReadyForQuery).
_REQUEST_ENDS: Final = b"SQHXp"
_ANSWER_ENDS: Final = b"Z"
# A client's first requests, for encryption, which the proxy denies.
_ENCRYPTION: Final = (80877103, 80877104)


class Cut(StrEnum):
    """What happens to a request and its response."""

    REQUEST = "request lost"
    """Nothing reaches the server; both sides lose the connection."""
    HALF_REQUEST = "request cut in half"
    UNDER_WAY = "cut while under way"
    """The request reaches the server, and both sides lose the connection immediately."""
    ANSWER = "answer lost"
    """The server has processed it; the client loses the connection before the response."""
    HALF_ANSWER = "answer cut in half"
    LATE = "request late"
    """The client loses the connection. Some marked requests later, the request arrives."""
    DEAF = "request swallowed"
    """Half open: nothing further reaches the server, and the connection stays."""
    MUTE = "answer swallowed"
    """Half open: the server has processed it, but no response arrives, and the connection stays."""


Plan = Callable[[], Cut | None]


def chance(random: random.Random, rates: Mapping[Cut, float]) -> Plan:
    """A random plan: each cut has a rate per marked request."""

    def plan() -> Cut | None:
        draw = random.random()
        for cut, rate in rates.items():
            draw -= rate
            if draw < 0:
                return cut
        return None

    return plan


class Proxy:
    """A proxy for a local server. `counts` has the number of cuts of each kind."""

    def __init__(
        self,
        server_port: int,
        *,
        marker: bytes,
        plan: Plan | None = None,
        late_by: int = 3,
    ) -> None:
        """A `LATE` request arrives after `late_by` further marked requests."""
        if late_by < 1:
            raise BadInput("late_by must be 1 or more")
        self.plan = plan
        self.counts: Counter[Cut] = Counter()
        self.requests = 0
        """The number of marked requests so far."""
        self.refusing = False
        """Whether new connections are closed immediately, as if the server was down."""
        self.server_port = server_port
        """The port that new connections lead to."""
        self._marker = marker
        self._late_by = late_by
        self._pipes: set[_Pipe] = set()
        self._held: dict[asyncio.Task[None], tuple[int, asyncio.Event]] = {}

    @property
    def port(self) -> int:
        return int(self._listener.sockets[0].getsockname()[1])

    def cut_all(self) -> None:
        """Cut all connections."""
        for pipe in self._pipes:
            pipe.cut()

    async def deliver(self) -> None:
        """Deliver all held requests, and wait for their responses."""
        for _, arrive in self._held.values():
            arrive.set()
        if self._held:
            await asyncio.wait(list(self._held))

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._listener.close()
        await self.deliver()
        self.cut_all()
        while self._pipes:
            await asyncio.wait([pipe.ended for pipe in self._pipes])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: _Side | None = None
        if not self.refusing:
            with suppress(OSError):
                upstream = _Side(*await asyncio.open_connection("127.0.0.1", self.server_port))
        if upstream is None:
            writer.transport.abort()
            return
        pipe = _Pipe(self, _Side(reader, writer), upstream)
        self._pipes.add(pipe)
        try:
            await pipe.run()
        finally:
            self._pipes.discard(pipe)
            pipe.ended.set_result(None)

    def decide(self, request: bytes) -> Cut | None:
        """The cut for this request, or None."""
        if self._marker not in request:
            return None
        self.requests += 1
        for due, arrive in self._held.values():
            if due <= self.requests:
                arrive.set()
        cut = self.plan() if self.plan is not None else None
        if cut is not None:
            self.counts[cut] += 1
        return cut

    def hold(self, server: "_Side", request: bytes) -> None:
        """Hold the request and its connection to the server until it is due."""
        arrive = asyncio.Event()

        async def arrive_late() -> None:
            try:
                await arrive.wait()
                await server.write(request)
                while (await server.read())[0] not in _ANSWER_ENDS:
                    pass
            except (OSError, EOFError):
                pass  # the server has stopped in the meantime
            finally:
                server.abort()

        task = asyncio.get_running_loop().create_task(arrive_late())
        self._held[task] = self.requests + self._late_by, arrive
        task.add_done_callback(self._held.pop)


class _Side:
    """One end of a connection, read message by message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, *, typed: bool = True) -> bytes:
        """Read one message; the first messages of a client have no type byte.

        Raises `EOFError` or `OSError` at the end.
        """
        head = await self._reader.readexactly(5 if typed else 4)
        length = int.from_bytes(head[-4:]) - 4
        return head + await self._reader.readexactly(length)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def swallow(self) -> None:
        """Read and discard until the other side closes the connection."""
        while await self._reader.read(_CHUNK_BYTES):
            pass

    def abort(self) -> None:
        self._writer.transport.abort()


class _Pipe:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: _Side, server: _Side) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answer_cut: Cut | None = None
        self._late: bytes | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        self.cut()
        if self._late is not None:
            self._proxy.hold(self._server, self._late)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError):
                raise outcome

    def cut(self) -> None:
        self._client.abort()
        if self._late is None:
            self._server.abort()

    async def _greet(self) -> None:
        while True:
            message = await self._client.read(typed=False)
            if int.from_bytes(message[4:8]) not in _ENCRYPTION:
                await self._server.write(message)
                return
            await self._client.write(b"N")

    async def _requests(self) -> None:
        await self._greet()
        while True:
            request = message = await self._client.read()
            while message[0] not in _REQUEST_ENDS:
                message = await self._client.read()
                request += message
            cut = self._proxy.decide(request)
            if cut is Cut.REQUEST:
                return
            if cut is Cut.DEAF:
                await self._client.swallow()
                return
            if cut is Cut.LATE:
                self._late = request
                return
            self._answer_cut = cut
            if cut is Cut.HALF_REQUEST:
                request = request[: len(request) // 2]
            await self._server.write(request)
            if cut in (Cut.HALF_REQUEST, Cut.UNDER_WAY):
                return

    async def _answers(self) -> None:
        answer = b""
        while True:
            message = await self._server.read()
            if self._answer_cut is None:
                await self._client.write(message)
                continue
            answer += message
            if message[0] not in _ANSWER_ENDS:
                continue
            if self._answer_cut is Cut.HALF_ANSWER:
                await self._client.write(answer[: len(answer) // 2])
            if self._answer_cut is not Cut.MUTE:
                return
