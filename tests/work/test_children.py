"""A job creates children, waits for them without a worker, and continues with their results."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import onceward
from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, ChildFailed, Fail
from onceward.schedule.children import family_key
from onceward.work.children import ChildJob
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

pytestmark = pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])


class Page(msgspec.Struct):
    number: int


def left(apps: Apps) -> list[Any]:
    """What is left of families and of due entries."""
    return [key for key in apps.records if key[0].startswith(("family#", "due#"))]


def declare(app: App, fn: Callable[[Job], Any], **options: Any) -> None:
    @app.handler("parent", **options)
    async def parent(job: Job) -> Any:
        return await fn(job)


@virtual
async def test_results_of_many_children_come_in_their_order(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    runs: list[int] = []

    @app.handler("resize", concurrency=8)
    async def resize(job: onceward.Job[Page]) -> Page:
        await apps.sleep((job.body.number * 7) % 5)
        return Page(job.body.number * 2)

    @app.handler("album", concurrency=1)
    async def album(job: onceward.Job[int]) -> int:
        runs.append(job.attempt)
        pages = await job.gather(*[resize.child(Page(n)) for n in range(job.body)])
        assert [page.number for page in pages] == [2 * n for n in range(job.body)]
        assert await job.gather() == []
        return len(pages)

    async with app:
        receipt = await album.enqueue(100)
        await apps.sleep(0.5)
        parent = await app.job(receipt.id)
        assert (parent.state, parent.waits) == ("waiting", "children 1")
        assert apps.problems == []
        # Its worker is free for another one.
        assert (await app.wait((await album.enqueue(1)).id, 600)).result == 1
        parent = await app.wait(receipt.id, 600)
        assert (parent.state, parent.result, parent.attempt) == ("succeeded", 100, 1)
        assert runs.count(1) == len(runs) <= 5, "it runs again when they have ended, not for each"
        await apps.sleep(1)
    assert apps.problems == []
    assert left(apps) == []


@virtual
async def test_a_failed_child_fails_its_parent_when_all_have_ended(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    done: list[int] = []

    @app.handler("task", attempts_max=1)
    async def task(job: Job) -> int:
        await apps.sleep(job.body)
        if job.body == 2:
            raise ValueError("paper jam")
        done.append(job.body)
        return int(job.body)

    async def plain(job: Job) -> Any:
        return await job.gather(*[ChildJob("task", n) for n in (1, 2, 3)])

    declare(app, plain)

    @app.handler("tolerant")
    async def tolerant(job: Job) -> Any:
        children = [ChildJob("task", n) for n in (1, 2, 3)]
        one, two, three = await job.gather(*children, return_exceptions=True)
        assert isinstance(two, ChildFailed)
        return [one, two.details["state"], two.details["reason"], three]

    async with app:
        parent = await app.wait((await app.send("parent", None)).id, 60)
        assert (parent.state, parent.attempt) == ("failed", 1), "more attempts change nothing"
        assert "in queue 'task' failed: ValueError: paper jam" in parent.reason
        assert sorted(done) == [1, 3]
        parent = await app.wait((await app.send("tolerant", None)).id, 60)
        assert parent.result == [1, "failed", "ValueError: paper jam", 3]
    assert apps.problems == []


@virtual
async def test_children_are_cancelled_with_their_parent_unless_they_are_kept(shared: bool) -> None:
    for keep in (False, True):
        apps = Apps(shared=shared)
        app = apps.make()

        async def work(job: Job, app: App = app, keep: bool = keep) -> Any:
            return await job.gather(*[ChildJob("hour", n) for n in range(50)], keep=keep)

        declare(app, work)

        @app.handler("hour", concurrency=10)
        async def hour(job: Job, apps: Apps = apps) -> int:
            await apps.sleep(30 if job.body else 1)
            return int(job.body)

        async with app:
            id_ = (await app.send("parent", None)).id
            await apps.sleep(5)
            await app.cancel(id_)
            await apps.sleep(600)
            jobs = [
                key[1].partition("#")[0]
                for key in apps.records
                if key[0].startswith("job#") and key[1].endswith("#job") and id_ not in key[1]
            ]
            states = [(await app.job(job)).state for job in jobs]
            assert states.count("succeeded") == (50 if keep else 1)
            assert states.count("cancelled") == (0 if keep else 49)
        assert apps.problems == []
        assert left(apps) == []


@virtual
async def test_a_retried_parent_creates_cancelled_children_again(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    ran: list[int] = []
    broken = True

    @app.handler("task", concurrency=10)
    async def task(job: Job) -> int:
        ran.append(job.body)
        await apps.sleep(job.body)
        return int(job.body)

    async def work(job: Job) -> Any:
        try:
            return await job.gather(*[ChildJob("task", n) for n in (1, 30, 31)])
        except BaseException as waits:
            if broken and not isinstance(waits, Exception):
                await job.step("wait", apps.sleep, 2)
                raise Fail("out of paper") from waits
            raise

    declare(app, work)
    async with app:
        id_ = (await app.send("parent", None)).id
        assert (await app.wait(id_, 60)).state == "failed"
        await apps.sleep(1)
        family = apps.value(family_key(id_, 1), internal=True)
        assert family["stopped"]
        broken = False
        await app.queues.redrive("parent")
        parent = await app.wait(id_, 60)
        assert (parent.state, parent.result) == ("succeeded", [1, 30, 31])
        assert sorted(ran) == [1, 30, 30, 31, 31], "the child that succeeded runs once"
        await apps.sleep(60)
    assert apps.problems == []
    assert left(apps) == []


@virtual
async def test_the_first_of_several_children_decides(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()

    @app.handler("task", concurrency=10)
    async def task(job: Job) -> str:
        await apps.sleep(job.body)
        return f"after {job.body} s"

    async def work(job: Job) -> Any:
        return await job.wait_any(*[ChildJob("task", n) for n in (9, 2, 20)])

    declare(app, work)
    async with app:
        parent = await app.wait((await app.send("parent", None)).id, 60)
        assert parent.result == [1, "after 2 s"]
        await apps.sleep(60)
        states = [
            apps.value(key, internal=True)["stage"]
            for key in apps.records
            if key[0].startswith("job#") and key[1].endswith("#job")
        ]
        assert sorted(states) == ["cancelled", "cancelled", "succeeded", "succeeded"]
    assert left(apps) == []


@virtual
async def test_a_plain_function_waits_for_children_and_events(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()

    @app.handler("task")
    def task(job: onceward.SyncJob[int]) -> int:
        return job.body + 1

    @app.handler("plain")
    def plain(job: onceward.SyncJob[int]) -> list[Any]:
        first = job.gather(*[task.child(n) for n in range(job.body)])
        return [first, job.wait_any(task.child(7)), job.wait_for("ok")]

    async with app:
        id_ = (await plain.enqueue(3)).id
        await app.emit(id_, "ok", True)
        assert await app.result(id_, timeout_s=60) == [[1, 2, 3], [0, 8], True]


@virtual
async def test_children_may_have_children(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()

    @app.handler("tree", concurrency=2)
    async def tree(job: Job) -> int:
        if not job.body:
            return 1
        return sum(await job.gather(*[ChildJob("tree", job.body - 1) for _ in range(3)]))

    async with app:
        parent = await app.wait((await app.send("tree", 3)).id, 600)
        assert parent.result == 27
        await apps.sleep(1)
    assert apps.problems == []
    assert left(apps) == []


@virtual
async def test_other_children_in_a_later_attempt_fail_the_job(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    asked = 0

    @app.handler("task")
    async def task(job: Job) -> None:
        await apps.sleep(1)

    async def work(job: Job) -> Any:
        nonlocal asked
        asked += 1
        return await job.gather(*[ChildJob("task", asked) for _ in range(2)])

    declare(app, work)
    async with app:
        parent = await app.wait((await app.send("parent", None)).id, 60)
        assert (parent.state, parent.attempt) == ("failed", 1)
        assert "asks for 2 children that differ from the 2 of an earlier attempt" in parent.reason


@virtual
async def test_a_descendant_with_the_order_key_of_a_waiting_job_is_refused(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()

    @app.handler("task", attempts_max=1)
    async def task(job: Job) -> Any:
        depth, keys = job.body
        if not keys:
            return depth
        key, *rest = keys
        try:
            [found] = await job.gather(ChildJob("task", [depth + 1, rest], order_key=key))
        except BadInput as refused:
            return refused.message
        return found

    async with app:
        outer = await app.send("task", [0, ["b", None, "c"]], order_key="a")
        assert (await app.wait(outer.id, 60)).result == 3
        for keys, who in (["b", "a"], outer.id), (["b", None, "b"], ""), (["a"], "parent"):
            sent = await app.send("task", [0, keys], order_key="a")
            found = (await app.wait(sent.id, 60)).result
            who = sent.id if who == outer.id else who
            assert f"{who} would wait for its " in found
            assert "Use another order key" in found
        await apps.sleep(1)
    assert apps.problems == []
    assert left(apps) == []


@virtual
async def test_what_is_no_child_gets_a_clear_error(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    told: list[str] = []

    async def work(job: Job) -> None:
        wrong: list[tuple[Any, ...]] = [
            ("task",),
            (ChildJob("parent", 1, order_key="o"),),
            tuple(ChildJob("task", n) for n in range(limits.FAMILY_ANY_MAX + 1)),
            (),
        ]
        for children in wrong:
            with pytest.raises(BadInput) as refused:
                await job.wait_any(*children)
            told.append(refused.value.message)

    declare(app, work)
    for bad, match in (
        ({"key": "k"}, "key"),
        ({"prioritty": 1}, "prioritty"),
        ({"priority": 11}, "not 11"),
    ):
        with pytest.raises(BadInput, match=match):
            ChildJob("task", None, **bad)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="queue name"):
        ChildJob("no queue", None)
    async with app:
        parent = await app.wait((await app.send("parent", None, order_key="o")).id, 60)
        assert parent.state == "succeeded", parent.reason
    assert "`handler.child(body)` or `ChildJob(queue, body)`, not str" in told[0]
    assert "would wait for its parent indefinitely" in told[1]
    assert "1 to 100 children, not 101" in told[2]
    assert "1 to 100 children, not 0" in told[3]
