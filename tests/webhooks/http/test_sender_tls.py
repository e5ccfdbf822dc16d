import asyncio
import ssl
from collections.abc import Sequence

import pytest
import trustme

from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.endpoint import OK, answering, endpoint
from tests.webhooks.http.posting import SHORT, failure, post

GUARD = Guard(["hook.example:*", "127.0.0.1:*"])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def serving(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


async def here(name: str) -> Sequence[str]:
    assert name == "hook.example"
    return ["127.0.0.1"]


async def test_the_name_is_what_the_certificate_is_checked_for(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    sender = Sender(GUARD, lookup=here, tls=trusting)
    context = serving(authority, "hook.example")
    asked: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with endpoint(answering(OK), tls=context) as there:
        for _ in range(2):
            answer = await post(sender, there.url(scheme="https", host="hook.example"))
            assert (answer.status, answer.body, answer.sent) == (200, b"ok", 1)
        assert there.connections == 1
    assert asked == ["hook.example"]
    await sender.close()


async def test_an_address_can_have_a_certificate_too(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    sender = Sender(GUARD, tls=trusting)
    async with endpoint(answering(OK), tls=serving(authority, "127.0.0.1")) as there:
        assert (await post(sender, there.url(scheme="https"))).status == 200
    await sender.close()


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
async def test_a_certificate_for_another_name_is_refused(
    authority: trustme.CA, trusting: ssl.SSLContext, name: str
) -> None:
    sender = Sender(GUARD, lookup=here, tls=trusting)
    async with endpoint(answering(OK), tls=serving(authority, name)) as there:
        failed = await failure(post(sender, there.url(scheme="https", host="hook.example")))
        assert "the certificate of hook.example is not valid: Hostname" in failed.message
        assert failed.sent == 0
        assert there.requests == []
    await sender.close()


async def test_a_certificate_of_nobody_we_trust_is_refused(authority: trustme.CA) -> None:
    sender = Sender(GUARD, lookup=here)
    async with endpoint(answering(OK), tls=serving(authority, "hook.example")) as there:
        failed = await failure(post(sender, there.url(scheme="https", host="hook.example")))
        assert "the certificate of hook.example is not valid" in failed.message
        assert there.requests == []
    await sender.close()


async def test_who_speaks_no_tls_is_told_so(trusting: ssl.SSLContext) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    sender = Sender(GUARD, tls=trusting)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failed = await failure(post(sender, f"https://127.0.0.1:{port}/"))
        assert "no TLS connection to 127.0.0.1: " in failed.message
        assert failed.sent == 0
    await sender.close()


async def test_a_handshake_that_hangs_is_not_waited_for_longer_than_told(
    trusting: ssl.SSLContext,
) -> None:
    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    sender = Sender(GUARD, tls=trusting)
    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        failed = await failure(post(sender, url, connect_s=SHORT))
        assert failed.message == "no connection within 0.25 s"
        await ended.wait()
        assert sender.open == 0
    await sender.close()
