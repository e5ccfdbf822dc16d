"""Each operation that clients can repeat after a lost response takes effect once."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceward import Job
from onceward.client import Client
from onceward.errors import KeyReused, OutcomeUnknown
from tests.client.served import Cutter, Loss, Served
from tests.client.test_operations import CALLS
from tests.client.test_tables import counting

URL = "https://example.com/hook"
# The server has done it, and the client does not know.
LOSSES = [[Loss.ANSWER], [Loss.HALF, Loss.ANSWER]]
Try = Callable[[Client, Callable[[], None]], Awaitable[None]]


async def fail_job(client: Client) -> str:
    """The id of a failed job."""
    await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    await client.jobs.fail(claim.id, claim.token, "why", final=True)
    return claim.id


def lose_contact() -> None:
    raise ConnectionError


async def send(client: Client, lose: Callable[[], None]) -> None:
    lose()
    receipt = await client.send("q", 1)
    assert [one.id for one in await client.jobs.claim("q", max=10)] == [receipt.id]


async def send_many(client: Client, lose: Callable[[], None]) -> None:
    lose()
    receipts = await client.send_many("q", [{"body": n} for n in range(3)])
    found = await client.jobs.claim("q", max=10)
    assert sorted(one.id for one in found) == sorted(one.id for one in receipts)  # type: ignore[union-attr]


async def retry_job(client: Client, lose: Callable[[], None]) -> None:
    id_ = await fail_job(client)
    lose()
    assert (await client.jobs.retry(id_)).id == id_
    assert (await client.jobs.get(id_)).attempt == 0


async def emit_event(client: Client, lose: Callable[[], None]) -> None:
    receipt = await client.send("wait", 1, key="k")
    lose()
    await client.jobs.emit(receipt.id, "number", value=7)
    await client.jobs.emit(receipt.id, "number", value=8)
    assert (await client.jobs.wait(receipt.id)).result == [7, 8]


async def settle_step(client: Client, lose: Callable[[], None]) -> None:
    receipt = await client.send("pay", 1, key="k", wait_s=30)
    assert receipt.state == "in_doubt"
    lose()
    await client.jobs.settle(receipt.id, "pay", True, result=7)
    job = await client.jobs.wait(receipt.id)
    assert (job.state, job.result, len(job.settled)) == ("succeeded", 7, 1)


async def acquire_lock(client: Client, lose: Callable[[], None]) -> None:
    lose()
    lock = await client.locks.acquire(["a"])
    assert (lock.token, (await client.locks.get("a")).held) == (1, 1)


async def release_lock(client: Client, lose: Callable[[], None]) -> None:
    lock = await client.locks.acquire(["a"])
    lose()
    assert await client.locks.release(lock.id)


async def create_room(client: Client, lose: Callable[[], None]) -> None:
    lose()
    room = await client.rooms.create(meta={"a": 1})
    assert room.meta == {"a": 1}
    assert [one.id async for one in client.rooms.iterate()] == [room.id]


async def delete_room(client: Client, lose: Callable[[], None]) -> None:
    await client.rooms.create(id="r")
    lose()
    assert (await client.rooms.delete("r")).id == "r"


async def apply_step(client: Client, lose: Callable[[], None]) -> None:
    await client.rooms.create(id="r")
    lose()
    await client.rooms.apply("r", [{"op": "map.add", "map": "m", "key": "k", "by": 1}])
    assert await client.rooms.get_map("r", "m") == {"k": 1}


def delete_contents(kind: str) -> Try:
    async def delete(client: Client, lose: Callable[[], None]) -> None:
        await client.rooms.create(id="r")
        await getattr(client.rooms, f"put_{kind}")("r", "it")
        lose()
        assert await getattr(client.rooms, f"delete_{kind}")("r", "it")

    return delete


async def create_table(client: Client, lose: Callable[[], None]) -> None:
    lose()
    table = await client.tables.create(meta={"a": 1})
    assert table.meta == {"a": 1}
    assert [one.id async for one in client.tables.iterate()] == [table.id]


async def seat(client: Client, **options: Any) -> None:
    await client.tables.create(id="t", **options)
    for user in ("ann", "ben"):
        await client.tables.join("t", user=user)


async def move(client: Client, lose: Callable[[], None]) -> None:
    await seat(client, game="count")
    lose()
    assert await client.tables.move("t", user="ann", move=1) == 1
    assert await client.tables.move("t", user="ann", move=1) == 2


async def end_game(client: Client, lose: Callable[[], None]) -> None:
    await seat(client)
    lose()
    with pytest.raises(OutcomeUnknown, match=r"tables\.result was lost"):
        await client.tables.result("t", winners=["ann"], game=1)


async def create_timer(client: Client, lose: Callable[[], None]) -> None:
    lose()
    timer = await client.timers.create(url=URL, delay_s=60)
    assert [one.id async for one in client.timers.iterate()] == [timer.id]


async def create_endpoint(client: Client, lose: Callable[[], None]) -> None:
    lose()
    endpoint = await client.endpoints.create(URL)
    assert [one.id async for one in client.endpoints.iterate()] == [endpoint.id]


async def delete_endpoint(client: Client, lose: Callable[[], None]) -> None:
    await client.endpoints.create(URL, id="e")
    lose()
    assert (await client.endpoints.delete("e")).id == "e"


async def rotate_secret(client: Client, lose: Callable[[], None]) -> None:
    await client.endpoints.create(URL, id="e")
    lose()
    rotated = await client.endpoints.rotate("e")
    assert len(rotated.secrets or []) == 2


async def call_endpoint(client: Client, lose: Callable[[], None]) -> None:
    await client.endpoints.create(URL, id="e", disabled=True)
    lose()
    tested = await client.endpoints.test("e")
    assert [one.id async for one in client.timers.iterate()] == [tested.id]


async def resend_call(client: Client, lose: Callable[[], None]) -> None:
    await client.endpoints.create(URL, id="e")
    timer = await client.endpoints.test("e")
    while timer.last is None:
        timer = await client.timers.get(timer.id)
    await client.jobs.cancel(timer.last.id)
    lose()
    resent = await client.endpoints.resend("e", timer.last.id)
    found = (await client.endpoints.deliveries("e")).deliveries
    assert [one.id for one in found] == [resent.id, timer.last.id]


async def update_timer(client: Client, lose: Callable[[], None]) -> None:
    await client.timers.create(id="t", url=URL, delay_s=60)
    lose()
    assert (await client.timers.update("t", body=7)).body == 7


async def delete_key(client: Client, lose: Callable[[], None]) -> None:
    created = await client.keys.create("ann", ["all"])
    lose()
    assert (await client.keys.delete(created.id)).id == created.id


# By operation: the word in the first line of the request that loses its response, and the attempt.
TRIES: dict[str, tuple[str, Try]] = {
    "messages.send": ("/inbox/", send),
    "messages.send_many": ("/batch", send_many),
    "jobs.emit": ("/events", emit_event),
    "jobs.retry": ("POST", retry_job),
    "jobs.settle": ("/settle", settle_step),
    "locks.acquire": ("/acquire", acquire_lock),
    "locks.release": ("/release", release_lock),
    "rooms.create": ("POST", create_room),
    "rooms.delete": ("DELETE", delete_room),
    "rooms.apply": ("/ops", apply_step),
    "rooms.delete_map": ("DELETE", delete_contents("map")),
    "rooms.delete_list": ("DELETE", delete_contents("list")),
    "tables.create": ("POST", create_table),
    "tables.move": ("/move", move),
    "tables.result": ("/result", end_game),
    "timers.create": ("POST", create_timer),
    "timers.update": ("PATCH", update_timer),
    "endpoints.create": ("POST", create_endpoint),
    "endpoints.delete": ("DELETE", delete_endpoint),
    "endpoints.rotate": ("/rotate", rotate_secret),
    "endpoints.resend": ("/resend", resend_call),
    "endpoints.test": ("/test", call_endpoint),
    "keys.delete": ("DELETE", delete_key),
}
# These need more than a server to come about.
ELSEWHERE = {
    "rooms.delete_presence": "below",
    "timers.move": "tests/client/test_timers.py",
    "timers.resend": "tests/client/test_timers.py",
}


def test_each_operation_that_can_be_repeated_is_tried() -> None:
    repeated = {
        name
        for name, one in CALLS.items()
        if one.fills or one.done_errors or one.done_member or one.unknown_errors
    }
    assert {*TRIES, *ELSEWHERE} == repeated


@pytest.mark.parametrize("losses", LOSSES, ids=" and ".join)
@pytest.mark.parametrize("name", TRIES)
async def test_an_operation_takes_effect_once(name: str, losses: list[Loss]) -> None:
    word, attempt = TRIES[name]
    app = counting()

    @app.handler("pay", attempts_max=0)
    async def pay(job: Job) -> Any:
        return await job.step("pay", lose_contact, at_most_once=True)

    @app.handler("wait")
    async def wait(job: Job) -> list[Any]:
        return [await job.wait_for("number") for _ in range(2)]

    async with (
        Served(app) as served,
        Cutter(served.port) as cutter,
        Client(cutter.url) as client,
    ):

        def lose() -> None:
            cutter.word, cutter.losses = word, list(losses)

        await attempt(client, lose)
        assert cutter.losses == [], "nothing was lost, so nothing is shown"


async def test_a_result_without_the_number_of_its_game_is_not_repeated() -> None:
    async with (
        Served(counting()) as served,
        Cutter(served.port) as cutter,
        Client(cutter.url) as client,
    ):
        await seat(client)
        cutter.word, cutter.losses = "/result", [Loss.ANSWER]
        with pytest.raises(OutcomeUnknown, match="give game"):
            await client.tables.result("t", winners=["ann"])
        assert (await client.tables.get("t")).number == 2, "one game has ended"


async def test_the_entries_of_a_presence_are_deleted_once() -> None:
    async with (
        Served() as served,
        Cutter(served.port, "DELETE", [Loss.ANSWER]) as cutter,
        Client(cutter.url) as client,
        Client(served.url) as other,
        other.live() as live,
    ):
        room = await live.join("r", create=True)
        room.presence("it").set(1)
        while not await other.rooms.get_presence("r", "it"):
            pass
        assert await client.rooms.delete_presence("r", "it")
        assert await client.rooms.get_presence("r", "it") == {}


async def test_a_step_that_is_in_doubt_again_is_settled_once() -> None:
    app = counting()
    calls: list[str] = []

    @app.handler("pay", attempts_max=0)
    async def pay(job: Job) -> Any:
        async def charge() -> None:
            calls.append(job.id)
            raise ConnectionError

        return await job.step("pay", charge, at_most_once=True)

    async with Served(app) as served, Client(served.url) as client:
        id_ = (await client.send("pay", 1, key="k", wait_s=30)).id
        for _ in range(2):
            await client.jobs.settle(id_, "pay", False, key="one decision")
            job = await client.jobs.wait(id_)
            assert (job.state, len(job.settled), len(calls)) == ("in_doubt", 1, 2)
        with pytest.raises(KeyReused):
            await client.jobs.settle(id_, "pay", True, key="one decision")
        await client.jobs.settle(id_, "pay", True, result=7)
        assert (await client.jobs.wait(id_)).result == 7


async def test_a_job_that_has_failed_again_is_retried_once() -> None:
    app = counting()
    attempts: list[str] = []

    @app.handler("pay", attempts_max=1)
    async def pay(job: Job) -> None:
        attempts.append(job.id)
        raise ConnectionError

    async with Served(app) as served, Client(served.url) as client:
        id_ = (await client.send("pay", 1, key="k", wait_s=30)).id
        for _ in range(2):
            await client.jobs.retry(id_, key="one decision")
            assert (await client.jobs.wait(id_)).state == "failed"
            assert len(attempts) == 2
        await client.jobs.retry(id_)
        assert (await client.jobs.wait(id_)).state == "failed"
        assert len(attempts) == 3
