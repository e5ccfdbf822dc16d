"""A timer that is changed, paused or that ends keeps its id and its number of firings."""

from typing import Any

import pytest

from onceward import limits
from onceward.api.retries import RetryPolicy
from onceward.api.timers import FailureTarget, Overlap
from onceward.errors import AlreadyEnded, BadInput, NoSuchTimer
from onceward.job_options import JobOptions
from onceward.recurrence import Cron, Interval
from onceward.webhooks.timers import FIRE_WRITES, WEBHOOKS, Call, Send, Spec, View
from onceward.webhooks.timers.members import edited
from tests.webhooks.timers.test_timers import HOUR_MS, Clockwork, after, new_clockwork

URL = "https://a.example"
EVERY_S = Spec(Send("q", 1), repeat=Interval(1_000, 0))


async def change(timers: Clockwork, changes: dict[str, Any], id_: str = "t") -> View:
    return await timers.jobs.store.run(
        lambda tx: timers.part.update(
            tx, id_, lambda spec: edited(spec, changes), due_ms=changes.get("due_ms")
        )
    )


async def pause(timers: Clockwork, id_: str = "t") -> View:
    return await timers.jobs.store.run(lambda tx: timers.part.pause(tx, id_))


async def resume(timers: Clockwork, id_: str = "t") -> View:
    return await timers.jobs.store.run(lambda tx: timers.part.resume(tx, id_))


@pytest.mark.parametrize(
    ("spec", "changes", "wanted"),
    [
        (after(9), {"body": 2}, Spec(Send("q", 2), delay_ms=9)),
        (after(9), {"queue": "r"}, Spec(Send("r", "fired"), delay_ms=9)),
        (after(9), {"priority": 1}, Spec(Send("q", "fired", JobOptions(priority=1)), delay_ms=9)),
        (after(9), {"url": URL}, Spec(Call(URL, body="fired"), delay_ms=9)),
        (
            Spec(Call(URL, headers={"a": "b"}, body=1), delay_ms=9),
            {"endpoint": "e", "method": "PUT"},
            Spec(Call("", "e", {"a": "b"}, 1, method="PUT"), delay_ms=9),
        ),
        (
            Spec(Call(URL, headers={"a": "b"}, body=1), delay_ms=9),
            {"headers": None, "retry": RetryPolicy((1,))},
            Spec(Call(URL, body=1, retry=RetryPolicy((1,))), delay_ms=9),
        ),
        (
            Spec(Call(URL, body=1), delay_ms=9),
            {"method": "GET"},
            Spec(Call(URL, method="GET"), delay_ms=9),
        ),
        (EVERY_S, {"every_ms": 5_000}, Spec(Send("q", 1), repeat=Interval(5_000, 0))),
        (EVERY_S, {"cron": "0 9 * * *"}, Spec(Send("q", 1), repeat=Cron("0 9 * * *"))),
        (
            Spec(Send("q"), repeat=Cron("0 9 * * *", "Europe/Berlin")),
            {"cron": "0 8 * * *"},
            Spec(Send("q"), repeat=Cron("0 8 * * *", "Europe/Berlin")),
        ),
        (
            Spec(Send("q"), repeat=Cron("0 9 * * *")),
            {"zone": "Asia/Tokyo", "every_ms": None},
            Spec(Send("q"), repeat=Cron("0 9 * * *", "Asia/Tokyo")),
        ),
        (
            Spec(Send("q"), repeat=Cron("0 9 * * *", "Asia/Tokyo")),
            {"every_ms": 7_000},
            Spec(Send("q"), repeat=Interval(7_000, 0)),
        ),
        (EVERY_S, {"every_ms": None, "due_ms": 5}, Spec(Send("q", 1), 5)),
        (
            EVERY_S,
            {"times": 3, "until_ms": 8, "overlap": "skip", "catch_up": "last"},
            Spec(Send("q", 1), None, None, Interval(1_000, 0), "last", 8, 3, "skip"),
        ),
    ],
)
def test_members_that_are_given_change_and_others_stay(
    spec: Spec, changes: dict[str, Any], wanted: Spec
) -> None:
    assert edited(spec, changes) == wanted


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        (after(9), {"url": URL, "endpoint": "e"}, "exactly one of"),
        (after(9), {"headers": {"a": "b"}}, "are only for timers that call"),
        (Spec(Call(URL), delay_ms=9), {"priority": 1}, "only for timers with a queue"),
        (EVERY_S, {"every_ms": 5_000, "cron": "0 9 * * *"}, "not both"),
        (EVERY_S, {"zone": "Asia/Tokyo"}, "only for timers with cron"),
        (EVERY_S, {"every_ms": None}, "needs a time or a delay"),
    ],
)
def test_members_that_conflict_are_refused(spec: Spec, changes: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        edited(spec, changes)


async def test_a_changed_timer_keeps_its_firings_and_its_beat() -> None:
    timers = await new_clockwork()
    await timers.add("t", EVERY_S)
    assert await timers.pass_ms(2_000) == [1, 1]
    before = await timers.get()
    changed = await change(timers, {"body": 2})
    assert changed.timer.due_ms == before.timer.due_ms
    assert (changed.timer.fired, changed.timer.job) == (2, before.timer.job)
    assert changed.job is not None
    assert await timers.pass_ms(1_000) == [2]
    changed = await change(timers, {"every_ms": 5_000})
    assert await timers.pass_ms(4_999) == []
    assert await timers.pass_ms(1) == [2]
    assert (await timers.get()).timer.fired == 4
    moved = await change(timers, {"due_ms": timers.now_ms + 77, "body": 3})
    assert moved.timer.due_ms == timers.now_ms + 77
    assert await timers.pass_ms(77) == [3]


async def test_a_change_without_effect_writes_nothing_and_a_wrong_one_changes_nothing() -> None:
    timers = await new_clockwork()
    await timers.add("t", EVERY_S)
    [entry] = await timers.timers()
    await change(timers, {"body": 1, "every_ms": 1_000})
    assert await timers.timers() == [entry]
    for wrong, message in (
        ({"every_ms": 5}, "an interval must have"),
        ({"until_ms": 5}, "after its end"),
        ({"times": 0}, "1 or more"),
        ({"until_ms": "soon"}, "whole ms"),
        ({"overlap": "never"}, "one of allow, skip, queue"),
        ({"overlap": "queue", "order_key": "o"}, "order key"),
        ({"due_ms": -1}, "0 to"),
    ):
        with pytest.raises(BadInput, match=message):
            await change(timers, wrong)
    assert await timers.timers() == [entry]
    with pytest.raises(NoSuchTimer):
        await change(timers, {"body": 2}, "other")
    await timers.cancel()
    with pytest.raises(AlreadyEnded):
        await change(timers, {"body": 2})


async def test_a_paused_timer_fires_after_it_is_resumed() -> None:
    timers = await new_clockwork()
    await timers.add("t", after(1_000))
    for _ in range(2):
        assert (await pause(timers)).status == "paused"
    assert await timers.pass_ms(HOUR_MS) == []
    assert (await timers.move(timers.now_ms + 5)).status == "paused"
    assert (await change(timers, {"body": 2})).status == "paused"
    assert await timers.pass_ms(HOUR_MS) == []
    for _ in range(2):
        assert (await resume(timers)).status == "active"
    assert await timers.pass_ms(0) == [2]
    for act in (pause, resume):
        with pytest.raises(AlreadyEnded):
            await act(timers)


async def test_a_recurring_timer_skips_the_times_of_its_pause() -> None:
    timers = await new_clockwork()
    await timers.add("t", EVERY_S)
    assert await timers.pass_ms(1_000) == [1]
    await pause(timers)
    assert await timers.pass_ms(10_500) == []
    assert (await resume(timers)).timer.fired == 1
    assert await timers.pass_ms(499) == []
    assert await timers.pass_ms(1) == [1]


async def test_a_timer_whose_end_passes_during_its_pause_ends() -> None:
    timers = await new_clockwork()
    until_ms = timers.now_ms + 5_000
    await timers.add("t", Spec(Send("q", 1), repeat=Interval(1_000, 0), until_ms=until_ms))
    await pause(timers)
    await timers.pass_ms(6_000)
    assert (await resume(timers)).status == "ended"
    assert await timers.pass_ms(HOUR_MS) == []


async def test_a_paused_timer_can_be_cancelled_and_set_again() -> None:
    timers = await new_clockwork()
    await timers.add("t", EVERY_S)
    await pause(timers)
    assert (await timers.cancel()).status == "cancelled"
    await timers.set("t", EVERY_S)
    await pause(timers)
    assert (await timers.set("t", EVERY_S)).status == "active"


async def test_a_timer_of_the_application_stays_paused_when_it_starts_again() -> None:
    timers = await new_clockwork()
    await timers.keep("t", EVERY_S)
    await pause(timers)
    assert (await timers.keep("t", EVERY_S)).status == "paused"
    other = Spec(Send("q", 2), repeat=Interval(9_000, 0))
    assert (await timers.keep("t", other)).status == "paused"
    await resume(timers)
    assert await timers.pass_ms(9_000) == [2]


async def test_a_pause_outlasts_the_suspension_of_its_caller() -> None:
    timers = await new_clockwork()
    await timers.add("t", EVERY_S, caller="ann")
    run = timers.jobs.store.run
    await run(lambda tx: timers.part.pause(tx, "t", caller="ann"))
    assert not await run(lambda tx: timers.part.unsuspend(tx, "t", caller="ann"))
    assert await run(lambda tx: timers.part.transfer(tx, "t", caller="ann", to="ben"))
    assert (await timers.get(caller="ben")).status == "paused"
    assert await timers.pass_ms(HOUR_MS) == []


@pytest.mark.parametrize("catch_up", ["all", "last", "none"])
async def test_a_timer_ends_after_its_last_time(catch_up: Any) -> None:
    timers = await new_clockwork()
    until_ms = timers.now_ms + 3_000
    spec = Spec(Send("q", 1), repeat=Interval(1_000, 0), catch_up=catch_up, until_ms=until_ms)
    await timers.add("t", spec)
    assert await timers.pass_ms(1_000) == [1]
    late = {"all": [1, 1], "last": [1], "none": []}
    assert await timers.pass_ms(HOUR_MS) == late[catch_up]
    assert (await timers.get()).status == "ended"


async def test_a_timer_ends_after_its_number_of_firings() -> None:
    timers = await new_clockwork()
    spec = Spec(Send("q", 1), repeat=Interval(1_000, 0), times=3)
    await timers.add("t", spec)
    assert await timers.pass_ms(2_000) == [1, 1]
    with pytest.raises(BadInput, match="already fired 2 times"):
        await change(timers, {"times": 2})
    await change(timers, {"times": 4})
    assert await timers.pass_ms(HOUR_MS) == [1, 1]
    assert ((await timers.get()).status, (await timers.get()).timer.fired) == ("ended", 4)
    await timers.set("t", spec)
    assert await timers.pass_ms(HOUR_MS) == [1, 1, 1], "a new timer starts at 1"
    assert (await timers.get()).timer.fired == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"until_ms": 1}, "after its end"),
        ({"times": True}, "whole number"),
        ({"repeat": None, "delay_ms": 1, "times": 2}, "only for recurring timers"),
        ({"repeat": None, "delay_ms": 1, "until_ms": 2}, "only for recurring timers"),
        ({"repeat": None, "delay_ms": 1, "overlap": "skip"}, "only for recurring timers"),
        ({"target": Call(URL, method="HEAD")}, "method must be one of POST, PUT"),
        ({"target": Call(URL, method="GET", body=1)}, "a GET request has no body"),
        ({"target": Call(URL, on_failure=FailureTarget())}, "exactly one of queue"),
        ({"target": Call(URL, on_failure=FailureTarget("a b"))}, "a queue name must have"),
        ({"target": Call(URL, on_failure=FailureTarget("q", URL))}, "exactly one of queue"),
        ({"target": Call(URL, on_failure={"queue": "q"})}, "on_failure must have"),  # type: ignore[arg-type]
    ],
)
async def test_what_cannot_end_overlap_or_be_called_is_refused(wrong: Any, message: str) -> None:
    timers = await new_clockwork()
    with pytest.raises(BadInput, match=message):
        await timers.add("t", Spec(**{"target": Send("q"), "repeat": Interval(1_000, 0), **wrong}))
    assert await timers.jobs.due() == []


@pytest.mark.parametrize("target", [Send(WEBHOOKS, 1), Call(URL)])
@pytest.mark.parametrize(
    ("overlap", "running", "fired", "skipped"),
    [("allow", 3, 3, 0), ("skip", 1, 1, 2), ("queue", 1, 3, 0)],
)
async def test_a_firing_that_is_unfinished_is_followed_as_the_policy_says(
    target: Any, overlap: Overlap, running: int, fired: int, skipped: int
) -> None:
    timers = await new_clockwork()
    await timers.add("t", Spec(target, repeat=Interval(1_000, 0), overlap=overlap))
    timers.jobs.clock.at_ms += 3_000
    for _ in range(3):
        [entry] = await timers.timers()
        await timers.fire(entry)
    view = await timers.get()
    assert (view.timer.fired, view.timer.skipped) == (fired, skipped)
    claims = []
    while claim := await timers.jobs.claim(queue=WEBHOOKS):
        claims.append(claim)
    assert len(claims) == running
    await timers.jobs.fail(claims[0], timers.now_ms + 10, "503")
    assert (await timers.jobs.claim(queue=WEBHOOKS)) is None, "a retry goes before the next firing"
    timers.jobs.clock.at_ms += 10
    for entry in await timers.jobs.due():
        if entry[1].endswith("#job"):
            await timers.jobs.store.run(lambda tx, e=entry: timers.jobs.schedule.promote(tx, e))
    again = await timers.jobs.claimed(queue=WEBHOOKS)
    assert again.id == claims[0].id
    await timers.jobs.complete(again)
    following = await timers.jobs.claim(queue=WEBHOOKS)
    assert (following is not None) == (overlap == "queue")
    timers.jobs.clock.at_ms += 990
    [entry] = await timers.timers()
    await timers.fire(entry)
    assert (await timers.get()).timer.fired == fired + 1


async def test_an_ordered_firing_takes_no_more_writes_than_it_says() -> None:
    timers = await new_clockwork()
    await timers.add("t", Spec(Call("", "e"), repeat=Interval(1_000, 0), overlap="queue"))
    for _ in range(2):
        timers.jobs.clock.at_ms += 1_000
        [entry] = await timers.timers()
        tx = timers.jobs.store.begin()
        await timers.part.fire(tx, entry)
        assert tx.size <= FIRE_WRITES
        await timers.fire(entry)


@pytest.mark.parametrize(
    "target", [FailureTarget("alerts"), FailureTarget(url=URL), FailureTarget(endpoint="ops")]
)
async def test_a_permanent_failure_sends_one_message_in_its_commit(target: FailureTarget) -> None:
    timers = await new_clockwork()
    call = Call(URL, body={"a": 1}, on_failure=target)
    await timers.add("t", Spec(call, delay_ms=0), caller="ann")
    await timers.pass_ms(0)
    claim = await timers.jobs.claimed(queue=WEBHOOKS)
    await timers.jobs.fail(claim, timers.now_ms, "503 Service Unavailable")
    claim = await timers.jobs.claimed(queue=WEBHOOKS)
    queue = target.queue or WEBHOOKS
    assert await timers.jobs.claim(queue=queue) is None
    await timers.jobs.fail(claim, None, "410 Gone")
    found = await timers.jobs.claimed(queue=queue)
    message = found.body
    if target.queue is None:
        assert (message["timer"], message["caller"]) == ("t", "ann")
        call = message["call"]
        assert (call.get("url"), call.get("endpoint")) == (target.url, target.endpoint)
        message = call["body"]
    assert message == {
        "type": "call.failed",
        "id": claim.id,
        "timer": "t",
        "number": 1,
        "due_ms": timers.now_ms,
        "endpoint": None,
        "url": URL,
        "reason": "410 Gone",
        "attempts": 2,
    }
    await timers.jobs.fail(found, None, "it fails as well")
    assert await timers.jobs.claim(queue=queue) is None
    assert (await timers.get(caller="ann")).status == "failed"


async def test_firings_are_kept_for_a_week() -> None:
    timers = await new_clockwork()
    await timers.add("t", Spec(Send("q", 1), repeat=Interval(HOUR_MS, 0), times=2))
    await timers.pass_ms(2 * HOUR_MS)

    async def kept() -> int:
        return len(await timers.jobs.store.run(lambda tx: tx.scan("firing##t")))

    assert await kept() == 2
    await timers.pass_ms(limits.TIMER_RETENTION_MS - 1)
    assert await kept() == 2
    await timers.pass_ms(1)
    assert await kept() == 0
