"""Bugs planted into what operators do, and into timers, each of a kind that the scenario must
find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from onceward.schedule import transitions
from onceward.store.transaction import Transaction
from onceward.testing.simulation.operators import Operators
from onceward.webhooks.timers import part as timers
from tests.testing.planted import Bug, search


@contextmanager
def who_works_is_not_stopped() -> Iterator[None]:
    """A job that is worked on is said to be cancelled, and is not."""
    real = transitions.Schedule.cancel

    async def cancel(self: Any, tx: Transaction, id_: str, reason: str = "") -> None:
        if (await self.get(tx, id_)).stage != "running":
            await real(self, tx, id_, reason)

    with patch.object(transitions.Schedule, "cancel", cancel):
        yield


@contextmanager
def a_timer_fires_again() -> Iterator[None]:
    """One firing sends two jobs."""
    real = timers.TimerTable._send

    async def send(self: Any, tx: Transaction, *args: Any) -> Any:
        await real(self, tx, *args)
        return await real(self, tx, *args)

    with patch.object(timers.TimerTable, "_send", send):
        yield


@contextmanager
def a_timer_is_not_cancelled() -> Iterator[None]:
    """A timer is said to be cancelled, and is not."""

    async def cancel(self: Any, tx: Transaction, id_: str, *, caller: str = "") -> Any:
        await self._active(tx, caller, id_)
        return await self.get(tx, id_, caller=caller)

    with patch.object(timers.TimerTable, "cancel", cancel):
        yield


PLANTED: dict[str, Bug] = {
    "who works is not stopped": Bug(Operators, ("not cancelled",), 6, who_works_is_not_stopped),
    "a timer fires again": Bug(Operators, ("timer",), 0, a_timer_fires_again),
    "a timer is not cancelled": Bug(Operators, ("not cancelled",), 61, a_timer_is_not_cancelled),
}


if __name__ == "__main__":
    search(PLANTED)
