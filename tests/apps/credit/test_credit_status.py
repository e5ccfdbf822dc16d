"""Salesforce learns of pulls that failed or are in doubt, and settlements are on the record."""

from typing import Any

import msgspec
import pytest

from apps.credit.bureau import make_report
from apps.credit.calls import Refused
from apps.credit.credit import NOTICES, STEP, Credit
from onceward.errors import BadInput, NotDone, NotFailed, Retry
from tests.apps.credit.envelopes import ORGANISATION, opportunity
from tests.apps.credit.office import World, ended, open_office, take
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

FIRST = opportunity(1)
REPORT = msgspec.to_builtins(make_report(FIRST, "B7"))


def told(world: World) -> list[tuple[str, Any]]:
    """The kinds of results that Salesforce was sent, and the values of those about the status."""
    return [
        (result["kind"], result["value"] if result["kind"] == "status" else None)
        for _, result in world.told
    ]


async def last_job(credit: Credit) -> str:
    return (await credit.find(ORGANISATION, FIRST)).pulls[-1].job


async def until_told(apps: Apps, world: World, count: int) -> None:
    while len(world.told) < count:
        await apps.sleep(1)
    await apps.sleep(60)
    assert len(world.told) == count


@virtual
async def test_a_refused_pull_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.errors = [Refused("the bureau answered 422: no such person")]
    world.refusals = [Retry("503")]
    async with open_office() as (apps, credit):
        await take(credit, 1)
        await until_told(apps, world, 2)
        reason = "the bureau answered 422: no such person"
        assert told(world) == [("status", {"state": "failed", "reason": reason})] * 2
        # Under one id, though it had to be sent twice.
        assert len({id_ for id_, _ in world.told}) == 1
        pull = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        assert (pull.status, pull.why) == ("failed", reason)
        # Redriven, it succeeds: the results come after the status.
        await credit.app.queues.retry(pull.job)
        await until_told(apps, world, 5)
        assert [kind for kind, _ in told(world)[2:]] == ["decision", "tradelines", "verification"]
        pull = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        assert (pull.status, pull.why, bool(pull.outcome)) == ("", "", True)


@virtual
async def test_a_bureau_that_is_never_there_is_reported_after_the_last_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.errors = [NotDone("the bureau answered 503") for _ in range(20)]
    async with open_office(retry_first_s=0.001) as (apps, credit):
        await take(credit, 1)
        await until_told(apps, world, 1)
        value = {"state": "failed", "reason": "the bureau answered 503"}
        assert told(world) == [("status", value)]


@virtual
async def test_a_pull_in_doubt_is_reported_and_redriving_tells_what_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.errors = [Retry("the bureau answered 500: oh")]
    async with open_office() as (apps, credit):
        await take(credit, 1)
        await until_told(apps, world, 1)
        error = "Retry: the bureau answered 500: oh [retry]"
        reason = f"the step 'pull' may or may not have been done: {error}. Settle it"
        assert told(world) == [("status", {"state": "in_doubt", "reason": reason})]
        id_ = await last_job(credit)
        # Nobody was cut off: the reason stays what it was, and is not reported twice.
        await credit.app.queues.retry(id_)
        job = await ended(credit.app, id_)
        assert (job.state, job.reason, len(world.pulls)) == ("in_doubt", reason, 1)
        await until_told(apps, world, 1)


@virtual
async def test_a_settlement_has_who_when_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.errors = [Retry("the bureau answered 500"), Retry("the bureau answered 502")]
    async with open_office() as (apps, credit):
        await take(credit, 1)
        await until_told(apps, world, 1)
        id_ = await last_job(credit)
        place = (ORGANISATION, FIRST)
        for reason, report in ((" ", REPORT), ("asked", {"number": 7}), ("x" * 501, REPORT)):
            with pytest.raises(BadInput):
                await credit.settle(*place, done=True, report=report, by="ann", reason=reason)
        await credit.settle(*place, done=False, by="key:ann", reason="the office has no record")
        await until_told(apps, world, 2)
        assert "502 [retry]" in told(world)[1][1]["reason"]
        settled_ms = apps.clock.now_ms()
        await credit.settle(*place, done=True, report=REPORT, by="key:bob", reason="ticket 7")
        job = await ended(credit.app, id_)
        assert (job.state, job.result["report"]) == ("succeeded", "B7")
        assert [(one.step, one.done, one.by, one.reason) for one in job.settled] == [
            (STEP, False, "key:ann", "the office has no record"),
            (STEP, True, "key:bob", "ticket 7"),
        ]
        assert job.settled[1].settled_ms >= settled_ms > job.settled[0].settled_ms
        with pytest.raises(NotFailed):
            await credit.settle(*place, done=False, by="key:ann", reason="again")
        await until_told(apps, world, 5)


@virtual
async def test_an_answer_after_the_lease_settles_on_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.errors = [Retry("the bureau answered 500")]
    async with open_office() as (apps, credit):
        await take(credit, 1)
        await until_told(apps, world, 1)
        id_ = await last_job(credit)
        await credit.app.queues.settle(id_, STEP, done=True, result=REPORT, reason="by code")
        job = await ended(credit.app, id_)
        assert [(one.by, one.reason) for one in job.settled] == [("", "by code")]


@virtual
async def test_a_notice_that_comes_late_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.errors = [Retry("the bureau answered 500")]
    async with open_office() as (apps, credit):
        await credit.app.queues.pause(NOTICES)
        await take(credit, 1)
        id_ = await last_job(credit)
        assert (await ended(credit.app, id_)).state == "in_doubt"
        await credit.settle(ORGANISATION, FIRST, done=True, report=REPORT, by="ann", reason="r")
        assert (await ended(credit.app, id_)).state == "succeeded"
        await credit.app.queues.resume(NOTICES)
        await until_told(apps, world, 3)
        assert [kind for kind, _ in told(world)] == ["decision", "tradelines", "verification"]


@virtual
async def test_a_forged_job_is_reported_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    async with open_office() as (apps, credit):
        for body in ("nonsense", {"organisation": ORGANISATION, "opportunity": FIRST}):
            receipt = await credit.app.send("credit", body, key=f"{body}")
            assert (await ended(credit.app, receipt.id)).state == "failed"
        await until_told(apps, world, 0)
