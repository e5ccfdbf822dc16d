"""Bugs planted into messages and handlers, each of a kind that the scenario must find."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from onceward.schedule import transitions
from onceward.schedule.records import Job
from onceward.store.transaction import Transaction
from onceward.testing.simulation.work import Work
from onceward.work import attempt, inbox, steps
from onceward.work import job as job_module
from tests.testing.planted import Bug, search


class Killers(Work):
    """Half of the messages fail, and often crash the node that handles them."""

    def message(self, random: random.Random) -> tuple[str, Any]:
        queue, body = super().message(random)
        if random.random() < 0.5:
            body |= {"what": "poison", "kills": 0.4}
        return queue, body


def replace(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


@contextmanager
def every_message_is_new() -> Iterator[None]:
    """A duplicate is not looked for."""
    real = inbox.dedupe_key
    number = 0

    def unique(queue: str, caller: str, key: str) -> Any:
        nonlocal number
        number += 1
        return real(queue, caller, f"{key}/{number}")

    with patch.object(inbox, "dedupe_key", unique):
        yield


async def _not_recorded(tx: Any, schedule: Any, id_: str, token: str, name: str, step: Any) -> Any:
    """What a step returned, or that it was begun, is forgotten."""
    await schedule.held(tx, id_, token)
    return {**await steps.load(tx, id_), name: step}


async def _nobody(tx: Transaction, id_: str, job: Job, order_key: str) -> None:
    """The next in line is forgotten."""
    return None


@contextmanager
def last_comes_first() -> Iterator[None]:
    """The end of the line is promoted, not its front."""
    real = Transaction.scan

    async def scan(self: Any, partition: str, *args: Any, **options: Any) -> Any:
        if partition.startswith("line#"):
            options["reverse"] = True
        return await real(self, partition, *args, **options)

    with patch.object(Transaction, "scan", scan):
        yield


@contextmanager
def effects_before_the_end() -> Iterator[None]:
    """The handler's effects are committed first, and the end of the job after them."""
    real = attempt.Attempt._complete

    async def complete(self: Any, job: Any, claim: Any, result: Any) -> None:
        if job.begun is not None:
            await self._store.end(job.begun)
            job.begun = None
        await real(self, job, claim, result)

    with patch.object(attempt.Attempt, "_complete", complete):
        yield


@contextmanager
def intent_is_ignored() -> Iterator[None]:
    """An intent without a result is taken for nothing."""

    async def find_out(self: Any, name: str, known: Any, ask: Any) -> Any:
        raise job_module.NotDone("surely not")

    with patch.object(job_module.Job, "_find_out", find_out):
        yield


@contextmanager
def attempts_are_not_counted() -> Iterator[None]:
    """Who was cut off has made no attempt."""
    real = transitions.Schedule._attempt_over

    async def over(self: Any, tx: Any, id_: str, job: Job, *args: Any) -> None:
        if job.cut_off:
            job.attempt -= 1
        await real(self, tx, id_, job, *args)

    with patch.object(transitions.Schedule, "_attempt_over", over):
        yield


async def _stays_parked(*_: Any) -> list[str]:
    """Who leaves his place gives it to nobody."""
    return []


PLANTED: dict[str, Bug] = {
    "every message is new": Bug(Work, ("two jobs",), 1, every_message_is_new),
    "steps are not recorded": Bug(Work, ("stuck",), 2, replace(steps, "record", _not_recorded)),
    "the next in line is forgotten": Bug(
        Work, ("stuck",), 1, replace(transitions, "next_head", _nobody)
    ),
    "the last comes first": Bug(Work, ("order",), 5, last_comes_first),
    "effects before the end": Bug(Work, ("not once",), 3, effects_before_the_end),
    "an intent is ignored": Bug(Work, ("not at most once",), 20, intent_is_ignored),
    "attempts are not counted": Bug(Killers, ("attempts",), 0, attempts_are_not_counted),
    "a place is given to nobody": Bug(
        Work, ("stuck",), 2, replace(transitions, "leave_gate", _stays_parked)
    ),
}


if __name__ == "__main__":
    search(PLANTED)
