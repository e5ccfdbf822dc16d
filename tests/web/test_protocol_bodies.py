"""Bodies on real connections: how they come, and how much of them."""

from collections.abc import AsyncIterator

import pytest

from onceward import limits
from tests.web.site import BODY, CHUNKED, GOOD, HEAD, LENGTH, Site, standing


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with standing() as site:
        yield site


async def test_headers_after_the_body_are_not_taken_for_those_before(site: Site) -> None:
    connection = await site.connect()
    late = b"0\r\nAuthorization: Bearer x\r\nX: y\r\n\r\n"
    await connection.send(HEAD + CHUNKED + b"\r\n14\r\n" + BODY + b"\r\n" + late)
    assert (await connection.answer())[0] == 200
    assert site.bodies == [BODY]
    assert [name for name, _ in site.headers] == [b"host", b"transfer-encoding"]
    await connection.close()


async def test_a_body_in_many_pieces_is_put_together(site: Site) -> None:
    connection = await site.connect()
    chunks = [b"1\r\n" + bytes([byte]) + b"\r\n" for byte in BODY]
    await connection.send(HEAD + CHUNKED + b"\r\n", *chunks, b"0\r\n\r\n")
    assert (await connection.answer())[0] == 200
    assert site.bodies == [BODY]
    await connection.close()


@pytest.mark.parametrize("start", [b"", b"0\r\nX: "], ids=["in the body", "behind it"])
async def test_what_has_no_end_is_cut_off(
    site: Site, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGES_BYTES_MAX", 100_000)
    monkeypatch.setattr(limits, "SENT_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(limits, "LINGER_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(limits, "LINGER_S", 0.1)
    connection = await site.connect()
    await connection.send(HEAD + CHUNKED + b"\r\n" + start)
    piece = b"x" * 10_000

    async def pour() -> None:
        while True:
            await connection.send(piece if start else b"2710\r\n" + piece + b"\r\n")

    with pytest.raises(ConnectionError):
        await pour()
    await connection.close()
    assert site.bodies == []


@pytest.mark.parametrize(
    ("limit", "credentials"), [("BODIES_BYTES_MAX", GOOD), ("ANONYMOUS_BYTES_MAX", b"")]
)
async def test_bodies_that_are_still_coming_have_a_limit_together(
    site: Site, limit: str, credentials: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, 25_000)
    chunks = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    budget = site.connections.authenticated if credentials else site.connections.anonymous
    first, second, third = [await site.connect() for _ in range(3)]
    for number, connection in enumerate((first, second), 1):
        await connection.send(HEAD + credentials + CHUNKED + b"\r\n" + chunks)
        await site.until(lambda number=number: budget.held_bytes == number * 10_000)
    await third.send(HEAD + credentials + CHUNKED + b"\r\n" + chunks)
    status, problem = await third.answer()
    assert (status, problem["code"], problem["retry"]) == (503, "overloaded", True)
    assert await third.ended()
    # Whoever was there before goes on, and makes room at the end, however it ends.
    await first.send(b"0\r\n\r\n")
    assert (await first.answer())[0] == 200
    await second.close()
    await site.until(lambda: budget.held_bytes == 0)
    for connection in (first, third):
        await connection.close()


async def test_a_body_without_credentials_has_a_smaller_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANONYMOUS_BODY_BYTES_MAX", 10_000)
    for credentials, status in ((b"", 413), (GOOD, 200)):
        connection = await site.connect()
        await connection.send(HEAD + credentials + b"Content-Length: 40000\r\n\r\n")
        await connection.send(b"x" * 40_000)
        assert (await connection.answer())[0] == status
        await connection.close()


async def test_bad_credentials_are_refused_before_the_body_comes(site: Site) -> None:
    connection = await site.connect()
    bad = HEAD + b"Authorization: Bearer bad\r\n"
    await connection.send(bad + b"Content-Length: 40000\r\n\r\n")
    assert (await connection.answer())[0] == 401
    # The body is discarded, and the connection can be used further.
    await connection.send(b"x" * 40_000 + HEAD + LENGTH + b"\r\n" + BODY)
    assert (await connection.answer())[0] == 200
    assert site.bodies == [BODY]
    assert site.connections.anonymous.held_bytes == 0
    await connection.close()


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_a_connection_to_be_closed_ends_after_a_refused_body(site: Site, when: str) -> None:
    connection = await site.connect()
    bad = HEAD + b"Authorization: Bearer bad\r\nConnection: close\r\nContent-Length: 40000\r\n\r\n"
    await connection.send(bad)
    if when == "later":
        assert (await connection.answer())[0] == 401
    await connection.send(b"x" * 40_000)
    if when == "at once":
        assert (await connection.answer())[0] == 401
    assert await connection.ended()
    await connection.close()


@pytest.mark.parametrize(
    ("refused", "status"),
    [(b"Authorization: Bearer bad\r\nContent-Length: 5", 401), (b"Content-Length: 9000000", 413)],
)
async def test_a_refusal_of_an_expected_body_ends_the_connection(
    site: Site, refused: bytes, status: int
) -> None:
    connection = await site.connect()
    await connection.send(HEAD + refused + b"\r\nExpect: 100-continue\r\n\r\n")
    assert (await connection.answer())[0] == status
    # Whether that is the body or another request cannot be known.
    await connection.send(HEAD + LENGTH + b"\r\n" + BODY)
    assert await connection.ended()
    assert site.bodies == []
    await connection.close()


async def test_heads_that_are_still_coming_count(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANONYMOUS_BYTES_MAX", 25_000)
    first, second = await site.connect(), await site.connect()
    await first.send(HEAD + b"X: " + b"x" * 10_000)
    await site.until(lambda: site.connections.anonymous.held_bytes > 10_000)
    await second.send(HEAD + b"X: " + b"x" * 30_000)
    assert (await second.answer())[0] == 503
    # The small budget is not the one of those who have shown credentials.
    await second.close()
    known = await site.connect()
    await known.send(HEAD + GOOD + LENGTH + b"\r\n" + BODY)
    assert (await known.answer())[0] == 200
    await known.send(HEAD + b"X: " + b"x" * 30_000)
    await site.until(lambda: site.connections.authenticated.held_bytes > 30_000)
    await known.send(b"\r\n" + LENGTH + b"\r\n" + BODY)
    assert (await known.answer())[0] == 200
    for connection in (first, known):
        await connection.close()


@pytest.mark.parametrize("framing", [LENGTH, CHUNKED])
async def test_a_body_is_not_taken_for_another_protocol(site: Site, framing: bytes) -> None:
    connection = await site.connect()
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    await connection.send(HEAD + upgrade + framing + b"\r\n" + BODY)
    status, problem = await connection.answer()
    assert (status, problem["code"]) == (400, "bad_header")
    assert await connection.ended()
    assert site.bodies == []
    await connection.close()
