"""Code that blocks the event loop is reported once, with its handler and its stack."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.watchdog import Watchdog
from onceward.web.logs import JsonFormatter, TextFormatter
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

WAIT_S = 60.0


class Reports(logging.Handler):
    """The reports of a watchdog; each frees the code that blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.free = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "has been blocked" in record.getMessage():
            self.records.append(record)
            self.free.set()


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reports]:
    monkeypatch.setattr(limits, "LOOP_BLOCKED_S", 0.1)
    handler, logger = Reports(), logging.getLogger("onceward")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def counted(app: App, more_than: float) -> None:
    """Wait until an incident is counted, which happens after its end."""
    async with asyncio.timeout(WAIT_S):
        while app.meters.total("loop_blocked") <= more_than:
            await asyncio.get_running_loop().run_in_executor(None, int)


async def test_a_handler_that_blocks_is_reported_once_per_incident(reports: Reports) -> None:
    app = App("memory://")

    @app.handler("slow")
    async def block_the_loop(job: Job) -> None:
        reports.free.clear()
        assert reports.free.wait(WAIT_S)
        mine = [record for record in reports.records if "block_the_loop" in record.getMessage()]
        assert len(mine) == job.body
        # Blocks on for the time of several reports.
        threading.Event().wait(4 * limits.LOOP_BLOCKED_S)

    async with app:
        assert app.meters.total("loop_blocked") == 0
        for n in (1, 2):
            before = app.meters.total("loop_blocked")
            job = await app.wait((await app.send("slow", n)).id)
            assert job.state == "succeeded", job.reason
            await counted(app, before)
            mine = [r for r in reports.records if "block_the_loop" in r.getMessage()]
            assert len(mine) == n, "once per incident"
        assert f"of slow (job {job_id(mine[-1])})" in mine[-1].getMessage()
    assert mine[0].levelname == "WARNING"
    assert "reports.free.wait(WAIT_S)" in (mine[0].stack_info or "")
    assert "secret" not in (mine[0].stack_info or "")


def job_id(record: logging.LogRecord) -> str:
    return record.getMessage().partition("(job ")[2].partition(")")[0]


async def test_other_tasks_and_callbacks_are_named(reports: Reports) -> None:
    async with App("memory://") as app:

        async def block() -> None:
            assert reports.free.wait(WAIT_S)

        await asyncio.create_task(block(), name="import-of-orders")
        assert any("by the task import-of-orders" in r.getMessage() for r in reports.records)
        reports.free.clear()
        done = asyncio.Event()

        def callback() -> None:
            assert reports.free.wait(WAIT_S)
            done.set()

        asyncio.get_running_loop().call_soon(callback)
        await done.wait()
        assert any("by a callback" in r.getMessage() for r in reports.records)
        await counted(app, 1)


async def test_nothing_is_watched_after_the_stop(reports: Reports) -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    async with App("memory://"):
        assert "onceward-watchdog" in names()
    assert "onceward-watchdog" not in names()


def test_a_loop_that_was_closed_ends_its_watchdog() -> None:
    before, made = set(threading.enumerate()), []

    async def main() -> None:
        made.append(Watchdog(str, int))

    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)
        assert not thread.is_alive()


async def test_a_stop_while_the_loop_is_asked_ends_the_watchdog() -> None:
    """The loop waits for the thread, so it would never answer."""

    class Late(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait(WAIT_S)
            return False

    watchdog = Watchdog(str, int)
    watchdog._stopped = Late()  # the thread has not looked yet, or ends at once
    stopping = threading.Thread(target=watchdog.stop, daemon=True)
    stopping.start()
    stopping.join(WAIT_S)
    assert not stopping.is_alive()


@virtual
async def test_virtual_time_has_no_watchdog() -> None:
    apps = Apps(shared=False)
    async with apps.make():
        assert "onceward-watchdog" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("formatter", "read"),
    [
        (JsonFormatter(), lambda text: json.loads(text)["stack"]),
        (TextFormatter("%(message)s"), lambda text: text.partition("\n")[2]),
    ],
)
def test_logs_show_the_stack_over_several_lines_without_secrets(
    formatter: logging.Formatter, read: Callable[[str], Any]
) -> None:
    record = logging.LogRecord("onceward", 30, "f", 1, "blocked", (), None, None, "Stack:\n  at x")
    assert read(formatter.format(record)) == "Stack:\n  at x"
    record.stack_info = "postgresql://ann:hunter2@db/shop"
    assert "hunter2" not in read(formatter.format(record))
