"""Limits that all connections share: strangers do not crowd out callers."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.frames import Opcode

from onceward import limits
from onceward.app import App
from onceward.errors import TABLE, OncewardError
from onceward.meters import Meters
from onceward.web.auth import ApiKey, Auth, digest_of
from onceward.web.connections import Connections, Turns
from onceward.web.server import Server
from tests.web.listening import listening
from tests.web.peer import Peer, framed
from tests.web.site import BODY, GOOD, HEAD, LENGTH, Site, standing
from tests.web.wire import Connection

ASKED = HEAD + LENGTH + b"\r\n" + BODY
KEY = "ow_key"


class Fake:
    """A connection that notes what happens to it."""

    def __init__(self) -> None:
        self.idle = True
        self.evicted = False
        self.turns = 0

    def is_idle(self) -> bool:
        return self.idle

    def evict(self) -> None:
        self.evicted = True

    def go_on(self) -> None:
        self.turns += 1


def added(connections: Connections, address: str, count: int = 1) -> list[Fake]:
    found = [Fake() for _ in range(count)]
    for one in found:
        assert connections.add(one, (address, 1))
    return found


def test_the_oldest_idle_anonymous_connection_makes_room() -> None:
    connections = Connections(most=4, per_address=0)
    known, busy, oldest, last = added(connections, "192.0.2.1", 4)
    connections.authenticate(known)
    busy.idle = False
    added(connections, "192.0.2.1")
    assert oldest.evicted
    assert not any(one.evicted for one in (known, busy, last))
    assert connections.count == 4


def test_where_all_have_shown_credentials_a_new_one_is_refused() -> None:
    connections = Connections(most=2, per_address=0)
    for one in added(connections, "192.0.2.1", 2):
        connections.authenticate(one)
    new = Fake()
    assert not connections.add(new, ("192.0.2.1", 1))
    connections.remove(new)
    assert connections.count == 2


def test_anonymous_connections_of_one_address_are_limited() -> None:
    connections = Connections(per_address=2)
    first, second, third = added(connections, "192.0.2.1", 3)
    [other] = added(connections, "192.0.2.2")
    assert [one.evicted for one in (first, second, third, other)] == [True, False, False, False]
    # Those that have shown credentials do not count.
    connections.authenticate(second)
    connections.authenticate(third)
    known = added(connections, "192.0.2.1", 2)
    assert not any(one.evicted for one in (second, third, *known))
    known[0].idle = known[1].idle = False
    assert not connections.add(Fake(), ("192.0.2.1", 1))


def test_an_ipv6_user_has_one_limit_for_all_its_addresses() -> None:
    connections = Connections(per_address=1)
    [first] = added(connections, "2001:db8::1")
    [other] = added(connections, "2001:db8:0:1::1")
    added(connections, "2001:db8::ffff")
    assert (first.evicted, other.evicted) == (True, False)
    [mapped] = added(connections, "::ffff:192.0.2.1")
    added(connections, "192.0.2.1")
    assert mapped.evicted


def test_proxies_have_no_limit_of_their_address() -> None:
    connections = Connections(per_address=1, proxies=["192.0.2.0/24", "2001:db8::7"])
    some = [*added(connections, "192.0.2.9", 5), *added(connections, "2001:db8::7", 5)]
    assert not any(one.evicted for one in some)
    with pytest.raises(OncewardError, match="'nginx' in the setting `proxies`") as caught:
        Connections(proxies=["nginx"])
    assert caught.value.code == "bad_settings"


def test_an_address_at_its_limit_is_logged_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = Connections(most=5, per_address=2)
    connections.meters = Meters()
    with caplog.at_level(logging.WARNING):
        added(connections, "192.0.2.1", 9)
        added(connections, "", 9)
    address, total = [record.getMessage() for record in caplog.records]
    assert "192.0.2.1 has 2 connections without credentials" in address
    assert "`proxies`" in address
    assert "5 connections are open" in total
    assert connections.meters.total("connections_limited", limit="address") == 7


async def test_anonymous_connections_share_a_part_of_each_turn() -> None:
    turns = Turns()
    first, second = Fake(), Fake()
    assert turns.begin(first)
    turns.charge(3 * limits.ANONYMOUS_TURN_NS)
    assert not turns.begin(second)
    for _ in range(2):
        await asyncio.sleep(0)
        assert second.turns == 0  # what was overdrawn is paid back
    for _ in range(3):
        await asyncio.sleep(0)
    assert second.turns == 1
    assert turns.begin(first)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with standing() as site:
        yield site


async def test_idle_connections_are_closed_for_new_ones(site: Site) -> None:
    site.connections.most = 3
    known, begun, idle = [await site.connect() for _ in range(3)]
    await known.send(HEAD + GOOD + LENGTH + b"\r\n" + BODY)
    assert (await known.answer())[0] == 200
    await begun.send(HEAD)
    await site.until(lambda: site.connections.anonymous.held_bytes > 0)
    news = [await site.connect(), await site.connect()]
    for new in news:
        await new.send(HEAD + GOOD + LENGTH + b"\r\n" + BODY)
        assert (await new.answer())[0] == 200
        await known.send(ASKED)
        assert (await known.answer())[0] == 200
    status, problem = await begun.answer()
    assert (status, problem["code"], problem["retry"]) == (503, "too_many_connections", True)
    assert await idle.ended()
    # Now all have shown credentials.
    late = await site.connect()
    assert (await late.answer())[1]["code"] == "too_many_connections"
    assert await late.ended()
    for connection in (known, begun, idle, late, *news):
        await connection.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    auth = Auth([ApiKey("ann", digest_of(KEY), ("all",))])
    async with Server(App("memory://"), auth) as server:
        yield server


async def test_a_request_without_credentials_is_refused_before_its_body(server: Server) -> None:
    head = b"POST /v1/inbox/q/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n"
    async with listening(server) as (_, port):
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        await connection.send(head + b"\r\n" + b"x" * 100)
        assert (await connection.answer())[1]["code"] == "no_credentials"
        assert server.connections.anonymous.held_bytes == 0
        await connection.close()
        known = Connection(*await asyncio.open_connection("127.0.0.1", port))
        await known.send(head + b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n")
        await known.send(b" " * 100)
        async with asyncio.timeout(30):
            while server.connections.authenticated.held_bytes != 100:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await known.close()


async def test_a_connection_that_reads_nothing_is_gone_when_it_makes_room(site: Site) -> None:
    site.connections.most, site.answered = 1, b'"%b"' % (b"x" * 20_000)
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.setblocking(False)
        await loop.sock_connect(slow, ("127.0.0.1", site.port))
        standing_by: Any = site.server.server_state.connections
        await site.until(lambda: bool(standing_by))
        [protocol] = standing_by
        # Until the system takes no more of the answers, but not so many that none is made.
        for count in range(1, 10_000):
            await loop.sock_sendall(slow, ASKED)
            await site.until(lambda count=count: len(site.bodies) == count and protocol.is_idle())
            if protocol._transport.get_write_buffer_size():
                break
        new = await site.connect()
        await new.send(ASKED)
        assert (await new.answer())[0] == 200
        assert protocol not in standing_by
        await new.close()


async def test_little_is_read_from_a_websocket_before_hello(server: Server) -> None:
    async with listening(server) as (_, port):
        # Most of one message, and pings.
        for sent in (
            framed(b"x" * 500_000)[:100_000],
            framed(b"", fin=False) + framed(b"12345678" * 10, Opcode.PING) * 1_000,
        ):
            peer = await Peer.connect(port)
            await peer.raw(sent)
            assert (await peer.closed()).code == TABLE["frame_too_large"].close
            await peer.leave()
        peer = await Peer.connect(port)
        large = {"t": "join", "room": "r", "client": "c", "steps": [], "x": "x" * 100_000}
        await peer.send({"t": "hello", "token": KEY}, large)
        assert (await peer.receive())["t"] == "welcome"
        await peer.leave()


async def test_a_websocket_before_hello_makes_room(server: Server) -> None:
    server.connections.most = 2
    async with listening(server) as (_, port):
        silent, greeted = await Peer.connect(port), await Peer.connect(port)
        await greeted.send({"t": "hello", "token": KEY})
        assert (await greeted.receive())["t"] == "welcome"
        third = await Peer.connect(port)
        closed = await silent.closed()
        assert (closed.code, closed.reason) == (4503, "too_many_connections")
        await greeted.send({"t": "ping"})
        assert (await greeted.receive())["t"] == "pong"
        for peer in (silent, greeted, third):
            await peer.leave()


async def test_a_console_page_may_send_head_and_body_apart(server: Server) -> None:
    signing_in = json.dumps({"token": KEY}).encode()
    message = json.dumps({"body": "x" * 40_000, "key": "k"}).encode()

    def head(path: str, body: bytes, *headers: str) -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, *headers, "Connection: close", "", ""]).encode()

    async with listening(server) as (_, port):

        async def apart(sent: bytes, body: bytes) -> tuple[str, Any]:
            """The head and the body of the answer, if a request comes in two pieces."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            budgets = server.connections.anonymous, server.connections.authenticated
            writer.write(sent + body[:1])
            async with asyncio.timeout(30):
                while not any(budget.held_bytes for budget in budgets):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                writer.write(body[1:])
                answer, _, given = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            return answer.decode(), json.loads(given)

        answer, session = await apart(head("/v1/session", signing_in), signing_in)
        assert session["name"] == "ann"
        [cookie] = re.findall("set-cookie: ([^;]+);", answer)
        shown = (f"Cookie: {cookie}", f"Onceward-Session: {session['token']}")
        accepted = (await apart(head("/v1/inbox/q", message, *shown), message))[1]
        assert accepted["key"] == "k"
