"""What comes of a call is told so that nobody is pulled for twice, or not at all."""

import socket
from typing import Any

import aiohttp
import msgspec
import pytest

from onceward import limits
from onceward.apps.credit import calls
from onceward.apps.credit.bureau import make_report
from onceward.errors import Fail, NotDone, Retry
from tests.apps.credit.served import answering, plain

REPORT = msgspec.json.encode(make_report("006", "B1"))


async def pull(answer: bytes, key: str | None = None) -> Any:
    heads: list[bytes] = []

    def note(head: bytes) -> bytes:
        heads.append(head)
        return answer

    async with answering(note) as url:
        try:
            return await calls.pull(url, "006", {"Name": "A"}, key=key, timeout_s=30)
        finally:
            [head] = heads
            assert (f"Idempotency-Key: {key}".encode() in head) == (key is not None)


async def test_a_report_is_brought_back() -> None:
    for key in (None, "k-1"):
        assert (await pull(plain(200, REPORT), key))["number"] == "B1"


@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 429, 503])
async def test_a_bureau_that_has_done_nothing_says_so(status: int) -> None:
    with pytest.raises(NotDone, match=f"answered {status}") as told:
        await pull(plain(status, b"{}", "Retry-After: 3"))
    assert not isinstance(told.value, calls.Refused), "it may be asked again"


@pytest.mark.parametrize("status", [400, 410, 422])
async def test_a_bureau_that_will_not_says_so(status: int) -> None:
    with pytest.raises(calls.Refused, match=f"answered {status}: no such person"):
        await pull(plain(status, b"no such person"))


@pytest.mark.parametrize(
    "answer",
    [plain(500), plain(302, b"", "Location: /x"), plain(200, b"{}"), plain(200, b"hm"), b""],
    ids=["500", "302", "no report", "no JSON", "cut"],
)
async def test_anything_else_says_nothing_of_whether_it_was_pulled(answer: bytes) -> None:
    with pytest.raises((Retry, msgspec.DecodeError, aiohttp.ClientError)) as unknown:
        await pull(answer)
    assert not isinstance(unknown.value, NotDone | aiohttp.ClientConnectorError)


async def test_no_more_is_read_of_an_answer_than_can_be_kept() -> None:
    spaces = b" " * (limits.CREDIT_ANSWER_BYTES_MAX - len(REPORT))
    assert (await pull(plain(200, REPORT + spaces)))["number"] == "B1"
    for status in (200, 422):
        with pytest.raises(Retry, match=f"answered {status} with too many bytes"):
            await pull(plain(status, REPORT + spaces + b" "))


async def test_nothing_was_pulled_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NotDone, match="cannot be reached"):
            await calls.pull(url, "006", {}, key=None, timeout_s=30)


@pytest.mark.parametrize(
    ("status", "error"), [(200, None), (201, None), (503, Retry), (500, Retry), (400, Fail)]
)
async def test_a_result_is_told(status: int, error: type[Exception] | None) -> None:
    def note(head: bytes) -> bytes:
        assert b"Idempotency-Key: job-1\r\n" in head
        return plain(status)

    async with answering(note) as url:
        if error is None:
            assert await calls.deliver(url, "job-1", {"kind": "decision"}) == str(status)
        else:
            with pytest.raises(error, match=f"answered {status}"):
                await calls.deliver(url, "job-1", {"kind": "decision"})
