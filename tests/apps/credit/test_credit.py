"""An application is pulled for once, however often it comes and whatever dies meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apps.credit import credit as credit_module
from apps.credit.application import Pull
from apps.credit.bureau import make_report
from apps.credit.calls import Refused
from apps.credit.credit import PULLS, RESULTS, Credit
from apps.credit.soap import read
from onceward.app import App
from onceward.engine.base import Put
from onceward.errors import AlreadyEnded, NotDone, Retry
from onceward.schedule import Job
from onceward.testing.clock import Process
from tests.apps.credit.envelopes import ORGANISATION, envelope, opportunity
from tests.apps.credit.office import World, ended, make, open_office, take
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

KEYS = pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
FIRST = opportunity(1)
REPORT = msgspec.to_builtins(make_report(FIRST, "B7"))


async def first_pull(credit: Credit) -> Pull:
    """The first pull for the application that most tests are about."""
    return (await credit.find(ORGANISATION, FIRST)).pulls[0]


async def pulled(credit: Credit) -> tuple[Pull, Job]:
    """Take that application in, and wait for what becomes of its pull."""
    await take(credit, 1)
    pull = await first_pull(credit)
    return pull, await ended(credit.app, pull.job)


async def at_work(apps: Apps, world: World, **changes: Any) -> tuple[Credit, Process]:
    """A process that has asked the bureau, and waits for what it says."""
    credit = make(apps, **changes)
    process = await apps.start(credit.app)
    await take(credit, 1)
    await world.pulling.wait()
    return credit, process


@asynccontextmanager
async def taken_over(apps: Apps, **changes: Any) -> AsyncIterator[tuple[Credit, str, Job]]:
    """Another process, and what becomes of the pull there: its id, and the job. In the end all that
    is stored is right."""
    other = make(apps, **changes)
    async with other.app:
        id_ = (await first_pull(other)).job
        yield other, id_, await ended(other.app, id_)
    assert apps.problems == []


async def settled_by_itself(apps: Apps, world: World, app: App, id_: str) -> None:
    """Wait until the answer to the one request there was is the result of the job."""
    while (job := await app.job(id_)).state != "succeeded":
        await apps.sleep(1)
    assert (job.result["report"], len(world.pulls)) == ("B1", 1)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


@KEYS
@virtual
async def test_an_application_that_comes_often_is_pulled_for_once(
    patched: pytest.MonkeyPatch, keys: bool
) -> None:
    world = World(patched)
    async with open_office(bureau_keys=keys) as (apps, credit):
        assert await take(credit, 1, 2, 1) == ["first", "first", "redelivered"]
        taken = await asyncio.gather(*[take(credit, 2, 1) for _ in range(5)])
        assert taken == [["redelivered"] * 2] * 5
        jobs = [(await credit.find(ORGANISATION, opportunity(n))).pulls[0].job for n in (1, 2)]
        for job in jobs:
            assert (await ended(credit.app, job)).state == "succeeded"
        await take(credit, 1)
        while len(world.told) < 6:
            await apps.sleep(1)
        application = await credit.find(ORGANISATION, FIRST)
    assert sorted(reference for reference, _ in world.pulls) == [opportunity(1), opportunity(2)]
    assert {key for _, key in world.pulls} == (set(jobs) if keys else {None})
    [pull] = application.pulls
    assert pull.report in ("B1", "B2")
    assert pull.outcome in ("approved", "review", "declined")
    # Three results each, under an id of its own each, and said once.
    assert len({id_ for id_, _ in world.told}) == len(world.told) == 6
    said = {(result["opportunity"], result["kind"]) for _, result in world.told}
    kinds = ("decision", "tradelines", "verification")
    assert said == {(opportunity(n), kind) for n in (1, 2) for kind in kinds}


@virtual
async def test_a_full_envelope_takes_few_commits(patched: pytest.MonkeyPatch) -> None:
    World(patched)
    async with open_office(work=False) as (apps, credit):
        before = len(apps.commits)
        assert await take(credit, *range(100)) == ["first"] * 100
        made = [commit for commit in apps.commits[before:] if len(commit) > 5]
        assert len(made) == 5
        assert max(map(len, made)) <= 100
        count = len(apps.commits)
        assert await take(credit, *reversed(range(100))) == ["redelivered"] * 100
        written = [c for c in apps.commits[count:] if any(type(w).__name__ == "Put" for w in c)]
        assert written == [], "what is known already is not written again"


@virtual
async def test_long_fields_are_taken_in_as_many_commits_as_they_need(
    patched: pytest.MonkeyPatch,
) -> None:
    World(patched)
    async with open_office(work=False) as (_, credit):
        long = envelope(1).replace(b"Applicant 1", b'"' * 140_000)
        message = read(long)
        message.notifications = message.notifications * 20
        assert await credit.accept(message) == ["first", *["redelivered"] * 19]


@KEYS
@virtual
async def test_a_pull_may_last_far_longer_than_its_lease(
    patched: pytest.MonkeyPatch, keys: bool
) -> None:
    world = World(patched)
    world.pull_s = 120
    async with open_office(bureau_keys=keys) as (_, credit):
        _, job = await pulled(credit)
        assert (job.state, job.attempt, len(world.pulls)) == ("succeeded", 1, 1)


@virtual
async def test_with_keys_a_pull_that_was_cut_off_is_asked_for_again_under_its_key(
    patched: pytest.MonkeyPatch,
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 10
    _, process = await at_work(apps, world, bureau_keys=True)
    process.kill()
    async with taken_over(apps, bureau_keys=True) as (_, id_, job):
        assert (job.state, job.attempt) == ("succeeded", 2)
        assert world.pulls == [(FIRST, id_)] * 2


@virtual
async def test_without_keys_a_pull_that_was_cut_off_waits_for_a_person(
    patched: pytest.MonkeyPatch,
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 10
    _, process = await at_work(apps, world)
    process.kill()
    async with taken_over(apps) as (credit, id_, job):
        assert job.state == "in_doubt"
        await take(credit, 1)
        await apps.sleep(100)
        assert len(world.pulls) == 1, "nothing pulls again by itself"
        [case] = await credit.app.queues.failed(PULLS)
        assert case.id == id_
        with pytest.raises(AlreadyEnded, match="doubt"):
            await credit.pull_again(ORGANISATION, FIRST, reason="r", by="ann", key="k")
        # The bureau knows of nothing: so it is pulled now.
        await credit.app.queues.settle(id_, "pull", done=False)
        assert (await ended(credit.app, id_)).state == "succeeded"
        assert len(world.pulls) == 2


@virtual
async def test_without_keys_a_pull_that_was_cut_off_in_its_last_attempt_waits_for_a_person_too(
    patched: pytest.MonkeyPatch,
) -> None:
    patched.setattr(credit_module, "_ATTEMPTS", 2)
    world, apps = World(patched), Apps()
    world.pull_s = 10
    world.errors = [NotDone("503")]
    _, process = await at_work(apps, world)
    world.pulling.clear()
    await world.pulling.wait()
    process.kill()
    async with taken_over(apps) as (credit, id_, job):
        assert (job.state, job.attempt) == ("in_doubt", 2)
        with pytest.raises(AlreadyEnded, match="doubt"):
            await credit.pull_again(ORGANISATION, FIRST, reason="r", by="ann", key="k")
        await credit.app.queues.settle(id_, "pull", done=True, result=REPORT)
        assert (await ended(credit.app, id_)).state == "succeeded"
    assert len(world.pulls) == 2


@virtual
async def test_a_process_that_stops_in_order_leaves_no_pull_in_doubt(
    patched: pytest.MonkeyPatch,
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 120
    first = make(apps)
    await first.app.start()
    await take(first, 1, 2, 3)
    while len(world.pulls) < 3:
        await apps.sleep(1)
    await first.app.stop()
    second = make(apps)
    async with second.app as app:
        for number in (1, 2, 3):
            pull = (await second.find(ORGANISATION, opportunity(number))).pulls[0]
            assert (await ended(app, pull.job)).state == "succeeded"
    assert len(world.pulls) == 3
    assert apps.problems == []


@pytest.mark.parametrize("pull_s", [0.5, 3, 60])
@virtual
async def test_an_answer_that_comes_after_its_lease_settles_what_is_in_doubt(
    patched: pytest.MonkeyPatch, pull_s: float
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = pull_s
    slow, process = await at_work(apps, world)
    process.pause()
    async with taken_over(apps) as (credit, id_, job):
        assert job.state == "in_doubt"
        process.resume()
        await settled_by_itself(apps, world, credit.app, id_)
        await process.spawn(slow.app.stop())


@virtual
async def test_a_worker_that_stood_still_before_it_could_ask_leaves_no_doubt(
    patched: pytest.MonkeyPatch,
) -> None:
    world, apps = World(patched), Apps()
    slow = make(apps)
    process = await apps.start(slow.app)
    commit, still = apps.engines[0].commit, asyncio.Event()

    async def stalling(writes: Any, *rest: Any) -> Any:
        version = await commit(writes, *rest)
        if any(type(w) is Put and b'"intent":' in w.value for w in writes) and not still.is_set():
            process.pause()
            still.set()
            await asyncio.sleep(0)  # from where it goes on when it is woken
        return version

    patched.setattr(apps.engines[0], "commit", stalling)
    await take(slow, 1)
    await still.wait()
    async with taken_over(apps) as (credit, id_, job):
        assert job.state == "in_doubt"
        assert world.pulls == []
        process.resume()
        await settled_by_itself(apps, world, credit.app, id_)
        await process.spawn(slow.app.stop())


@pytest.mark.parametrize("code", ["engine_unreachable", "storage_full", "outcome_unknown"])
@virtual
async def test_an_answer_settles_the_doubt_also_if_storage_is_away_when_it_comes(
    patched: pytest.MonkeyPatch, code: str
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 60
    slow, process = await at_work(apps, world)
    apps.engines[0].cut_off_code = code
    apps.engines[0].cut_off = True
    async with taken_over(apps) as (credit, id_, job):
        assert job.state == "in_doubt"
        await apps.sleep(100)
        assert (await credit.app.job(id_)).state == "in_doubt"
        apps.engines[0].cut_off = False
        await settled_by_itself(apps, world, credit.app, id_)
        await process.spawn(slow.app.stop())


@pytest.mark.parametrize("late", ["refused", "failed"])
@virtual
async def test_a_late_answer_that_says_nothing_leaves_it_to_a_person(
    patched: pytest.MonkeyPatch, late: str
) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 60
    world.errors = [NotDone("not now") if late == "refused" else Retry("500")]
    slow, process = await at_work(apps, world)
    process.pause()
    async with taken_over(apps) as (credit, id_, job):
        assert job.state == "in_doubt"
        process.resume()
        await apps.sleep(200)
        # The bureau said that it did nothing: so it may be asked again.
        state, pulls = ("succeeded", 2) if late == "refused" else ("in_doubt", 1)
        assert ((await credit.app.job(id_)).state, len(world.pulls)) == (state, pulls)
        await process.spawn(slow.app.stop())


@virtual
async def test_a_late_answer_says_nothing_of_a_later_attempt(patched: pytest.MonkeyPatch) -> None:
    world, apps = World(patched), Apps()
    world.pull_s = 60
    world.errors = [NotDone("not now")]
    slow, process = await at_work(apps, world)
    process.pause()
    second = make(apps)
    other = await apps.start(second.app)
    async with taken_over(apps, work=False) as (observer, id_, job):
        assert job.state == "in_doubt"
        # Somebody says too early that nothing was pulled; and who pulls now dies over it.
        world.pulling.clear()
        await observer.app.queues.settle(id_, "pull", done=False)
        await world.pulling.wait()
        other.kill()
        process.resume()
        await apps.sleep(200)
        # That the first request did nothing is known by now; of the second nobody knows.
        assert ((await observer.app.job(id_)).state, len(world.pulls)) == ("in_doubt", 2)
        await process.spawn(slow.app.stop())


@KEYS
@virtual
async def test_a_bureau_that_refuses_is_asked_again(
    patched: pytest.MonkeyPatch, keys: bool
) -> None:
    world = World(patched)
    world.errors = [NotDone("503"), NotDone("429")]
    async with open_office(bureau_keys=keys) as (_, credit):
        _, job = await pulled(credit)
        assert (job.state, job.attempt, len(world.pulls)) == ("succeeded", 3, 3)
        assert len(world.reports) == 1


@KEYS
@virtual
async def test_an_error_that_may_hide_a_pull_is_in_doubt_or_repeated_under_its_key(
    patched: pytest.MonkeyPatch, keys: bool
) -> None:
    world = World(patched)
    world.errors = [Retry("the bureau answered 500"), TimeoutError("no answer")]
    async with open_office(bureau_keys=keys) as (_, credit):
        _, job = await pulled(credit)
        assert (job.state, len(world.pulls)) == (("succeeded", 3) if keys else ("in_doubt", 1))
        assert len({key for _, key in world.pulls}) == 1


@KEYS
@virtual
async def test_a_bureau_that_refuses_for_good_is_not_asked_again(
    patched: pytest.MonkeyPatch, keys: bool
) -> None:
    world = World(patched)
    world.errors = [Refused("no such person"), Refused("still not")]
    async with open_office(bureau_keys=keys) as (_, credit):
        pull, job = await pulled(credit)
        assert (job.state, job.reason, len(world.pulls)) == ("failed", "no such person", 1)
        await credit.app.queues.retry(pull.job)
        job = await ended(credit.app, pull.job)
        assert (job.state, job.reason, len(world.pulls)) == ("failed", "still not", 2)
        # On purpose it may be asked again.
        await credit.pull_again(ORGANISATION, FIRST, reason="it was a typo", by="ann", key="k")
        again = (await credit.find(ORGANISATION, FIRST)).pulls[1]
        assert (await ended(credit.app, again.job)).state == "succeeded"


@virtual
async def test_a_result_is_told_until_it_is_heard_under_one_id(
    patched: pytest.MonkeyPatch,
) -> None:
    world = World(patched)
    world.refusals = [Retry("503"), ConnectionError("reset"), Retry("500")]
    async with open_office(bureau_keys=True) as (apps, credit):
        await take(credit, 1)
        while len(world.told) < 6:
            await apps.sleep(1)
    assert len(world.told) == 6
    assert len({id_ for id_, _ in world.told}) == 3
    said: dict[str, Any] = {}
    for id_, result in world.told:
        assert said.setdefault(id_, result) == result
    assert RESULTS == "credit.results"


@virtual
async def test_keys_and_decisions_are_known_for_ever(patched: pytest.MonkeyPatch) -> None:
    World(patched)
    async with open_office() as (apps, credit):
        pull, job = await pulled(credit)
        assert job.state == "succeeded"
        kept = {
            key: record.expires_at_ms
            for key, record in [*apps.own.items(), *apps.records.items()]
            if key[0].startswith(("inbox#", "credit")) or key[1] == f"{pull.job}#job"
        }
        assert len(kept) == 3
        assert set(kept.values()) == {None}


@virtual
@pytest.mark.parametrize(
    "body",
    [
        {"organisation": ORGANISATION, "opportunity": FIRST, "fields": {"Id": FIRST}},
        {"organisation": ORGANISATION, "opportunity": "another", "fields": {}},
        {"fields": {}},
        "nonsense",
    ],
)
async def test_a_job_that_no_application_asks_for_pulls_nothing(
    patched: pytest.MonkeyPatch, body: Any
) -> None:
    world = World(patched)
    async with open_office() as (_, credit):
        await pulled(credit)
        receipt = await credit.app.send(PULLS, body, key="forged")
        job = await ended(credit.app, receipt.id)
        assert job.state == "failed"
        assert len(world.pulls) == 1


@virtual
async def test_queues_of_the_application_are_closed_to_callers(
    patched: pytest.MonkeyPatch,
) -> None:
    World(patched)
    async with open_office() as (_, credit):
        for queue in (PULLS, RESULTS):
            assert credit.app.node.queue_settings(queue).internal
