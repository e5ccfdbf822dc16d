"""Events: values that someone sends to a job, and that its handler waits for.

The events that a job has not consumed are one record, in the order of their commits. The commit
that adds an event continues a job that waits for it; the commit that consumes one records its value
as a step.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.engine.invariants import Rule
from onceward.errors import AlreadyEnded, BadInput, TooLarge
from onceward.json_values import decode, encode
from onceward.schedule import Schedule, events_key, job_key
from onceward.store.transaction import Transaction
from onceward.work import steps as steps_part
from onceward.work.steps import Step, done_step

_VALUE = ("event", "value")
TIMED_OUT = "timed out"


class Event(msgspec.Struct, array_like=True, frozen=True):
    """An event that was not yet consumed."""

    name: str
    value: Any


class Events(msgspec.Struct):
    """The events of a job, the oldest first, and the keys of the last ones."""

    waiting: list[Event] = []
    keys: list[str] = []


RULES = [Rule("job", lambda record, get: _judge(record))]


def _judge(record: Record) -> Iterator[str]:
    if record.key[1].endswith("#events"):
        try:
            msgspec.json.decode(record.value, type=Events)
        except msgspec.DecodeError as error:
            yield f"not the events of a job: {error}"


def admit_event(name: Any) -> None:
    """Raise `BadInput` for a name that no event can have."""
    if not isinstance(name, str):
        raise BadInput(f"an event's name must be text, not {type(name).__name__}")
    keys.admit_name(name, "an event's name", limits.EVENT_NAME_BYTES_MAX)


async def emit(
    tx: Transaction, schedule: Schedule, id_: str, name: str, value: Any = None, key: str = ""
) -> None:
    """Send an event to a job. The same key twice sends it once.

    Raises `BadInput`, `NoSuchJob`, and `AlreadyEnded` if the job has succeeded or was cancelled.
    """
    admit_event(name)
    if type(key) is not str or len(key) > limits.SETTLEMENT_KEY_CHARS_MAX:
        raise BadInput(
            f"the key of an event must be text of at most {limits.SETTLEMENT_KEY_CHARS_MAX} "
            f"characters, not {str(key)[:200]!r}"
        )
    encoded = encode(value, _VALUE)
    if len(encoded) > limits.EVENT_BYTES_MAX:
        raise TooLarge(
            f"the value of an event must have at most {limits.EVENT_BYTES_MAX} bytes as JSON, "
            f"not {len(encoded)}",
            code="value_too_large",
        )
    job = await schedule.get(tx, id_)
    if job.stage in ("succeeded", "cancelled"):
        raise AlreadyEnded(
            f"job {id_} cannot receive the event {name!r}: it is {job.state}; send the "
            "event before it ends",
            id=id_,
            state=job.state,
        )
    known = await tx.get(events_key(id_), Events)
    events = Events() if known is None else known
    if key and key in events.keys:
        return
    if key:
        events.keys = [*events.keys, key][-limits.EVENT_KEYS_MAX :]
    events.waiting.append(Event(name, decode(encoded, Any, _VALUE)))
    if (
        len(events.waiting) > limits.EVENTS_MAX
        or len(encode(events, _VALUE)) > limits.EVENTS_BYTES_MAX
    ):
        raise TooLarge(
            f"job {id_} has {len(events.waiting) - 1} events that its handler has not "
            f"consumed: at most {limits.EVENTS_MAX} events and {limits.EVENTS_BYTES_MAX} "
            "bytes are kept; send it again later",
            code="too_many_events",
        )
    tx.put(events_key(id_), events)
    wakes = job.stage == "waiting" and job.waits == waits_for(name)
    if not job.evented:
        job.evented = True  # so that the record is deleted when the job ends
        if not wakes:
            tx.put(job_key(id_), job)
    if wakes:
        await schedule.wake(tx, id_, job)


async def take(
    tx: Transaction, schedule: Schedule, id_: str, token: str, step: str, name: str, until_ms: int
) -> Step | None:
    """Consume the oldest event of a name as the result of a step, or record that its time has
    passed. None if the job has to wait. Raises `StaleToken`, `NoSuchJob`."""
    await schedule.held(tx, id_, token)
    events = await tx.get(events_key(id_), Events)
    for position, event in enumerate(events.waiting if events is not None else ()):
        if event.name == name:
            assert events is not None
            del events.waiting[position]
            tx.put(events_key(id_), events)
            found = done_step(event.value)
            break
    else:
        if not until_ms or tx.now_ms < until_ms:
            return None
        found = Step(done=True, until_ms=until_ms, why=TIMED_OUT)
    await steps_part.record(tx, schedule, id_, token, step, found)
    return found


async def wait(
    tx: Transaction, schedule: Schedule, id_: str, token: str, name: str, until_ms: int
) -> None:
    """Release a job until there is an event of a name. Raises `StaleToken`, `NoSuchJob`."""
    events = await tx.get(events_key(id_), Events)
    if any(event.name == name for event in (events.waiting if events is not None else ())):
        await schedule.release(tx, id_, token)  # it has arrived in the meantime
    else:
        await schedule.release(tx, id_, token, until_ms, waits_for(name))


def waits_for(name: str) -> str:
    """What a job waits for, as in its record."""
    return f"event {name}"
