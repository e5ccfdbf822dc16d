"""What failed attempts keep and log: types, messages and tracebacks, bounded and redacted."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, Fail, OncewardError, Retry
from onceward.schedule import Job as JobRecord
from onceward.web.logs import JsonFormatter, add_job
from onceward.work.failures import Failures, hidden
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps
from tests.work.one_job import run_one


def look_up(name: str) -> str:
    local = "a secret of a local variable"
    return {"other": local}[name]


async def fails(job: Any) -> None:
    try:
        look_up("customer")
    except KeyError as error:
        raise ValueError("no such customer") from error


def fails_plain(job: SyncJob) -> None:
    job.step("find", look_up, "customer")


async def gives_up(job: Job) -> None:
    raise Fail("closed account")


@virtual
async def test_an_attempt_keeps_type_message_and_traceback() -> None:
    job = await run_one(fails, attempts_max=2, retry_first_s=1)
    assert [one.attempt for one in job.history] == [1, 2]
    for one in job.history:
        assert (one.type, one.reason) == ("ValueError", "ValueError: no such customer")
        lines = one.traceback.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1] == "ValueError: no such customer"
        assert 'return {"other": local}[name]' in one.traceback
        assert "KeyError: 'customer'" in one.traceback
        assert "direct cause" in one.traceback
        assert "a secret of a local variable" not in one.traceback
        assert "onceward/work/attempt.py" not in one.traceback


@virtual
async def test_tracebacks_of_threads_and_permanent_failures_begin_in_the_handler() -> None:
    job = await run_one(fails_plain, attempts_max=1)
    [one] = job.history
    assert one.type == "KeyError"
    assert "in fails_plain" in one.traceback.splitlines()[1]
    job = await run_one(gives_up)
    [one] = job.history
    assert (one.type, one.reason) == ("Fail", "closed account")
    assert "in gives_up" in one.traceback


@virtual
async def test_a_job_in_doubt_keeps_the_traceback() -> None:
    async def pay(job: Job) -> None:
        await job.step("pay", look_up, "bank", at_most_once=True)

    job = await run_one(pay)
    assert (job.state, job.history[0].type) == ("in_doubt", "InDoubt")
    assert "KeyError: 'bank'" in job.history[0].traceback


@virtual
async def test_failures_without_a_traceback_have_none() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", batch=2, attempts_max=1)
    async def work(jobs: list[Job]) -> None:
        jobs[0].fail("not this one")

    async with app:
        job = await app.wait((await app.send("q", None)).id)
    assert [(one.type, one.traceback) for one in job.history] == [("RuntimeError", "")]


def recurses(depth: int) -> int:
    return recurses(depth + 1)


async def too_deep(job: Job) -> None:
    recurses(0)


async def huge(job: Job) -> None:
    raise ValueError("x" * 1_000_000)


async def unprintable(job: Job) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise Odd


async def surrogates(job: Job) -> None:
    raise ValueError("half a character: \ud800")


async def grouped(job: Job) -> None:
    errors = []
    for name in ("one", "two"):
        try:
            look_up(name)
        except KeyError as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)


@virtual
@pytest.mark.parametrize("fn", [too_deep, huge, unprintable, surrogates, grouped])
async def test_tracebacks_of_odd_errors_are_bounded(
    fn: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "onceward")  # reports of tests reject lone surrogates
    job = await run_one(fn, attempts_max=1)
    [one] = job.history
    assert one.traceback
    assert len(one.traceback.encode()) <= limits.TRACEBACK_BYTES_MAX + 3
    assert len(one.reason) <= limits.REASON_CHARS_MAX


@virtual
async def test_only_the_last_of_many_attempts_keep_their_tracebacks() -> None:
    async def deep(job: Job) -> None:
        def down(depth: int) -> None:
            if depth:
                down(depth - 1)
            raise ValueError(f"attempt {job.attempt} {'x' * 1_500}")

        down(20)

    job = await run_one(deep, attempts_max=15, retry_first_s=0.01, retry_max_s=0.01)
    assert [one.attempt for one in job.history][-3:] == [13, 14, 15]
    kept = [one.attempt for one in job.history if one.traceback]
    assert kept == list(range(16 - len(kept), 16))
    assert 2 <= len(kept) < len(job.history)
    assert sum(len(one.traceback) for one in job.history) <= limits.TRACEBACKS_BYTES_MAX


async def leaks(job: Job) -> None:
    card = "4111-1111"
    raise ConnectionError(f"card {card} at postgresql://ann:hunter2@db/shop")


async def failed_with(redact: Callable[[str], str] | None) -> tuple[JobRecord, str]:
    apps = Apps(shared=False)
    app = apps.make(redact=redact)
    app.handler("q", attempts_max=1)(leaks)
    async with app:
        job = await app.wait((await app.send("q", None)).id)
    return job, f"{job.reason} {job.history[0].reason} {job.history[0].traceback}"


@virtual
async def test_secrets_are_removed_before_they_are_stored_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, text = await failed_with(None)
    assert "hunter2" not in text
    assert "4111" in text
    caplog.clear()
    job, text = await failed_with(lambda text: text.replace("4111-1111", "…"))
    assert "4111" not in text.replace('card = "4111-1111"', "")
    assert "hunter2" not in text
    assert "card … at" in job.reason
    [record] = [one for one in caplog.records if "failed in attempt" in one.getMessage()]
    assert record.exc_info is None, "the exception itself would not be redacted"
    assert "card … at" in (record.stack_info or "")


def broken(text: str) -> str:
    raise RuntimeError(f"cannot redact {text}")


@virtual
@pytest.mark.parametrize(
    ("redact", "shown"),
    [
        (broken, "(`redact` raised RuntimeError)"),
        (lambda text: None, "(`redact` returned NoneType; it must return text)"),
    ],
)
async def test_nothing_is_stored_if_redaction_fails(redact: Any, shown: str) -> None:
    job, text = await failed_with(redact)
    assert "4111" not in text
    assert job.reason == shown


@pytest.mark.parametrize("redact", ["text", 1, App])
def test_redact_must_be_a_function(redact: Any) -> None:
    with pytest.raises(BadInput, match="`redact` must be a function"):
        App("memory://", redact=redact)


def test_an_empty_text_needs_no_redaction() -> None:
    assert hidden("", broken) == ""


@virtual
async def test_repeated_failures_are_logged_in_one_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=1)
    async def work(job: Job) -> None:
        if job.body == "other":
            raise KeyError("another type")
        look_up("x") if job.body == "key" else await fails(job)

    async with app:

        async def fail(body: Any) -> logging.LogRecord:
            caplog.clear()
            await app.wait((await app.send("q", body)).id)
            [record] = [one for one in caplog.records if "failed in attempt" in one.getMessage()]
            return record

        first, second = await fail(1), await fail(2)
        assert (first.levelname, bool(first.exc_info)) == ("ERROR", True)
        assert (second.levelname, second.exc_info) == ("WARNING", None)
        assert "failed in attempt 1 (no retry): ValueError: no such customer" in second.getMessage()
        other = await fail("other")
        assert (other.levelname, bool(other.exc_info)) == ("ERROR", True)
        for n in range(5):
            await fail(n)
        await apps.sleep(limits.RATED_TOLD_S + 1)
        later = await fail(3)
        assert (later.levelname, bool(later.exc_info)) == ("ERROR", True)
        assert later.getMessage().endswith("(6 more since the last traceback)")
    assert (first.job_id, first.queue, first.attempt) == (  # type: ignore[attr-defined]
        first.args[0],  # type: ignore[index]
        "q",
        1,
    )


@virtual
@pytest.mark.parametrize("plain", [False, True])
async def test_lines_that_a_handler_logs_name_its_job(plain: bool) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    lines: list[dict[str, Any]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    handler, log = Lines(), logging.getLogger("shop")
    handler.addFilter(add_job)
    log.addHandler(handler)

    async def work(job: Job) -> None:
        log.warning("charging")

    def work_plain(job: SyncJob) -> None:
        log.warning("charging")

    try:
        app.handler("q")(work_plain if plain else work)  # type: ignore[arg-type]
        async with app:
            id_ = (await app.send("q", None)).id
            await app.wait(id_)
        log.warning("outside")
    finally:
        log.removeHandler(handler)
    about = ("message", "job_id", "queue", "attempt")
    assert [tuple(line.get(name) for name in about) for line in lines] == [
        ("charging", id_, "q", 1),
        ("outside", None, None, None),
    ]


@virtual
async def test_changes_by_the_application_are_recorded() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=1)
    async def work(job: Job) -> None:
        raise Retry("no") if job.body else Fail("never")

    async with app:
        id_ = (await app.send("q", 1)).id
        await app.wait(id_)
        for _ in range(2):
            await apps.sleep(10)
            await app.queues.retry(id_)
            await app.wait(id_)
        await apps.sleep(10)
        assert await app.queues.redrive("q") == 1
        await app.wait(id_)
        await app.cancel(id_, "not needed")
        job = await app.job(id_)
        times = [one.changed_ms for one in job.changes]
        assert [(one.kind, one.by, one.reason) for one in job.changes] == [
            *[("retried", "", "no")] * 3,
            ("cancelled", "", "not needed"),
        ]
        assert times == sorted(times)
        assert times[1] - times[0] >= 10_000
        for _ in range(limits.CHANGES_MAX + 3):
            other = (await app.send("q", 0, key="other")).id
            await app.wait(other)
            await app.queues.retry(other)
        await app.wait(other)
        assert len((await app.job(other)).changes) == limits.CHANGES_MAX


def test_a_description_has_the_name_of_its_type() -> None:
    failures = Failures(None, lambda: 0)
    long = type("E" * 1_000, (OncewardError,), {"default_code": "failed"})
    found = failures.describe(long("no"))
    assert (found.reason, found.details.traceback) == ("no", "")
    assert found.details.type == "E" * limits.ERROR_TYPE_CHARS_MAX
