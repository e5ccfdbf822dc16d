"""HTTP on real connections: what is ambiguous, endless or slow is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward import limits
from onceward.clock import Clock
from tests.web.site import BODY, CHUNKED, CHUNKS, GOOD, HEAD, LENGTH, Site, standing
from tests.web.wire import Connection, Served, served


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with standing() as site:
        yield site


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


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "a transfer encoding in HTTP/1.0": (
        HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
        *(400, "bad_header"),
    ),
    "one with keep-alive": (
        HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"Connection: keep-alive\r\n\r\n" + CHUNKS,
        *(400, "bad_header"),
    ),
    "a coding before chunked": (
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
        *(501, "not_implemented"),
    ),
    "one in a header of its own": (
        HEAD + b"Transfer-Encoding: gzip\r\n" + CHUNKED + b"\r\n" + CHUNKS,
        *(501, "not_implemented"),
    ),
    "chunked twice": (
        HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS,
        *(400, "bad_request"),
    ),
    "chunked in two headers": (HEAD + CHUNKED * 2 + b"\r\n" + CHUNKS, 400, "bad_request"),
    "an older version": (b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "no version": (b"GET /\r\n\r\n", 400, "bad_request"),
    "a newer version": (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_header"),
    "two hosts": (HEAD + LENGTH + b"Host: b\r\n\r\n" + BODY, 400, "bad_header"),
    "the same host twice": (HEAD + LENGTH + b"host: localhost\r\n\r\n" + BODY, 400, "bad_header"),
    "two hosts in HTTP/1.0": (
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        *(400, "bad_header"),
    ),
    "an address without a host": (b"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request"),
    "an address with a user": (b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_head_that_proxies_may_read_otherwise_is_refused(site: Site, what: str) -> None:
    sent, status, code = REFUSED[what]
    connection = await site.connect()
    await connection.send(sent)
    answered, problem = await connection.answer()
    assert (answered, problem["code"]) == (status, code)
    assert await connection.ended()
    assert site.bodies == []
    await connection.close()


async def test_the_host_of_a_full_address_counts_and_not_the_header(site: Site) -> None:
    connection = await site.connect()
    await connection.send(b"GET http://real:81/a HTTP/1.1\r\nHost: other\r\n\r\n")
    assert (await connection.answer())[0] == 200
    assert (b"host", b"real:81") in site.headers
    assert (site.paths, len(site.headers)) == ([b"/a"], 1)
    await connection.close()


async def test_probes_of_the_older_version_need_no_host(site: Site) -> None:
    connection = await site.connect()
    await connection.send(b"GET / HTTP/1.0\r\n\r\n")
    assert (await connection.answer())[0] == 200
    assert await connection.ended()
    await connection.close()


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
async def test_a_head_without_end_is_refused(
    site: Site, start: bytes, endless: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_S", 0.1)
    connection = await site.connect()
    await connection.send(start)

    async def pour() -> None:
        while True:
            await connection.send(endless)

    pouring = asyncio.create_task(pour())
    status, problem = await connection.answer()
    assert (status, problem["code"]) == (431, "head_too_large")
    with pytest.raises(ConnectionError):
        await pouring
    assert site.bodies == []
    await connection.close()


def head_of(size_bytes: int) -> bytes:
    start, end = HEAD + LENGTH + b"X: ", b"\r\n\r\n"
    return start + b"x" * (size_bytes - len(start) - len(end)) + end


@pytest.mark.parametrize("cut", [1, 60_000, limits.HEAD_BYTES_MAX - 1, 200_000])
async def test_the_limit_of_a_head_is_the_same_however_it_is_cut(site: Site, cut: int) -> None:
    for more, status in ((0, 200), (1, 431)):
        connection = await site.connect()
        # Behind another one, so that the first read has parts of both.
        sent = HEAD + LENGTH + b"\r\n" + BODY + head_of(limits.HEAD_BYTES_MAX + more) + BODY
        await connection.send(sent[:cut], sent[cut:])
        assert (await connection.answer())[0] == 200
        assert (await connection.answer())[0] == status
        await connection.close()


@pytest.mark.parametrize("cut", [-1, -2, -3])
async def test_the_end_of_a_head_may_come_in_two_pieces(site: Site, cut: int) -> None:
    connection = await site.connect()
    asked = HEAD + LENGTH + b"\r\n"
    await connection.send(asked[:cut])
    await site.until(lambda: site.connections.anonymous.held_bytes > 0)
    # The next one is a head of its own, not a part of this one.
    await connection.send(asked[cut:] + BODY + head_of(limits.HEAD_BYTES_MAX - 10) + BODY)
    for _ in range(2):
        assert (await connection.answer())[0] == 200
    await connection.close()


async def test_a_head_has_at_most_so_many_headers(site: Site) -> None:
    for count, status in ((limits.HEADERS_MAX, 200), (limits.HEADERS_MAX + 1, 431)):
        connection = await site.connect()
        headers = b"Host: x\r\n" + b"a: b\r\n" * (count - 1)
        await connection.send(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
        assert (await connection.answer())[0] == status
        await connection.close()


@pytest.mark.parametrize("cut", [1, 2, 100])
async def test_a_method_that_is_not_known_is_told(site: Site, cut: int) -> None:
    connection = await site.connect()
    asked = b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    await connection.send(asked[:cut], asked[cut:])
    status, problem = await connection.answer()
    assert (status, problem["code"]) == (501, "not_implemented")
    await connection.close()


@pytest.mark.parametrize("credentials", [b"", GOOD])
async def test_of_requests_in_a_row_few_are_parsed_ahead(site: Site, credentials: bytes) -> None:
    count = 5_000
    connection = await site.connect()
    await connection.send(HEAD + credentials + LENGTH + b"\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    site.hold = asyncio.Event()
    site.asked.clear()
    sending = asyncio.create_task(connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * count))
    await asyncio.wait_for(site.asked.wait(), 30)
    budget = site.connections.authenticated if credentials else site.connections.anonymous
    read_bytes = limits.READ_BYTES if credentials else limits.ANONYMOUS_READ_BYTES
    await site.until(lambda: budget.held_bytes > 0)
    assert budget.held_bytes <= read_bytes
    site.hold.set()
    for _ in range(count):
        assert (await connection.answer())[0] == 200
    await sending
    assert len(site.bodies) == 1 + count
    assert budget.held_bytes == 0
    await connection.close()


@pytest.mark.parametrize("refused", ["not HTTP", "both"])
async def test_a_refusal_reaches_a_caller_that_goes_on_sending(site: Site, refused: str) -> None:
    # What a server leaves unread when it closes resets the connection.
    for _ in range(10):
        connection = await site.connect()
        await connection.send(BAD[refused], b"x" * (4 << 20))
        assert (await connection.answer())[0] == 400
        assert await connection.ended()
        await connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, HEAD + LENGTH + b"\r\n{"])
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


@pytest.mark.parametrize(
    ("address", "path"),
    [(b"/a%2Fb?c=d", b"/a%2Fb"), (b"http://other/a?b", b"/a"), (b"http://other", b"/")],
)
async def test_an_address_may_be_given_in_full(site: Site, address: bytes, path: bytes) -> None:
    connection = await site.connect()
    await connection.send(b"GET " + address + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await connection.answer())[0] == 200
    assert site.paths == [path]
    await connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
async def test_a_connection_ends_with_the_answer_to_what_asks_for_that(
    site: Site, request_: bytes
) -> None:
    connection = await site.connect()
    await connection.send(request_ + b"GET /not HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await connection.answer())[0] == 200
    assert await connection.ended()
    assert site.paths == [b"/"]
    await connection.close()


async def test_a_body_over_the_limit_passes_by_and_the_connection_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGES_BYTES_MAX", 100)
    connection = await site.connect()
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    for large in (
        HEAD + b"Content-Length: 101\r\n\r\n" + b"x" * 101,
        HEAD + CHUNKED + b"\r\n" + chunk * 3 + b"0\r\n\r\n",
    ):
        await connection.send(large)
        status, problem = await connection.answer()
        assert (status, problem["code"]) == (413, "body_too_large")
    await connection.send(HEAD + b"Content-Length: 100\r\n\r\n" + b"x" * 100)
    assert (await connection.answer())[0] == 200
    assert site.bodies == [b"x" * 100]
    await connection.close()


async def test_who_waits_for_leave_to_send_a_body_gets_it(site: Site) -> None:
    connection = await site.connect()
    await connection.send(HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n")
    assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await connection.send(BODY)
    assert (await connection.answer())[0] == 200
    await connection.close()


async def test_an_answer_that_is_not_taken_holds_up_the_next_one(site: Site) -> None:
    site.answered = b'"' + b"x" * (16 << 20) + b'"'
    connection = await site.connect()
    await connection.send((HEAD + LENGTH + b"\r\n" + BODY) * 10)
    await asyncio.wait_for(site.asked.wait(), 30)
    first = await connection.answer()
    assert len(site.bodies) <= 2
    for _ in range(9):
        assert await connection.answer() == first
    assert len(site.bodies) == 10
    await connection.close()


async def test_a_caller_that_takes_no_answers_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.05)
    monkeypatch.setattr(site.server.config, "timeout_keep_alive", 0.05)
    site.answered = b'"' + b"x" * (16 << 20) + b'"'
    connection = await site.connect()
    await connection.send((HEAD + LENGTH + b"\r\n" + BODY) * 3 + HEAD)
    await asyncio.wait_for(site.asked.wait(), 30)
    [at_server] = site.server.server_state.connections
    clock = Clock()
    while at_server in site.server.server_state.connections:
        await clock.sleep(0.02)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await connection.answer()
    await connection.close()


async def test_the_application_hears_when_the_caller_has_gone(site: Site) -> None:
    site.hold = asyncio.Event()
    connection = await site.connect()
    await connection.send(HEAD + LENGTH + b"\r\n" + BODY)
    await asyncio.wait_for(site.asked.wait(), 30)
    await connection.close()
    await asyncio.wait_for(site.gone.wait(), 30)


async def test_what_is_at_hand_is_answered_when_the_server_stops(site: Site) -> None:
    site.hold = asyncio.Event()
    connection, idle = await site.connect(), await site.connect()
    site.hold.set()
    await connection.send(HEAD + GOOD + LENGTH + b"\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    site.hold.clear()
    site.asked.clear()
    await connection.send((HEAD + LENGTH + b"\r\n" + BODY) * 2)
    await asyncio.wait_for(site.asked.wait(), 30)
    stopping = asyncio.create_task(site.server.shutdown())
    assert await idle.ended()
    site.hold.set()
    for _ in range(2):
        assert (await connection.answer())[0] == 200
    assert await connection.ended()
    await stopping
    await connection.close()
    await idle.close()


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
