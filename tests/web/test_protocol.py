"""HTTP on real connections: what is ambiguous, endless or slow is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from onceward import limits
from onceward.web.protocol import Protocol
from tests.web.wire import Connection, Served, served

HEAD = b"POST /v1/inbox/q HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"body":1,"key":"k"}'
CHUNKS = b"14\r\n" + BODY + b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: 20\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Site:
    """The protocol alone, with an application that notes what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.gone = asyncio.Event()
        self.port = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    config = uvicorn.Config(
        site, http=Protocol, ws="none", lifespan="off", log_config=None, port=0, host="127.0.0.1"
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    site.port = server.servers[0].sockets[0].getsockname()[1]
    yield site
    await server.shutdown()


BAD: dict[str, bytes] = {
    "both": HEAD + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "both, the other way round": HEAD + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "two lengths": HEAD + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "length that is no number": HEAD + b"Content-Length: 2x\r\n\r\n" + BODY,
    "length with a sign": HEAD + b"Content-Length: +20\r\n\r\n" + BODY,
    "length too large to count": HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
    "transfer encoding of another kind": HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
    "chunked, but not at the end": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "space before the colon": HEAD + b"Content-Length : 20\r\n\r\n" + BODY,
    "chunk of no size": HEAD + CHUNKED + b"\r\nzz\r\n",
    "header without a name": HEAD + b": x\r\n\r\n",
    "folded header": HEAD + LENGTH + b"A: b\r\n c: d\r\n\r\n" + BODY,
    "line feeds alone": HEAD.replace(b"\r\n", b"\n") + b"\n",
    "not HTTP": b"hello\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("what", BAD)
async def test_what_can_be_read_in_two_ways_is_refused(site: Site, what: str) -> None:
    connection = await site.connect()
    await connection.send(BAD[what])
    status, problem = await connection.answer()
    assert (status, problem["code"]) == (400, "bad_request")
    assert await connection.ended()
    assert site.bodies == []
    await connection.close()


async def test_requests_follow_each_other_on_a_connection(site: Site) -> None:
    connection = await site.connect()
    for piece in (HEAD + LENGTH + b"\r\n" + BODY, HEAD + CHUNKED + b"\r\n" + CHUNKS):
        await connection.send(piece)
        assert await connection.answer() == (200, {})
    # Also if they come all at once, or in small pieces.
    await connection.send((HEAD + LENGTH + b"\r\n" + BODY) * 3)
    await connection.send(*[bytes([byte]) for byte in HEAD + CHUNKED + b"\r\n" + CHUNKS])
    for _ in range(4):
        assert await connection.answer() == (200, {})
    assert site.bodies == [BODY] * 6
    await connection.close()


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"GET /", b"a" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"a" * 1_000),
        (b"GET / HTTP/1.1\r\na: ", b"a" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 200),
    ],
)
async def test_a_head_without_end_is_refused(site: Site, start: bytes, endless: bytes) -> None:
    connection = await site.connect()
    await connection.send(start)

    async def pour() -> None:
        while True:
            await connection.send(endless)

    pouring = asyncio.create_task(pour())
    try:
        status, problem = await connection.answer()
        assert (status, problem["code"]) == (431, "head_too_large")
    except (ConnectionResetError, asyncio.IncompleteReadError):
        pass  # it may have been cut off before it could read that
    with pytest.raises(ConnectionError):
        await pouring
    assert site.bodies == []
    await connection.close()


async def test_a_large_head_within_the_limit_is_taken(site: Site) -> None:
    connection = await site.connect()
    await connection.send(HEAD + LENGTH + b"X: " + b"x" * 30_000 + b"\r\n\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    await connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD])
async def test_a_request_that_does_not_come_is_not_waited_for(
    site: Site, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.05)
    connection = await site.connect()
    await connection.send(sent)
    status, problem = await connection.answer()
    assert (status, problem["code"]) == (408, "too_slow")
    assert await connection.ended()
    await connection.close()


async def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.05)
    connection = await site.connect()
    await connection.send(HEAD + LENGTH + b"\r\n{")
    assert await connection.ended()
    await asyncio.wait_for(site.gone.wait(), 30)
    await connection.close()


async def test_a_connection_in_use_has_all_the_time_between_requests(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await site.connect()
    monkeypatch.setattr(limits, "REQUEST_S", 0.05)
    await connection.send(HEAD + LENGTH + b"\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    # Another one is cut off meanwhile.
    other = await site.connect()
    assert (await other.answer())[0] == 408
    await connection.send(HEAD + LENGTH + b"\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    await connection.close()
    await other.close()


async def chunked(connection: Connection, size_bytes: int) -> None:
    await connection.send(HEAD + CHUNKED + b"\r\n")
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    await connection.send(*[chunk] * (size_bytes // 65_536), b"0\r\n\r\n")


async def test_the_real_server_refuses_what_is_too_large_or_ambiguous(tmp_path: Path) -> None:
    async with served(tmp_path, "--database", "memory://") as server:
        await _too_large_or_ambiguous(server)
        assert await server.stop() == 0


async def _too_large_or_ambiguous(server: Served) -> None:
    connection = await server.connect()
    await chunked(connection, 2 * limits.REQUEST_BYTES_MAX)
    assert (await connection.answer())[1]["code"] == "body_too_large"
    # The connection can be used further.
    await connection.ask("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
    assert (await connection.answer())[0] == 202
    await connection.send(BAD["both"])
    assert (await connection.answer())[1]["code"] == "bad_request"
    assert await connection.ended()
    await connection.close()
    large = await server.connect()
    await large.send(HEAD + b"Content-Length: 9000000\r\nExpect: 100-continue\r\n\r\n")
    assert (await large.answer())[1]["code"] == "body_too_large"
    await large.close()
