"""Handlers whose annotations name the types of bodies and results."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

import msgspec
import pytest

from onceward.api.arguments import members
from onceward.api.queues import QueueKeywords, QueueSettings
from onceward.app import App
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, Unavailable
from onceward.job_options import MERGE_NAMES, JobKeywords, JobOptions, SendKeywords
from onceward.schedule import Job as JobRecord
from onceward.store import Store
from onceward.work.handlers import HandlerFunction
from onceward.work.job import Job, send_arguments
from onceward.work.sync_job import SyncJob
from tests.needs import need
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

if TYPE_CHECKING:
    from collections import UserDict as OnlyForCheckers

pydantic = need("pydantic")
WHEN = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass
class Mail:
    to: str
    at: datetime = WHEN


class Sent(msgspec.Struct):
    to: str
    attempt: int


class Order(TypedDict):
    id: int


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    to: str
    at: datetime = WHEN


class Opaque: ...


async def ended(app: App, queue: str, body: Any) -> JobRecord:
    return await app.wait((await app.send(queue, body)).id, 600)


@virtual
async def test_bodies_and_results_have_the_types_of_the_annotations() -> None:
    apps, seen = Apps(shared=False), []
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job[Mail]) -> Sent:
        """Send it."""
        seen.append(job.body)
        return Sent(job.body.to, job.attempt)

    @app.handler("models")
    async def model(job: Job[Model]) -> Model:
        seen.append(job.body)
        return job.body

    @app.handler("orders")
    async def order(job: "Job[Order]") -> "list[Mail]":
        seen.append(job.body)
        return [Mail("x")]

    async with app:
        first = await ended(app, "mails", {"to": "Ann"})
        receipts = [
            await send.enqueue(Mail("Bob", WHEN), key="k", tags=["a"]),
            await model.enqueue(Model(to="Cleo")),
            await order.enqueue({"id": 7}),
        ]
        jobs = [await app.wait(receipt.id, 60) for receipt in receipts]
    assert seen == [Mail("Ann"), Mail("Bob"), Model(to="Cleo"), {"id": 7}]
    assert first.result == {"to": "Ann", "attempt": 1}
    at = "2026-05-01T00:00:00Z"
    assert jobs[0].body == {"to": "Bob", "at": at}
    assert (jobs[0].tags, receipts[0].key) == (("a",), "k")
    assert jobs[1].result == {"to": "Cleo", "at": at}
    assert jobs[2].result == [{"to": "x", "at": at}]
    assert (send.queue, send.__name__, send.__doc__) == ("mails", "send", "Send it.")
    assert "send" in repr(send)


@virtual
async def test_an_invalid_body_fails_its_job_at_once_and_names_the_field() -> None:
    apps, ran = Apps(shared=False), []
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job[Mail]) -> None:
        ran.append(job.body.to)

    @app.handler("models", batch=5)
    async def many(jobs: list[Job[Model]]) -> list[str] | None:
        ran.extend(job.body.to for job in jobs)
        return None

    async with app:
        bad = await ended(app, "mails", {"to": 5})
        assert (bad.state, bad.attempt, bad.reason) == (
            "failed",
            1,
            "body.to: expected str, got int",
        )
        await app.queues.pause("models")
        bodies: list[Any] = [{"to": "Ann"}, None, {"to": "Bob"}]
        receipts = [await app.send("models", body) for body in bodies]
        await app.queues.resume("models")
        jobs = [await app.wait(receipt.id, 60) for receipt in receipts]
        assert [job.state for job in jobs] == ["succeeded", "failed", "succeeded"]
        assert jobs[1].reason.startswith("body: input should be an object, got NoneType")
        assert jobs[1].attempt == 1
    assert sorted(ran) == ["Ann", "Bob"]


@virtual
async def test_an_invalid_result_fails_the_attempt_and_undoes_its_writes() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=2)
    async def work(job: Job) -> Sent:
        job.tx.put(("written", "x"), 1)
        wrong: Any = {"to": 5, "attempt": 1} if job.attempt == 1 else Mail("wrong")
        returned: Sent = wrong
        return returned

    async with app:
        job = await ended(app, "q", None)
        assert (job.state, job.attempt) == ("failed", 2)
        assert job.history[0].reason == "result.to: expected str, got int"
        assert job.reason == "result.attempt: missing"
        assert await app.run(lambda tx: tx.get(("written", "x"))) is None


@virtual
async def test_a_batch_has_one_typed_result_for_each_job() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", batch=2, attempts_max=1)
    async def work(jobs: list[Job[Mail]]) -> list[Sent]:
        other: Any = Mail("x")
        return [other if job.body.to == "odd" else Sent(job.body.to, 1) for job in jobs]

    async with app:
        await app.queues.pause("q")
        receipts = [await work.enqueue(Mail(to)) for to in ("odd", "even")]
        await app.queues.resume("q")
        odd, even = [await app.wait(receipt.id, 60) for receipt in receipts]
    assert (odd.state, odd.reason) == ("failed", "result.attempt: missing")
    assert (even.state, even.result) == ("succeeded", {"to": "even", "attempt": 1})


@virtual
async def test_an_outbox_has_typed_bodies_and_responses() -> None:
    apps, seen = Apps(shared=False), []
    app = apps.make()

    @app.outbox("charges", attempts_max=1)
    async def charge(job: Job[Mail]) -> Sent:
        seen.append(job.body)
        return Sent(job.id, job.attempt)

    async with app:
        receipt = await charge.enqueue(Mail("Ann"))
        job = await app.wait(receipt.id, 60)
        bad = await ended(app, "charges", {})
    assert job.result == {"to": receipt.id, "attempt": 1}
    assert bad.reason == "body.to: missing"
    assert seen == [Mail("Ann")]


@virtual
async def test_plain_functions_can_be_typed() -> None:
    apps, seen = Apps(shared=False), []
    app = apps.make()

    def sent(to: str) -> Sent:
        return Sent(to, 7)

    @app.handler("mails")
    def send(job: SyncJob[Mail]) -> Sent:
        seen.append(job.body)
        if job.attempt == 1:
            job.step("sent", sent, job.body.to)
            raise ValueError("again")
        return job.step("sent", sent, job.body.to)

    @app.handler("many", batch=2)
    def many(jobs: list[SyncJob[Model]]) -> list[Model]:
        return [job.body for job in jobs]

    async with app:
        receipt = await send.enqueue(Mail("Ann"))
        assert await send.result(receipt.id, timeout_s=600) == Sent("Ann", 7)
        receipt = await many.enqueue(Model(to="Bob"))
        assert await many.result(receipt.id, timeout_s=600) == Model(to="Bob")
        assert (await ended(app, "mails", {"to": 5})).reason == "body.to: expected str, got int"
        assert (await ended(app, "many", {})).reason == "body.to: missing"
    assert seen == [Mail("Ann")] * 2


@virtual
async def test_a_job_is_enqueued_in_a_transaction_or_not_at_all() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job[Mail]) -> str:
        return job.body.to

    @app.handler("orders")
    async def order(job: Job[Order]) -> str:
        receipt = await send.enqueue(Mail(str(job.body["id"])), tx=job.tx)
        return receipt.id

    async def both(tx: Any) -> str:
        tx.put(("order", "1"), 1)
        return (await send.enqueue(Mail("Ann"), tx=tx)).id

    async def neither(tx: Any) -> None:
        await send.enqueue(Mail("nobody"), key="k", tx=tx)
        raise KeyError("no")

    async with app:
        assert (await app.wait(await app.run(both), 60)).result == "Ann"
        with pytest.raises(KeyError):
            await app.run(neither)
        receipt = await send.enqueue(Mail("Bob"), key="k", delay_s=5)
        assert not receipt.duplicate
        assert (await app.job(receipt.id)).state == "scheduled"
        sent = (await app.wait((await order.enqueue({"id": 7})).id, 60)).result
        assert (await app.wait(sent, 60)).result == "7"


@virtual
async def test_enqueue_rejects_what_the_handler_could_not_take() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job[Mail]) -> None: ...

    wrong: Any
    with pytest.raises(Unavailable, match="not running"):
        await send.enqueue(Mail("x"))
    async with app:
        for wrong, problem in [
            (Mail(5), "body.to: expected str, got int"),  # type: ignore[arg-type]
            (None, "body: expected object, got null"),
            ({"at": WHEN}, "body.to: missing"),
            (object(), "body: .*object"),
        ]:
            with pytest.raises(BadInput, match=problem):
                await send.enqueue(wrong)
        with pytest.raises(BadInput, match="did you mean 'delay_s'"):
            await send.enqueue(Mail("x"), delay=5)  # type: ignore[call-arg]
        with pytest.raises(BadInput, match="tx"):
            await send.enqueue(Mail("x"), tx=wrong)


@virtual
async def test_untyped_handlers_take_and_return_any_json() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("bare")
    async def bare(job):  # type: ignore[no-untyped-def]
        return job.body

    @app.handler("any")
    async def any_(job: Job[Any]) -> object:
        return job.body

    @app.handler("checkers")
    async def checkers(job: "OnlyForCheckers") -> "OnlyForCheckers":  # type: ignore[type-arg]
        return job.body  # type: ignore[attr-defined,no-any-return]

    @app.handler("lambda")
    def plain(job: Any) -> Awaitable[Any]:
        return bare(job)  # type: ignore[no-untyped-call]

    async def with_more(more: int, job: Job) -> Any:
        return job.body

    app.handler("partial")(functools.partial(with_more, 1))
    async with app:
        for queue in ("bare", "any", "checkers", "lambda", "partial"):
            assert (await ended(app, queue, {"x": [1, None]})).result == {"x": [1, None]}
        receipt = await bare.enqueue(Mail("Ann"))
        assert (await app.wait(receipt.id, 60)).result == {
            "to": "Ann",
            "at": "2026-05-01T00:00:00Z",
        }


@virtual
async def test_any_sender_can_send_what_a_handler_takes() -> None:
    apps, seen = Apps(shared=False), []
    app = apps.make()
    app.queue("keyed", key_fields=["to"])

    @app.handler("mails")
    async def send(job: Job[Model]) -> None:
        seen.append(job.body.to)
        if job.body.to == "job":
            await job.send("mails", Model(to="from a job"))

    app.every(60, "mails", Model(to="recurring"), name="a")
    app.every(60, "mails", Mail("recurring"), name="b")
    async with app:
        for body in (Model(to="model"), Mail("dataclass"), {"to": "plain"}, Model(to="job")):
            await ended(app, "mails", body)
        await app.send_many("mails", [{"body": Model(to="one of many")}])
        await app.timers.set(queue="mails", body=Model(to="timer"), delay_s=5)
        await apps.sleep(61)
        first, second = [await app.send("keyed", Model(to="same")) for _ in range(2)]
        assert (second.id, second.duplicate, second.key) == (first.id, True, "same")
    assert sorted(seen) == sorted(
        ["model", "dataclass", "plain", "job", "from a job", "one of many", "timer"]
        + ["recurring"] * 2
    )


@virtual
async def test_a_handler_serves_several_queues() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("a")
    @app.handler("b")
    async def work(job: Job[Mail]) -> str:
        return job.queue

    async with app:
        for queue in ("a", "b"):
            assert (await ended(app, queue, {"to": "x"})).result == queue
        assert (await app.wait((await work.enqueue(Mail("x"))).id, 60)).result == "a"


class Methods:
    def __init__(self) -> None:
        self.queue = self._app = self._body = self._result = "mine"

    async def typed(self, job: Job[Mail]) -> Sent:
        return Sent(job.body.to, 1)

    async def __call__(self, job: Job[Mail]) -> Sent:
        return Sent(job.body.to, 1)


async def more(extra: int, job: Job[Mail]) -> Sent:
    return Sent(job.body.to, extra)


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any) -> Any:
        return await fn(*args)

    return wrapper


@logged
async def decorated(job: "Job[Mail]") -> "Sent":
    return Sent(job.body.to, 1)


def returns_awaitable(job: Job[Mail]) -> Awaitable[Sent]:
    return Methods()(job)


@pytest.mark.parametrize(
    "fn", [Methods().typed, Methods(), functools.partial(more, 1), decorated, returns_awaitable]
)
@virtual
async def test_any_kind_of_function_can_be_typed(fn: Any) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    declared = app.handler("q", attempts_max=1)(fn)
    assert repr(declared).endswith(" of 'q'>")
    async with app:
        receipt = await declared.enqueue(Mail("Ann"))
        assert (await app.wait(receipt.id, 60)).result == {"to": "Ann", "attempt": 1}
        assert (await ended(app, "q", 5)).reason == "body: expected object, got int"


async def opaque_body(job: Job[Opaque]) -> None: ...
async def opaque_result(job: Job[Mail]) -> Opaque: ...  # type: ignore[empty-body]
async def opaque_batch(jobs: list[Job[Opaque]]) -> None: ...
async def without_argument() -> None: ...
async def with_another_argument(job: Job[Mail], mails: Any) -> None: ...
async def undefined_body(job: "Job[OnlyForCheckers[str, str]]") -> None: ...
async def undefined_result(job: "Job[Mail]") -> "OnlyForCheckers[str, str]": ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "batch", "why"),
    [
        (opaque_body, 0, "the handler of 'q': the type Opaque cannot be converted from JSON"),
        (opaque_result, 0, "the type Opaque cannot be converted"),
        (opaque_batch, 2, "the type Opaque cannot be converted"),
        (without_argument, 0, r"takes one argument, the job, but .*without_argument .*\(\)"),
        (with_another_argument, 0, "another_argument is declared with .*mails"),
        (undefined_body, 0, "OnlyForCheckers.* Define its types at the top level of the module"),
        (undefined_result, 0, "OnlyForCheckers.*without TYPE_CHECKING"),
    ],
)
@pytest.mark.parametrize("kind", ["handler", "outbox"])
def test_a_wrong_signature_or_type_is_rejected_when_declared(
    fn: Any, batch: int, why: str, kind: str
) -> None:
    app = App(MemoryEngine())
    # An outbox has no batches.
    outbox = kind == "outbox" and not batch
    declare = app.outbox("q") if outbox else app.handler("q", batch=batch)
    with pytest.raises(BadInput, match=why):
        declare(fn)
    app.handler("q")(Methods().typed)  # nothing was declared before


def test_a_declared_function_is_called_as_it_is() -> None:
    app = App(MemoryEngine())

    @app.handler("q")
    def double(job: SyncJob[int]) -> int:
        return job.body * 2

    given: Any = type("Fake", (), {"body": 4})
    assert double(given) == 8
    assert isinstance(double, HandlerFunction)


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("declare", ["handler", "outbox"])
def test_a_handler_with_the_job_of_the_other_kind_is_rejected(declare: str, batch: int) -> None:
    app = App(MemoryEngine())

    async def asynchronous(job: Any) -> None: ...

    def plain(job: Any) -> None: ...

    for fn, kind, remedy in (
        (asynchronous, SyncJob, "gets a `Job`, not a `SyncJob`: .* or remove `async`"),
        (plain, Job, "gets a `SyncJob`, not a `Job`: .* or add `async`"),
        (plain, Job[int], "gets a `SyncJob`, not a `Job`"),
    ):
        fn.__annotations__["job"] = list[kind] if batch and declare == "handler" else kind  # type: ignore[valid-type]
        options = {"batch": batch} if batch and declare == "handler" else {}
        with pytest.raises(BadInput, match=remedy):
            getattr(app, declare)("q", **options)(fn)
    app.handler("q")(lambda job: None)  # nothing was declared


def test_the_options_of_type_checkers_are_those_that_work() -> None:
    options = {"order_key", "limit_key", "priority", "attempts_max", "tags"}
    assert set(JobOptions.__struct_fields__) == set(JobKeywords.__annotations__) == options
    hints = get_type_hints(SendKeywords)
    assert set(hints) == options | {"delay_s", "due_ms", "caller"} | set(MERGE_NAMES)
    store: Any = Store(MemoryEngine())
    values = {"tags": ["a"], "caller": "shop", "delay_s": 1.0, "due_ms": 5}
    for name in set(hints) - set(MERGE_NAMES):
        send_arguments(store, {name: values.get(name, 1)})  # an unknown name raises
    for kind in ("debounce", "batch"):
        names = {name: 1 for name in MERGE_NAMES if name.startswith(kind)}
        send_arguments(store, {**names, f"{kind}_key": "k"})
    settings = {one.name for one in members(QueueSettings)} | {"internal", "remote_work"}
    assert set(QueueKeywords.__annotations__) == settings
