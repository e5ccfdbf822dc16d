"""A job's record tells what its commit has made."""

import pytest

import onceward
from onceward import limits
from onceward.schedule import Effect
from onceward.work.effects import effects_of
from onceward.work.steps import Step
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_what_a_handler_has_done_is_told_with_its_job() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("orders")
    async def order(job: onceward.Job) -> None:
        await job.step("pay", lambda: 1)
        job.tx.put(("stock", "lamp"), 4)
        await job.send("mail", {"to": "ann"})
        await app.timers.set("ask", queue="mail", delay_s=60, tx=job.tx)
        await app.rooms.create(job.tx, "board", by="shop")
        await app.rooms.map_set(job.tx, "board", "m", "k", 1)

    async with app:
        receipt = await app.send("orders", 1, key="a")
        job = await app.wait(receipt.id)
        assert job.state == "succeeded"
        [mail] = [effect for effect in job.effects if effect.kind == "job"]
        [step] = [effect for effect in job.effects if effect.kind == "step"]
        assert job.started_ms <= step.started_ms <= step.ended_ms <= job.ended_ms
        assert sorted((effect.kind, effect.name) for effect in job.effects) == [
            ("job", mail.name),
            ("record", "stock lamp"),
            ("room", "board"),
            ("step", "pay"),
            ("timer", "ask"),
        ]
        sent = await app.job(mail.name)
        assert sent.cause == Effect("job", receipt.id)
        assert job.cause is None


@virtual
async def test_a_job_says_which_timer_has_sent_it() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.timers.set("daily", queue="q", delay_s=1, caller="ann")
        [claim] = await app.claim("q", "w", lease_s=60, wait_s=30)
        job = await app.job(claim.id)
        assert job.cause == Effect("timer", "daily", "app:ann")
        await app.complete(claim.id, claim.token)
        assert (await app.job(claim.id)).effects == []


def told_of(steps: list[str]) -> list[Effect]:
    return effects_of(dict.fromkeys(steps, Step()), [])


def test_only_so_much_is_told() -> None:
    steps = [f"step {number}" for number in range(100)]
    assert told_of(steps) == [Effect("step", name) for name in steps[: limits.EFFECTS_MAX]]
    assert effects_of({}, [("notes", "x" * limits.EFFECTS_BYTES_MAX)]) == []


def test_what_belongs_to_the_rest_is_not_told_twice() -> None:
    written = [
        ("job#0001", "A1#job"),
        ("job#0001", "A1#lease"),
        ("ready#0001#q", "5#1#A1"),
        ("inbox#00#q", "#k"),
        ("roomlog#r#e", "1"),
        ("room#r", "head"),
    ]
    assert effects_of({}, written) == [Effect("job", "A1"), Effect("room", "r")]


@pytest.mark.parametrize(
    "partition",
    [
        *("due#0001", "ready#0001#q", "line#0001#q#k", "order#0001", "limit#0f", "parked#q#k"),
        *("permit#q", "rate", "failed#q", "inbox#00#q", "lock#0001", "ask#0001#A1", "ask#0001"),
        *("fence", "gate#07", "rooms", "roomsnap#r#e"),
    ],
)
def test_records_by_which_nobody_would_find_anything_are_left_out(partition: str) -> None:
    assert effects_of({}, [(partition, "k")]) == []


def test_what_is_told_has_the_name_that_its_maker_gave_it() -> None:
    written = [
        ("timer#0001", "ann$23#daily$24"),
        ("room#a$23b", "info"),
        ("roomlog#c$23d#e", "1"),
        ("notes#a$23b", "x$24"),
        ("jobs", "A1#job"),
    ]
    assert effects_of({}, written) == [
        Effect("timer", "daily$", "ann#"),
        Effect("room", "a#b"),
        Effect("room", "c#d"),
        Effect("record", "notes#a$23b x$24"),
        Effect("record", "jobs A1#job"),
    ]


def test_steps_come_first_and_nothing_is_told_twice() -> None:
    written = [("stock", "lamp"), ("stock", "lamp"), ("room#r", "head"), ("room#r", "info")]
    told = [Effect("step", "pay"), Effect("record", "stock lamp"), Effect("room", "r")]
    assert effects_of({"pay": Step(), "stock": Step(read=True)}, written) == told


def step_of(size_bytes: int) -> str:
    """The name of a step that takes so many bytes in a record."""
    return "x" * (size_bytes - len('["step","","",0,0]'))


def test_so_many_bytes_are_told_and_nothing_behind_what_does_not_fit() -> None:
    first, rest = step_of(1_000), step_of(limits.EFFECTS_BYTES_MAX - 1_000)
    assert told_of([first, rest]) == [
        Effect("step", first),
        Effect("step", rest),
    ]
    assert told_of([first, rest + "x", "y"]) == [Effect("step", first)]
    assert told_of([first, rest, "y"]) == [
        Effect("step", first),
        Effect("step", rest),
    ]
