import asyncio
import socket

import pytest
import uvloop

from onceward import __version__, limits
from onceward.errors import BadInput
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.endpoint import OK, Request, Wire, answering, endpoint, hanging
from tests.webhooks.http.posting import LOCAL, LONG, SHORT, failure, post


async def test_a_request_arrives_as_it_was_meant(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        answer = await sender.send(
            there.url("/hook/ü?a=b#c"),
            {"Content-Type": "text/plain", "webhook-id": "17"},
            b"\x00body",
            connect_s=LONG,
            total_s=LONG,
        )
    assert (answer.status, answer.body, answer.retry_after_s, answer.sent) == (200, b"ok", None, 1)
    assert answer.took_s > 0
    (request,) = there.requests
    assert request.line == "POST /hook/%C3%BC?a=b HTTP/1.1"
    assert request.body == b"\x00body"
    assert request.headers == {
        "host": f"127.0.0.1:{there.port}",
        "user-agent": f"onceward/{__version__}",
        "content-type": "text/plain",
        "webhook-id": "17",
        "content-length": "5",
    }


ANSWERS = {
    "length": (b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello", 201, b"hello"),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "empty": (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 500, b""),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nRetry-After: 9\r\nTrailer: x\r\n\r\n",
        200,
        b"hello",
    ),
    "no reason": (b"HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nok", 299, b"ok"),
    "informational ones first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK,
        200,
        b"ok",
    ),
    "a redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
        302,
        b"",
    ),
    "a redirect that keeps the method": (
        b"HTTP/1.1 307 \r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
        307,
        b"",
    ),
}


async def test_a_caller_may_name_an_agent_of_its_own(sender: Sender) -> None:
    async with endpoint(answering(OK)) as there:
        headers = {"User-Agent": "mine", "x-1": "ü"}
        await sender.send(there.url(), headers, b"", connect_s=LONG, total_s=LONG)
    assert there.requests[0].headers["user-agent"] == "mine"
    assert there.requests[0].headers["x-1"] == "ü"


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("size", [1, 1 << 20], ids=["byte by byte", "at once"])
async def test_an_answer_is_read_and_the_connection_used_again(
    sender: Sender, kind: str, size: int
) -> None:
    raw, status, body = ANSWERS[kind]
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    async with endpoint(answering(*pieces)) as there:
        for _ in range(3):
            answer = await post(sender, there)
            assert (answer.status, answer.body, answer.sent) == (status, body, 1)
    assert len(there.requests) == 3, "redirects are not followed"
    assert there.connections == sender.connected == 1


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
async def test_an_answer_may_end_with_its_connection(
    sender: Sender, raw: bytes, body: bytes
) -> None:
    async with endpoint(answering(raw, end=True)) as there:
        for _ in range(2):
            answer = await post(sender, there)
            assert (answer.status, answer.body, answer.sent) == (200, body, 1)
        assert there.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\x00\x01",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_another_protocol_is_not_spoken(sender: Sender, raw: bytes) -> None:
    async with endpoint(answering(raw)) as there:
        assert (await post(sender, there)).status == 101
        await there.left.wait()
        assert sender.idle == 0


@pytest.mark.parametrize(
    ("headers", "after_s"),
    [
        (b"Retry-After: 17\r\n", 17.0),
        (b"RETRY-AFTER:99999999\r\n", limits.RETRY_AFTER_S_MAX),
        (
            b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            b"retry-after: Sun, 06 Nov 1994 08:50:37 GMT\r\n",
            60.0,
        ),
        (b"Retry-After: soon\r\n", None),
    ],
)
async def test_an_answer_may_say_when_to_come_back(
    sender: Sender, headers: bytes, after_s: float | None
) -> None:
    raw = b"HTTP/1.1 503 Busy\r\n" + headers + b"Content-Length: 0\r\n\r\n"
    async with endpoint(answering(raw)) as there:
        assert (await post(sender, there)).retry_after_s == after_s


# What is no answer, and what a person is told.
MAIMED = {
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP"),
    "no version": (b"200 OK\r\n\r\n", "is not HTTP"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "is not HTTP"),
    "a bad header": (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "is not HTTP"),
    "a bad length": (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "is not HTTP"),
    "a bad chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "is not HTTP",
    ),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
        "is not HTTP",
    ),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", "was closed in the middle"),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok", "was closed in the middle"),
    "half a chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
        "was closed in the middle",
    ),
    "only an informational one": (b"HTTP/1.1 100 Continue\r\n\r\n", "was closed in the middle"),
    "nothing": (b"", "closed without a response"),
    "a huge head": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000, "head of the response"),
    "many headers": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, "head of the response"),
    "informational ones without end": (b"HTTP/1.1 100 \r\n\r\n" * 3_000, "head of the response"),
}


@pytest.mark.parametrize("kind", MAIMED)
async def test_what_is_no_answer_is_told_as_what_it_is(sender: Sender, kind: str) -> None:
    raw, why = MAIMED[kind]
    async with endpoint(answering(raw, end=True)) as there:
        failed = await failure(post(sender, there))
        assert why in failed.message
        assert failed.sent == 1
        assert failed.took_s > 0
        assert sender.idle == 0
        assert len(there.requests) == 1, "a new connection that fails is not tried again"


async def test_a_reset_in_the_middle_of_a_body_is_not_its_end(sender: Sender) -> None:
    async def reset(request: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\nhal")
        await asyncio.sleep(0)
        # What was not read makes the system send a reset instead of an end.
        wire._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        await wire.reset()

    async with endpoint(reset) as there:
        failed = await failure(post(sender, there))
        assert (
            "was closed in the middle" in failed.message or "without a response" in failed.message
        )


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000\r\n", b""])
async def test_of_a_large_body_the_start_is_read_and_the_rest_not_waited_for(
    sender: Sender, framing: bytes
) -> None:
    async def endless(request: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n", b"x" * 70_000)
        await wire.gone()

    async with endpoint(endless) as there:
        answer = await post(sender, there)
        assert answer.status == 200
        assert answer.body == b"x" * limits.ANSWER_BODY_BYTES_MAX
        await there.left.wait()
        assert sender.idle == 0


async def test_what_is_no_body_is_not_read_without_end(sender: Sender) -> None:
    async def endless(request: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1;")
        while True:
            await wire.send(b"x" * 10_000)

    async with endpoint(endless) as there:
        answer = await post(sender, there)
        assert (answer.status, answer.body) == (200, b"ok")
        await there.left.wait()


async def test_a_body_of_just_the_size_that_is_read_keeps_its_connection(sender: Sender) -> None:
    body = b"x" * limits.ANSWER_BODY_BYTES_MAX
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with endpoint(answering(raw)) as there:
        assert (await post(sender, there)).body == body
        assert sender.idle == 1


async def test_who_does_not_answer_is_not_waited_for_longer_than_told(sender: Sender) -> None:
    async with endpoint(hanging) as there:
        failed = await failure(post(sender, there, total_s=SHORT))
        assert failed.message == "no response within 0.25 s"
        assert failed.sent == 1
        await there.left.wait()
        assert sender.open == 0


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"]
)
async def test_an_answer_that_drips_does_not_take_longer_than_told(
    sender: Sender, start: bytes
) -> None:
    async def drip(request: Request, wire: Wire) -> None:
        await wire.send(start, *[b"x"] * 1_000)
        await wire.gone()

    async with endpoint(drip) as there:
        failed = await failure(post(sender, there, total_s=SHORT))
        assert failed.message == "no complete response within 0.25 s"


async def test_a_large_request_that_nobody_reads_does_not_take_longer_than_told(
    sender: Sender,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        failed = await failure(post(sender, url, b"x" * 10_000_000, total_s=SHORT))
    assert failed.message == "no response within 0.25 s"
    assert failed.sent == 1


async def test_an_answer_before_all_was_sent_counts_and_ends_the_connection(
    sender: Sender,
) -> None:
    early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(100)
        writer.write(early)
        await writer.drain()
        gone.set_result(writer)

    gone: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    async with await asyncio.start_server(answer, "127.0.0.1", 0, limit=1000) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert (await post(sender, url, b"x" * 20_000_000)).status == 413
        assert sender.idle == 0
        (await gone).close()


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nb: c"},
        {"x": "a\nb"},
        {"x": "a\rb"},
        {"x": "a\0b"},
        {"x\r\ny": "a"},
        {"x y": "a"},
        {"": "a"},
        {"x:": "a"},
        {"x": "\u20ac"},
        {"Host": "evil.example"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
    ],
)
async def test_headers_that_would_change_the_request_are_refused(
    sender: Sender, headers: dict[str, str]
) -> None:
    async with endpoint(answering(OK)) as there:
        with pytest.raises(BadInput) as refused:
            await sender.send(there.url(), headers, b"", connect_s=LONG, total_s=LONG)
        assert refused.value.code == "bad_header"
        assert there.connections == 0


def test_it_works_on_uvloop_too() -> None:
    async def main() -> None:
        sender = Sender(LOCAL)
        async with endpoint(answering(OK)) as there:
            for _ in range(2):
                assert (await post(sender, there)).body == b"ok"
            there.behaviour = hanging
            failed = await failure(post(sender, there, total_s=SHORT))
            assert failed.message == "no response within 0.25 s"
            there.behaviour = answering(b"", end=True)
            failed = await failure(post(sender, there))
            assert (
                failed.message == "the connection was closed without a response; check the receiver"
            )
        failed = await failure(post(sender, there))
        assert "refused the connection" in failed.message
        await sender.close()
        assert sender.open == 0

    uvloop.run(main())
