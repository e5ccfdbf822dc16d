"""The back end for `django.tasks` (Django 6): tasks are jobs.

    TASKS = {"default": {"BACKEND": "onceward.integrations.django.tasks.OncewardBackend"}}

Each of its `QUEUES` is a queue, whose handler runs the functions of tasks.
"""

import traceback
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import TaskError
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from onceward import BadInput, NoSuchJob, SyncJob
from onceward.integrations.django import DjangoJobs, jobs

_PATH = f"{__name__}.OncewardBackend"
_STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "in_doubt": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


class OncewardBackend(BaseTaskBackend):
    """Sends tasks as jobs. An exception of a task fails its attempt, and the job is retried by
    the settings of the queue. `OPTIONS` are these settings, such as `attempts_max`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult:
        self.validate_task(task)
        body = {
            "task": task.module_path,
            "backend": self.alias,
            "args": normalize_json(list(args)),
            "kwargs": normalize_json(kwargs),
        }
        options: dict[str, Any] = {"priority": _priority(task.priority)}
        if task.run_after is not None:
            options["due_ms"] = int(task.run_after.timestamp() * 1000)
        receipt = jobs.send(task.queue_name, body, **options)
        result = self.get_result(receipt.id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        try:
            if jobs.site.has_database:
                job: Any = jobs.app.job(result_id)
            else:
                job = jobs.client.jobs.get(result_id)
            task = _task(job.body).using(queue_name=job.queue, backend=job.body["backend"])
        except (NoSuchJob, BadInput, ImportError, KeyError, TypeError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        return _result(task, job, result_id)


def _priority(given: int) -> int:
    """-100 to 100, where greater is earlier, as 9 to 0."""
    return min(max(round(5 - given / 20), 0), 9)


def _task(body: Any) -> Any:
    return import_string(body["task"])


def _result(task: Any, job: Any, id_: str) -> TaskResult:
    status = _STATUS.get(job.state, TaskResultStatus.READY)
    failed = status == TaskResultStatus.FAILED
    result = TaskResult(
        task=task,
        id=id_,
        status=status,
        enqueued_at=_time(job.created_ms),
        started_at=None,
        finished_at=_time(job.ended_ms),
        last_attempted_at=None,
        args=job.body["args"],
        kwargs=job.body["kwargs"],
        backend=job.body["backend"],
        errors=[TaskError(exception_class_path="onceward.JobFailed", traceback=job.reason)]
        if failed
        else [],
        worker_ids=["onceward"] * job.attempt,
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", job.result)
    return result


def _time(ms: int | None) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _run(job: SyncJob[Any]) -> Any:
    """The handler of the queues of tasks."""
    task, body = _task(job.body), job.body
    result = TaskResult(
        task=task,
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=_time(job.created_ms),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=body["args"],
        kwargs=body["kwargs"],
        backend=body["backend"],
        errors=[],
        worker_ids=["onceward"] * job.attempt,
    )
    task_started.send(OncewardBackend, task_result=result)
    context = [TaskContext(task_result=result)] if task.takes_context else []
    try:
        returned = normalize_json(task.call(*context, *body["args"], **body["kwargs"]))
    except Exception as error:
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        text = "".join(traceback.format_exception(error))
        result.errors.append(TaskError(exception_class_path=path, traceback=text))
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        task_finished.send(OncewardBackend, task_result=result)
        raise
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "_return_value", returned)
    task_finished.send(OncewardBackend, task_result=result)
    return returned


def declare_tasks(jobs: DjangoJobs) -> None:
    """Declare a handler for each queue of the back ends in the settings `TASKS`."""
    for alias, found in settings.TASKS.items():
        if found.get("BACKEND") == _PATH:
            backend = task_backends[alias]
            for queue in sorted(backend.queues):
                jobs.handler(queue, **backend.options)(_run)
