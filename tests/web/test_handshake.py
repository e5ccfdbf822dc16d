"""Who may speak WebSocket with a server, on real connections."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import TABLE, BadInput, OncewardError
from onceward.rooms.frames import PROTOCOL
from onceward.web.auth import ApiKey, Auth, JwtKey, digest_of
from onceward.web.handshake import admit_origin
from onceward.web.server import Server
from tests.signed import signed
from tests.web.listening import listening
from tests.web.peer import Peer

SECRET = "x" * 32
KEY = "ow_ann"


def token(user: str, exp: float = 4_000_000_000, **names: list[str]) -> str:
    return signed(SECRET, user, exp, "test", **names)


@asynccontextmanager
async def serving(*, dev: bool = False, **options: Any) -> AsyncIterator[int]:
    """The port of a server that knows an API key, and tokens."""
    auth = Auth(dev=True)
    if not dev:
        auth = Auth([ApiKey("ann", digest_of(KEY), ("all",))], [JwtKey("HS256", SECRET, "test")])
    async with (
        Server(App("memory://"), auth, **options) as server,
        listening(server) as (_, port),
    ):
        yield port


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving() as port:
        yield port


async def greeted(peer: Peer, token: str = "") -> str:
    """Who one is."""
    await peer.send({"t": "hello", "token": token} if token else {"t": "hello"})
    welcome = await peer.receive()
    assert welcome["t"] == "welcome"
    await peer.leave()
    return str(welcome["user"])


async def test_credentials_come_in_a_header_a_subprotocol_or_the_first_frame(port: int) -> None:
    peer = await Peer.connect(port, "/v1/ws", f"Authorization: Bearer {KEY}")
    assert await greeted(peer) == "key:ann"
    offer = f"Sec-WebSocket-Protocol: {PROTOCOL}, token.{token('ben')}"
    peer, _, head, _ = await Peer.ask(port, "/v1/ws", offer)
    assert f"sec-websocket-protocol: {PROTOCOL}\r\n" in head.lower()
    assert "token." not in head
    assert await greeted(peer) == "ben"
    assert await greeted(await Peer.connect(port), token("cat")) == "cat"


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/v1/ws?token=secret", (), "bad_parameter"),
        ("/v1/rooms", (), "not_found"),
        ("/nowhere", (), "not_found"),
        ("/v1/ws", ("Authorization: Bearer ow_wrong",), "no_credentials"),
        ("/v1/ws", ("Authorization: Basic eDp5",), "no_credentials"),
        ("/v1/ws", ("Sec-WebSocket-Protocol: token.no",), "no_credentials"),
        ("/v1/ws", ("Origin: https://evil.example",), "origin_refused"),
        ("/v1/ws", ("Origin: null",), "origin_refused"),
    ],
)
async def test_a_request_that_is_refused_is_told_why(
    port: int, path: str, headers: tuple[str, ...], code: str
) -> None:
    peer, status, _, body = await Peer.ask(port, path, *headers)
    problem = json.loads(body)
    assert (problem["code"], status) == (code, TABLE[code].status)
    assert problem["detail"]
    await peer.leave()


async def test_expired_tokens_are_refused(port: int) -> None:
    peer = await Peer.connect(port)
    await peer.send({"t": "hello", "token": token("ann", exp=1)})
    closed = await peer.closed()
    assert (closed.code, closed.reason) == (TABLE["token_expired"].close, "token_expired")
    await peer.leave()


async def test_pages_of_its_own_and_of_allowed_sites_may_connect() -> None:
    async with serving(origins=["https://app.example"]) as port:
        for origin in ("https://app.example", f"http://127.0.0.1:{port}"):
            peer = await Peer.connect(port, "/v1/ws", f"Origin: {origin}")
            assert await greeted(peer, KEY) == "key:ann"


async def test_in_dev_mode_no_page_of_another_site_may_connect() -> None:
    async with serving(dev=True) as port:
        assert await greeted(await Peer.connect(port)) == "developer"
        assert await greeted(await Peer.connect(port), "dev:ben") == "ben"
        for header in ("Origin: https://evil.example", "Sec-Fetch-Site: same-site"):
            peer, status, _, _ = await Peer.ask(port, "/v1/ws", header)
            assert status == 403
            await peer.leave()


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, ()),
        ("https://host", ()),
        ("https://HOST", ()),
        ("https://other", ("https://other",)),
        ("https://other", ("*",)),
    ],
)
def test_an_origin_may_connect(origin: str | None, allowed: tuple[str, ...]) -> None:
    admit_origin(origin, "host", allowed)


@pytest.mark.parametrize("origin", ["https://other", "https://host.other", "null", "", "http://["])
def test_an_origin_may_not_connect(origin: str) -> None:
    with pytest.raises(OncewardError) as refused:
        admit_origin(origin, "host", ("https://allowed",))
    assert refused.value.code == "origin_refused"
    assert not isinstance(refused.value, BadInput)


async def test_what_the_token_allows_holds_in_every_room(port: int) -> None:
    peer = await Peer.connect(port)
    await peer.send({"t": "hello", "token": token("ann", read=["news.1"], write=["board.1"])})
    await peer.send({"t": "join", "room": "board.1", "client": "c", "create": True})
    await peer.send({"t": "join", "room": "board.2", "client": "c", "create": True})
    await peer.until(t="joined", room="board.1")
    assert (await peer.until(t="left"))["code"] == "not_allowed"
    op = {"op": "map.set", "map": "m", "key": "k", "value": 1}
    await peer.send({"t": "ops", "room": "board.1", "n": 1, "ops": [op]})
    assert (await peer.until(t="ack"))["seq"] == 1
    await peer.leave()
