"""Bugs planted into children and events, each of a kind that the scenario must find."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from onceward.schedule import children as records
from onceward.schedule import events_key, transitions
from onceward.store.transaction import Transaction
from onceward.testing.simulation import SimulationFailed, simulate
from onceward.testing.simulation.families import Families
from onceward.work import asleep, children, events, steps
from onceward.work.job import Job


def replace(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, new)


def _no_ring(tx: Transaction, parent: str, due_ms: int | None = None) -> None:
    """The due entry for the parent is left out."""


@contextmanager
def consumed_apart() -> Iterator[None]:
    """An event is consumed in one commit, and recorded as a step in the next one."""
    real = Job.wait_for

    async def take(
        tx: Any, schedule: Any, id_: str, token: str, step: str, name: str, until_ms: int
    ) -> Any:
        await schedule.held(tx, id_, token)
        found = await tx.get(events_key(id_), events.Events) or events.Events()
        for position, event in enumerate(found.waiting):
            if event.name == name:
                del found.waiting[position]
                tx.put(events_key(id_), found)
                return steps.done_step(event.value)
        if not until_ms or tx.now_ms < until_ms:
            return None
        return steps.Step(done=True, until_ms=until_ms, why=events.TIMED_OUT)

    async def wait_for(self: Any, event: str, timeout_s: float | None = None) -> Any:
        number = self._waits + 1
        try:
            return await real(self, event, timeout_s)
        finally:
            name = f"wait {number} for {event}"
            known = (await self._load()).get(name)
            if known is not None and known.done:
                await self._store.clock.sleep(2)
                await self._store.run(
                    lambda tx: steps.record(tx, self._schedule, self.id, self.token, name, known)
                )

    with patch.object(events, "take", take), patch.object(Job, "wait_for", wait_for):
        yield


@contextmanager
def keys_ignored() -> Iterator[None]:
    """An event that is sent again counts again."""
    real = events.emit

    async def emit(tx: Any, schedule: Any, id_: str, name: str, value: Any, key: str) -> None:
        await real(tx, schedule, id_, name, value)

    with patch.object(events, "emit", emit):
        yield


@contextmanager
def created_from_the_start() -> Iterator[None]:
    """Each attempt creates all children."""
    real = children.Children.begin

    async def begin(self: Any, tx: Any, *args: Any, **options: Any) -> Any:
        family = await real(self, tx, *args, **options)
        family.created = 0 if not family.complete else family.created
        tx.put(records.family_key(args[0], args[2]), family)
        return family

    async def keeps(self: Any, tx: Any, key: Any) -> bool:
        return False

    with (
        patch.object(children.Children, "begin", begin),
        patch.object(children.Children, "_keeps", keeps),
    ):
        yield


@contextmanager
def ends_uncommitted() -> Iterator[None]:
    """The commit that ends a child does not fill in its entry."""

    def report(tx: Any, id_: str, job: Any, parent: Any) -> None:
        records.ring(tx, parent.id)

    with patch.object(transitions, "report", report):
        yield


class Bug(NamedTuple):
    """How it is planted, a seed that finds it, and what it may be found as."""

    plant: Callable[[], AbstractContextManager[Any]]
    seed: int
    kinds: tuple[str, ...]


PLANTED: dict[str, Bug] = {
    "children end without a due entry": Bug(replace(records, "ring", _no_ring), 1, ("stuck",)),
    "children end without their entry": Bug(ends_uncommitted, 1, ("stuck",)),
    "a parent that was released is not looked at": Bug(
        replace(asleep, "ring", _no_ring), 25, ("stuck",)
    ),
    "a parent that has ended leaves its children": Bug(
        replace(transitions, "ring", _no_ring), 2, ("stuck",)
    ),
    "the mark passes children that have not ended": Bug(
        replace(children, "ENDED", (*records.ENDED, "")), 2, ("result", "another answer", "child")
    ),
    "each attempt creates all children": Bug(created_from_the_start, 36, ("child",)),
    "an event is consumed apart from its record": Bug(
        consumed_apart, 16, ("stuck", "event", "another answer")
    ),
    "keys of events are ignored": Bug(keys_ignored, 19, ("event",)),
}


def main() -> None:
    """Find a seed for each bug: `python -m tests.testing.simulation.planted_families`."""
    for name, bug in PLANTED.items():
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        found: list[tuple[float, int]] = []
        for seed in range(100):
            start = time.perf_counter()
            try:
                with bug.plant():
                    simulate(Families, seed)
            except SimulationFailed as failed:
                if failed.kind in bug.kinds:
                    found.append((time.perf_counter() - start, seed))
                else:
                    print(f"    seed {seed} shows {failed.kind!r}")
            if len(found) == 3:
                break
        print(f"{name}: {min(found, default=None)}", flush=True)


if __name__ == "__main__":
    logging.disable()
    main()
