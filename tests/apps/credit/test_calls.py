"""What comes of a call is told so that nobody is pulled for twice, or not at all."""

import socket
from contextlib import ExitStack
from typing import Any

import aiohttp
import msgspec
import pytest

from apps.credit import calls, limits
from apps.credit.bureau import make_report
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
    with pytest.raises(NotDone, match=f"responded with {status}") as told:
        await pull(plain(status, b"{}", "Retry-After: 3"))
    assert not isinstance(told.value, calls.Refused), "it may be asked again"
    assert (told.value.after_s, told.value.not_before_s) == (None, 3)


@pytest.mark.parametrize("status", [400, 410, 422])
async def test_a_bureau_that_will_not_says_so(status: int) -> None:
    with pytest.raises(calls.Refused, match=f"responded with {status}: no such person"):
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
    spaces = b" " * (limits.ANSWER_BYTES_MAX - len(REPORT))
    assert (await pull(plain(200, REPORT + spaces)))["number"] == "B1"
    for status in (200, 422):
        with pytest.raises(Retry, match=f"responded with {status} and too many bytes"):
            await pull(plain(status, REPORT + spaces + b" "))


async def test_nothing_was_pulled_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NotDone, match="cannot connect"):
            await calls.pull(url, "006", {}, key=None, timeout_s=30)


async def test_nothing_was_pulled_where_no_connection_comes_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CONNECT_S", 0.1)
    with socket.socket() as deaf, ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(2):  # who is not accepted lets nobody else in
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(NotDone, match="cannot connect"):
            await calls.pull(url, "006", {}, key=None, timeout_s=30)


async def test_a_report_is_kept_only_if_it_fits_however_short_it_was_written() -> None:
    line = '{"kind":"","balance":9e15,"limit":9e15}'
    lines = ",".join([line] * (limits.ANSWER_BYTES_MAX // (len(line) + 1) - 10))
    rest = '"number":"B1","score":700,"verification":{"name":true,"address":true}'
    with pytest.raises(msgspec.ValidationError, match="at most 300,000 can be stored"):
        await pull(plain(200, f'{{{rest},"tradelines":[{lines}]}}'.encode()))


@pytest.mark.parametrize(
    "status", [200, 201, 302, 400, 401, 403, 404, 408, 409, 422, 429, 500, 503]
)
async def test_a_result_is_told(status: int) -> None:
    def note(head: bytes) -> bytes:
        assert b"Idempotency-Key: job-1\r\n" in head
        return plain(status)

    async with answering(note) as url:
        if status < 300:
            assert await calls.deliver(url, "job-1", {"kind": "decision"}) == str(status)
        else:
            # What speaks of this result alone is final.
            with pytest.raises(
                Fail if status in (400, 422) else Retry, match=f"responded with {status}"
            ):
                await calls.deliver(url, "job-1", {"kind": "decision"})


@pytest.mark.parametrize("said", ["", "Bearer abc"])
async def test_credentials_are_sent_where_there_are_some(said: str) -> None:
    heads: list[bytes] = []

    def note(head: bytes) -> bytes:
        heads.append(head)
        return plain(200, REPORT)

    async with answering(note) as url:
        await calls.pull(url, "006", {}, key=None, timeout_s=30, authorization=said)
        await calls.deliver(url, "job-1", {}, authorization=said)
    assert [b"Authorization: Bearer abc\r\n" in head for head in heads] == [bool(said)] * 2
    assert [b"Authorization" in head for head in heads] == [bool(said)] * 2
