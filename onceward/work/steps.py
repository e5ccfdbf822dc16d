"""Steps: recorded results of a job's external calls, reused by later attempts.

All steps of a job are in one record, which is deleted when the job ends. The commit that records a
step checks the attempt's token, so a worker whose lease has ended cannot record one.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.engine.invariants import Rule
from onceward.errors import BadInput, KeyReused, NotFailed, TooLarge
from onceward.json_values import admit_json, decode, encode
from onceward.keys import Key
from onceward.reasons import reason_text
from onceward.schedule import Schedule, job_key, steps_key
from onceward.schedule.records import Settlement, latest_settled
from onceward.store.transaction import Transaction

_RESULT = ("steps", "result")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: done with a result, or started by an attempt and without a result."""

    done: bool = False
    result: Any = None
    intent: int = 0
    """The attempt that started the step, if it recorded its intent first."""
    token: str = ""
    """The token of that attempt; attempt numbers restart when a job is retried."""
    until_ms: int = 0
    """The end of a sleep."""
    read: bool = False
    """Whether it is a value that was read from a record."""
    why: str = ""
    """The error that left an intent without a result; empty if the attempt was interrupted."""
    started_ms: int = 0
    ended_ms: int = 0
    """The time of its call; 0 if it is unknown."""


Steps = dict[str, Step]


RULES = [Rule("job", lambda record, get: _judge(record))]


def _judge(record: Record) -> Iterator[str]:
    if record.key[1].endswith("#steps"):
        try:
            msgspec.json.decode(record.value, type=Steps)
        except msgspec.DecodeError as error:
            yield f"not the steps of a job: {error}"


def done_step(result: Any, started_ms: int = 0, ended_ms: int = 0) -> Step:
    """A completed step with a copy of its result as plain JSON. Raises `BadInput` for a result that
    is not JSON."""
    try:
        text = encode(result, _RESULT)
    except BadInput:
        admit_json(result, "result of the step")
        raise
    found = decode(text, Any, _RESULT)
    return Step(done=True, result=found, started_ms=started_ms, ended_ms=ended_ms)


def admit_result(steps: Steps, id_: str, name: str, result: Any) -> None:
    """Raise `TooLarge` if the steps of a job have no room for one more result."""
    key = steps_key(id_)
    size_bytes = len(encode({**steps, name: done_step(result)}, key))
    if size_bytes > limits.VALUE_BYTES_MAX:
        raise TooLarge(
            f"with the result of the step {name!r}, the steps of job {id_} have {size_bytes} bytes "
            f"of at most {limits.VALUE_BYTES_MAX}; return less, such as a key of your tables",
            code="value_too_large",
        )


def result_of(step: Step) -> Any:
    """A copy of the result of a step: changing it does not change the record."""
    return decode(encode(step.result, _RESULT), Any, _RESULT)


def read_name(key: Key) -> str:
    """The name under which a value read from a record of the application is kept."""
    name = f"read {keys.join(*key)}"
    if len(name.encode()) <= limits.STEP_BYTES_MAX:
        return name
    return f"read {blake2b(name.encode(), digest_size=16).hexdigest()}"


async def read(
    tx: Transaction, schedule: Schedule, id_: str, token: str, name: str, key: Key
) -> Step:
    """Read a record for the current attempt of a job and record its value, unless an earlier call
    has done so. Raises `StaleToken`, `NoSuchJob`, and at the commit `TooLarge`."""
    known = (await load(tx, id_)).get(name)
    if known is None:
        known = Step(done=True, result=await tx.get(key), read=True)
        await record(tx, schedule, id_, token, name, known)
    return known


async def load(tx: Transaction, id_: str) -> Steps:
    """All steps of a job by name."""
    return await tx.get(steps_key(id_), Steps) or {}


async def record(
    tx: Transaction, schedule: Schedule, id_: str, token: str, name: str, step: Step | None
) -> None:
    """Record a step of the current attempt of a job, or remove it.

    Raises `StaleToken`, `NoSuchJob`, and at the commit `TooLarge`.
    """
    job = await schedule.held(tx, id_, token)
    if not job.stepped:
        job.stepped = True  # so that the record is deleted when the job ends
        tx.put(job_key(id_), job)
    steps = await load(tx, id_)
    if step is None:
        steps.pop(name, None)
    else:
        steps[name] = step
    tx.put(steps_key(id_), steps)


async def settle(
    tx: Transaction,
    schedule: Schedule,
    id_: str,
    name: str,
    *,
    result: Any,
    done: bool,
    token: str | None = None,
    by: str = "",
    reason: str = "",
    key: str = "",
) -> None:
    """Record the outcome of a step in doubt: done with a result, or not done.

    The job continues from there, and keeps the settler, the time and the reason. With the token of
    an attempt, the call takes effect only if that attempt caused the doubt. Calls of one caller
    with the same key take effect once, even if the step is in doubt again. Raises `NoSuchJob`,
    `KeyReused`, `NotFailed` (not in doubt, or because of another attempt), `BadInput` (unknown
    step).
    """
    if type(reason) is not str or len(reason) > limits.SETTLEMENT_REASON_CHARS_MAX:
        raise BadInput(
            "the reason of a settlement must be text of at most "
            f"{limits.SETTLEMENT_REASON_CHARS_MAX} characters, not {str(reason)[:100]!a}",
            code="wrong_type",
        )
    job = await schedule.get(tx, id_)
    for one in job.settled:
        if key and (one.key, one.by) == (key, by):
            if (one.step, one.done) != (name, done):
                raise KeyReused(
                    f"the key {key!r} was already used to settle {one.step!r}; use another key"
                )
            return
    if job.stage != "in_doubt":
        raise NotFailed(
            f"job {id_} is not in doubt: it is {job.state}; only jobs in doubt can be settled",
            id=id_,
            state=job.state,
        )
    steps = await load(tx, id_)
    if type(name) is not str or name not in steps or steps[name].done:
        raise BadInput(
            f"job {id_} has no step {str(name)[:100]!r} in doubt; see the steps of the job"
        )
    if token is not None and steps[name].token != token:
        raise NotFailed(
            f"job {id_} is in doubt because of another attempt; claim it again",
            id=id_,
            state=job.state,
        )
    if done:
        steps[name] = done_step(result)
    else:
        del steps[name]
    tx.put(steps_key(id_), steps)
    await schedule.retry(tx, id_, by=None)
    job = await schedule.get(tx, id_)
    job.settled = latest_settled(
        [*job.settled, Settlement(tx.now_ms, name, done, by, reason_text(reason), key)]
    )
    tx.put(job_key(id_), job)


async def in_doubt(tx: Transaction, id_: str) -> list[str]:
    """The names of a job's steps in doubt."""
    return [name for name, step in (await load(tx, id_)).items() if step.intent and not step.done]
