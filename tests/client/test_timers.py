"""Timers and endpoints by the client, on good connections and on bad ones."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from onceward.api.endpoints import EndpointPage
from onceward.api.timers import TimerPage
from onceward.client import Client
from onceward.errors import (
    AlreadyEnded,
    BadInput,
    KeyReused,
    NoSuchEndpoint,
    NoSuchTimer,
    NotFailed,
)
from onceward.webhooks.timers import WEBHOOKS
from tests.client.served import Cutter, Loss, Served

URL = "https://example.com/hook"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
LOSSES = [[Loss.REQUEST], [Loss.ANSWER], [Loss.HALF, Loss.REQUEST, Loss.ANSWER]]
lossy = pytest.mark.parametrize("losses", LOSSES, ids=" and ".join)


async def fail(served: Served) -> None:
    """Let the call that is due fail for good."""
    [claim] = await served.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=10)
    await served.app.fail(claim.id, claim.token, "410 Gone", final=True)


async def test_a_timer_is_set_seen_moved_and_cancelled(client: Client) -> None:
    timer = await client.timers.create(
        id="a", url=URL, delay_s=60, body={"n": 1}, headers={"X-A": "1"}
    )
    assert (timer.id, timer.state, timer.url, timer.duplicate) == ("a", "active", URL, False)
    assert (timer.body, timer.headers) == ({"n": 1}, {"X-A": "1"})
    again = await client.timers.create(
        id="a", url=URL, delay_s=60, body={"n": 1}, headers={"X-A": "1"}
    )
    assert again.duplicate
    with pytest.raises(KeyReused):
        await client.timers.create(id="a", url=URL, delay_s=61)
    moved = await client.timers.move("a", at="2033-05-18T03:33:20Z")
    assert moved.due_ms == (await client.timers.get("a")).due_ms == 2_000_000_000_000
    for _ in range(2):
        assert (await client.timers.cancel("a")).state == "cancelled"
    with pytest.raises(AlreadyEnded):
        await client.timers.move("a", delay_s=1)
    for call in (client.timers.get("b"), client.timers.cancel("b"), client.timers.resend("b")):
        with pytest.raises(NoSuchTimer):
            await call


async def test_a_time_may_be_a_number_a_text_or_a_datetime(client: Client) -> None:
    east = timezone(timedelta(hours=2))
    for at in (
        2_000_000_000_000,
        "2033-05-18T03:33:20Z",
        datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC),
        datetime(2033, 5, 18, 5, 33, 20, tzinfo=east),
    ):
        assert (await client.timers.create(url=URL, at=at)).due_ms == 2_000_000_000_000
    with pytest.raises(BadInput, match="time zone"):
        await client.timers.create(url=URL, at=datetime.fromisoformat("2033-05-18"))


async def test_a_timer_that_repeats_tells_its_next_times(client: Client) -> None:
    timer = await client.timers.create(
        queue="q", cron="0 9 * * MON", zone="Europe/Berlin", catch_up="last", order_key="o"
    )
    assert (timer.cron, timer.zone, timer.catch_up) == ("0 9 * * MON", "Europe/Berlin", "last")
    assert len((await client.timers.get(timer.id)).next) == 5
    every = await client.timers.create(queue="q", every_s=3_600, key="k")
    assert (every.every_ms, every.queue) == (3_600_000, "q")


async def test_timers_are_listed_in_pages(client: Client) -> None:
    for id_ in ("a1", "a2", "a3", "b1"):
        await client.timers.create(id=id_, url=URL, delay_s=60)
    first = await client.timers.list(prefix="a", limit=2)
    rest = await client.timers.list(prefix="a", limit=2, after=first.next or "")
    assert [timer.id for timer in first.timers + rest.timers] == ["a1", "a2", "a3"]
    assert rest.next is None
    found = [timer.id async for timer in client.timers.iterate(prefix="a", limit=2)]
    assert found == ["a1", "a2", "a3"]
    assert await client.timers.list(state="failed") == TimerPage([], None)


async def test_what_failed_is_sent_again(client: Client, served: Served) -> None:
    await client.timers.create(id="a", url=URL, delay_s=0)
    await fail(served)
    failed = await client.timers.get("a")
    assert failed.state == "failed"
    assert failed.last is not None
    assert [(a.attempt, a.outcome, a.said) for a in failed.last.attempts] == [
        (1, "failed", "410 Gone")
    ]
    assert (await client.timers.resend("a")).state == "firing"
    with pytest.raises(NotFailed):
        await client.timers.resend("a")


async def test_an_endpoint_is_kept(client: Client) -> None:
    made = await client.endpoints.create(URL, id="shop", description="d", secret=SECRET)
    assert [secret.secret for secret in made.secrets] == [SECRET]
    assert (await client.endpoints.create(URL, id="shop", description="d")).duplicate
    assert (await client.endpoints.get("shop")).secrets is None
    changed = await client.endpoints.update("shop", disabled=True, headers={"X-A": "1"})
    assert (changed.disabled, changed.headers, changed.description) == (True, {"X-A": "1"}, "d")
    rotated = await client.endpoints.rotate("shop", overlap_s=60)
    assert [s.secret for s in rotated.secrets][1:] == [SECRET]
    assert (await client.endpoints.get("shop", secret=True)).secrets == rotated.secrets
    assert [one.id for one in (await client.endpoints.list()).endpoints] == ["shop"]
    tested = await client.endpoints.test("shop")
    assert (tested.endpoint, tested.attempts_max) == ("shop", 1)
    assert (await client.endpoints.delete("shop")).id == "shop"
    for call in (
        client.endpoints.get("shop"),
        client.endpoints.delete("shop"),
        client.endpoints.rotate("shop"),
        client.endpoints.test("shop"),
        client.timers.create(endpoint="shop", delay_s=1),
    ):
        with pytest.raises(NoSuchEndpoint):
            await call


@pytest.mark.parametrize(
    "options",
    [
        {"url": URL},
        {"delay_s": 1},
        {"url": URL, "delay_s": -1},
        {"url": URL, "delay_s": float("nan")},
        {"url": "nowhere", "delay_s": 1},
        {"url": URL, "cron": "never"},
        {"url": URL, "delay_s": 1, "headers": {"Host": "x"}},
        {"url": URL, "at": "soon"},
        {"url": URL, "delay_s": 1, "body": object()},
    ],
)
async def test_what_cannot_be_meant_is_refused(client: Client, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        await client.timers.create(**options)
    assert await client.timers.list() == TimerPage([], None)


@lossy
async def test_a_timer_is_set_once(client: Client, cutter: Cutter, losses: list[Loss]) -> None:
    cutter.word, cutter.losses = "/timers", list(losses)
    made_up = await client.timers.create(url=URL, delay_s=60)
    cutter.losses = list(losses)
    keyed = await client.timers.create(url=URL, delay_s=60, key="k")
    assert {timer.id for timer in (await client.timers.list()).timers} == {made_up.id, keyed.id}


@lossy
async def test_a_move_is_known_though_it_was_not_heard_of(
    client: Client, served: Served, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.timers.create(id="a", url=URL, delay_s=60)
    cutter.word, cutter.losses = "PATCH", list(losses)
    moved = await client.timers.move("a", delay_s=0)
    assert moved.state in ("active", "firing")
    await fail(served)
    assert (await client.timers.get("a")).fired == 1


@lossy
async def test_what_was_not_heard_of_is_not_done_twice(
    client: Client, served: Served, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.timers.create(id="a", url=URL, delay_s=0)
    await fail(served)
    cutter.word, cutter.losses = "/resend", list(losses)
    assert (await client.timers.resend("a")).state == "firing"
    await fail(served)

    cutter.word, cutter.losses = "/endpoints", list(losses)
    made = await client.endpoints.create(URL)
    assert [one.id for one in (await client.endpoints.list()).endpoints] == [made.id]
    cutter.losses = list(losses)
    rotated = await client.endpoints.rotate(made.id)
    assert [s.secret for s in rotated.secrets][1:] == [s.secret for s in made.secrets]
    cutter.losses = list(losses)
    await client.endpoints.test(made.id)
    assert len((await client.timers.list()).timers) == 2
    cutter.losses = list(losses)
    await client.endpoints.delete(made.id)
    assert await client.endpoints.list() == EndpointPage([], None)
