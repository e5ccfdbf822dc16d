"""Programs of other libraries, which guides show next to ours. Those libraries are not installed
here: what only they run is compiled. What calls both runs with a stand-in for the other one."""

import sys
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from onceward.sync import App, Client
from tests.docs.reader import Reader

Names = dict[str, Any]


def of_another_library(text: str, reader: Reader) -> None:
    """It is a program, and names nothing of ours."""
    compile(text, "page", "exec")
    assert "onceward" not in text


def _run(text: str, **modules: SimpleNamespace) -> Names:
    """Run a program with stand-ins for modules, whose names have two underscores for a dot."""
    found = {}
    for name, members in modules.items():
        module = ModuleType(name.replace("__", "."))
        vars(module).update(vars(members))
        found[module.__name__] = module
    names: Names = {}
    with mock.patch.dict(sys.modules, found):
        exec(compile(text, "page", "exec"), names)
    return names


def _sent(reader: Reader, names: Names) -> list[Any]:
    """The orders that a forwarding function sends to the server of the page when it is called
    twice for one message."""
    with Client(f"http://localhost:{reader.port}") as client:
        before = {job.id for job in client.jobs.iterate(queue="orders")}
        for _ in range(2):
            names["pay"]("9", "lamp")
        sent = [job for job in client.jobs.iterate(queue="orders") if job.id not in before]
        assert [client.jobs.result(job.id, timeout_s=50) for job in sent] == ["paid lamp"]
    return sent


def a_task_of_celery_that_forwards(text: str, reader: Reader) -> None:
    options: list[Any] = []

    def task(**given: Any) -> Any:
        options.append(given)
        return lambda fn: fn

    celery = SimpleNamespace(Celery=lambda *_, **__: SimpleNamespace(task=task))
    _sent(reader, _run(reader.here(text), celery=celery))
    assert options[0]["name"] == "tasks.pay"


def a_function_of_rq_that_forwards(text: str, reader: Reader) -> None:
    current = SimpleNamespace(id="1", meta={}, save_meta=mock.Mock())
    names = _run(reader.here(text), rq=SimpleNamespace(get_current_job=lambda: current))
    [sent] = _sent(reader, names)
    assert current.meta == {"onceward": sent.id}
    assert current.save_meta.call_count == 2


def a_copy_of_timers(text: str, reader: Reader) -> None:
    """It copies one-time jobs that have a time and a queue, and leaves the others."""
    date, other = type("DateTrigger", (), {}), type("CronTrigger", (), {})
    due = datetime.fromtimestamp(2_000_000_000, UTC)

    def stored(name: str, trigger: type, next_: datetime | None, function: str = "remind") -> Any:
        return SimpleNamespace(
            id=name,
            func_ref=f"schedules:{function}",
            trigger=trigger(),
            next_run_time=next_,
            args=[f"order of {name}"],
            remove=mock.Mock(),
        )

    copied = stored("one", date, due)
    left = [stored("b", date, None), stored("c", other, due), stored("d", date, due, "report")]
    scheduler = mock.Mock(get_jobs=lambda: [copied, *left])
    app = App("memory://")
    timers: list[Any] = []
    stop = app.stop

    def stopped() -> None:
        timers.extend(app.timers.find())
        stop()

    with mock.patch.object(app, "stop", stopped):
        _run(
            text,
            apscheduler=SimpleNamespace(),
            apscheduler__triggers=SimpleNamespace(),
            apscheduler__triggers__date=SimpleNamespace(DateTrigger=date),
            schedules=SimpleNamespace(scheduler=scheduler),
            tasks=SimpleNamespace(app=app),
        )
    [timer] = timers
    assert (timer.id, timer.timer.due_ms) == ("one", 2_000_000_000_000)
    assert (timer.timer.spec.target.queue, timer.timer.spec.target.body) == (
        "reminders",
        "order of one",
    )
    assert copied.remove.called
    assert not any(one.remove.called for one in left)
    assert scheduler.start.call_args.kwargs == {"paused": True}
