"""Descriptions of waiting tasks, for reports of programs that cannot continue."""

import asyncio
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from onceward.work.attempt import Attempt

_SHOWN_MAX: Final = 8
_OURS: Final = str(Path(__file__).parents[1])
_LIBRARY: Final = sysconfig.get_path("stdlib")


def describe(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """One line for each task that waits for something, jobs first: the job, its handler, and the
    line. Background tasks of Onceward are counted only if no other task waits."""
    waiting = [task for task in tasks if not task.done()]
    lines = sorted(_line(task) for task in waiting if not _in_background(task))
    if not lines:
        lines = sorted(task.get_name() for task in waiting)
    jobs = [line for line in lines if line.startswith("job ")]
    lines = [*jobs, *[line for line in lines if line not in jobs]]
    more = [] if len(lines) <= _SHOWN_MAX else [f"{len(lines) - _SHOWN_MAX} more"]
    return "".join(f"\n  {line}" for line in (*lines[:_SHOWN_MAX], *more))


def _in_background(task: asyncio.Task[Any]) -> bool:
    name = task.get_name()
    return name.startswith("onceward-") and not name.startswith("onceward-job")


def _line(task: asyncio.Task[Any]) -> str:
    frames = list(_frames(task.get_coro()))
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(_OURS)]
    own = [frame for frame in own if not frame.f_code.co_filename.startswith(_LIBRARY)]
    where = ""
    if place := (own or frames)[-1:]:
        code = place[0].f_code
        where = f"{code.co_qualname} ({Path(code.co_filename).name}:{place[0].f_lineno})"
    for frame in frames:
        attempt = frame.f_locals.get("self")
        if isinstance(attempt, Attempt):
            jobs = ", ".join(attempt.ids)
            return f"job {jobs} of queue {attempt.handler.queue!r} waits in {where}"
    return f"task {task.get_name()} waits in {where}"


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a suspended coroutine, outermost first."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
