"""The job whose handler is running, for log records."""

import logging
from contextvars import ContextVar
from typing import NamedTuple


class JobContext(NamedTuple):
    """A running attempt. A batch has its first job."""

    job_id: str
    queue: str
    attempt: int


def about(id_: str, queue: str, attempt: int) -> dict[str, object]:
    """The attributes of a log record about an attempt, as `extra`."""
    return JobContext(id_, queue, attempt)._asdict()


RUNNING: ContextVar[JobContext | None] = ContextVar("running", default=None)
"""The attempt that the current task or thread runs."""


def add_job(record: logging.LogRecord) -> bool:
    """A filter for log handlers: sets the attributes `job_id`, `queue` and `attempt` of records
    that a handler logs; None for others."""
    if not hasattr(record, "job_id"):
        context = RUNNING.get()
        record.__dict__.update(_NONE if context is None else context._asdict())
    return True


_NONE = dict.fromkeys(JobContext._fields)
