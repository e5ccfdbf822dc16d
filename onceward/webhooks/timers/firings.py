"""The history of firings: by timer, and by endpoint. And firings that are sent again.

Recurring timers and calls of endpoints have a record for each firing, which the commit that fires
writes. Its outcome is that of its job.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from onceward import keys, limits
from onceward.errors import NoSuchFiring, NotFailed
from onceward.keys import Key
from onceward.schedule import Effect, Job, Schedule, slot_of
from onceward.schedule import job_key as key_of_job
from onceward.store.transaction import Transaction
from onceward.webhooks.timers.records import WEBHOOKS, Call, Timer, Webhook


class Fired(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a firing. The id of its job is in the key."""

    timer: str
    number: int
    due_ms: int
    fired_ms: int
    resent: str = ""
    """The id of the call that it repeats."""


class Resent(msgspec.Struct, frozen=True):
    """The record of an idempotency key of a firing that was sent again."""

    job: str


class Firing(NamedTuple):
    """A firing and its job, if that is still kept."""

    id: str
    record: Fired
    job: Job | None


def firing_key(caller: str, timer: str, job: str) -> Key:
    return keys.join("firing", caller, timer), keys.join(job)


def delivery_key(caller: str, endpoint: str, job: str) -> Key:
    return keys.join("delivery", caller, endpoint), keys.join(job)


def resent_key(caller: str, firing: str, key: str) -> Key:
    return keys.join("resent", caller), keys.join(firing, key)


def record(
    tx: Transaction, caller: str, call: Call | None, job: str, fired: Fired, *, recurring: bool
) -> None:
    """Record a firing for its timer if that is recurring, and for its endpoint if it has one."""
    until_ms = tx.now_ms + limits.TIMER_RETENTION_MS
    if recurring:
        tx.put(firing_key(caller, fired.timer, job), fired, expires_at_ms=until_ms)
    if call is not None and call.endpoint:
        tx.put(delivery_key(caller, call.endpoint, job), fired, expires_at_ms=until_ms)


def record_last(tx: Transaction, caller: str, id_: str, timer: Timer) -> None:
    """Record the firing of a one-time timer before another timer takes its id."""
    if timer.job and timer.spec.repeat is None:
        fired = Fired(id_, timer.fired, timer.due_ms, timer.fired_ms)
        record(tx, caller, None, timer.job, fired, recurring=True)


async def of_timer(
    tx: Transaction, caller: str, id_: str, timer: Timer, *, after: str = "", most: int
) -> list[Firing]:
    """Return the firings of a timer, the latest first, starting after a job id."""
    found = await _listed(tx, firing_key(caller, id_, "")[0], after, most)
    if timer.job and not after and all(firing.id != timer.job for firing in found):
        job = await tx.get(key_of_job(timer.job), Job)
        fired = Fired(id_, timer.fired, timer.due_ms, timer.fired_ms)
        found = [Firing(timer.job, fired, job), *found][:most]
    return found


async def of_endpoint(
    tx: Transaction, caller: str, endpoint: str, *, after: str = "", most: int
) -> list[Firing]:
    """Return the calls of an endpoint, the latest first, starting after a job id."""
    return await _listed(tx, delivery_key(caller, endpoint, "")[0], after, most)


async def find(tx: Transaction, caller: str, endpoint: str, id_: str) -> Firing:
    """Return a call of an endpoint. Raises `NoSuchFiring`."""
    fired = await tx.get(delivery_key(caller, endpoint, id_), Fired)
    if fired is None:
        raise NoSuchFiring(
            f"endpoint {endpoint!r} has no call {id_[:100]!r}; see the list of its calls",
            id=id_[:100],
        )
    return Firing(id_, fired, await tx.get(key_of_job(id_), Job))


async def find_of_timer(
    tx: Transaction, caller: str, id_: str, timer: Timer, firing: str
) -> Firing:
    """Return a firing of a timer. Raises `NoSuchFiring`."""
    fired = await tx.get(firing_key(caller, id_, firing), Fired)
    if fired is None and firing == timer.job:
        fired = Fired(id_, timer.fired, timer.due_ms, timer.fired_ms)
    if fired is None:
        raise NoSuchFiring(
            f"timer {id_[:200]!r} has no firing {firing[:100]!r}; see the list of its firings",
            id=firing[:100],
        )
    return Firing(firing, fired, await tx.get(key_of_job(firing), Job))


async def resend(
    schedule: Schedule, tx: Transaction, caller: str, firing: Firing, *, by: str, key: str = ""
) -> str:
    """Repeat a firing, once for each key; returns the id of its job.

    A failed one is retried. A call that has succeeded or was cancelled is sent again by a new job,
    with the same `webhook-id`. Raises `NotFailed` for others.
    """
    if not key:
        return await _resend(schedule, tx, caller, firing, by)
    place = resent_key(caller, firing.id, key)
    known = await tx.get(place, Resent)
    if known is None:
        known = Resent(await _resend(schedule, tx, caller, firing, by))
        tx.put(place, known, expires_at_ms=tx.now_ms + limits.TIMER_RETENTION_MS)
    return known.job


async def _resend(schedule: Schedule, tx: Transaction, caller: str, firing: Firing, by: str) -> str:
    id_, fired, job = firing
    if job is None:
        raise NotFailed(f"firing {id_} is no longer kept; create another timer", id=id_)
    if job.queue != WEBHOOKS or job.stage not in ("succeeded", "cancelled"):
        await schedule.retry(tx, id_, by=by)
        return id_
    webhook = msgspec.convert(job.body, Webhook)
    webhook = replace(webhook, id=webhook.id or id_)
    new_id, _ = await schedule.add(
        tx,
        WEBHOOKS,
        webhook,
        job.options,
        caller=caller,
        cause=Effect("timer", webhook.timer, caller),
    )
    fired = replace(fired, fired_ms=tx.now_ms, resent=webhook.id)
    record(tx, caller, webhook.call, new_id, fired, recurring=True)
    return new_id


async def _listed(tx: Transaction, partition: str, after: str, most: int) -> list[Firing]:
    if after:
        slot_of(after)  # raises for what is not an id
    rows = await tx.scan(
        partition,
        Fired,
        end=keys.join(after) if after else None,
        limit=most,
        reverse=True,
        skip_damaged=True,
    )
    ids = [keys.split(row.key[1])[0] for row in rows]
    await tx.fetch([key_of_job(id_) for id_ in ids])
    return [
        Firing(id_, row.value, tx.peek(key_of_job(id_), Job))
        for id_, row in zip(ids, rows, strict=True)
    ]
