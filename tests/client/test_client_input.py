"""Whatever is wrong with the input of a call is told with a code, and nothing is done."""

from collections.abc import AsyncIterator, Awaitable, Callable
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
    "accept without a key": (lambda c: c.accept("q", 1), "missing_key"),
    "accept a set of functions": (lambda c: c.accept("q", print, key="k"), "bad_value"),
    "accept NaN": (lambda c: c.accept("q", [1, NAN], key="k"), "bad_value"),
    "accept what contains itself": (lambda c: c.accept("q", ENDLESS, key="k"), "bad_value"),
    "accept too much": (lambda c: c.accept("q", 400_000 * "x", key="k"), "value_too_large"),
    "accept far too much": (lambda c: c.accept("q", 2_000_000 * "x", key="k"), "body_too_large"),
    "accept half a character": (lambda c: c.accept("q", "\ud800", key="k"), "bad_value"),
    "accept under half a character": (lambda c: c.accept("q", 1, key="\ud800"), "bad_value"),
    "accept under NUL": (lambda c: c.accept("q", 1, key="\x00"), "bad_key"),
    "accept under a long key": (lambda c: c.accept("q", 1, key="k" * 3_000), "bad_key"),
    "accept with an option unheard of": (
        lambda c: c.accept("q", 1, key="k", colour="red"),
        "unknown_member",
    ),
    "accept with a wrong option": (
        lambda c: c.accept("q", 1, key="k", priority="high"),
        "wrong_type",
    ),
    "accept and wait for NaN": (lambda c: c.accept("q", 1, key="k", wait_s=NAN), "bad_request"),
    "accept and wait too long": (lambda c: c.accept("q", 1, key="k", wait_s=61), "bad_parameter"),
    "accept into nothing": (lambda c: c.accept("", 1, key="k"), "bad_name"),
    "accept into half a character": (lambda c: c.accept("\ud800", 1, key="k"), "not_text"),
    "accept into a place further up": (lambda c: c.accept("..", 1, key="k"), "bad_name"),
    "accept into a number": (lambda c: c.accept(5, 1, key="k"), "bad_name"),  # type: ignore[arg-type]
    "accept into a path": (lambda c: c.accept("a/b", 1, key="k"), "bad_name"),
    "accept many that are no messages": (lambda c: c.accept_many("q", [{}]), "missing_member"),
    "accept many strangers": (
        lambda c: c.accept_many("q", [{"body": 1, "colour": "red"}]),
        "unknown_member",
    ),
    "claim none": (lambda c: c.claim("q", max=0), "wrong_type"),
    "claim half a job": (lambda c: c.claim("q", max=1.5), "wrong_type"),  # type: ignore[arg-type]
    "claim for no time": (lambda c: c.claim("q", lease_s=0), "wrong_type"),
    "claim for less": (lambda c: c.claim("q", lease_s=-1), "bad_request"),
    "claim and wait too long": (lambda c: c.claim("q", wait_s=61), "wrong_type"),
    "complete nothing": (lambda c: c.complete("x", "t"), "no_such_job"),
    "complete with NaN": (lambda c: c.complete("x", "t", NAN), "bad_value"),
    "complete without a token": (lambda c: c.complete("x", None), "wrong_type"),  # type: ignore[arg-type]
    "fail nothing": (lambda c: c.fail("x", "t", "why"), "no_such_job"),
    "fail for NaN": (lambda c: c.fail("x", "t", "why", retry_after_s=NAN), "bad_request"),
    "extend nothing": (lambda c: c.extend("x", "t", 1), "no_such_job"),
    "extend by infinity": (lambda c: c.extend("x", "t", float("inf")), "bad_request"),
    "look at no job": (lambda c: c.job("x"), "no_such_job"),
    "look at a job for too long": (lambda c: c.job("x", wait_s=61), "bad_parameter"),
    "wait for no job": (lambda c: c.wait("x"), "no_such_job"),
    "wait for less than no time": (lambda c: c.wait("x", -1), "bad_request"),
    "cancel nothing": (lambda c: c.cancel("x"), "no_such_job"),
    "redrive nothing": (lambda c: c.redrive("x"), "no_such_job"),
    "settle nothing": (lambda c: c.settle("x", "pay", done=True), "no_such_job"),
    "settle with NaN": (lambda c: c.settle("x", "pay", done=True, result=NAN), "bad_value"),
    "look at a queue without a name": (lambda c: c.queue("a b"), "bad_name"),
    "set something unheard of": (lambda c: c.configure("q", colour="red"), "unknown_member"),
    "set something wrong": (lambda c: c.configure("q", attempts_max="x"), "wrong_type"),
    "pause a path": (lambda c: c.pause("a/b"), "bad_name"),
    "resume a path": (lambda c: c.resume("a/b"), "bad_name"),
    "list no dead": (lambda c: c.dead("q", limit=0), "bad_parameter"),
    "list from nowhere": (lambda c: c.dead("q", start="\x00"), "bad_parameter"),
    "redrive by a stranger": (lambda c: c.redrive_all("q", colour="red"), "unknown_member"),
    "redrive since text": (lambda c: c.redrive_all("q", since_ms="x"), "wrong_type"),
    "purge a path": (lambda c: c.purge("a/b"), "bad_name"),
    "acquire nothing": (lambda c: c.acquire(), "bad_request"),
    "acquire twice the same": (lambda c: c.acquire("a", "a"), "bad_request"),
    "acquire a number": (lambda c: c.acquire(5), "wrong_type"),  # type: ignore[arg-type]
    "acquire NUL": (lambda c: c.acquire("\x00"), "bad_name"),
    "acquire for NaN": (lambda c: c.acquire("a", lease_s=NAN), "bad_request"),
    "acquire and wait too long": (lambda c: c.acquire("a", wait_s=61), "wrong_type"),
    "acquire no place": (lambda c: c.acquire("a", capacity=0), "wrong_type"),
    "renew nothing": (lambda c: c.renew("x"), "bad_key"),
    "renew for NaN": (lambda c: c.renew("x", NAN), "bad_request"),
    "look at no lock": (lambda c: c.lock("unused"), "no_such_lock"),
    "accept and wait for nothing": (lambda c: c.accept("q", 1, key="k", wait_s=ODD), "bad_request"),
    "look at a job for nothing": (lambda c: c.job("x", wait_s=ODD), "bad_request"),
    "claim for true": (lambda c: c.claim("q", lease_s=True), "bad_request"),
    "list from half a character": (lambda c: c.dead("q", start="\ud800"), "not_text"),
    "find half a character": (lambda c: c.rooms(prefix="\ud800"), "not_text"),
    "redrive and tell nobody": (lambda c: c.redrive_all("q", progress=ODD), "bad_request"),
    "purge and tell nobody": (lambda c: c.purge("q", progress=ODD), "bad_request"),
    "change a room by nothing": (lambda c: c.change_room("r", ODD), "bad_request"),
    "change a room by text": (lambda c: c.change_room("r", TEXT), "bad_request"),
    "find rooms by text": (lambda c: c.rooms(meta=TEXT), "bad_request"),
    "find rooms by NaN": (lambda c: c.rooms(meta={"x": NAN}), "bad_value"),
    "join with nobody": (lambda c: c.join_table("t", party=ODD), "bad_request"),
    "join with a text": (lambda c: c.join_table("t", party="ann"), "bad_request"),
    "list leaders behind text": (lambda c: c.leaders(after=TEXT), "bad_request"),
    "set a timer with headers of text": (
        lambda c: c.set_timer("t", url="https://example.com/", delay_s=1, headers=TEXT),
        "bad_request",
    ),
    "make an endpoint with headers of text": (
        lambda c: c.make_endpoint("https://example.com/", "e", headers=TEXT),
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
    with pytest.raises(BadInput, match="is one word"):
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
