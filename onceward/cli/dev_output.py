"""Output of `onceward dev`: a line for each attempt, and tracebacks of the application's code."""

import asyncio
import importlib
import logging
import os
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from onceward.app import App
from onceward.cli.display import printable
from onceward.cli.views import shown_duration
from onceward.engine.base import Delete, Put
from onceward.errors import OncewardError
from onceward.json_values import decode
from onceward.keys import split
from onceward.redaction import redact
from onceward.schedule import Job
from onceward.web.logs import TextFormatter

_OURS = str(Path(__file__).parents[1])
_IMPORT = "<frozen importlib"


def explain_import(module: str) -> bool:
    """Import the module of the application. Prints the traceback of an error; returns whether there
    was none."""
    try:
        importlib.import_module(module)
    except Exception as error:
        print("".join(_lines(error)), file=sys.stderr, end="", flush=True)
        return False
    return True


def show_attempts(app: App, supervisor: int) -> None:
    """Print a line for each attempt of a job that this process leases, and log tracebacks without
    the frames of Onceward. End the process when its supervisor is gone, which closes a pipe."""
    loop = asyncio.get_running_loop()

    def left() -> None:
        loop.remove_reader(supervisor)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(supervisor, left)
    begun_ns: dict[tuple[str, int], int] = {}
    clock = app.store.clock

    def saw(write: Put | Delete) -> None:
        if type(write) is not Put or not write.key[1].endswith("#job"):
            return
        try:
            job: Job = decode(write.value, Job, write.key)
        except OncewardError:
            return
        id_ = split(write.key[1])[0]
        name = id_, job.attempt
        if job.stage == "running":
            begun_ns.setdefault(name, clock.elapsed_ns())
            return
        # A released attempt does not count.
        since_ns = begun_ns.pop(name, None) or begun_ns.pop((id_, job.attempt + 1), None)
        if since_ns is not None:
            took = shown_duration((clock.elapsed_ns() - since_ns) / 1e6)
            print(_line(job, id_, took, clock.now_ms()), flush=True)

    app.store.on_change("job", saw)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_TracebackFormatter("%(levelname)s %(name)s: %(message)s"))
        handler.addFilter(_says_more)


def _line(job: Job, id_: str, took: str, now_ms: int) -> str:
    at = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
    outcome = job.state.replace("_", " ")
    if job.state == "retrying":
        outcome += f" in {shown_duration(max(job.due_ms - now_ms, 0))}"
    elif job.state == "queued":
        outcome = "released"
    if job.state in _FAILED and job.reason:
        outcome += f": {job.reason.partition(chr(10))[0]}"
    attempt = f"attempt {max(job.attempt, 1)}"
    return printable("  ".join([f"{at:%H:%M:%S}", job.queue, id_, attempt, took, outcome]))


_FAILED = ("retrying", "failed", "in_doubt")


class _TracebackFormatter(TextFormatter):
    """Formats the failure of an attempt as its traceback. The line of the attempt has the rest."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if record.name == "onceward" and error is not None:
            return redact("".join(_lines(error)).rstrip())
        return super().format(record)


def _says_more(record: logging.LogRecord) -> bool:
    """Whether a log record has more than the line of an attempt."""
    return record.exc_info is not None or not str(record.msg).startswith(
        "job %s of %s failed in attempt"
    )


def _lines(error: BaseException) -> list[str]:
    """The traceback of an error from the first frame of the application on."""
    return traceback.format_exception(type(error), error, _own(error.__traceback__))


def _own(tb: TracebackType | None) -> TracebackType | None:
    """The traceback below the frames of Onceward and of the import system; None for an error of
    syntax, which has no frame of the application."""
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if not name.startswith((_OURS, _IMPORT)) and name != importlib.__file__:
            return tb
        tb = tb.tb_next
    return None
