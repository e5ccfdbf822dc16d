"""When a request is made again, when not, and what the errors of others become."""

import asyncio
import json
import socket
from contextlib import ExitStack, nullcontext

import msgspec
import pytest

from onceward.client import Client
from onceward.client.transport import AWAY_S_MAX, WORKER_PATIENCE_S, patient, problem
from onceward.errors import (
    TABLE,
    BadInput,
    EngineStopped,
    KeyReused,
    LockHeld,
    OncewardError,
    StorageFull,
    Unavailable,
)
from onceward.web.http import problem as problem_of
from tests.client.served import Script, Served, Sprinting, answer

RECEIPT = answer(202, b'{"id":"1","key":"k","state":"queued","duplicate":false}')


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8080", "ftp://localhost", "http://", "http://:80", "http://h:99999", 5),
        *("http://h:x", "http://h?q=1", "http://h#f", "http://[::1", "http://h:0"),
    ],
)
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match="unsupported URL of a server"):
        Client(url)


@pytest.mark.parametrize("url", ["http://localhost", "https://h/prefix/", "http://[::1]:8080"])
async def test_an_address_that_is_one_is_taken(url: str) -> None:
    async with Client(url):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"patience_s": -1},
        {"patience_s": float("nan")},
        {"patience_s": "long"},
        {"connect_s": 0},
        {"connect_s": "long"},
        {"connections": 0},
        {"connections": 1.5},
        {"key": "two words"},
        {"key": "ow_\r\nHost: evil"},
        {"key": "ow_ü"},
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Client("http://localhost", **options)  # type: ignore[arg-type]


async def test_a_closed_client_says_so() -> None:
    client = Client("http://localhost")
    for _ in range(2):
        with pytest.raises(BadInput, match=r"the client of .* is closed"):
            await client.queues.list()
        async with client:
            assert await client.open() is client
    await client.close()


async def test_an_address_with_a_path_leads_to_a_server_below_it() -> None:
    async with Script(RECEIPT) as script, Client(f"{script.url}/jobs/") as client:
        await client.send("q", 1, key="k")
    assert script.requests[0].startswith(b"POST /jobs/v1/inbox/q HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "trouble",
    [
        None,
        b"HTTP/1.1 200",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 70\r\n\r\n{",
        b"nonsense\r\n\r\n",
        answer(502, b"<html>Bad Gateway</html>", "Content-Type: text/html"),
        answer(503, b""),
        answer(504, b"\xff\xfe"),
        answer(429, b"[]", "Retry-After: soon"),
        answer(408, b'{"code": 5}'),
        answer(503, problem_of(Unavailable("stopping", code="node_stopped")).body),
        answer(503, problem_of(OncewardError("?", code="outcome_unknown")).body),
    ],
    ids=lambda trouble: "gone" if trouble is None else trouble[:40].decode().replace("\r\n", " "),
)
async def test_what_may_pass_is_tried_again(trouble: bytes | None) -> None:
    clock = Sprinting()
    async with (
        Script(trouble, trouble, RECEIPT) as script,
        Client(script.url, clock=clock) as client,
    ):
        assert (await client.send("q", 1, key="k")).id == "1"
    assert len({bytes(request) for request in script.requests}) == 1, "the same again"
    assert len(script.requests) == 3
    assert len(clock.slept_s) == 2


async def test_a_server_without_tls_is_said_to_have_none() -> None:
    async def answer_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"https://127.0.0.1:{port}", patience_s=0) as client:
            with pytest.raises(Unavailable, match="TLS failed"):
                await client.queues.list()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, b"<html>Not Found</html>", "internal"),
        (401, b"who are you?", "internal"),
        (500, b"", "internal"),
        (413, b'{"detail": "too much"}', "internal"),
        (400, b'{"code": "a code of its own", "detail": "no"}', "internal"),
        (301, b"moved", "internal"),
        (200, b"<html>Sign in to the hotel's network</html>", "internal"),
        (200, b'{"id": 5}', "internal"),
        (200, b"", "internal"),
    ],
)
async def test_what_others_say_is_told_and_not_tried_again(
    status: int, body: bytes, code: str
) -> None:
    async with (
        Script(answer(status, body, "Location: /elsewhere")) as script,
        Client(script.url) as client,
    ):
        with pytest.raises(OncewardError) as raised:
            await client.send("q", 1, key="k")
    assert raised.value.code == code
    assert len(script.requests) == 1
    if status != 200:
        assert str(status) in raised.value.message
    if b"html" in body and status != 200:
        assert "Not Found" in raised.value.message


@pytest.mark.parametrize(
    "code", ["lock_held", "too_many_waiters", "storage_full", "engine_stopped"]
)
async def test_what_is_for_the_caller_to_decide_is_told(code: str) -> None:
    raw = answer(TABLE[code].status, problem_of(OncewardError("why", code=code)).body)
    async with Script(raw) as script, Client(script.url) as client:
        with pytest.raises(OncewardError, match=code):
            await client.locks.acquire(["a"])
    assert len(script.requests) == 1


async def test_a_request_that_was_not_processed_is_not_a_lost_response() -> None:
    missing = answer(404, problem_of(OncewardError("why", code="no_such_endpoint")).body)
    async with (
        Script(answer(429, b"{}"), missing) as script,
        Client(script.url, clock=Sprinting()) as client,
    ):
        with pytest.raises(OncewardError, match="no_such_endpoint"):
            await client.endpoints.delete("e")
    assert len(script.requests) == 2


async def test_a_refused_connection_is_not_a_lost_response() -> None:
    missing = answer(404, problem_of(OncewardError("why", code="no_such_endpoint")).body)
    async with Script(missing) as script:
        port = int(script.url.rpartition(":")[2])
        script._listener.close()
        await script._listener.wait_closed()

        class Reopening(Sprinting):
            async def sleep(self, seconds: float) -> None:
                await super().sleep(seconds)
                script._listener = await asyncio.start_server(script._serve, "127.0.0.1", port)

        clock = Reopening()
        async with Client(f"http://127.0.0.1:{port}", clock=clock) as client:
            with pytest.raises(OncewardError, match="no_such_endpoint"):
                await client.endpoints.delete("e")
        assert len(clock.slept_s) == 1


async def test_an_empty_key_is_rejected_as_such(served: Served) -> None:
    async with Client(served.url) as client:
        with pytest.raises(BadInput, match="bytes, not 0") as raised:
            await client.send("q", 1, key="")
    assert raised.value.code == "bad_key"


async def test_pauses_grow_and_patience_ends() -> None:
    clock = Sprinting()
    async with Script(None) as script, Client(script.url, clock=clock, patience_s=60) as client:
        with pytest.raises(Unavailable, match=rf"no response from {script.url} \("):
            await client.send("q", 1, key="k")
    assert clock.slept_s[0] <= 0.05
    assert 0.4 < max(clock.slept_s) <= AWAY_S_MAX, "so it is found soon when it is back"
    assert 59 < sum(clock.slept_s) < 60
    assert len(script.requests) == len(clock.slept_s) + 1


async def test_a_server_that_is_away_for_long_is_asked_all_the_time() -> None:
    clock = Sprinting()
    async with Client("http://127.0.0.1:9", clock=clock, patience_s=600) as client:
        with pytest.raises(Unavailable):
            await client.send("q", 1, key="k")
    assert len(clock.slept_s) > 1_200, "which is more than a float can be doubled"
    assert max(clock.slept_s) <= AWAY_S_MAX


async def test_a_server_that_answers_is_asked_less_and_less_often() -> None:
    clock = Sprinting()
    answers = [answer(429, b"")] * 9
    async with (
        Script(*answers, RECEIPT) as script,
        Client(script.url, clock=clock, patience_s=60) as client,
    ):
        await client.send("q", 1, key="k")
    assert 1.0 <= clock.slept_s[-1] <= 2.0


async def test_a_server_that_names_a_time_is_given_it() -> None:
    busy, clock = answer(503, b"", "Retry-After: 7"), Sprinting()
    async with (
        Script(busy, busy, RECEIPT) as script,
        Client(script.url, clock=clock, patience_s=60) as client,
    ):
        await client.send("q", 1, key="k")
    assert clock.slept_s[0] <= 0.05, "the first time at once: it may be back"
    assert clock.slept_s[1] == 7


async def test_a_server_that_names_too_long_a_time_is_not_waited_for() -> None:
    busy, clock = answer(503, b"", "Retry-After: 3600"), Sprinting()
    async with Script(busy) as script, Client(script.url, clock=clock) as client:
        with pytest.raises(Unavailable):
            await client.send("q", 1, key="k")
    assert len(script.requests) == 2


async def test_a_call_can_be_cancelled_while_it_is_made_again() -> None:
    async with Script(None) as script, Client(script.url) as client:
        calling = asyncio.create_task(client.send("q", 1, key="k"))
        await script.until(2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_a_client_that_is_closed_meanwhile_gives_up() -> None:
    async with Script(None) as script:
        client = await Client(script.url).open()
        calling = asyncio.create_task(client.send("q", 1, key="k"))
        await script.until(1)
        await client.close()
        with pytest.raises(BadInput, match="closed"):
            await calling


async def test_no_more_connections_are_made_than_allowed() -> None:
    async with Served() as served, Client(served.url, connections=2) as client:
        sent = [client.send("q", n, key=str(n)) for n in range(20)]
        assert len({receipt.id for receipt in await asyncio.gather(*sent)}) == 20


async def test_a_large_batch_is_sent() -> None:
    async with Served() as served, Client(served.url) as client:
        messages = [{"body": 300_000 * "x", "key": str(n)} for n in range(8)]
        assert len(await client.send_many("q", messages)) == 8


@pytest.mark.parametrize("code", TABLE)
def test_every_problem_of_the_server_is_the_same_error_here(code: str) -> None:
    sent = OncewardError("what happened", code=code, name="n")
    sent.details |= {"self": "odd", "message": "odd too"}
    found = problem(TABLE[code].status, problem_of(sent).body)
    assert (found.code, found.message) == (code, "what happened")
    assert found.details == sent.details
    if TABLE[code].status < 500 and not TABLE[code].retry:
        assert isinstance(found, BadInput)


def test_errors_have_the_classes_of_the_package() -> None:
    for kind in (KeyReused, LockHeld, StorageFull, EngineStopped, Unavailable):
        raw = problem_of(kind("why")).body
        assert type(problem(400, raw)) is kind
    assert type(problem(503, problem_of(Unavailable("", code="engine_closed")).body)) is Unavailable


def test_a_problem_of_someone_else_is_cut_short() -> None:
    assert len(problem(404, 10_000 * b"x").message) < 400
    assert problem(404, json.dumps({"detail": "no such page"}).encode()).code == "internal"
    assert "is mounted in a web application needs the path" in problem(404, b"{}").message
    assert "no such page" in problem(404, msgspec.json.encode({"detail": "no such page"})).message


async def test_a_call_of_a_web_request_fails_soon() -> None:
    """And one in a worker, which has a result to report, does not."""
    for within, most_s in ((patient(WORKER_PATIENCE_S), 60), (nullcontext(), 5)):
        clock = Sprinting()
        with within, pytest.raises(Unavailable, match="cannot connect"):
            async with Client("http://127.0.0.1:9", clock=clock) as client:
                await client.send("q", 1, key="k")
        assert most_s - 1 < sum(clock.slept_s) < most_s


async def test_a_server_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onceward.client.transport.PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with Client(url, patience_s=0.01) as client:
            with pytest.raises(Unavailable, match=r"no response from .* \(timed out\)"):
                await client.jobs.get("0" * 26)


async def test_a_server_that_cannot_be_connected_to_is_not_waited_for() -> None:
    with socket.socket() as server, ExitStack() as others:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # its queue is full, so a further connection waits
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(server.getsockname())
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with Client(url, patience_s=0, connect_s=0.05) as client:
            with pytest.raises(Unavailable, match=r"cannot connect to .* \(timed out\)"):
                await client.send("q", 1, key="k")
