"""Endpoints: where outward calls go, and what they are signed with."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest

from onceward.errors import BadInput, NoSuchEndpoint
from onceward.ids import Ids
from onceward.store.transaction import Transaction
from onceward.webhooks import endpoints
from onceward.webhooks.endpoints import Endpoint
from onceward.webhooks.signing import new_secret
from tests.schedule.jobs import Jobs, new_jobs

T = TypeVar("T")
URL = "https://example.com/hook"
IDS = Ids(lambda: 0, Random(1).randbytes)  # tests are named by them
ONE, TWO, THREE = (new_secret(IDS) for _ in range(3))


async def run(jobs: Jobs, fn: Callable[[Transaction], Awaitable[T]]) -> T:
    return await jobs.store.run(fn)


async def put(jobs: Jobs, id_: str = "e", url: str = URL, secret: str = ONE) -> Endpoint:
    return await run(jobs, lambda tx: endpoints.put(tx, id_, url, secret))


async def test_an_endpoint_is_kept_and_a_change_keeps_its_secrets() -> None:
    jobs = await new_jobs()
    made = await put(jobs)
    assert (made.url, made.secrets_at(0)) == (URL, [ONE])
    changed = await run(
        jobs,
        lambda tx: endpoints.put(
            tx, "e", "https://example.com/new", TWO, headers={"a": "b"}, disabled=True
        ),
    )
    assert changed.secrets_at(0) == [ONE]
    found = await run(jobs, lambda tx: endpoints.get(tx, "e"))
    assert (found.url, found.headers, found.disabled) == (changed.url, {"a": "b"}, True)


async def test_an_old_secret_counts_beside_the_new_one_for_a_while() -> None:
    jobs = await new_jobs()
    await put(jobs)
    now_ms = jobs.clock.now_ms()
    rotated = await run(jobs, lambda tx: endpoints.rotate(tx, "e", TWO, overlap_ms=1_000))
    assert rotated.secrets_at(now_ms) == [TWO, ONE]
    assert rotated.secrets_at(now_ms + 1_000) == [TWO]
    again = await run(jobs, lambda tx: endpoints.rotate(tx, "e", TWO, overlap_ms=1_000))
    assert again == rotated, "the same again changes nothing"
    third = await run(jobs, lambda tx: endpoints.rotate(tx, "e", THREE, overlap_ms=0))
    assert third.secrets_at(now_ms) == [THREE]


async def test_endpoints_belong_to_their_callers() -> None:
    jobs = await new_jobs()
    for id_ in ("b", "a", "c"):
        await put(jobs, id_)
    await run(jobs, lambda tx: endpoints.put(tx, "a", URL, ONE, caller="ann"))
    found = await run(jobs, lambda tx: endpoints.all_of(tx, most=2))
    assert [id_ for id_, _ in found] == ["a", "b"]
    found = await run(jobs, lambda tx: endpoints.all_of(tx, after="b", most=2))
    assert [id_ for id_, _ in found] == ["c"]
    found = await run(jobs, lambda tx: endpoints.all_of(tx, caller="ann", most=9))
    assert [id_ for id_, _ in found] == ["a"]
    with pytest.raises(NoSuchEndpoint):
        await run(jobs, lambda tx: endpoints.get(tx, "b", caller="ann"))


async def test_one_that_was_removed_is_gone() -> None:
    jobs = await new_jobs()
    await put(jobs)
    await run(jobs, lambda tx: endpoints.remove(tx, "e"))
    for fn in (
        lambda tx: endpoints.get(tx, "e"),
        lambda tx: endpoints.remove(tx, "e"),
        lambda tx: endpoints.rotate(tx, "e", TWO, overlap_ms=0),
    ):
        with pytest.raises(NoSuchEndpoint):
            await run(jobs, fn)
    await run(jobs, lambda tx: endpoints.note(tx, "e", failing=True, said="no"))
    assert await run(jobs, lambda tx: endpoints.all_of(tx, most=9)) == []


async def test_health_is_written_when_it_changes() -> None:
    jobs = await new_jobs()
    await put(jobs)
    await run(jobs, lambda tx: endpoints.note(tx, "e", failing=True, said="503"))
    since_ms = jobs.clock.now_ms()
    jobs.clock.at_ms += 1_000
    await run(jobs, lambda tx: endpoints.note(tx, "e", failing=True, said="504"))
    health = (await run(jobs, lambda tx: endpoints.get(tx, "e"))).health
    assert (health.failing, health.since_ms, health.said) == (True, since_ms, "503")
    await run(jobs, lambda tx: endpoints.note(tx, "e", failing=False, said="200"))
    assert not (await run(jobs, lambda tx: endpoints.get(tx, "e"))).health.failing


@pytest.mark.parametrize(
    ("id_", "url", "secret"),
    [
        ("", URL, ONE),
        ("x" * 129, URL, ONE),
        ("\ud800", URL, ONE),
        ("e", "", ONE),
        ("e", URL, "password"),
        ("e", URL, "whsec_"),
    ],
)
async def test_what_cannot_be_an_endpoint_is_refused(id_: str, url: str, secret: str) -> None:
    jobs = await new_jobs()
    with pytest.raises(BadInput):
        await put(jobs, id_, url, secret)
    await put(jobs)
    with pytest.raises(BadInput):
        await run(jobs, lambda tx: endpoints.rotate(tx, "e", "password", overlap_ms=0))
    with pytest.raises(BadInput):
        await run(jobs, lambda tx: endpoints.rotate(tx, "e", TWO, overlap_ms=-1))
    assert (await run(jobs, lambda tx: endpoints.get(tx, "e"))).secrets_at(0) == [ONE]
