"""Structs of the history of a job: attempts, changes, steps, spans of time and children."""

from typing import Any

import msgspec


class JobAttempt(msgspec.Struct):
    """An attempt that has failed."""

    attempt: int
    ended_ms: int
    worker: str
    reason: str
    """The error."""
    type: str = ""
    """The type of the error; empty if the worker did not send it."""
    traceback: str = ""
    """The end of its traceback; only of the last attempts."""


class JobChange(msgspec.Struct):
    """A change of a job by an operator, its sender or code of the application."""

    at_ms: int
    kind: str
    """retried, settled or cancelled."""
    by: str
    """The id of the caller; empty: code of the application."""
    reason: str = ""
    """The error before a retry, the reason of a settlement or of a cancellation."""
    step: str = ""
    """The settled step."""
    outcome: str = ""
    """Of a settled step: done or not done."""


class JobSettlement(msgspec.Struct):
    """The outcome of a step in doubt, as an operator has entered it."""

    settled_ms: int
    step: str
    done: bool
    by: str
    """The id of the caller; empty: code of the application."""
    reason: str


class JobStep(msgspec.Struct):
    """A step of a job that has not ended."""

    name: str
    state: str
    """done, asleep, or intended: the outcome is unknown."""
    result: Any = None
    until_ms: int = 0
    attempt: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    """The time of its call; 0 if it is unknown."""


class JobSpan(msgspec.Struct):
    """A span of time in the life of a job."""

    kind: str
    """What the job did: `scheduled` (its delay), `queued`, `attempt`, `step`, `sleep`, `event`,
    `children`, `backoff`, `failed` (until an operator retried it), or `unknown`."""
    name: str
    """Of a step or an event: its name; of children: the number of the call."""
    start_ms: int
    end_ms: int
    """0: it has not ended."""
    attempt: int = 0
    state: str = ""
    """Of an attempt: `running`, `succeeded`, `failed`, `cancelled`, or `released` to wait. Of a
    step: `done`, or `intended`: the outcome is unknown."""
    until_ms: int = 0
    """Of a wait that has not ended: the latest time of its end; 0 without one."""


class JobEffect(msgspec.Struct):
    """An effect of a job, or the cause of a job."""

    kind: str
    """step, job, timer, room or record."""
    name: str
    caller: str = ""
    queue: str = ""
    state: str = ""
    """The current state of a job; gone, if it was removed."""


class JobChild(msgspec.Struct):
    """A child of a job."""

    id: str
    call: int
    """The call of the handler that created it, from 1."""
    index: int
    """Its position in that call, from 0."""
    queue: str
    state: str
    reason: str = ""
    created_ms: int = 0
    started_ms: int = 0
    """The start of its current or last attempt; 0: none, or none since it waits."""
    ended_ms: int = 0


class JobChildCounts(msgspec.Struct):
    """The number of children of a job, by state."""

    total: int
    """The number of children that the job asked for, created or not."""
    states: dict[str, int]
    """The number in each state. If many children have not ended, these are counted as `open`."""
