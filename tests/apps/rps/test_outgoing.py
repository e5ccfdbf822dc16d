"""Calls to providers: whether something was sent is known, and nothing is without limit."""

from typing import Any

import aiohttp
import pytest
from aiohttp import web

from apps.rps import limits
from apps.rps.outgoing import call, fetch
from onceward.errors import NotDone, Unreachable
from tests.apps.rps.fakes import Fake, hang_up, standing


def answering(status: int, body: bytes = b"", **headers: str) -> Any:
    return lambda request: web.Response(status=status, body=body, headers=headers)


async def test_an_answer_has_its_status_its_body_and_when_to_come_back() -> None:
    async with standing(Fake()) as fake:
        fake.answers = [answering(200, b"hello"), answering(503, **{"Retry-After": "7"})]
        fake.answers += [answering(503, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})]
        assert await call("GET", fake.url) == (200, b"hello", None)
        assert await call("POST", fake.url, body=b"a=b") == (503, b"", 7.0)
        assert (await call("POST", fake.url)).retry_after_s is None
        assert [(method, form) for method, _, _, form in fake.requests] == [
            ("GET", {}),
            ("POST", {"a": "b"}),
            ("POST", {}),
        ]


async def test_nobody_is_left_alone_for_longer_than_an_hour() -> None:
    async with standing(Fake()) as fake:
        for after in ("3601", "9" * 20, "9" * 400):
            fake.answers = [answering(503, **{"Retry-After": after})]
            assert (await call("POST", fake.url)).retry_after_s == limits.AFTER_S_MAX


async def test_no_redirect_is_followed() -> None:
    async with standing(Fake()) as fake:
        fake.answers = [answering(302, Location=fake.url + "/elsewhere")]
        assert (await call("GET", fake.url)).status == 302
        assert len(fake.requests) == 1


async def test_of_a_long_answer_the_start_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 100_000)
    body = bytes(range(256)) * 1_000
    async with standing(Fake()) as fake:
        fake.answers = [answering(200, body), answering(200, body[:99_999])]
        assert (await call("GET", fake.url)).body == body[:100_000]
        assert (await call("GET", fake.url)).body == body[:99_999]


async def test_an_error_says_whether_something_may_have_been_sent() -> None:
    for nowhere in ("http://127.0.0.1:1/", "https://127.0.0.1:1/"):
        with pytest.raises(NotDone):
            await call("POST", nowhere)
    async with standing(Fake()) as fake:
        with pytest.raises(NotDone):  # it speaks no TLS
            await call("POST", fake.url.replace("http", "https"))
        fake.answers = [hang_up]
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await call("POST", fake.url)
        assert len(fake.requests) == 1, "it is not sent twice"


async def test_what_is_not_there_is_unreachable() -> None:
    async with standing(Fake()) as fake:
        fake.answers = [answering(200, b"pem"), answering(404), answering(302, Location="/x")]
        assert await fetch(fake.url) == b"pem"
        for _ in range(2):
            with pytest.raises(Unreachable):
                await fetch(fake.url)
