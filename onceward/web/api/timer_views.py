"""Responses about timers, with a readable log of attempts."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from onceward import recurrence
from onceward.api import timers as api
from onceward.api.endpoints import Delivery
from onceward.job_options import given_options
from onceward.recurrence import Cron, Interval
from onceward.schedule import Job
from onceward.webhooks.timers import WEBHOOKS, Call, Timer, View
from onceward.webhooks.timers.firings import Firing

# The number of future times in the response about a recurring timer.
_TIMES = 5
_MASKED = "***"
T = TypeVar("T", bound=api.Firing)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def masked(headers: dict[str, str]) -> dict[str, str]:
    """Headers without their values, which may be credentials."""
    return dict.fromkeys(headers, _MASKED)


def shown(view: View, now_ms: int, viewer: str, times: int = _TIMES) -> api.Timer:
    """The response about a timer, with `times` future times. Only its owner sees header values."""
    timer, active = view.timer, view.timer.state == "active"
    repeat = timer.spec.repeat
    members = _target(timer, hidden=view.caller != viewer)
    if isinstance(repeat, Interval):
        members["every_ms"] = repeat.every_ms
    elif isinstance(repeat, Cron):
        members |= {"cron": repeat.text, "zone": repeat.zone}
    if repeat is not None and active and times:
        members["next"] = _times_to_come(timer, times)
    if timer.spec.until_ms is not None:
        members["until"] = moment(timer.spec.until_ms)
    if timer.job:
        members["last"] = _last(view)
    return api.Timer(
        view.id,
        view.status,
        moment(timer.due_ms),
        timer.due_ms,
        max(timer.due_ms - now_ms, 0) if active else 0,
        timer.created_ms,
        timer.fired,
        catch_up=timer.spec.catch_up,
        times=timer.spec.times,
        overlap=timer.spec.overlap,
        skipped=timer.skipped,
        **members,
    )


def moment(time_ms: int) -> str:
    """A time as in RFC 3339."""
    try:
        at = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms after 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _target(timer: Timer, *, hidden: bool) -> dict[str, Any]:
    """The members about what a timer does; `hidden`: without the values of headers."""
    target = timer.spec.target
    if isinstance(target, Call):
        return {
            "url": target.url or None,
            "endpoint": target.endpoint or None,
            "body": target.body,
            "headers": masked(target.headers) if hidden else target.headers,
            "append_id": target.append_id,
            "attempts_max": target.attempts_max,
            "retry": target.retry,
            "method": target.method,
            "on_failure": target.on_failure,
        }
    options = given_options(target.options) | {"priority": target.options.priority}
    return {"queue": target.queue, "body": target.body, **options}


def _times_to_come(timer: Timer, most: int) -> list[str]:
    repeat, time_ms = timer.spec.repeat, timer.due_ms
    assert repeat is not None
    if isinstance(repeat, Interval):
        repeat = Interval(repeat.every_ms, time_ms)
    times: list[str] = []
    next_ms: int | None = time_ms
    while next_ms is not None and len(times) < most:
        times.append(moment(next_ms))
        next_ms = recurrence.next_ms(repeat, next_ms)
    return times


def _last(view: View) -> api.Firing:
    timer, job = view.timer, view.job
    firing = api.Firing(timer.job, timer.fired, timer.fired_ms, "forgotten", [])
    due_ms = None if job is None else _said(job, job.body, "due_ms")
    return _with_job(firing, job, due_ms if isinstance(due_ms, int) else None)


def shown_firing(found: Firing) -> api.Firing:
    """The response about a firing of a timer."""
    id_, fired, job = found
    firing = api.Firing(id_, fired.number, fired.fired_ms, "forgotten", [])
    firing.resent = fired.resent or None
    return _with_job(firing, job, fired.due_ms)


def _with_job(firing: T, job: Job | None, due_ms: int | None) -> T:
    """Add the outcome of the job of a firing."""
    firing.due_ms = due_ms
    if job is None:
        return firing
    firing.state, firing.attempts = job.state, _log(job)
    if job.stage == "due":
        firing.next_attempt_ms = job.due_ms
    if job.ended_ms and due_ms is not None:
        firing.ended_ms, firing.latency_ms = job.ended_ms, max(job.ended_ms - due_ms, 0)
    return firing


def shown_delivery(found: Firing, *, body: bool = False) -> Delivery:
    """The response about a call of an endpoint."""
    id_, fired, job = found
    delivery = Delivery(id_, fired.number, fired.fired_ms, "forgotten", [], timer=fired.timer)
    delivery.resent = fired.resent or None
    if body and job is not None:
        call = _said(job, job.body, "call")
        delivery.body = call.get("body") if isinstance(call, dict) else None
    return _with_job(delivery, job, fired.due_ms)


def _log(job: Job) -> list[api.TimerAttempt]:
    log = [
        api.TimerAttempt(past.attempt, moment(past.ended_ms), past.ended_ms, "failed", past.reason)
        for past in job.history
    ]
    if job.stage == "succeeded":
        said = _said(job, job.result, "said")
        text = said if isinstance(said, str) else ""
        log.append(
            api.TimerAttempt(job.attempt, moment(job.ended_ms), job.ended_ms, "succeeded", text)
        )
    return log


def _said(job: Job, value: Any, name: str) -> Any:
    """A member of the body or result of a call's job.

    Only for the webhook queue: jobs of other queues have their own access rules, and senders and
    workers may have stored any value.
    """
    return value.get(name) if job.queue == WEBHOOKS and isinstance(value, dict) else None
