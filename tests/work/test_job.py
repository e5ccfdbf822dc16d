"""A handler's steps are recorded, so that no attempt does again what was done."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest

from onceward.app import App
from onceward.errors import BadInput
from onceward.work.job import Job
from tests.needs import need
from tests.schedule.cluster import virtual
from tests.work.apps import Apps
from tests.work.one_job import run_one

pydantic = need("pydantic")
EFFECT = ("effect", "x")


@virtual
async def test_a_retry_continues_after_the_recorded_steps() -> None:
    ran: list[str] = []

    async def act(name: str) -> str:
        ran.append(name)
        return name.upper()

    async def work(job: Job) -> list[str]:
        done = [await job.step(name, act, name) for name in ("a", "b")]
        if job.attempt < 3:
            raise ValueError("between the steps")
        return [*done, await job.step("c", act, "c")]

    job = await run_one(work)
    assert (job.state, job.attempt, job.result) == ("succeeded", 3, ["A", "B", "C"])
    assert ran == ["a", "b", "c"]


@virtual
async def test_a_handler_sees_the_key_the_sender_and_the_options_of_its_job() -> None:
    seen: list[Any] = []
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=7)
    async def work(job: Job) -> None:
        names = ("key", "caller", "order_key", "limit_key", "priority", "attempts_max", "tags")
        seen.append({name: getattr(job, name) for name in names})

    async with app:
        plain = await app.send("q", 1)
        await app.wait(plain.id, 60)
        given: Any = {"order_key": "o", "limit_key": "l", "priority": 0, "attempts_max": 3}
        given["tags"] = ("b", "a")
        receipt = await app.send("q", 2, key="k", caller="shop", **given)
        await app.wait(receipt.id, 60)
    nothing = dict.fromkeys(("key", "order_key", "limit_key"))
    assert seen == [
        nothing | {"caller": "", "priority": 5, "attempts_max": 7, "tags": ()},
        {"key": "k", "caller": "app:shop", **given},
    ]


@virtual
async def test_a_handler_sends_jobs_with_tags() -> None:
    async def work(job: Job) -> str:
        with pytest.raises(BadInput, match="tags must be a list of texts, not str"):
            await job.send("next", 1, tags="red")
        return (await job.send("next", 1, tags=["red", "big"])).id

    apps = Apps(shared=False)
    app = apps.make()
    app.handler("q")(work)
    async with app:
        first = await app.wait((await app.send("q", 1)).id, 60)
        assert first.state == "succeeded", first.reason
        assert (await app.job(first.result)).tags == ("red", "big")


@virtual
async def test_what_is_no_step_is_told_before_an_intent_is_recorded() -> None:
    said: list[str] = []

    async def work(job: Job) -> None:
        bad: list[Any] = [
            *(job.step(name, print) for name in (None, 5, b"s", ["s"])),
            *(job.step(f"{n}", fn, at_most_once=True) for n, fn in enumerate((None, 5, "print"))),
            job.step("ask", print, at_most_once=True, ask=5),  # type: ignore[arg-type]
            job.reopen(["s"], "why"),  # type: ignore[arg-type]
        ]
        for step in bad:
            with pytest.raises(BadInput) as refused:
                await step
            said.append(refused.value.message)
        for error in (None, 5, BaseException()):
            with pytest.raises(BadInput, match="an exception or a text"):
                job.fail(error)  # type: ignore[arg-type]
        for key in (None, "k"):
            with pytest.raises(BadInput, match="unknown name 'colour'"):
                await job.send("q", 1, key=key, colour=1)

    job = await run_one(work)
    assert (job.state, job.stepped, len(said)) == ("succeeded", False, 9)
    assert said[0] == "a step's name must be text, not NoneType"
    assert said[4] == "the step '0' needs a function, not NoneType"


@virtual
async def test_a_step_may_be_a_plain_function_and_return_nothing() -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        assert await job.step("plain", ran.append, 1) is None
        if job.attempt == 1:
            raise ValueError("again")

    assert (await run_one(work)).state == "succeeded"
    assert ran == [1]


@virtual
async def test_a_step_answers_the_same_the_first_time_and_from_its_record() -> None:
    answers: list[Any] = []

    async def work(job: Job) -> None:
        answer = await job.step("s", lambda: {"pair": (1, 2), 3: None})
        answers.append(answer)
        if job.attempt == 1:
            raise ValueError("again")

    await run_one(work)
    assert answers == [{"pair": [1, 2], "3": None}] * 2


@virtual
async def test_a_step_that_failed_or_was_not_recorded_runs_again() -> None:
    ran: list[int] = []

    async def act(job: Job) -> Any:
        ran.append(job.attempt)
        if job.attempt == 1:
            raise ValueError("no")
        return object() if job.attempt == 2 else "yes"

    async def work(job: Job) -> Any:
        return await job.step("s", act, job)

    job = await run_one(work)
    assert (job.result, ran) == ("yes", [1, 2, 3])
    assert "cannot be stored" in job.history[1].reason


@virtual
async def test_steps_side_by_side_are_all_recorded() -> None:
    ran: list[int] = []

    async def act(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0)
        return n

    async def work(job: Job) -> int:
        found = await asyncio.gather(*[job.step(f"s{n}", act, n) for n in range(10)])
        if job.attempt == 1:
            raise ValueError("again")
        return sum(found)

    assert (await run_one(work)).result == 45
    assert ran == list(range(10))


@virtual
async def test_a_step_after_the_first_use_of_the_transaction_is_refused() -> None:
    ran: list[str] = []
    for use in ("get", "put", "send", "accept"):

        async def work(job: Job, use: str = use) -> None:
            if use == "get":
                await job.tx.get(EFFECT)
            elif use == "put":
                job.tx.put(EFFECT, 1)
            elif use == "send":
                await job.send("other", None)
            else:
                await job.send("other", None, key="k")
            await job.step("late", ran.append, use)

        job = await run_one(work, attempts_max=5)
        assert (job.state, job.attempt) == ("failed", 1), "further attempts would do the same"
        assert "comes after the first use of job.tx" in job.reason
        assert "`await job.read(key)`" in job.reason
    assert ran == []


@virtual
async def test_a_sleep_after_the_first_use_of_the_transaction_is_refused() -> None:
    async def work(job: Job) -> None:
        await job.tx.get(EFFECT)
        await job.sleep(1)

    job = await run_one(work, attempts_max=1)
    assert "comes after the first use of job.tx" in job.reason


@virtual
async def test_the_transaction_cannot_be_used_inside_a_step() -> None:
    async def act(job: Job) -> None:
        job.tx.put(EFFECT, 1)

    async def work(job: Job) -> None:
        await job.step("s", act, job)

    job = await run_one(work, attempts_max=1)
    assert job.state == "failed"
    assert "inside a step" in job.reason


@virtual
async def test_two_steps_of_one_name_are_refused() -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        await job.step("s", ran.append, 1)
        await job.step("s", ran.append, 2)

    job = await run_one(work, attempts_max=1)
    assert "two steps have the name 's'" in job.reason
    assert ran == [1]


@pytest.mark.parametrize("name", ["", "x" * 257, "\ud800"])
@virtual
async def test_a_name_that_cannot_be_stored_is_refused_before_the_step_runs(name: str) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        with pytest.raises(BadInput):
            await job.step(name, ran.append, 1)

    assert (await run_one(work, attempts_max=1)).state == "succeeded"
    assert ran == []


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 10**12, "5", None])
@virtual
async def test_a_time_to_sleep_that_cannot_be_meant_is_refused(seconds: Any) -> None:
    async def work(job: Job) -> None:
        with pytest.raises(BadInput, match="a sleep must be 0 to"):
            await job.sleep(seconds)

    assert (await run_one(work, attempts_max=1)).state == "succeeded"


@pytest.mark.parametrize(
    "options",
    [
        {"delay_s": -1},
        {"delay_s": float("nan")},
        {"delay_s": 10**12},
        {"delay_s": 1, "due_ms": 1},
        {"priority": 10},
        {"order_key": ""},
        {"limit_key": "\ud800"},
    ],
)
@virtual
async def test_bad_options_of_what_a_handler_sends_are_refused(options: dict[str, Any]) -> None:
    async def work(job: Job) -> None:
        with pytest.raises(BadInput):
            await job.send("other", None, **options)
        with pytest.raises(BadInput):
            await job.send("other", None, key="k", **options)
        with pytest.raises(BadInput):
            await job.send("no such name", None)

    assert (await run_one(work, attempts_max=1)).state == "succeeded"


@virtual
async def test_what_a_handler_sends_comes_in_the_same_commit_with_all_options() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    got: list[tuple[Any, float]] = []

    @app.handler("q")
    async def work(job: Job) -> list[str]:
        first = await job.send("other", "a", key="k", delay_s=10)
        again = await job.send("other", "a", key="k")
        sent = (await job.send("other", "b", delay_s=20, order_key="o")).id
        assert (first.id, again.duplicate) == (again.id, True)
        return [first.id, sent]

    @app.handler("other")
    async def other(job: Job) -> None:
        got.append((job.body, round(apps.loop.time())))

    async with app:
        job = await app.wait((await app.send("q", None)).id)
        for id_ in job.result:
            await app.wait(id_)
    assert got == [("a", 10), ("b", 20)]


@virtual
async def test_a_sleep_takes_no_worker_and_no_attempt() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    ran: list[tuple[str, float]] = []

    @app.handler("q", concurrency=1, attempts_max=1)
    async def work(job: Job) -> str:
        await job.step("before", lambda: ran.append(("before", round(apps.loop.time()))))
        await job.sleep(1_000)
        await job.step("between", lambda: ran.append(("between", round(apps.loop.time()))))
        await job.sleep(0)
        await job.sleep(500)
        return "slept"

    @app.handler("other")
    async def other(job: Job) -> str:
        return "meanwhile"

    async with app:
        id_ = (await app.send("q", None)).id
        await apps.sleep(10)
        assert (await app.job(id_)).state == "scheduled"
        assert (await app.wait((await app.send("other", None)).id)).result == "meanwhile"
        job = await app.wait(id_)
    assert (job.result, job.attempt, job.history) == ("slept", 1, [])
    assert ran == [("before", 0), ("between", 1_000)]
    assert round(apps.loop.time()) == 1_500


@virtual
async def test_a_sleep_goes_on_through_a_restart_and_is_not_begun_again() -> None:
    apps = Apps(shared=False)
    runs = 0

    def declared() -> App:
        app = apps.make()

        @app.handler("q")
        async def work(job: Job) -> float:
            nonlocal runs
            runs += 1
            await job.sleep(100)
            return apps.loop.time()

        return app

    app = declared()
    process = await apps.start(app)
    id_ = (await app.send("q", None)).id
    await apps.sleep(60)
    process.kill()
    await apps.sleep(20)
    async with declared() as app:
        job = await app.wait(id_)
    assert job.result == pytest.approx(100, abs=0.1)
    assert runs == 2


@virtual
async def test_a_handler_that_catches_its_own_errors_still_sleeps() -> None:
    async def work(job: Job) -> str:
        try:
            await job.sleep(10)
        except Exception:
            return "never"
        return "slept"

    assert (await run_one(work)).result == "slept"


@virtual
async def test_sleeping_in_a_group_of_tasks_is_sleeping() -> None:
    async def work(job: Job) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.sleep(10))
        return "slept"

    job = await run_one(work, attempts_max=1)
    assert (job.state, job.result) == ("succeeded", "slept")


@virtual
async def test_steps_that_no_later_attempt_looks_at_go_with_their_job() -> None:
    async def work(job: Job) -> None:
        if job.attempt == 1:
            await job.step("s", lambda: 1)
            raise ValueError("another way next time")

    job = await run_one(work)
    assert (job.state, job.attempt) == ("succeeded", 2)


@dataclass
class Charge:
    cents: int
    at: datetime


class Struct(msgspec.Struct):
    id: UUID


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    name: str


class Order(TypedDict):
    id: int


WHEN = datetime(2026, 5, 1, tzinfo=UTC)


async def charge(cents: int, *, at: datetime = WHEN) -> Charge:
    return Charge(cents, at)


def struct(number: int) -> Struct:
    return Struct(UUID(int=number))


async def models(*names: str) -> "list[Model]":
    return [Model(name=name) for name in names]


def order() -> Order | None:
    return {"id": 5}


def later() -> Awaitable[tuple[int, str]]:
    async def pair() -> tuple[int, str]:
        return 1, "a"

    return pair()


async def numbered() -> dict[int, bytes]:
    return {5: b"x"}


def unknown() -> "NotDefinedAnywhere":  # type: ignore[name-defined] # noqa: F821
    return [1]


class Charger:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    async def charge(self) -> Charge:
        return Charge(self.cents, WHEN)

    async def __call__(self) -> Charge:
        return Charge(self.cents, WHEN)


@virtual
async def test_a_step_has_the_result_of_its_function_also_when_it_is_replayed() -> None:
    seen: list[Any] = []

    async def work(job: Job) -> None:
        seen.append(
            [
                await job.step("async", charge, 5),
                await job.step("keyword", charge, cents=6, at=WHEN + timedelta(1)),
                await job.step("plain function", struct, 7),
                await job.step("models", models, "a", "b"),
                await job.step("or none", order),
                await job.step("awaitable", later),
                await job.step("keys", numbered),
                await job.step("method", Charger(8).charge),
                await job.step("partial", partial(charge, 9)),
                await job.step("once", charge, 10, at_most_once=True),
                await job.step("lambda", lambda: charge(11)),
                await job.step("undefined", unknown),
                await job.step("object", Charger(12)),
                await job.step("class", Charge, 13, WHEN),
            ]
        )
        if job.attempt == 1:
            raise ValueError("again")

    assert (await run_one(work)).state == "succeeded"
    assert len(seen) == 2
    for results in seen:
        assert results == [
            *(Charge(5, WHEN), Charge(6, WHEN + timedelta(1)), Struct(UUID(int=7))),
            *([Model(name="a"), Model(name="b")], {"id": 5}, (1, "a"), {5: b"x"}),
            *(Charge(8, WHEN), Charge(9, WHEN), Charge(10, WHEN)),
            *({"cents": 11, "at": "2026-05-01T00:00:00Z"}, [1], Charge(12, WHEN), Charge(13, WHEN)),
        ]


@virtual
async def test_a_result_of_another_type_is_recorded_before_it_is_an_error() -> None:
    ran: list[int] = []

    async def wrong() -> Charge:
        ran.append(1)
        other: Any = {"cents": "5"}
        result: Charge = other
        return result

    async def work(job: Job) -> str:
        try:
            await job.step("charge", wrong)
        except BadInput as error:
            if job.attempt == 1:
                raise
            return error.message
        return "no error"

    job = await run_one(work)
    assert job.result == "the step 'charge': result.cents: expected int, got str"
    assert job.history[0].reason == job.result
    assert ran == [1], "the effect was not repeated"


@pytest.mark.parametrize(
    ("forget", "named"),
    [
        (lambda job: job.step("charge", print, "paid"), "job.step('charge', …)"),
        (lambda job: job.read(("stock", 1)), "job.read(…)"),
        (lambda job: job.send("mails", 1), "job.send('mails', …)"),
        (lambda job: job.sleep(5), "job.sleep(…)"),
        (lambda job: job.wait_for("approval"), "job.wait_for('approval', …)"),
    ],
)
@virtual
async def test_a_call_without_await_fails_the_job_and_is_named(forget: Any, named: str) -> None:
    async def work(job: Job) -> str:
        await job.step("first", dict)
        job.tx.put(EFFECT, 1)
        forget(job)
        return "done"

    job = await run_one(work, attempts_max=3)
    assert (job.state, job.attempt, job.result) == ("failed", 1, None)
    assert job.reason == f"the handler did not await {named}: write `await {named}`"


async def test_only_the_job_of_a_batch_whose_call_was_not_awaited_fails() -> None:
    app = App("memory://")

    @app.handler("q", batch=3, concurrency=3)
    async def work(jobs: list[Job]) -> None:
        for job in jobs:
            made = job.step("act", dict)
            if job.body != 2:
                await made

    async with app:
        verdicts = await app.send_many("q", [{"body": number} for number in (1, 2, 3)])
        jobs = [await app.wait(one.id, 60) for one in verdicts if not isinstance(one, Exception)]
    assert [job.state for job in jobs] == ["succeeded", "failed", "succeeded"]


@virtual
async def test_calls_that_were_awaited_closed_or_begun_are_not_reported() -> None:
    async def work(job: Job) -> int:
        job.step("given up", dict).close()
        for number in range(200):
            await job.step(f"step {number}", dict)
        begun = [asyncio.create_task(job.step(name, dict)) for name in "ab"]
        await asyncio.gather(*begun)
        return len(job.calls)

    job = await run_one(work)
    assert job.state == "succeeded"
    assert job.result < 100
