"""The times of a job are recorded with it, and make up a timeline without gaps."""

from itertools import pairwise
from typing import Any

import pytest

import onceward
from onceward import limits
from onceward.api.job_history import JobSpan
from onceward.app import App
from onceward.errors import Fail
from onceward.observe.timeline import timeline
from onceward.schedule import Job
from onceward.schedule.records import Change, Run
from onceward.work import steps
from onceward.work.children import ChildJob
from onceward.work.steps import Step
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


async def spans_of(app: App, id_: str) -> list[JobSpan]:
    async def fn(tx: Any) -> list[JobSpan]:
        return timeline(await app.node.schedule.get(tx, id_), await steps.load(tx, id_))

    return await app.store.run(fn)


def brief(spans: list[JobSpan]) -> list[tuple[str, str, float]]:
    """Kinds, names or states, and durations in tenths of a second."""
    return [
        (one.kind, one.name or one.state, round((one.end_ms - one.start_ms) / 1000, 1))
        for one in spans
        if one.kind != "queued"
    ]


@virtual
async def test_a_job_of_every_kind_of_wait_has_a_timeline_without_gaps() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("page")
    async def page(job: onceward.Job) -> None:
        await apps.sleep(4)

    @app.handler("album", retry_first_s=2, retry_max_s=2)
    async def album(job: onceward.Job) -> Any:
        await job.step("look", apps.sleep, 1)
        if job.attempt == 1:
            raise RuntimeError("not yet")
        await job.sleep(5)
        await job.gather(ChildJob("page", 1))
        return await job.wait_for("approval")

    async with app:
        id_ = (await app.send("album", None, delay_s=3)).id
        await apps.sleep(30)
        waiting = await spans_of(app, id_)
        assert (waiting[-1].kind, waiting[-1].end_ms) == ("event", 0)
        await app.emit(id_, "approval", "yes")
        job = await app.wait(id_, 60)
        assert (job.state, job.result) == ("succeeded", "yes")
        spans = await spans_of(app, id_)
    found = brief(spans)
    pauses = [length for kind, _, length in found if kind == "backoff"]
    assert 1 <= pauses.pop() <= 2
    assert [one for one in found if one[0] != "backoff"] == [
        ("scheduled", "", 3),
        ("attempt", "failed", 1),
        ("step", "look", 1),
        ("attempt", "released", 0),
        ("sleep", "", 5),
        ("attempt", "released", 0),
        ("children", "1", 4),
        ("attempt", "released", 0),
        ("event", "approval", found[-2][2]),
        ("attempt", "succeeded", 0),
    ]
    whole = [one for one in spans if one.kind != "step"]
    assert whole[0].start_ms == job.created_ms
    assert whole[-1].end_ms == job.ended_ms
    assert all(one.end_ms == other.start_ms for one, other in pairwise(whole))


@virtual
async def test_a_failed_job_shows_the_time_until_its_retry_and_its_steps() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def handle(job: onceward.Job) -> None:
        await job.step("done", apps.sleep, 2)
        if not job.key:
            raise Fail("no key")

    async with app:
        id_ = (await app.send("q", None)).id
        await app.wait(id_, 60)
        await apps.sleep(7)
        found = brief(await spans_of(app, id_))
        assert found == [("attempt", "failed", 2), ("step", "done", 2)], "it does not go on"
        await app.queues.redrive("q")
        await app.wait(id_, 60)
        await apps.sleep(5)
        found = brief(await spans_of(app, id_))
        assert found[2:] == [("failed", "", 7), ("attempt", "failed", 0)]
        await app.cancel(id_)
        assert brief(await spans_of(app, id_))[-1] == ("failed", "", 5)


@virtual
async def test_the_time_of_a_call_in_doubt_is_that_of_its_attempt() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    async def pay() -> None:
        await apps.sleep(3)
        raise TimeoutError("no answer")

    @app.handler("q")
    async def handle(job: onceward.Job) -> None:
        await job.step("pay", pay, at_most_once=True)

    async with app:
        id_ = (await app.send("q", None)).id
        assert (await app.wait(id_, 60)).state == "in_doubt"
        assert brief(await spans_of(app, id_)) == [("attempt", "failed", 3), ("step", "pay", 3)]


JOBS: list[tuple[str, Job, list[tuple[str, int, int]]]] = [
    ("queued", Job("q", 1, "ready", 5), [("queued", 5, 0)]),
    ("scheduled", Job("q", 1, "due", 5, 50), [("scheduled", 5, 0)]),
    ("cancelled in time", Job("q", 1, "cancelled", 5, 50, ended_ms=20), [("scheduled", 5, 20)]),
    (
        "cancelled in the queue",
        Job("q", 1, "cancelled", 5, 10, ended_ms=20),
        [("scheduled", 5, 10), ("queued", 10, 20)],
    ),
    (
        "cancelled while it ran",
        Job("q", 1, "cancelled", 5, attempt=1, started_ms=7, ended_ms=20),
        [("queued", 5, 7), ("attempt", 7, 20)],
    ),
    (
        "of an older node",
        Job("q", 1, "succeeded", 5, attempt=2, ended_ms=20),
        [("unknown", 5, 20)],
    ),
    ("running on an older node", Job("q", 1, "running", 5, attempt=1), [("unknown", 5, 0)]),
    (
        "with a long history",
        Job("q", 1, "ready", 5, 40, attempt=3, runs=[Run(3, 9, 20, 30, "failed")]),
        [("unknown", 5, 20), ("attempt", 20, 30), ("backoff", 30, 40), ("queued", 40, 0)],
    ),
    (
        "retried by an operator",
        Job(
            *("q", 1, "ready", 5),
            uncounted=1,
            runs=[Run(1, 0, 7, 9, "failed")],
            changes=[Change(15, "retried")],
        ),
        [("queued", 5, 7), ("attempt", 7, 9), ("failed", 9, 15), ("queued", 15, 0)],
    ),
    (
        "given back",
        Job("q", 1, "running", 5, attempt=1, uncounted=1, started_ms=12, runs=[Run(1, 0, 5, 9)]),
        [("attempt", 5, 9), ("queued", 9, 12), ("attempt", 12, 0)],
    ),
    (
        "with a time limit",
        Job("q", 1, "waiting", 5, 90, uncounted=1, runs=[Run(1, 0, 5, 9, "event a b")]),
        [("attempt", 5, 9), ("event", 9, 0)],
    ),
]


@pytest.mark.parametrize(("job", "spans"), [one[1:] for one in JOBS], ids=[one[0] for one in JOBS])
def test_spans_follow_from_the_times_of_a_record(
    job: Job, spans: list[tuple[str, int, int]]
) -> None:
    found = timeline(job, {})
    assert [(one.kind, one.start_ms, one.end_ms) for one in found] == spans
    if job.stage == "waiting":
        assert (found[-1].name, found[-1].until_ms) == ("a b", 90)


def test_a_call_that_runs_has_no_end() -> None:
    job = Job("q", 1, "running", 5, attempt=1, started_ms=5)
    called = {"pay": Step(intent=1, started_ms=6), "old": Step(done=True)}
    assert [(one.kind, one.start_ms, one.end_ms, one.state) for one in timeline(job, called)] == [
        ("attempt", 5, 0, "running"),
        ("step", 6, 0, "intended"),
    ]


def test_only_the_last_runs_are_kept() -> None:
    job = Job("q", 1, "running", 5)
    for number in range(100):
        job.started_ms = number + 1
        job.end_run(number + 2, "event " + "x" * limits.EVENT_NAME_BYTES_MAX)
        assert job.started_ms == 0
        job.end_run(number + 3)  # there is none
    assert len(job.runs) == limits.RUNS_MAX
    assert job.runs[-1].ended_ms == 101
