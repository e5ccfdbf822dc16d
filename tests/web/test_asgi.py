"""Requests as another ASGI server passes them on: with all of their body, or refused."""

import asyncio
import json
from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.web import asgi
from tests.schedule.cluster import virtual
from tests.web.asgi import AsgiCaller, keyed, serving

ANONYMOUS, MOST = limits.ANONYMOUS_BODY_BYTES_MAX, limits.MESSAGES_BYTES_MAX


def coming(*pieces: bytes | None) -> Any:
    """A body in these pieces; None: the caller disconnects. No more may be asked for."""
    left = [
        {"type": "http.disconnect"}
        if piece is None
        else {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    ]

    async def receive() -> Any:
        return left.pop(0)

    return receive


async def read(*pieces: bytes | None, trusted: bool = True) -> bytes | None:
    scope = {"method": "POST", "headers": []}
    request = await asgi.read(scope, coming(*pieces), lambda request: trusted)
    return None if request is None else request.whole


async def test_a_body_is_put_together_from_its_pieces() -> None:
    assert await read(b"") == b""
    assert await read(b"whole") == b"whole"
    assert await read(b"", b"in ", b"pieces", b"") == b"in pieces"
    assert await read(b"x" * (MOST - 1), b"x") == b"x" * MOST


@pytest.mark.parametrize(
    ("pieces", "trusted"),
    [
        ([b"x" * (MOST + 1)], True),
        ([b"x" * MOST, b"x"], True),
        ([b"x" * (ANONYMOUS + 1), b""], False),
        ([b"x", b"x" * ANONYMOUS, None], False),  # the last one is not even asked for
    ],
)
async def test_a_body_over_the_limit_is_refused(pieces: list[bytes | None], trusted: bool) -> None:
    with pytest.raises(BadInput) as refused:
        await read(*pieces, trusted=trusted)
    assert refused.value.code == "body_too_large"


async def test_a_caller_who_goes_before_the_body_is_whole_is_noticed() -> None:
    assert await read(None) is None
    assert await read(b"12", None) is None


async def test_who_waits_for_the_caller_to_go_hears_it() -> None:
    left: list[Any] = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return left.pop(0)

    request = await asgi.read({"method": "GET", "headers": []}, receive)
    assert request is not None
    await request.gone()
    assert left == []


@virtual
@pytest.mark.parametrize("can_answer", [False, True])
async def test_a_websocket_elsewhere_is_refused_with_a_reason_if_there_can_be_one(
    can_answer: bool,
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    extensions = {"websocket.http.response": {}} if can_answer else None
    scope = {"type": "websocket", "path": "/v1/rooms", "query_string": b"", "headers": []}
    async with serving() as caller:
        await caller.server({**scope, "extensions": extensions}, coming(b""), send)
    if not can_answer:
        assert sent == [{"type": "websocket.close", "code": 1008}]
        return
    start, body = sent
    assert start["type"] == "websocket.http.response.start"
    assert (start["status"], json.loads(body["body"])["code"]) == (404, "not_found")
    assert body["type"] == "websocket.http.response.body"


@virtual
async def test_a_mounted_server_refuses_bodies_without_credentials_early() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth) as caller:
        mounted = AsgiCaller(caller.server)
        pieces = [b'{"body":', b'1,"key":"k"}']
        call = mounted.call("POST", "/v1/inbox/q", raw=[*pieces, b""])
        answer = await call.run()
        assert answer is not None
        assert answer.verdict == (401, "no_credentials")
        assert call._pieces == [pieces[1], b""], "the rest is not read"
        mounted.token = keys["ann"]
        assert (await mounted("POST", "/v1/inbox/q", raw=pieces)).status == 202


@virtual
async def test_a_caller_of_a_mounted_server_who_goes_is_not_answered() -> None:
    async with serving() as caller:
        mounted = AsgiCaller(caller.server)
        call = mounted.call("POST", "/v1/inbox/q", raw=[b"{", b"}"])
        call.gone.set()
        assert await call.run() is None
        call = mounted.call("POST", "/v1/queues/q/claim", {"wait_ms": 50_000})
        waiting = asyncio.create_task(call.run())
        await caller.app.store.clock.sleep(1)
        call.gone.set()
        answer = await waiting
        assert answer is not None, "the other server drops it"
        assert asyncio.get_running_loop().time() < 30
