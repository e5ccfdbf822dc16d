"""Whatever is wrong with the input of a call is told with a code, and nothing is done."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from onceward.client import Client
from onceward.errors import TABLE, BadInput
from tests.client.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with Served() as served, Client(served.url, patience_s=5) as client:
        yield client


Call = Callable[[Client], Awaitable[Any]]
NAN = float("nan")
ODD: Any = None
TEXT: Any = "x"
ENDLESS: Any = []
ENDLESS.append(ENDLESS)
BAD: dict[str, tuple[Call, str]] = {
    "accept a set of functions": (lambda c: c.send("q", print, key="k"), "bad_value"),
    "accept NaN": (lambda c: c.send("q", [1, NAN], key="k"), "bad_value"),
    "accept what contains itself": (lambda c: c.send("q", ENDLESS, key="k"), "bad_value"),
    "accept too much": (lambda c: c.send("q", 400_000 * "x", key="k"), "value_too_large"),
    "accept far too much": (lambda c: c.send("q", 2_000_000 * "x", key="k"), "body_too_large"),
    "accept half a character": (lambda c: c.send("q", "\ud800", key="k"), "bad_value"),
    "accept under half a character": (lambda c: c.send("q", 1, key="\ud800"), "bad_value"),
    "accept under NUL": (lambda c: c.send("q", 1, key="\x00"), "bad_key"),
    "accept under a long key": (lambda c: c.send("q", 1, key="k" * 3_000), "bad_key"),
    "accept with a wrong option": (
        lambda c: c.send("q", 1, key="k", priority="high"),
        "wrong_type",
    ),
    "accept into a batch without a time": (
        lambda c: c.send("q", 1, key="k", batch_key="b"),
        "bad_request",
    ),
    "accept into two kinds of jobs": (
        lambda c: c.send("q", 1, key="k", batch_key="b", debounce_key="d"),
        "bad_request",
    ),
    "accept with a text as tags": (lambda c: c.send("q", 1, key="k", tags="red"), "bad_request"),
    "accept with a tag twice": (lambda c: c.send("q", 1, key="k", tags=["a"] * 2), "bad_request"),
    "accept with a long tag": (lambda c: c.send("q", 1, key="k", tags=["x" * 65]), "bad_name"),
    "set a timer with a text as tags": (
        lambda c: c.timers.create(queue="q", delay_s=60, tags="red"),
        "bad_request",
    ),
    "accept and wait for NaN": (lambda c: c.send("q", 1, key="k", wait_s=NAN), "bad_request"),
    "accept and wait too long": (lambda c: c.send("q", 1, key="k", wait_s=61), "bad_parameter"),
    "accept into nothing": (lambda c: c.send("", 1, key="k"), "bad_name"),
    "accept into half a character": (lambda c: c.send("\ud800", 1, key="k"), "not_text"),
    "accept into a place further up": (lambda c: c.send("..", 1, key="k"), "bad_name"),
    "accept into a number": (lambda c: c.send(5, 1, key="k"), "bad_name"),  # type: ignore[arg-type]
    "accept into a path": (lambda c: c.send("a/b", 1, key="k"), "bad_name"),
    "accept many that are no messages": (lambda c: c.send_many("q", [{}]), "missing_member"),
    "accept many with an unknown name": (
        lambda c: c.send_many("q", [{"body": 1, "colour": "red"}]),
        "bad_request",
    ),
    "accept many in milliseconds": (
        lambda c: c.send_many("q", [{"body": 1, "delay_ms": 5}]),
        "bad_request",
    ),
    "accept many that are a text": (lambda c: c.send_many("q", TEXT), "bad_request"),
    "accept many that are nothing": (lambda c: c.send_many("q", ODD), "bad_request"),
    "claim none": (lambda c: c.jobs.claim("q", max=0), "wrong_type"),
    "claim half a job": (lambda c: c.jobs.claim("q", max=1.5), "wrong_type"),  # type: ignore[arg-type]
    "claim for no time": (lambda c: c.jobs.claim("q", lease_s=0), "wrong_type"),
    "claim for less": (lambda c: c.jobs.claim("q", lease_s=-1), "bad_request"),
    "claim and wait too long": (lambda c: c.jobs.claim("q", wait_s=61), "wrong_type"),
    "complete nothing": (lambda c: c.jobs.complete("x", "t"), "no_such_job"),
    "complete with NaN": (lambda c: c.jobs.complete("x", "t", result=NAN), "bad_value"),
    "complete without a token": (lambda c: c.jobs.complete("x", None), "wrong_type"),  # type: ignore[arg-type]
    "fail nothing": (lambda c: c.jobs.fail("x", "t", "why"), "no_such_job"),
    "fail for NaN": (lambda c: c.jobs.fail("x", "t", "why", retry_after_s=NAN), "bad_request"),
    "extend nothing": (lambda c: c.jobs.extend("x", "t", 1), "no_such_job"),
    "extend by infinity": (lambda c: c.jobs.extend("x", "t", float("inf")), "bad_request"),
    "look at no job": (lambda c: c.jobs.get("x"), "no_such_job"),
    "look at a job for too long": (lambda c: c.jobs.get("x", wait_s=61), "bad_parameter"),
    "wait for no job": (lambda c: c.jobs.wait("x"), "no_such_job"),
    "wait for less than no time": (lambda c: c.jobs.wait("x", -1), "bad_request"),
    "cancel nothing": (lambda c: c.jobs.cancel("x"), "no_such_job"),
    "redrive nothing": (lambda c: c.jobs.retry("x"), "no_such_job"),
    "settle nothing": (lambda c: c.jobs.settle("x", "pay", done=True), "no_such_job"),
    "settle with NaN": (lambda c: c.jobs.settle("x", "pay", done=True, result=NAN), "bad_value"),
    "look at a queue without a name": (lambda c: c.queues.get("a b"), "bad_name"),
    "set something wrong": (lambda c: c.queues.configure("q", attempts_max="x"), "wrong_type"),
    "pause a path": (lambda c: c.queues.pause("a/b"), "bad_name"),
    "resume a path": (lambda c: c.queues.resume("a/b"), "bad_name"),
    "list no dead": (lambda c: c.queues.failed("q", limit=0), "bad_parameter"),
    "list from nowhere": (lambda c: c.queues.failed("q", after="\x00"), "bad_parameter"),
    "redrive since text": (lambda c: c.queues.redrive_all("q", since_ms="x"), "wrong_type"),
    "purge a path": (lambda c: c.queues.purge_all("a/b"), "bad_name"),
    "acquire nothing": (lambda c: c.locks.acquire([]), "bad_request"),
    "acquire twice the same": (lambda c: c.locks.acquire(["a", "a"]), "bad_request"),
    "acquire a number": (lambda c: c.locks.acquire([5]), "wrong_type"),  # type: ignore[arg-type]
    "acquire NUL": (lambda c: c.locks.acquire(["\x00"]), "bad_name"),
    "acquire for NaN": (lambda c: c.locks.acquire(["a"], lease_s=NAN), "bad_request"),
    "acquire and wait for NaN": (lambda c: c.locks.acquire(["a"], wait_s=NAN), "bad_request"),
    "acquire no place": (lambda c: c.locks.acquire(["a"], capacity=0), "wrong_type"),
    "renew nothing": (lambda c: c.locks.renew("x"), "bad_key"),
    "renew for NaN": (lambda c: c.locks.renew("x", lease_s=NAN), "bad_request"),
    "look at no lock": (lambda c: c.locks.get("unused"), "no_such_lock"),
    "accept and wait for nothing": (lambda c: c.send("q", 1, key="k", wait_s=ODD), "bad_parameter"),
    "look at a job for nothing": (lambda c: c.jobs.get("x", wait_s=ODD), "bad_parameter"),
    "claim for true": (lambda c: c.jobs.claim("q", lease_s=True), "bad_request"),
    "list from half a character": (lambda c: c.queues.failed("q", after="\ud800"), "not_text"),
    "find half a character": (lambda c: c.rooms.list(prefix="\ud800"), "not_text"),
    "redrive and call a text": (lambda c: c.queues.redrive_all("q", progress=TEXT), "bad_request"),
    "purge and call a text": (lambda c: c.queues.purge_all("q", progress=TEXT), "bad_request"),
    "set a pause of text": (lambda c: c.queues.configure("q", retry_first_s=TEXT), "bad_request"),
    "set fields of text": (lambda c: c.queues.configure("q", key_fields=TEXT), "bad_request"),
    "list a prefix of nothing": (lambda c: c.rooms.list(prefix=ODD), "bad_parameter"),
    "list a page of a list": (lambda c: c.timers.list(limit=[]), "bad_parameter"),  # type: ignore[arg-type]
    "create a timer at any time": (
        lambda c: c.timers.create(queue="q", at=datetime(2030, 1, 1)),  # noqa: DTZ001
        "bad_request",
    ),
    "create a timer with an unknown pause": (
        lambda c: c.timers.create(url="https://example.com/", retry={"pauses_ms": [5]}),
        "bad_request",
    ),
    "create a timer with a pause of text": (
        lambda c: c.timers.create(url="https://example.com/", retry={"pauses_s": ["5"]}),
        "bad_request",
    ),
    "create a table by a policy in milliseconds": (
        lambda c: c.tables.create(policy={"turn_ms": 5}),
        "bad_request",
    ),
    "create a room with schemas of text": (lambda c: c.rooms.create(schemas=TEXT), "bad_request"),
    "change a room by nothing": (lambda c: c.rooms.apply("r", ODD), "wrong_type"),
    "change a room by text": (lambda c: c.rooms.apply("r", TEXT), "bad_request"),
    "find rooms by text": (lambda c: c.rooms.list(meta=TEXT), "bad_request"),
    "find rooms by NaN": (lambda c: c.rooms.list(meta={"x": NAN}), "bad_value"),
    "join with nobody": (lambda c: c.tables.join("t", party=ODD), "wrong_type"),
    "join with a text": (lambda c: c.tables.join("t", party="ann"), "bad_request"),
    "list leaders behind text": (lambda c: c.tables.leaders("l", rating=TEXT), "bad_parameter"),
    "set a timer with headers of text": (
        lambda c: c.timers.create(id="t", url="https://example.com/", delay_s=1, headers=TEXT),
        "bad_request",
    ),
    "make an endpoint with headers of text": (
        lambda c: c.endpoints.create("https://example.com/", id="e", headers=TEXT),
        "bad_request",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_bad_input_is_refused_with_a_code(client: Client, what: str) -> None:
    call, code = BAD[what]
    with pytest.raises(BadInput) as raised:
        await call(client)
    assert (raised.value.code, raised.value.kind) == (code, TABLE[code])
    assert raised.value.message


@pytest.mark.parametrize("key", [5, b"key", ["key"], "two words", "\u00e9"])
async def test_a_key_is_one_word(key: Any) -> None:
    with pytest.raises(BadInput, match="must be one word"):
        Client("http://127.0.0.1:1", key=key)


@pytest.mark.parametrize(
    "options", [{"handler": None}, {"handler": "f"}, {"lease_s": NAN}, {"lease_s": None}]
)
async def test_a_worker_that_could_not_work_is_refused(
    client: Client, options: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        client.worker("q", **{"handler": print, **options})


@pytest.mark.parametrize("create", [None, 1, "yes", []])
async def test_a_mistake_about_one_room_ends_no_connection(client: Client, create: Any) -> None:
    async with client.live() as live:
        room = await live.join("room", create=True)
        with pytest.raises(BadInput, match="`create` must be true or false"):
            await live.join("other", create=create)
        await room.map("m").set("k", 1)
        assert (live.state, room.status) == ("connected", "live")


async def test_what_is_no_name_in_a_room_is_told_and_the_room_goes_on(client: Client) -> None:
    async with client.live() as live:
        room = await live.join("names", create=True)
        heard: list[Any] = []
        room.map("m").subscribe(lambda value, who: heard.append(value), "k")
        for odd in (5, True, b"x", ["x"], {}):
            for call in (room.map, room.list, room.presence):
                with pytest.raises(BadInput, match="must be a string, not"):
                    call(odd)  # type: ignore[arg-type]
            with pytest.raises(BadInput, match="a map's key must be a string"):
                room.map("m").subscribe(print, odd)  # type: ignore[arg-type]
            with pytest.raises(BadInput, match="has no item"):
                room.list("l").set(odd, 1)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="a subscriber must be a function"):
            room.list("l").subscribe(None)  # type: ignore[arg-type]
        await room.map("m").set("k", 1)
        assert heard == [1]
