"""Steps: recorded results of a job's external calls, reused by later attempts.

All steps of a job stand in one record, which goes when the job ends. A step is recorded
in a commit that checks the attempt's token: a worker whose lease is over records nothing.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.invariants import Rule
from onceward.errors import BadInput, NotFailed
from onceward.json_values import decode, encode
from onceward.reasons import reason_text
from onceward.schedule import Schedule, job_key, steps_key
from onceward.schedule.records import Settlement, latest_settled
from onceward.store.transaction import Transaction

_RESULT = ("steps", "result")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: done with a result, or intended by an attempt and not heard of since."""

    done: bool = False
    result: Any = None
    intent: int = 0
    """The attempt that was about to act, if it said so before it did."""
    token: str = ""
    """Of that attempt: a job that is redriven counts its attempts anew."""
    until_ms: int = 0
    """When to wake up, if the step is a sleep."""
    why: str = ""
    """Why an intent has no result, if its attempt was not cut off: the error."""


Steps = dict[str, Step]


RULES = [Rule("job", lambda record, get: _judge(record))]


def _judge(record: Record) -> Iterator[str]:
    if record.key[1].endswith("#steps"):
        try:
            msgspec.json.decode(record.value, type=Steps)
        except msgspec.DecodeError as error:
            yield f"these are not the steps of a job: {error}"


def done_step(result: Any) -> Step:
    """A step that was done, with its result as its record will say it: plain JSON, and no one
    else's. Raises `BadInput` for what JSON cannot say."""
    return Step(done=True, result=decode(encode(result, _RESULT), Any, _RESULT))


def result_of(step: Step) -> Any:
    """The result of a step, for whoever asks to keep: changing it changes no record."""
    return decode(encode(step.result, _RESULT), Any, _RESULT)


async def load(tx: Transaction, id_: str) -> Steps:
    """All steps of a job by their names."""
    return await tx.get(steps_key(id_), Steps) or {}


async def record(
    tx: Transaction, schedule: Schedule, id_: str, token: str, name: str, step: Step | None
) -> None:
    """Record a step of the attempt that holds the job, or take it out.

    Raises `StaleToken`, `NoSuchJob`, and at the commit `TooLarge`.
    """
    job = await schedule.held(tx, id_, token)
    if not job.stepped:
        job.stepped = True  # so that the record goes when the job ends, whoever ends it
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
) -> None:
    """Say what became of a step in doubt: done with this result, or not done at all. The job
    goes on from there, and keeps who said so, when and why. With the token of an attempt, only if
    that one has left the doubt. Raises `NoSuchJob`, `NotFailed` (not held, or by another attempt),
    `BadInput` (no such step)."""
    if type(reason) is not str or len(reason) > limits.SETTLEMENT_REASON_CHARS_MAX:
        raise BadInput(
            f"the reason of a settlement is text of up to {limits.SETTLEMENT_REASON_CHARS_MAX} "
            "characters",
            code="wrong_type",
        )
    job = await schedule.get(tx, id_)
    if job.stage != "in_doubt":
        raise NotFailed(f"job {id_} is not in doubt: it is {job.state}", id=id_, state=job.state)
    steps = await load(tx, id_)
    if type(name) is not str or name not in steps or steps[name].done:
        raise BadInput(f"job {id_} has no step {str(name)[:100]!r} in doubt")
    if token is not None and steps[name].token != token:
        raise NotFailed(f"job {id_} is in doubt since another attempt", id=id_, state=job.state)
    if done:
        steps[name] = done_step(result)
    else:
        del steps[name]
    tx.put(steps_key(id_), steps)
    await schedule.retry(tx, id_)
    job = await schedule.get(tx, id_)
    job.settled = latest_settled(
        [*job.settled, Settlement(tx.now_ms, name, done, by, reason_text(reason))]
    )
    tx.put(job_key(id_), job)


async def in_doubt(tx: Transaction, id_: str) -> list[str]:
    """The steps of a job of which nobody knows whether they were done, by name."""
    return [name for name, step in (await load(tx, id_)).items() if step.intent and not step.done]
