"""A thread that reports code which blocks the event loop."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from onceward import limits
from onceward.clock import boot_ns

logger = logging.getLogger("onceward")

# A block begins before the question, by half the pause on average. So a loop counts as blocked
# after the pause and the looks together, less that half. Several looks distinguish a blocked loop
# from a process that was stopped, which cuts only one of them short.
_PAUSE = 0.5
_LOOK = 0.25
_LOOKS = 3


class Watchdog:
    """Logs each time that an event loop is blocked for about a second or more, once, with its
    stack. A thread asks the loop for a sign of life twice a second."""

    def __init__(
        self,
        name_of: Callable[["asyncio.Task[Any] | None"], str],
        blocked: Callable[[], object],
    ) -> None:
        """Start in a running loop. `name_of` describes the running task; the thread calls it.
        `blocked` is called on the loop after each incident."""
        self._name_of = name_of
        self._blocked = blocked
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._alive = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onceward-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        self._stopped.set()
        self._alive.set()
        self._thread.join()

    def _run(self) -> None:
        look_s = _LOOK * limits.LOOP_BLOCKED_S
        while not self._stopped.wait(_PAUSE * limits.LOOP_BLOCKED_S):
            self._alive.clear()
            if self._stopped.is_set():
                return  # `stop` blocks the loop, which could not answer
            asked_ns = boot_ns()
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:
                return  # the loop is closed
            if any(self._alive.wait(look_s) for _ in range(_LOOKS)):
                continue
            self._report()
            self._alive.wait()
            took_s = (boot_ns() - asked_ns) / 1e9
            if not self._stopped.is_set():
                logger.warning("the event loop was blocked for %.1f s", took_s)
                self._loop.call_soon_threadsafe(self._blocked)

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        task = asyncio.current_task(self._loop)
        record = logger.makeRecord(
            logger.name,
            logging.WARNING,
            __file__,
            0,
            "the event loop has been blocked for about %.0f s by %s; run blocking code in a "
            "plain `def` handler or with `asyncio.to_thread`",
            (limits.LOOP_BLOCKED_S, self._name_of(task)),
            None,
            sinfo=None if frame is None else stack_of(frame),
        )
        logger.handle(record)


def stack_of(frame: FrameType) -> str:
    """The innermost calls of a stack as text, the last one at the end, without local variables."""
    calls = traceback.extract_stack(frame, limits.STACK_CALLS_MAX)
    return "Stack (most recent call last):\n" + "".join(traceback.format_list(calls)).rstrip()
