"""Bugs planted into what operators do, and into timers, each of a kind that the scenario must
find."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from onceward.schedule import transitions
from onceward.store.transaction import Transaction
from onceward.testing.simulation import SimulationFailed, simulate
from onceward.testing.simulation.operators import Operators
from onceward.webhooks.timers import part as timers
from tests.testing.simulation.planted_work import Bug


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
    "who works is not stopped": Bug(who_works_is_not_stopped, 13, ("not cancelled",)),
    "a timer fires again": Bug(a_timer_fires_again, 0, ("timer",)),
    "a timer is not cancelled": Bug(a_timer_is_not_cancelled, 61, ("not cancelled",)),
}


def main() -> None:
    """Find a seed for each: `python -m tests.testing.simulation.planted_operators`."""
    for name, bug in PLANTED.items():
        found: list[tuple[float, int, str]] = []
        for seed in range(200):
            start = time.perf_counter()
            try:
                with bug.plant():
                    simulate(Operators, seed)
            except SimulationFailed as failed:
                if failed.kind in bug.kinds:
                    found.append((time.perf_counter() - start, seed, failed.kind))
            if len(found) == 2:
                break
        print(f"{name}: {min(found, default=None)}", flush=True)


if __name__ == "__main__":
    logging.disable()
    main()
