"""A timer fires when its time has come, each firing in one commit with its new state."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.timers import CatchUp
from onceward.errors import AlreadyEnded, BadInput, KeyReused, NoSuchTimer
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.recurrence import Cron, Interval
from onceward.schedule import due_ms_of
from onceward.store.transaction import Transaction
from onceward.webhooks.timers import (
    FIRE_WRITES,
    WEBHOOKS,
    Call,
    Send,
    Spec,
    Timer,
    TimerTable,
    View,
    id_for,
    timer_key,
)
from tests.schedule.jobs import Jobs, new_jobs, problems

HOUR_MS = 3_600_000


class Clockwork:
    """Timers on jobs whose clock is moved by the test."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.part = TimerTable(jobs.schedule)

    async def add(self, id_: str = "t", spec: Spec | None = None, caller: str = "") -> View:
        view, _ = await self.jobs.store.run(
            lambda tx: self.part.add(tx, id_, spec or after(1_000), caller=caller)
        )
        return view

    async def set(self, id_: str, spec: Spec) -> View:
        return await self.jobs.store.run(lambda tx: self.part.set(tx, id_, spec))

    async def keep(self, id_: str, spec: Spec) -> View:
        return await self.jobs.store.run(lambda tx: self.part.keep(tx, id_, spec))

    async def get(self, id_: str = "t", caller: str = "") -> View:
        return await self.jobs.store.run(lambda tx: self.part.get(tx, id_, caller=caller))

    async def move(self, due_ms: int, id_: str = "t") -> View:
        return await self.jobs.store.run(lambda tx: self.part.move(tx, id_, due_ms))

    async def cancel(self, id_: str = "t") -> View:
        return await self.jobs.store.run(lambda tx: self.part.cancel(tx, id_))

    async def names(self, **options: Any) -> list[str]:
        options = {"most": 100, **options}
        found = await self.jobs.store.run(lambda tx: self.part.find(tx, **options))
        return [view.id for view in found]

    async def fire(self, entry: Key) -> None:
        await self.jobs.store.run(lambda tx: self.part.fire(tx, entry))

    async def pass_ms(self, passed_ms: int) -> list[Any]:
        """Let time pass, and act on what is due, in order; what is ready then, taken away."""
        self.jobs.clock.at_ms += passed_ms
        while due := [e for e in await self.timers() if due_ms_of(e[1]) <= self.now_ms]:
            await self.fire(due[0])
        assert problems(self.jobs.engine) == []
        bodies = []
        while claim := await self.jobs.claim():
            bodies.append(claim.body)
            await self.jobs.complete(claim)
        return bodies

    async def timers(self) -> list[Key]:
        return [entry for entry in await self.jobs.due() if entry[1].endswith("#timer")]

    @property
    def now_ms(self) -> int:
        return self.jobs.clock.at_ms


async def new_clockwork() -> Clockwork:
    return Clockwork(await new_jobs())


def after(delay_ms: int, body: Any = "fired", **options: Any) -> Spec:
    return Spec(Send("q", body), delay_ms=delay_ms, **options)


async def test_a_timer_fires_once_when_its_time_has_come_and_never_early() -> None:
    timers = await new_clockwork()
    assert (await timers.add()).status == "active"
    assert await timers.pass_ms(999) == []
    assert (await timers.get()).status == "active"
    assert await timers.pass_ms(1) == ["fired"]
    view = await timers.get()
    assert (view.status, view.timer.fired, view.timer.fired_ms) == ("success", 1, timers.now_ms)
    assert await timers.pass_ms(HOUR_MS) == []


@pytest.mark.parametrize("spec", [after(0), Spec(Send("q", "fired"), due_ms=0)])
async def test_one_without_delay_or_of_the_past_fires_at_once(spec: Spec) -> None:
    timers = await new_clockwork()
    timers.jobs.clock.at_ms += 10 * HOUR_MS
    await timers.add("t", spec)
    assert await timers.pass_ms(0) == ["fired"]


async def test_the_same_again_is_the_same_and_another_is_refused() -> None:
    timers = await new_clockwork()
    first = await timers.add()
    timers.jobs.clock.at_ms += 500
    again, duplicate = await timers.jobs.store.run(
        lambda tx: timers.part.add(tx, "t", after(1_000))
    )
    assert duplicate
    assert again.timer.due_ms == first.timer.due_ms
    with pytest.raises(KeyReused):
        await timers.add("t", after(1_001))
    await timers.add("t", after(7), caller="someone else")
    assert await timers.pass_ms(500) == ["fired", "fired"]
    assert (await timers.add()).status == "success", "known also when it is over"


async def test_one_that_is_set_again_takes_the_place_of_the_one_before() -> None:
    timers = await new_clockwork()
    await timers.set("t", after(1_000, "first"))
    await timers.set("t", after(2_000, "second"))
    assert await timers.pass_ms(1_500) == []
    assert await timers.pass_ms(500) == ["second"]
    await timers.set("t", after(1_000, "third"))
    assert (await timers.get()).status == "active"
    assert await timers.pass_ms(1_000) == ["third"]
    assert (await timers.get()).timer.fired == 2


async def test_one_that_is_kept_goes_on_unless_it_is_another_or_over() -> None:
    timers = await new_clockwork()
    repeat = Interval(1_000, 0)
    kept = Spec(Send("q", {"pair": (1, 2)}), repeat=repeat, catch_up="last")
    for _ in range(10):
        await timers.keep("t", kept)
        assert await timers.pass_ms(99) == []
    assert await timers.pass_ms(10) == [{"pair": [1, 2]}], "whoever starts puts nothing off"
    await timers.pass_ms(500)
    await timers.keep("t", Spec(Send("q", 2), repeat=repeat, catch_up="last"))
    assert await timers.pass_ms(999) == []
    assert await timers.pass_ms(1) == [2]
    await timers.cancel()
    assert await timers.pass_ms(5_000) == []
    await timers.keep("t", kept)
    assert await timers.pass_ms(1_000) == [{"pair": [1, 2]}]


async def test_it_can_be_moved_until_it_has_fired() -> None:
    timers = await new_clockwork()
    await timers.add()
    await timers.move(timers.now_ms + 5_000)
    assert await timers.pass_ms(1_000) == []
    await timers.move(timers.now_ms + 10)
    assert await timers.pass_ms(10) == ["fired"]
    with pytest.raises(AlreadyEnded):
        await timers.move(timers.now_ms)
    with pytest.raises(AlreadyEnded):
        await timers.cancel()


async def test_one_that_is_cancelled_does_not_fire_and_twice_is_once() -> None:
    timers = await new_clockwork()
    await timers.add()
    assert (await timers.cancel()).status == "cancelled"
    assert (await timers.cancel()).status == "cancelled"
    assert await timers.pass_ms(HOUR_MS) == []
    assert (await timers.get()).status == "cancelled"
    with pytest.raises(AlreadyEnded):
        await timers.move(timers.now_ms)
    await timers.set("t", after(1))
    assert await timers.pass_ms(1) == ["fired"]


async def test_an_entry_that_was_left_behind_does_nothing() -> None:
    timers = await new_clockwork()
    await timers.add()
    [entry] = await timers.jobs.due()
    await timers.move(timers.now_ms + 1_000)  # the same time, but another generation
    timers.jobs.clock.at_ms += 1_000
    await timers.fire(entry)
    assert await timers.jobs.ready() == []
    assert await timers.pass_ms(0) == ["fired"]
    await timers.fire(entry)
    assert await timers.jobs.ready() == []


async def test_an_entry_before_its_time_stays() -> None:
    timers = await new_clockwork()
    await timers.add()
    [entry] = await timers.jobs.due()
    await timers.fire(entry)
    assert await timers.jobs.due() == [entry]
    assert await timers.pass_ms(1_000) == ["fired"]


@pytest.mark.parametrize(("policy", "fired"), [("all", 10), ("last", 1), ("none", 5)])
async def test_what_was_missed_is_caught_up_as_the_policy_says(policy: CatchUp, fired: int) -> None:
    """Ten seconds of a second each; of those no older than the grace, five have their time yet."""
    timers = await new_clockwork()
    repeat = Interval(1_000, 0)
    await timers.add("t", Spec(Send("q", 1), repeat=repeat, catch_up=policy))
    assert limits.RECUR_GRACE_MS == 5_000
    assert len(await timers.pass_ms(10_400)) == fired
    assert len(await timers.pass_ms(599)) == 0
    assert len(await timers.pass_ms(1)) == 1, "the beat is kept"
    assert (await timers.get()).status == "active"


@pytest.mark.parametrize(("policy", "fired"), [("all", 24), ("last", 1), ("none", 0)])
async def test_cron_is_caught_up_as_the_policy_says(policy: CatchUp, fired: int) -> None:
    timers = await new_clockwork()
    timers.jobs.clock.at_ms = 1_800_000_000_000
    await timers.pass_ms(HOUR_MS - timers.now_ms % HOUR_MS)
    repeat = Cron("30 * * * *")
    await timers.add("t", Spec(Send("q", 1), repeat=repeat, catch_up=policy))
    assert len(await timers.pass_ms(24 * HOUR_MS)) == fired
    assert len(await timers.pass_ms(HOUR_MS // 2)) == 1


@pytest.mark.parametrize(("policy", "status"), [("all", "success"), ("none", "skipped")])
async def test_a_single_time_that_was_missed_counts_or_not(policy: CatchUp, status: str) -> None:
    timers = await new_clockwork()
    await timers.add("t", after(1_000, catch_up=policy))
    await timers.pass_ms(HOUR_MS)
    assert (await timers.get()).status == status


async def test_one_that_repeats_ends_when_it_is_cancelled() -> None:
    timers = await new_clockwork()
    await timers.add("t", Spec(Send("q", 1), repeat=Interval(1_000, 0), delay_ms=0))
    assert len(await timers.pass_ms(0)) == 1
    assert len(await timers.pass_ms(1_000)) == 1
    await timers.cancel()
    assert await timers.pass_ms(HOUR_MS) == []


async def test_a_url_is_called_by_a_job_and_how_that_ends_is_the_timers_status() -> None:
    timers = await new_clockwork()
    call = Call(url="https://example.com/hook", headers={"x": "y"}, body={"a": 1})
    await timers.add("t", Spec(call, delay_ms=0), caller="ann")
    await timers.pass_ms(0)
    assert (await timers.get(caller="ann")).status == "firing"
    claim = await timers.jobs.claimed(queue=WEBHOOKS)
    assert claim.body["timer"] == "t"
    assert claim.body["caller"] == "ann"
    assert claim.body["call"]["url"] == "https://example.com/hook"
    await timers.jobs.fail(claim, None, "410 Gone")
    view = await timers.get(caller="ann")
    assert (view.status, view.job and view.job.reason) == ("failed", "410 Gone")
    await timers.jobs.store.run(lambda tx: timers.jobs.schedule.retry(tx, claim.id))
    assert (await timers.get(caller="ann")).status == "firing"
    again = await timers.jobs.claimed(queue=WEBHOOKS)
    assert again.id == claim.id, "sent again under the same id"
    await timers.jobs.complete(again)
    assert (await timers.get(caller="ann")).status == "success"


async def test_the_largest_call_that_is_let_in_can_be_made() -> None:
    timers = await new_clockwork()
    for chars in range(limits.BODY_BYTES_MAX, 0, -50):
        try:
            await timers.add("t", Spec(Call(endpoint="e", body="x" * chars), delay_ms=0))
        except BadInput:
            continue
        break
    await timers.pass_ms(0)
    claim = await timers.jobs.claimed(queue=WEBHOOKS)
    assert len(claim.body["call"]["body"]) == chars > limits.BODY_BYTES_MAX - 500


async def test_what_is_over_is_forgotten_after_a_while_and_not_before() -> None:
    timers = await new_clockwork()
    await timers.add()
    await timers.pass_ms(1_000)
    await timers.pass_ms(limits.TIMER_RETENTION_MS - 1)
    assert (await timers.get()).status == "success"
    await timers.pass_ms(1)
    with pytest.raises(NoSuchTimer):
        await timers.get()


async def test_jobs_of_timers_stand_in_the_order_in_which_they_were_due() -> None:
    timers = await new_clockwork()
    for n in (3, 1, 2):
        await timers.add(f"t{n}", after(n * 1_000, n))
    assert await timers.pass_ms(HOUR_MS) == [1, 2, 3]


async def test_a_firing_takes_no_more_writes_than_it_says() -> None:
    timers = await new_clockwork()
    send = Send("q", 1, JobOptions(order_key="o", limit_key="l"))
    await timers.add("t", Spec(send, repeat=Interval(1_000, 0)))
    timers.jobs.clock.at_ms += 5_000
    [entry] = await timers.jobs.due()
    tx = timers.jobs.store.begin()
    await timers.part.fire(tx, entry)
    assert tx.size <= FIRE_WRITES
    assert timers.part.read_to_fire(entry) == [timer_key("", "t", 1)]


async def test_timers_are_listed_by_the_beginning_of_their_names_in_pages() -> None:
    timers = await new_clockwork()
    for id_ in ("b#2", "a", "b#1", "bb", "c", "b$", "ünï"):
        await timers.add(id_)
    await timers.add("b of another", caller="other")
    assert await timers.names() == ["a", "b#1", "b#2", "b$", "bb", "c", "ünï"]
    assert await timers.names(prefix="b") == ["b#1", "b#2", "b$", "bb"]
    assert await timers.names(prefix="b#") == ["b#1", "b#2"]
    assert await timers.names(most=2) == ["a", "b#1"]
    assert await timers.names(most=2, after="b#1") == ["b#2", "b$"]
    assert await timers.names(caller="other") == ["b of another"]
    assert await timers.names(prefix="zzz") == []


@given(st.lists(st.text(min_size=1, max_size=20), unique=True), st.text(max_size=3))
async def test_every_prefix_finds_what_begins_with_it(ids: list[str], prefix: str) -> None:
    timers = await new_clockwork()
    known = []
    for id_ in ids:
        try:
            await timers.add(id_)
        except BadInput:
            continue
        known.append(id_)
    try:
        found = await timers.names(prefix=prefix)
    except BadInput:
        return
    assert sorted(found) == sorted(id_ for id_ in known if id_.startswith(prefix))


BAD: list[tuple[str, Spec]] = [
    ("", after(1)),
    ("x" * 257, after(1)),
    ("\ud800", after(1)),
    ("t", Spec(Send("q"))),
    ("t", Spec(Send("q"), due_ms=1, delay_ms=1)),
    ("t", Spec(Send("q"), due_ms=-1)),
    ("t", Spec(Send("q"), delay_ms=-5 * HOUR_MS)),
    ("t", Spec(Send("q"), delay_ms=101 * 366 * 24 * HOUR_MS)),
    ("t", Spec(Send("no such name"), delay_ms=1)),
    ("t", Spec(Send("q", object()), delay_ms=1)),
    ("t", Spec(Send("q", options=JobOptions(priority=77)), delay_ms=1)),
    ("t", Spec(Send("q", "x" * limits.BODY_BYTES_MAX), delay_ms=1)),
    ("t", Spec(Call(), delay_ms=1)),
    ("t", Spec(Call(url="https://a.example", endpoint="e"), delay_ms=1)),
    ("t", Spec(Call(url="https://a.example", body=float("nan")), delay_ms=1)),
    ("t", Spec(Send("q"), repeat=Interval(1, 0))),
    ("t", Spec(Send("q"), repeat=Cron("nonsense"))),
    ("t", Spec(Send("q"), repeat=Cron("0 0 30 2 *"))),
    ("t", Spec(Send("q"), repeat=Cron("* * * * *", "Nowhere/Else"))),
    ("t", Spec(Send("q"), due_ms=1.5)),  # type: ignore[arg-type]
    ("t", Spec(Send("q"), delay_ms=1, catch_up="some")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("id_", "spec"), BAD)
async def test_what_cannot_be_a_timer_is_refused_and_leaves_nothing(id_: str, spec: Spec) -> None:
    timers = await new_clockwork()
    for _ in range(2):
        with pytest.raises(BadInput):
            await timers.add(id_, spec)
        with pytest.raises(BadInput):
            await timers.set(id_, spec)
    assert await timers.jobs.due() == []
    assert await timers.names() == []


@pytest.mark.parametrize("id_", ["t", "", "x" * 1_000])
async def test_a_timer_that_is_not_there_is_nothing_to_work_on(id_: str) -> None:
    timers = await new_clockwork()
    await timers.add("t", caller="ann")
    for call in (timers.get(id_), timers.move(5, id_), timers.cancel(id_)):
        with pytest.raises(NoSuchTimer):
            await call


async def test_a_move_to_a_time_too_far_is_refused() -> None:
    timers = await new_clockwork()
    await timers.add()
    with pytest.raises(BadInput):
        await timers.move(-1)
    assert await timers.pass_ms(1_000) == ["fired"]


def test_an_idempotency_key_makes_the_same_id_for_the_same_caller_only() -> None:
    assert id_for("", "k") == id_for("", "k")
    assert len({id_for("", "k"), id_for("", "l"), id_for("k", ""), id_for("a", "k")}) == 4


async def test_records_of_timers_that_do_not_agree_are_found() -> None:
    timers = await new_clockwork()
    await timers.add("a")
    await timers.add("b")
    assert problems(timers.jobs.engine) == []
    [first, second] = await timers.timers()

    async def spoil(tx: Transaction) -> None:
        tx.delete(first)
        tx.delete(timer_key("", "b", 1))
        tx.put(("timer#0000000000000000", "#c"), "nonsense")

    await timers.jobs.store.run(spoil)
    found = problems(timers.jobs.engine)
    assert len(found) == 3
    assert any("the timer is active but its due entry" in text for text in found)
    assert any("timer 'b' does not exist" in text for text in found)
    assert any("not a timer" in text for text in found)
    assert second in await timers.timers()
    await timers.jobs.store.run(lambda tx: spoil_state(tx))
    assert any("has another due entry" in text for text in problems(timers.jobs.engine))


async def spoil_state(tx: Transaction) -> None:
    timer = Timer(after(1_000), 5, 0, "", state="cancelled")
    tx.put(timer_key("", "b", 1), timer)
