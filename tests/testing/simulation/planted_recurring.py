"""Bugs planted into recurring timers, each of a kind that the scenario must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from onceward.store.transaction import Transaction
from onceward.testing.simulation.recurring import Recurring
from onceward.webhooks.timers import part as timers
from onceward.webhooks.timers.records import Timer
from tests.testing.planted import Bug, search


@contextmanager
def a_change_forgets_a_firing() -> Iterator[None]:
    """A change, a pause or a resume subtracts a firing."""
    real = timers.TimerTable._changed

    def changed(self: Any, tx: Transaction, caller: str, id_: str, timer: Timer) -> Any:
        view = real(self, tx, caller, id_, timer)
        timer.fired = max(0, timer.fired - 1)
        tx.put(timers.timer_key(caller, id_, self._schedule.slots), timer)
        return view

    with patch.object(timers.TimerTable, "_changed", changed):
        yield


@contextmanager
def an_unfinished_firing_is_overlooked() -> Iterator[None]:
    """The policy `skip` fires during the previous firing."""

    async def overlaps(self: Any, tx: Transaction, timer: Timer) -> bool:
        return False

    with patch.object(timers.TimerTable, "_overlaps", overlaps):
        yield


PLANTED: dict[str, Bug] = {
    "a change forgets a firing": Bug(Recurring, ("timer",), 3, a_change_forgets_a_firing),
    "an unfinished firing is overlooked": Bug(
        Recurring, ("overlap",), 0, an_unfinished_firing_is_overlooked
    ),
}

if __name__ == "__main__":
    search(PLANTED)
