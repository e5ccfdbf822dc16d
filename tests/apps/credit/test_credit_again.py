"""What is said or asked for once more is on the record of an application, which has room for it."""

from typing import Any

import msgspec
import pytest

from apps.credit.bureau import make_report
from apps.credit.calls import Refused
from apps.credit.credit import KINDS, PULLS
from apps.credit.soap import read
from onceward.errors import (
    AlreadyEnded,
    BadInput,
    KeyReused,
    NoSuchJob,
    NotFailed,
    Retry,
    TooLarge,
)
from tests.apps.credit.envelopes import ORGANISATION, envelope, opportunity
from tests.apps.credit.office import World, ended, open_office, take
from tests.schedule.cluster import virtual

FIRST = opportunity(1)
REPORT = msgspec.to_builtins(make_report(FIRST, "B7"))


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


@virtual
async def test_fresher_fields_are_recorded_and_not_acted_on(patched: pytest.MonkeyPatch) -> None:
    world = World(patched)
    async with open_office(bureau_keys=True) as (_, credit):
        await take(credit, 1)
        fresher = read(envelope(1))
        fresher.notifications[0].id = "04l000000000009AAA"
        fresher.notifications[0].fields["Name"] = "Another"
        assert await credit.accept(fresher) == ["fresher"]
        assert await credit.accept(fresher) == ["redelivered"]
        application = await credit.find(ORGANISATION, FIRST)
        assert application.fields["Name"] == "Applicant 1"
        assert [d.fields for d in application.differences] == [{"Name": "Another"}]
        job = await ended(credit.app, application.pulls[0].job)
        assert (job.state, job.body["fields"]["Name"]) == ("succeeded", "Applicant 1")
    assert len(world.pulls) == 1


@virtual
async def test_fresher_fields_are_acknowledged_however_long_and_lose_no_neighbour(
    patched: pytest.MonkeyPatch,
) -> None:
    world = World(patched)
    world.pull_s = 3
    async with open_office() as (_, credit):
        for number in range(4):
            message = read(envelope(1, 2) if number == 3 else envelope(1))
            message.notifications[0].id = f"04l00000000000{number}AAA"
            message.notifications[0].fields["Name"] = f"{number}" + '"' * 140_000
            repeats = await credit.accept(message)
            assert repeats == [["first"], ["fresher"], ["fresher"], ["fresher", "first"]][number]
        pull = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        assert (await ended(credit.app, pull.job)).state == "succeeded"
        assert (await credit.find(ORGANISATION, FIRST)).pulls[0].report
        assert (await credit.find(ORGANISATION, opportunity(2))).pulls


@virtual
async def test_records_too_large_for_one_commit_are_written_in_several(
    patched: pytest.MonkeyPatch,
) -> None:
    World(patched)
    async with open_office(work=False) as (_, credit):
        for number in range(1, 17):
            long = read(envelope(number))
            long.notifications[0].fields["Name"] = '"' * 140_000
            assert await credit.accept(long) == ["first"]
        short = read(envelope(*range(1, 25)))
        for number, one in enumerate(short.notifications):
            one.id = f"04l{number:012d}AAB"
        assert await credit.accept(short) == ["fresher"] * 16 + ["first"] * 8


@virtual
async def test_a_pull_on_purpose_is_on_the_record_and_happens_once(
    patched: pytest.MonkeyPatch,
) -> None:
    world = World(patched)
    async with open_office() as (_, credit):
        await take(credit, 1)
        first = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        await ended(credit.app, first.job)
        asked = [
            await credit.pull_again(
                ORGANISATION,
                FIRST,
                reason=space + "the address was wrong",
                by="ann",
                key="ticket-7",
            )
            for space in ("", " ", " " * 10_000)
        ]
        fresher = read(envelope(1))
        fresher.notifications[0].id = "04l000000000009AAA"
        fresher.notifications[0].fields["Name"] = "Another"
        await credit.accept(fresher)
        why = {"reason": "the address was wrong", "by": "ann", "key": "ticket-7"}
        asked.append(await credit.pull_again(ORGANISATION, FIRST, **why))
        assert len({pull.job for pull in asked}) == 1
        with pytest.raises(KeyReused):
            await credit.pull_again(ORGANISATION, FIRST, **{**why, "reason": "another"})
        await ended(credit.app, asked[0].job)
        application = await credit.find(ORGANISATION, FIRST)
        assert len(world.pulls) == 2
        assert [(pull.by, pull.reason) for pull in application.pulls] == [
            ("", ""),
            ("ann", "the address was wrong"),
        ]
        assert application.pulls[0].report != application.pulls[1].report
        await take(credit, 1)
        assert len(world.pulls) == 2


@virtual
async def test_a_failed_pull_is_given_up_when_another_one_is_asked_for_in_its_place(
    patched: pytest.MonkeyPatch,
) -> None:
    world = World(patched)
    world.errors = [Refused("no such person")]
    async with open_office() as (apps, credit):
        await take(credit, 1)
        first = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        assert (await ended(credit.app, first.job)).state == "failed"
        again = await credit.pull_again(ORGANISATION, FIRST, reason="a typo", by="ann", key="k")
        assert (await ended(credit.app, again.job)).state == "succeeded"
        # Who retries all failed pulls means others.
        assert await credit.app.queues.redrive(PULLS) == 0
        with pytest.raises(NotFailed):
            await credit.app.queues.retry(first.job)
        await apps.sleep(100)
        given_up = await credit.app.job(first.job)
        assert (given_up.state, given_up.reason) == ("cancelled", "pulled again: a typo")
        assert await take(credit, 1) == ["redelivered"]
    assert len(world.pulls) == 2


@virtual
async def test_what_cannot_be_pulled_again_is_refused(patched: pytest.MonkeyPatch) -> None:
    world = World(patched)
    world.pull_s = 100
    async with open_office() as (_, credit):
        with pytest.raises(NoSuchJob):
            await credit.pull_again(ORGANISATION, FIRST, reason="r", by="ann", key="k")
        await take(credit, 1)
        await world.pulling.wait()
        for reason in ("", "  ", "x" * 1_001):
            with pytest.raises(BadInput, match="a reason must have"):
                await credit.pull_again(ORGANISATION, FIRST, reason=reason, by="ann", key="k")
        with pytest.raises(AlreadyEnded, match="running"):
            await credit.pull_again(ORGANISATION, FIRST, reason="r", by="ann", key="k")
        assert len((await credit.find(ORGANISATION, FIRST)).pulls) == 1
    assert len(world.pulls) == 1


@virtual
async def test_a_record_that_is_full_refuses_one_more_pull_and_keeps_the_others(
    patched: pytest.MonkeyPatch,
) -> None:
    World(patched)
    async with open_office() as (_, credit):
        message = read(envelope(1))
        message.notifications[0].fields["Name"] = '"' * 149_000
        await credit.accept(message)

        async def pull_until_refused() -> None:
            for number in range(1_000):
                last = (await credit.find(ORGANISATION, FIRST)).pulls[-1]
                assert (await ended(credit.app, last.job)).state == "succeeded"
                asked = {"reason": "\0" * 1_000, "by": "ann" * 1_000, "key": f"{number}"}
                await credit.pull_again(ORGANISATION, FIRST, **asked)

        with pytest.raises(TooLarge, match="too many pulls"):
            await pull_until_refused()
        pulls = (await credit.find(ORGANISATION, FIRST)).pulls
        assert len(pulls) > 5
        assert all(pull.outcome for pull in pulls)


@virtual
async def test_results_of_an_earlier_pull_are_told_before_those_of_a_later_one(
    patched: pytest.MonkeyPatch,
) -> None:
    world = World(patched)
    world.refusals = [Retry("500", after_s=100)] * 3
    async with open_office() as (apps, credit):
        await take(credit, 1)
        first = (await credit.find(ORGANISATION, FIRST)).pulls[0]
        await ended(credit.app, first.job)
        again = await credit.pull_again(ORGANISATION, FIRST, reason="r", by="ann", key="k")
        await ended(credit.app, again.job)
        while len(world.told) < 9:
            await apps.sleep(10)
    said = [(result["pull"], result["kind"]) for _, result in world.told[3:]]
    assert said == [(pull.job, kind) for pull in (first, again) for kind in KINDS]


# So many as a step may record, and a result that is sent on may not hold.
LONG = {**REPORT, "tradelines": [{"kind": "", "balance": 9e15, "limit": 9e15}] * 4_500}


@pytest.mark.parametrize(
    "wrong",
    [None, 7, {}, {"number": "B7"}, {**REPORT, "score": "good"}, LONG],
    ids=lambda wrong: msgspec.json.encode(wrong).decode()[:60],
)
@virtual
async def test_a_report_that_was_entered_wrongly_can_be_corrected(
    patched: pytest.MonkeyPatch, wrong: Any
) -> None:
    world = World(patched)
    world.errors = [TimeoutError("no answer")]
    async with open_office() as (_, credit):
        await take(credit, 1)
        id_ = (await credit.find(ORGANISATION, FIRST)).pulls[0].job
        assert (await ended(credit.app, id_)).state == "in_doubt"
        await credit.app.queues.settle(id_, "pull", done=True, result=wrong)
        job = await ended(credit.app, id_)
        assert (job.state, job.attempt) == ("in_doubt", 1)
        assert "settled again: the entered report is invalid" in job.reason
        await credit.app.queues.retry(id_)
        assert (await ended(credit.app, id_)).state == "in_doubt"
        await credit.app.queues.settle(id_, "pull", done=True, result=REPORT)
        assert (await ended(credit.app, id_)).result["report"] == "B7"
    assert len(world.pulls) == 1
