"""Bugs planted into children and events, each of a kind that the scenario must find."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from onceward.schedule import children as records
from onceward.schedule import events_key, transitions
from onceward.store.transaction import Transaction
from onceward.testing.simulation.families import Families
from onceward.work import asleep, children, events, steps
from onceward.work.job import Job
from tests.testing.planted import Bug, search


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


PLANTED: dict[str, Bug] = {
    "children end without a due entry": Bug(
        Families, ("stuck",), 1, replace(records, "ring", _no_ring)
    ),
    "children end without their entry": Bug(Families, ("stuck",), 1, ends_uncommitted),
    "a parent that was released is not looked at": Bug(
        Families, ("stuck",), 25, replace(asleep, "ring", _no_ring)
    ),
    "a parent that has ended leaves its children": Bug(
        Families, ("stuck",), 2, replace(transitions, "ring", _no_ring)
    ),
    "the mark passes children that have not ended": Bug(
        Families,
        ("result", "another answer", "child"),
        2,
        replace(children, "ENDED", (*records.ENDED, "")),
    ),
    "each attempt creates all children": Bug(Families, ("child",), 36, created_from_the_start),
    "an event is consumed apart from its record": Bug(
        Families, ("stuck", "event", "another answer"), 16, consumed_apart
    ),
    "keys of events are ignored": Bug(Families, ("event",), 19, keys_ignored),
}


if __name__ == "__main__":
    search(PLANTED)
