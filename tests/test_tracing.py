"""Trace contexts travel with jobs, and handlers, steps and webhook calls have spans."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanKind, StatusCode, use_span

from onceward import limits, tracing
from onceward.app import App
from onceward.client import Client
from onceward.errors import Retry, Unreachable
from onceward.schedule.records import Job as JobRecord
from onceward.tracing import Trace
from onceward.webhooks.answers import Answer
from onceward.webhooks.delivery import Outward
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob
from tests.client.served import Served
from tests.schedule.cluster import virtual
from tests.spans import PARENT, PARENT_ID, TRACE_ID, Spans, ids, links_of, parent_of, recorded
from tests.web.asgi import serving
from tests.work.apps import Apps


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recorded(monkeypatch) as found:
        yield found


class Receiver:
    """Receives webhook calls, and fails the first ones."""

    def __init__(self, *answers: int | Exception) -> None:
        self.headers: list[dict[str, str]] = []
        self._answers = list(answers)

    @property
    def outward(self) -> Outward:
        ports = (443, 8443)
        return Outward(ports=ports, sender=lambda guard: self)  # type: ignore[arg-type, return-value]

    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes, **options: Any
    ) -> Answer:
        self.headers.append(dict(headers))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer, None, b"", 0.0, 1)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "parent",
    [
        PARENT,
        PARENT[:-2] + "00",
        "01" + PARENT[2:] + "-more",
        "cc" + PARENT[2:],
    ],
)
def test_a_trace_context_is_read_as_the_specification_has_it(parent: str) -> None:
    trace = tracing.read(parent, "a=1,b=2")
    assert trace is not None
    assert trace.headers == {"traceparent": "00" + parent[2:55], "tracestate": "a=1,b=2"}


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "nonsense",
        PARENT.upper(),
        PARENT + "-more",
        "01" + PARENT[2:] + "more",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        PARENT[:-1],
    ],
)
def test_an_invalid_trace_context_is_none(parent: str | None) -> None:
    assert tracing.read(parent, "a=1") is None


@pytest.mark.parametrize("state", [None, "", "a\nb", "ä=1", "a" * 513])
def test_an_invalid_trace_state_is_left_out(state: str | None) -> None:
    trace = tracing.read(PARENT, state)
    assert trace is not None
    assert trace.headers == {"traceparent": PARENT}


@virtual
async def test_a_trace_travels_without_any_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    apps, receiver = Apps(shared=False), Receiver(200)
    app = apps.make(outward=receiver.outward)
    seen: list[Trace | None] = []

    @app.handler("mails")
    async def send(job: Job) -> None:
        seen.append(tracing.current())
        await job.send("later", 1)

    headers = [("traceparent", PARENT), ("tracestate", "a=1")]
    async with serving(app) as caller:
        path = "/v1/inbox/mails?wait_ms=1000"
        await caller.ok("POST", path, {"body": 1, "key": "a"}, headers=headers)
        await caller.ok("POST", path, {"body": 1, "key": "b"})
        assert seen == [Trace(PARENT, "a=1"), None]
        jobs = await caller.ok("POST", "/v1/queues/later/claim", {"lease_ms": 1_000, "max": 2})
        traced = {(job.get("traceparent"), job.get("tracestate")) for job in jobs["jobs"]}
        assert traced == {(PARENT, "a=1"), (None, None)}
        timer = {"url": "https://example.com/hook", "delay_ms": 5_000}
        await caller.ok("POST", "/v1/timers", timer, headers=headers)
        await apps.sleep(10)
    assert receiver.headers[0]["traceparent"] == PARENT
    assert receiver.headers[0]["tracestate"] == "a=1"


@virtual
async def test_the_trace_of_a_sender_does_not_reach_jobs_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    apps = Apps(shared=False)
    app = apps.make()
    seen: dict[Any, Trace | None] = {}

    @app.handler("mails")
    async def send(job: Job) -> None:
        seen[job.body] = tracing.current()

    async def sent(number: int) -> None:
        parent = f"00-{TRACE_ID}-{number:016x}-01" if number % 2 else None
        with tracing.passing(tracing.read(parent, None)):
            await app.send("mails", number)

    async with app:
        await asyncio.gather(*[sent(number) for number in range(1, 21)])
        await apps.sleep(1)
    assert {number: trace and trace.parent[36:52] for number, trace in seen.items()} == {
        number: f"{number:016x}" if number % 2 else None for number in range(1, 21)
    }


@virtual
async def test_sender_handler_and_steps_are_one_trace(spans: Spans) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job) -> None:
        await job.step("render", lambda: "text")
        await job.step("post", lambda: 1)
        await job.send("sent", job.body)

    async with app:
        with spans.tracer.start_as_current_span("request") as request:
            receipt = await app.send("mails", 1, key="k")
            await app.send("mails", 1, key="k")
        assert (await app.wait(receipt.id)).state == "succeeded"
    producer, again = spans.named("send mails")
    consumer = spans.one("process mails")
    steps = [spans.one("step render"), spans.one("step post")]
    sent = spans.one("send sent")
    assert (producer.kind, consumer.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(producer) == parent_of(again)
    assert parent_of(producer) == (ids(producer)[0], f"{request.get_span_context().span_id:016x}")
    assert parent_of(consumer) == ids(producer)
    assert links_of(consumer) == [ids(producer)]
    assert [parent_of(span) for span in (*steps, sent)] == [ids(consumer)] * 3
    assert [span.kind for span in steps] == [SpanKind.INTERNAL] * 2
    shared = {"messaging.system": "onceward", "messaging.destination.name": "mails"}
    assert producer.attributes == {
        **shared,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": receipt.id,
    }
    assert consumer.attributes == {
        **shared,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": receipt.id,
        "onceward.job.attempt": 1,
    }
    assert steps[0].attributes == {
        "onceward.step.name": "render",
        "onceward.job.id": receipt.id,
        "onceward.job.attempt": 1,
    }
    assert {span.status.status_code for span in spans.all} == {StatusCode.UNSET}


@virtual
async def test_each_attempt_has_a_span_with_its_error(spans: Spans) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails", retry_first_s=1)
    async def send(job: Job) -> None:
        await job.step("once", lambda: 1)
        if job.attempt == 1:
            await job.step("fails", lambda: 1 / 0)
        if job.attempt == 2:
            raise Retry("busy", after_s=5)
        if job.attempt == 3:
            await job.sleep(60)

    async with app:
        receipt = await app.send("mails", 1)
        assert (await app.wait(receipt.id)).state == "succeeded"
    found = spans.named("process mails")
    assert [
        (
            (span.attributes or {})["onceward.job.attempt"],
            span.status.status_code,
            (span.attributes or {}).get("error.type"),
        )
        for span in found
    ] == [
        (1, StatusCode.ERROR, "ZeroDivisionError"),
        (2, StatusCode.ERROR, "retry"),
        (3, StatusCode.UNSET, None),  # it sleeps
        (3, StatusCode.UNSET, None),
    ]
    [event] = found[0].events
    told = dict(event.attributes or {})
    assert (event.name, told["exception.type"]) == ("exception", "ZeroDivisionError")
    assert told["exception.message"] == "ZeroDivisionError: division by zero"
    assert "test_tracing.py" in str(told["exception.stacktrace"])
    failed = spans.one("step fails")
    assert failed.status.status_code is StatusCode.ERROR
    spans.one("step once")  # later attempts use its recorded result
    assert {ids(span)[0] for span in spans.all} == {ids(found[0])[0]}


@virtual
async def test_errors_in_spans_are_bounded_and_always_readable(spans: Spans) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    apps = Apps(shared=False)
    app = apps.make()
    errors = [ValueError("x" * 1_000_000), Odd(), ExceptionGroup("g", [KeyError("a"), Odd()])]

    @app.handler("mails", attempts_max=1)
    async def send(job: Job) -> None:
        raise errors[job.body]

    async with app:
        for number in range(len(errors)):
            receipt = await app.send("mails", number)
            assert (await app.wait(receipt.id)).state == "failed"
    found = spans.named("process mails")
    assert len(found) == len(errors)
    for span in found:
        [event] = span.events
        told = dict(event.attributes or {})
        assert len(str(told["exception.message"])) <= limits.REASON_CHARS_MAX
        assert len(str(told["exception.stacktrace"])) <= limits.STACKTRACE_CHARS_MAX
        assert len(span.status.description or "") <= limits.REASON_CHARS_MAX


@virtual
async def test_passwords_in_errors_are_not_in_spans(spans: Spans) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails", attempts_max=1)
    async def send(job: Job) -> None:
        raise ConnectionError("cannot connect to postgresql://ann:hunter2@db/shop?password=hunter2")

    async with app:
        receipt = await app.send("mails", 1)
        assert (await app.wait(receipt.id)).state == "failed"
    span = spans.one("process mails")
    [event] = span.events
    assert "db/shop" in str(span.status.description)
    assert (
        "hunter2"
        not in f"{span.status.description} {(event.attributes or {})['exception.message']}"
    )
    lines = str((event.attributes or {})["exception.stacktrace"]).splitlines()
    assert "hunter2" not in lines[-1]


async def test_plain_handlers_are_part_of_the_trace(spans: Spans) -> None:
    app = App("memory://", slots=4)

    @app.handler("mails")
    def send(job: SyncJob) -> None:
        with spans.tracer.start_as_current_span("own"):
            job.step("post", lambda: spans.tracer.start_span("within").end())
            job.send("sent", 1)

    async with app:
        with spans.tracer.start_as_current_span("request"):
            receipt = await app.send("mails", 1)
        assert (await app.wait(receipt.id)).state == "succeeded"
    chain = ["request", "send mails", "process mails", "own", "step post", "within"]
    found = [spans.one(name) for name in chain]
    assert [parent_of(span) for span in found[1:]] == [ids(span) for span in found[:-1]]
    assert parent_of(spans.one("send sent")) == ids(spans.one("own"))


@virtual
async def test_a_batch_is_linked_with_each_of_its_senders(spans: Spans) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails", batch=10)
    async def send(jobs: list[Job]) -> None:
        pass

    async with app:
        receipts = await app.send_many("mails", [{"body": number} for number in range(3)])
        await app.wait(receipts[-1].id)  # type: ignore[union-attr]
    producer, consumer = spans.one("send mails"), spans.one("process mails")
    for span in (producer, consumer):
        assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert parent_of(consumer) is None
    assert links_of(consumer) == [ids(producer)] * 3


@virtual
async def test_webhook_calls_are_part_of_the_trace(spans: Spans) -> None:
    apps = Apps(shared=False)
    receiver = Receiver(Unreachable("no connection"), 503, 200)
    app = apps.make(outward=receiver.outward)
    async with app:
        with spans.tracer.start_as_current_span("request"):
            url = "https://example.com:8443/hook?token=secret"
            await app.timers.set("t", url=url, delay_s=60)
        await apps.sleep(1_000)
    request, calls = spans.one("request"), spans.named("POST")
    processed = spans.named("process onceward.webhooks")
    assert [parent_of(span) for span in calls] == [ids(span) for span in processed]
    assert {parent_of(span) for span in processed} == {ids(request)}
    assert [span.kind for span in calls] == [SpanKind.CLIENT] * 3
    shared = {
        "http.request.method": "POST",
        "url.full": "https://example.com:8443/hook",
        "server.address": "example.com",
        "server.port": 8443,
    }
    assert [dict(span.attributes or {}) for span in calls] == [
        {**shared, "error.type": "unreachable"},
        {
            **shared,
            "error.type": "503",
            "http.response.status_code": 503,
            "http.request.resend_count": 1,
        },
        {**shared, "http.response.status_code": 200, "http.request.resend_count": 2},
    ]
    assert [headers["traceparent"][36:52] for headers in receiver.headers] == [
        ids(span)[1] for span in calls
    ]


@virtual
async def test_a_recurring_timer_starts_a_new_trace_each_time(spans: Spans) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails")
    async def send(job: Job) -> None:
        pass

    async with app:
        with spans.tracer.start_as_current_span("request"):
            await app.timers.set("t", queue="mails", every_s=10)
        await apps.sleep(35)
    found = spans.named("process mails")
    assert len(found) == 3
    assert {parent_of(span) for span in found} == {None}
    assert len({ids(span)[0] for span in found}) == 3


@virtual
async def test_a_caller_can_set_the_header_of_a_webhook_call(spans: Spans) -> None:
    apps, receiver = Apps(shared=False), Receiver(200)
    app = apps.make(outward=receiver.outward)
    async with app:
        headers = {"Traceparent": PARENT}
        await app.timers.set("t", url="https://example.com/", headers=headers, delay_s=0)
        await apps.sleep(5)
    assert receiver.headers[0]["traceparent"] == PARENT


async def test_a_trace_goes_through_client_server_and_worker(spans: Spans) -> None:
    app = App("memory://", slots=4)
    done = asyncio.Event()
    async with Served(app) as served, Client(served.url) as client, asyncio.timeout(30):

        async def handle(job: Any) -> None:
            done.set()

        worker = client.worker("mails", handle)
        working = asyncio.create_task(worker.run())
        with spans.tracer.start_as_current_span("request"):
            await client.send("mails", 1, key="k")
        await done.wait()
        worker.stop()
        await working
    request, producer = spans.one("request"), spans.one("send mails")
    consumer = spans.one("process mails")
    assert parent_of(producer) == ids(request)
    assert parent_of(consumer) == ids(producer)


@virtual
async def test_a_trace_of_the_api_alone_is_passed_on() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    context = tracing._span_context(Trace(PARENT, "a=1"))
    async with app:
        with use_span(NonRecordingSpan(context)):
            receipt = await app.send("mails", 1)
        assert (await app.job(receipt.id)).trace == Trace(PARENT, "a=1")


def test_records_without_a_trace_are_as_before() -> None:
    import msgspec

    old = b'{"queue":"q","body":1,"stage":"ready","created_ms":1}'
    job = msgspec.json.decode(old, type=JobRecord)
    assert job.trace is None
    assert msgspec.json.encode(job) == old


def test_applications_do_not_import_opentelemetry() -> None:
    code = (
        "import asyncio, sys, onceward\n"
        "async def main():\n"
        "    async with onceward.App('memory://') as app:\n"
        "        await app.send('q', 1)\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
