"""Timers and endpoints by the client, on good connections and on bad ones."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

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
    timer = await client.set_timer("a", url=URL, delay_s=60, body={"n": 1}, headers={"X-A": "1"})
    assert (timer.id, timer.state, timer.url, timer.duplicate) == ("a", "active", URL, False)
    assert (timer.body, timer.headers) == ({"n": 1}, {"X-A": "1"})
    again = await client.set_timer("a", url=URL, delay_s=60, body={"n": 1}, headers={"X-A": "1"})
    assert again.duplicate
    with pytest.raises(KeyReused):
        await client.set_timer("a", url=URL, delay_s=61)
    moved = await client.move_timer("a", at="2033-05-18T03:33:20Z")
    assert moved.due_ms == (await client.timer("a")).due_ms == 2_000_000_000_000
    for _ in range(2):
        assert (await client.cancel_timer("a")).state == "cancelled"
    with pytest.raises(AlreadyEnded):
        await client.move_timer("a", delay_s=1)
    for call in (client.timer("b"), client.cancel_timer("b"), client.resend("b")):
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
        assert (await client.set_timer(url=URL, at=at)).due_ms == 2_000_000_000_000
    with pytest.raises(BadInput, match="time zone"):
        await client.set_timer(url=URL, at=datetime.fromisoformat("2033-05-18"))


async def test_a_timer_that_repeats_tells_its_next_times(client: Client) -> None:
    timer = await client.set_timer(
        queue="q", cron="0 9 * * MON", zone="Europe/Berlin", catch_up="last", order_key="o"
    )
    assert (timer.cron, timer.zone, timer.catch_up) == ("0 9 * * MON", "Europe/Berlin", "last")
    assert len((await client.timer(timer.id)).next) == 5
    every = await client.set_timer(queue="q", every_s=3_600, key="k")
    assert (every.every_ms, every.queue) == (3_600_000, "q")


async def test_timers_are_listed_in_pages(client: Client) -> None:
    for id_ in ("a1", "a2", "a3", "b1"):
        await client.set_timer(id_, url=URL, delay_s=60)
    first, after = await client.timers(prefix="a", limit=2)
    rest, end = await client.timers(prefix="a", limit=2, after=after)
    assert [timer.id for timer in first + rest] == ["a1", "a2", "a3"]
    assert end is None
    assert await client.timers(state="failed") == ([], None)


async def test_what_failed_is_sent_again(client: Client, served: Served) -> None:
    await client.set_timer("a", url=URL, delay_s=0)
    await fail(served)
    failed = await client.timer("a")
    assert failed.state == "failed"
    assert failed.last is not None
    assert [(a.attempt, a.outcome, a.said) for a in failed.last.attempts] == [
        (1, "failed", "410 Gone")
    ]
    assert (await client.resend("a")).state == "firing"
    with pytest.raises(NotFailed):
        await client.resend("a")


async def test_an_endpoint_is_kept(client: Client) -> None:
    made = await client.make_endpoint(URL, "shop", description="d", secret=SECRET)
    assert [secret.secret for secret in made.secrets] == [SECRET]
    assert (await client.make_endpoint(URL, "shop", description="d")).duplicate
    assert (await client.endpoint("shop")).secrets is None
    changed = await client.change_endpoint("shop", disabled=True, headers={"X-A": "1"})
    assert (changed.disabled, changed.headers, changed.description) == (True, {"X-A": "1"}, "d")
    rotated = await client.rotate_secret("shop", overlap_s=60)
    assert [s.secret for s in rotated.secrets][1:] == [SECRET]
    assert (await client.endpoint("shop", secret=True)).secrets == rotated.secrets
    assert [one.id for one in (await client.endpoints())[0]] == ["shop"]
    tested = await client.test_endpoint("shop")
    assert (tested.endpoint, tested.attempts_max) == ("shop", 1)
    for _ in range(2):
        await client.remove_endpoint("shop")
    for call in (
        client.endpoint("shop"),
        client.rotate_secret("shop"),
        client.test_endpoint("shop"),
        client.set_timer(endpoint="shop", delay_s=1),
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
        await client.set_timer(**options)
    assert await client.timers() == ([], None)


@lossy
async def test_a_timer_is_set_once(client: Client, cutter: Cutter, losses: list[Loss]) -> None:
    cutter.word, cutter.losses = "/timers", list(losses)
    made_up = await client.set_timer(url=URL, delay_s=60)
    cutter.losses = list(losses)
    keyed = await client.set_timer(url=URL, delay_s=60, key="k")
    assert {timer.id for timer in (await client.timers())[0]} == {made_up.id, keyed.id}


@lossy
async def test_a_move_is_known_though_it_was_not_heard_of(
    client: Client, served: Served, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.set_timer("a", url=URL, delay_s=60)
    cutter.word, cutter.losses = "PATCH", list(losses)
    moved = await client.move_timer("a", delay_s=0)
    assert moved.state in ("active", "firing")
    await fail(served)
    assert (await client.timer("a")).fired == 1


@lossy
async def test_what_was_not_heard_of_is_not_done_twice(
    client: Client, served: Served, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.set_timer("a", url=URL, delay_s=0)
    await fail(served)
    cutter.word, cutter.losses = "/resend", list(losses)
    assert (await client.resend("a")).state == "firing"
    await fail(served)

    cutter.word, cutter.losses = "/endpoints", list(losses)
    made = await client.make_endpoint(URL)
    assert [one.id for one in (await client.endpoints())[0]] == [made.id]
    cutter.losses = list(losses)
    rotated = await client.rotate_secret(made.id)
    assert [s.secret for s in rotated.secrets][1:] == [s.secret for s in made.secrets]
    cutter.losses = list(losses)
    await client.test_endpoint(made.id)
    assert len((await client.timers())[0]) == 2
    cutter.losses = list(losses)
    await client.remove_endpoint(made.id)
    assert await client.endpoints() == ([], None)
