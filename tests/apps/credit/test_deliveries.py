"""Each repeat has its cause: what became of the delivery before it."""

import asyncio
from typing import Any

import pytest

from apps.credit import limits
from apps.credit.deliveries import Deliveries, outcome_of
from apps.credit.intake import Intake
from apps.credit.outbound import write
from onceward.errors import Unavailable
from tests.apps.credit.envelopes import ORGANISATION, envelope, notification, opportunity
from tests.apps.credit.office import World, make
from tests.apps.credit.test_intake import SOAP, XML, is_ack, office, post
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving
from tests.work.apps import Apps

PLACE = f"/credit/applications/{ORGANISATION}/{opportunity(1)}"
S = 1_000_000_000


async def seen(caller: Caller) -> Any:
    """The line of the sender in `/v1/senders`."""
    [line] = (await caller.ok("GET", "/v1/senders?queue=credit"))["senders"]
    assert line["sender"] == f"app:{ORGANISATION}"
    return line


def test_the_outcome_of_a_delivery_is_what_the_sender_can_have_heard() -> None:
    assert outcome_of(limits.ACK_S_MAX, False) == "acknowledged"
    assert outcome_of(limits.ACK_S_MAX + 0.1, False) == "late"
    assert outcome_of(0.1, True) == "closed"


def test_the_cause_of_a_repeat_is_what_became_of_the_delivery_before() -> None:
    known = Deliveries()
    assert known.begin("o", ["a", "b"], 0) == {}
    assert known.begin("o", ["a"], 59 * S) == {"a": "early"}
    assert known.begin("o", ["a", "b"], 61 * S) == {"a": "early", "b": "late"}
    # Both came again since they began first.
    assert known.end("o", ["a", "b"], "acknowledged", 0) == {"a", "b"}
    assert known.begin("o", ["a", "b"], 61 * S) == {"a": "acknowledged", "b": "acknowledged"}
    assert known.end("o", ["a", "b"], "closed", 61 * S) == set()
    assert known.begin("p", ["a"], 62 * S) == {}
    assert known.begin("o", ["a"], 62 * S) == {"a": "closed"}


def test_deliveries_take_a_bounded_memory() -> None:
    known = Deliveries(most=3)
    for number in range(10):
        known.begin("o", [f"{number}"], 0)
        known.end("o", [f"{number}"], "acknowledged", 0)
    assert len(known) == 3
    assert known.end("o", ["0"], "closed", 0) == set()  # which is forgotten
    assert len(known) == 3
    assert known.begin("o", ["9", "0"], 1) == {"9": "acknowledged"}


@virtual
async def test_a_sender_that_ignores_acknowledgements_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(monkeypatch, work=False) as (_, caller):
        for _ in range(3):
            assert is_ack(await post(caller, envelope(1)))
        fresher = write(ORGANISATION, [notification(1, "04l000000000009", Name="Other")])
        again = write(ORGANISATION, [notification(1, "04l000000000008", Name="Other")])
        twice = write(ORGANISATION, [notification(2, "04l000000000007", Name="New")] * 2)
        for body in (fresher, again, envelope(2, 2), twice):
            assert is_ack(await post(caller, body))
        line = await seen(caller)
        assert line["causes"] == {"acknowledged": 2, "fields": 2, "again": 1, "early": 2}
        assert (line["accepted"], line["repeats"]) == (2, 7)
        assert 0 <= line["ack_ms"] <= line["ack_99_ms"] <= line["ack_max_ms"]
        metrics = (await caller("GET", "/metrics")).body.decode()
        labels = f'organisation="{ORGANISATION}",cause="acknowledged"'
        assert f"onceward_credit_repeats_total{{{labels}}} 2\n" in metrics
        assert 'onceward_accepted_total{queue="credit",duplicate="no"} 2\n' in metrics
        assert 'onceward_accepted_total{queue="credit",duplicate="yes"} 7\n' in metrics


@virtual
async def test_repeats_at_the_same_time_are_early_whichever_is_stored_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(monkeypatch, work=False) as (_, caller):
        # Several commits for each, so that any of them may be the first with a notification.
        bodies = [envelope(*range(60)), envelope(*reversed(range(60)), *range(40))]
        answers = await asyncio.gather(*[post(caller, body) for body in bodies])
        assert all(map(is_ack, answers))
        line = await seen(caller)
        assert (line["accepted"], line["repeats"], line["causes"]) == (60, 100, {"early": 100})


@virtual
async def test_an_acknowledgement_that_comes_late_is_the_cause_of_the_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(monkeypatch, work=False) as (apps, caller):
        apps.engines[0].latency_s = 61
        assert is_ack(await post(caller, envelope(1)))
        apps.engines[0].latency_s = 0
        assert is_ack(await post(caller, envelope(1)))
        line = await seen(caller)
        assert line["causes"] == {"late": 1}
        assert line["ack_max_ms"] >= 61_000
        assert (await caller.ok("GET", PLACE))["application"]["unheard"] == "late"


@virtual
async def test_a_connection_that_closes_early_is_the_cause_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    World(monkeypatch)
    apps = Apps()
    credit = make(apps, work=False)
    Intake(credit)
    async with serving(credit.app) as caller:
        apps.engines[0].latency_s = 1
        call = caller.call("POST", SOAP, raw=envelope(1), headers=XML)
        running = asyncio.ensure_future(call.run())
        await apps.sleep(0.5)
        call.gone.set()
        await running
        apps.engines[0].latency_s = 0
        assert is_ack(await post(caller, envelope(1)))
        assert (await seen(caller))["causes"] == {"closed": 1}
    # Another process knows it from the record. What it cannot know it does not make up.
    other = make(apps, work=False)
    Intake(other)
    async with serving(other.app) as caller:
        assert is_ack(await post(caller, envelope(1)))
        assert is_ack(await post(caller, envelope(2)))
        assert (await seen(caller))["causes"] == {"closed": 1}
    third = make(apps, work=False)
    Intake(third)
    async with serving(third.app) as caller:
        assert is_ack(await post(caller, envelope(2)))
        assert (await seen(caller))["causes"] == {"unknown": 1}


@virtual
async def test_a_message_that_could_not_be_stored_is_repeated_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(monkeypatch, work=False) as (_, caller):

        async def fail(*_: Any, **__: Any) -> None:
            raise Unavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(caller.app.store, "run", fail)
            assert (await post(caller, envelope(1))).status == 503
        assert is_ack(await post(caller, envelope(1)))
        line = await seen(caller)
        assert (line["accepted"], line["causes"]) == (1, {"failed": 1})


@virtual
async def test_what_is_stored_is_acknowledged_though_counting_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(monkeypatch, work=False) as (apps, caller):
        for name in ("note_unheard", "unheard"):

            async def fail(*_: Any, **__: Any) -> None:
                raise Unavailable("away")

            monkeypatch.setattr(f"apps.credit.credit.Credit.{name}", fail)
        apps.engines[0].latency_s = 61
        assert is_ack(await post(caller, envelope(1)))
