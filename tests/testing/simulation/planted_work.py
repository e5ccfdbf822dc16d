"""Bugs planted into messages and handlers, each of a kind that the scenario must find."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from onceward.schedule import transitions
from onceward.schedule.records import Job
from onceward.store.transaction import Transaction
from onceward.testing.simulation import SimulationFailed, simulate
from onceward.testing.simulation.work import Work
from onceward.work import attempt, inbox, steps
from onceward.work import job as job_module


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
            job._tx = None
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

    async def over(self: Any, tx: Any, id_: str, job: Job, reason: str, *args: Any) -> None:
        if "ran out" in reason:
            job.attempt -= 1
        await real(self, tx, id_, job, reason, *args)

    with patch.object(transitions.Schedule, "_attempt_over", over):
        yield


async def _stays_parked(*_: Any) -> list[str]:
    """Who leaves his place gives it to nobody."""
    return []


class Bug(NamedTuple):
    """How it is planted, a seed that finds it, and what it may be found as."""

    plant: Callable[[], AbstractContextManager[Any]]
    seed: int
    kinds: tuple[str, ...]


PLANTED: dict[str, Bug] = {
    "every message is new": Bug(every_message_is_new, 1, ("two jobs",)),
    "steps are not recorded": Bug(replace(steps, "record", _not_recorded), 2, ("stuck",)),
    "the next in line is forgotten": Bug(replace(transitions, "next_head", _nobody), 1, ("stuck",)),
    "the last comes first": Bug(last_comes_first, 5, ("order",)),
    "effects before the end": Bug(effects_before_the_end, 3, ("not once",)),
    "an intent is ignored": Bug(intent_is_ignored, 46, ("not at most once",)),
    "attempts are not counted": Bug(attempts_are_not_counted, 61, ("attempts",)),
    "a place is given to nobody": Bug(
        replace(transitions, "leave_gate", _stays_parked), 2, ("stuck",)
    ),
}


def main() -> None:
    """Find a seed for each bug, quick to run: `python -m tests.testing.simulation.planted_work`."""
    for name, bug in PLANTED.items():
        found: list[tuple[float, int]] = []
        for seed in range(300):
            start = time.perf_counter()
            try:
                with bug.plant():
                    simulate(Work, seed)
            except SimulationFailed as failed:
                if failed.kind in bug.kinds:
                    found.append((time.perf_counter() - start, seed))
            if len(found) == 3:
                break
        print(f"{name}: {min(found, default=None)}", flush=True)


if __name__ == "__main__":
    logging.disable()
    main()
