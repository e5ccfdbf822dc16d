"""Whatever comes, however it is cut: one result, and no connection in doubt is used again."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import Unreachable
from onceward.webhooks.http.connection import Connection, Dropped, Reply

FAR_NS = 1 << 62


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.sent = b""

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


def play(pieces: list[bytes], ending: Exception | None = None) -> tuple[Any, bool, bool]:
    """The result of a request that is answered so, and then closed; whether the connection could
    have been used again before that; and whether it was left open."""

    async def main() -> tuple[Any, bool, bool]:
        wire, ended = Wire(), []
        connection = Connection(ended.append, boot_ns)
        connection.connection_made(wire)
        waiting = connection.ask(b"?", FAR_NS)
        for piece in pieces:
            if not wire.closed:
                connection.data_received(piece)
        usable, left_open = connection.usable, not wire.closed
        if usable:
            # Nothing is left over that could be taken for the start of the next answer.
            again = connection.ask(b"?", FAR_NS)
            connection.data_received(b"HTTP/1.1 299 X\r\nContent-Length: 3\r\n\r\nown")
            assert ((await again).status, (await again).body) == (299, b"own")
            assert (await again).retry_after is None
        connection.eof_received()
        connection.connection_lost(ending)
        assert ended == [connection]
        assert not connection.usable
        assert waiting.done()
        error = waiting.exception()
        return (waiting.result() if error is None else error), usable, left_open

    return asyncio.run(main())


bodies = st.binary(max_size=300)
statuses = st.integers(200, 599).filter(lambda status: status not in (204, 304))
cuts = st.lists(st.integers(0, 2_000), max_size=8)


def cut(raw: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(each % (len(raw) + 1) for each in at)})
    return [raw[start:end] for start, end in pairwise(edges)]


def chunked(body: bytes, sizes: list[int]) -> bytes:
    pieces = [piece for piece in cut(body, sizes) if piece]
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


ways = st.sampled_from(["length", "chunks", "end"])


@given(status=statuses, body=bodies, at=cuts, sizes=cuts, by=ways)
def test_an_answer_is_the_same_however_it_is_cut(
    status: int, body: bytes, at: list[int], sizes: list[int], by: str
) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 %d X\r\nRetry-After: 7\r\n" % status
    raw = {
        "length": head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        "chunks": head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, sizes),
        "end": head + b"\r\n" + body,
    }[by]
    reply, usable, _ = play(cut(raw, at))
    assert isinstance(reply, Reply)
    assert (reply.status, reply.body, reply.retry_after) == (status, body, "7")
    assert usable == (by != "end")


@given(body=st.binary(min_size=1, max_size=50), at=cuts, short=st.integers(1, 200))
def test_half_an_answer_is_none(body: bytes, at: list[int], short: int) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    raw = raw[: -min(short, len(raw))]
    result, usable, _ = play(cut(raw, at))
    assert isinstance(result, Unreachable if raw else Dropped)
    assert not usable


@given(at=cuts, body=bodies)
def test_an_end_by_an_error_is_not_the_end_of_a_body(at: list[int], body: bytes) -> None:
    raw = b"HTTP/1.1 200 OK\r\n\r\n" + body
    result, _, _ = play(cut(raw, at), ConnectionResetError())
    assert isinstance(result, Unreachable)


pieces = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 500 X\r\n", b"HTTP/1.1 100 X\r\n\r\n", b"\r\n", b"\r"),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", b"0\r\n"),
        *(b"Connection: close\r\n", b"Upgrade: x\r\n", b"abc", b"Retry-After: 1\r\n", b"\0"),
        *(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", b"x" * 70_000),
    ]
)


@given(parts=st.lists(pieces | st.binary(max_size=20), max_size=12), joined=st.booleans())
@example(parts=[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n"], joined=True)
def test_anything_has_one_result_and_leaves_no_connection_in_doubt(
    parts: list[bytes], joined: bool
) -> None:
    raw = b"".join(parts)
    result, usable, left_open = play([raw] if joined and raw else [part for part in parts if part])
    assert isinstance(result, Reply | Unreachable | Dropped)
    assert left_open or not usable
    if isinstance(result, Reply):
        assert 101 <= result.status <= 999
        assert len(result.body) <= limits.ANSWER_BODY_BYTES_MAX
    assert isinstance(result, Reply) or not usable


async def test_two_requests_on_one_connection_have_their_own_answers() -> None:
    wire = Wire()
    connection = Connection(lambda _: None, boot_ns)
    connection.connection_made(wire)
    for number in range(3):
        waiting = connection.ask(b"%d" % number, FAR_NS)
        assert not connection.usable
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
        assert (await waiting).body == b"%d" % number
        assert connection.usable
    assert wire.sent == b"012"
    assert connection.asked == 3


async def test_the_time_of_a_request_counts_for_it_alone() -> None:
    now_ns = 0
    wire = Wire()
    connection = Connection(lambda _: None, lambda: now_ns)
    connection.connection_made(wire)
    first = connection.ask(b"1", 10)
    connection.data_received(b"HTTP/1.1 204 X\r\n\r\n")
    await first
    # Its timer comes in the middle of the second one, which has more time.
    second = connection.ask(b"2", FAR_NS)
    now_ns = 10
    connection._look()
    assert not second.done()
    now_ns = FAR_NS
    connection._look()
    assert isinstance(second.exception(), TimeoutError)
    assert wire.closed
    connection.connection_lost(None)


FIRST = b"HTTP/1.1 500 Broken\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno"
SECOND = b"HTTP/1.1 200 OK\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nok"


@given(at=cuts, length=st.integers(1, len(SECOND)))
@example(at=[], length=len(SECOND))
def test_a_second_response_does_not_change_the_outcome_of_the_first(
    at: list[int], length: int
) -> None:
    reply, usable, _ = play([*cut(FIRST, at)[:-1], cut(FIRST, at)[-1] + SECOND[:length]])
    assert (reply.status, reply.body, reply.retry_after) == (500, b"no", "7")
    assert not usable


@pytest.mark.parametrize("extra", [b"\r", b"\r\n", b"\r\n\r\n", b"\0", b" "])
@pytest.mark.parametrize(
    "whole", [FIRST, b"HTTP/1.1 500 X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"]
)
def test_any_byte_behind_a_response_ends_the_connection(whole: bytes, extra: bytes) -> None:
    assert play([whole])[1]
    reply, usable, left_open = play([whole + extra])
    assert (reply.status, reply.retry_after, usable, left_open) == (500, "7", False, False)


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("framing", [b"Content-Length: 38", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("rest", [b"", b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"])
def test_a_response_without_a_body_is_whole_with_its_head(
    status: int, framing: bytes, rest: bytes
) -> None:
    reply, usable, left_open = play([b"HTTP/1.1 %d X\r\n%s\r\n\r\n" % (status, framing) + rest])
    assert (reply.status, reply.body, usable, left_open) == (status, b"", False, False)


def test_a_response_without_a_body_may_say_that_it_has_none() -> None:
    reply, usable, _ = play([b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n"])
    assert (reply.status, usable) == (204, True)


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_an_interim_response_with_a_body_is_refused(framing: bytes) -> None:
    interim = b"HTTP/1.1 103 X\r\n" + framing + b"\r\n\r\n"
    result, usable, left_open = play([interim + b"5\r\nabcde\r\n0\r\n\r\n" + SECOND])
    assert isinstance(result, Unreachable)
    assert not usable
    assert not left_open


def test_interim_responses_do_not_count_as_the_response() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\nLink: </x>\r\n\r\n"
    reply, usable, _ = play([early * 3 + SECOND])
    assert (reply.status, reply.retry_after, usable) == (200, "1", True)


def test_a_connection_of_an_older_version_is_not_used_again() -> None:
    head = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    reply, usable, _ = play([head])
    assert (reply.status, reply.body, usable) == (200, b"ok", False)
