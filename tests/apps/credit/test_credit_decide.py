"""The operator's own function decides, once for each pull."""

from collections.abc import Mapping
from typing import Any

import pytest

from apps.credit.credit import Credit
from apps.credit.decision import Decision, Report
from onceward.schedule import Job
from tests.apps.credit.envelopes import ORGANISATION, opportunity
from tests.apps.credit.office import SETTINGS, World, ended, take
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

FIRST = opportunity(1)


async def pulled(credit: Credit) -> Job:
    """Take an application in; the job of its pull, once it has ended."""
    await take(credit, 1)
    return await ended(credit.app, (await credit.find(ORGANISATION, FIRST)).pulls[0].job)


@pytest.mark.parametrize("later", [False, True])
@virtual
async def test_the_function_gets_the_report_and_the_fields(
    monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    world = World(monkeypatch)
    got: list[tuple[Report, Mapping[str, str | None]]] = []

    def decide(report: Report, fields: Mapping[str, str | None]) -> Any:
        got.append((report, fields))
        decision = Decision("review", ["we look at all of them"])
        return slowly(decision) if later else decision

    async def slowly(decision: Decision) -> Decision:
        await apps.sleep(5)
        return decision

    apps = Apps(shared=False)
    credit = Credit(SETTINGS, apps.make(), decide=decide)
    async with credit.app:
        job = await pulled(credit)
        assert (job.state, job.result["outcome"]) == ("succeeded", "review")
        [(report, fields)] = got
        assert (report.number, fields["Name"]) == ("B1", "Applicant 1")
        pull = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        assert (pull.outcome, pull.reasons) == ("review", ["we look at all of them"])
        while not world.told:
            await apps.sleep(1)
        assert world.told[0][1]["value"]["reasons"] == ["we look at all of them"]


@virtual
async def test_a_function_that_fails_is_called_again_and_nothing_is_pulled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    calls = 0

    def decide(report: Report, fields: Mapping[str, str | None]) -> Decision:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ValueError("the rules cannot be read")
        return Decision("approved", [])

    apps = Apps(shared=False)
    credit = Credit(SETTINGS, apps.make(), decide=decide)
    async with credit.app:
        job = await pulled(credit)
        assert (job.state, job.attempt, len(world.pulls)) == ("succeeded", 3, 1)


@pytest.mark.parametrize(
    "wrong",
    [None, "approved", {"outcome": "maybe", "reasons": []}, Decision("review", ["x" * 4_000])],
)
@virtual
async def test_what_is_no_decision_fails_the_pull_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    world = World(monkeypatch)
    answers = [wrong, {"outcome": "approved", "reasons": ["mended"]}]
    apps = Apps(shared=False)
    credit = Credit(SETTINGS, apps.make(), decide=lambda report, fields: answers.pop(0))
    async with credit.app:
        job = await pulled(credit)
        assert job.state == "failed"
        assert "apps.credit.decision:decide" in job.reason
        # Once it is mended, the job goes on with the report that it has.
        id_ = (await credit.find(ORGANISATION, FIRST)).pulls[0].job
        await credit.app.queues.retry(id_)
        job = await ended(credit.app, id_)
        assert (job.state, job.result["outcome"], len(world.pulls)) == ("succeeded", "approved", 1)
