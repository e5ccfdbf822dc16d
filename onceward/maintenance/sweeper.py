"""The sweeper: deletes expired records in the background."""

import asyncio

from onceward import limits
from onceward.errors import PASSING
from onceward.schedule.placement import Placement
from onceward.store import Store


class Sweeper:
    """Deletes expired records on the node that owns the first slot, so that only one node does
    it."""

    def __init__(self, store: Store, placement: Placement) -> None:
        self._store = store
        self._placement = placement
        self.swept = 0
        """How many records this node has removed."""

    async def run(self) -> None:
        """Sweep at intervals until cancelled. Temporary errors of the engine are ignored."""
        before, pause_s, shared = 0, limits.SWEEP_S, self._store.engine.shared
        while True:
            swept = limits.SWEEP_RECORDS_MAX
            try:
                while swept >= limits.SWEEP_RECORDS_MAX:
                    swept = await self.sweep()
                    await asyncio.sleep(0)
            except PASSING:
                pass
            # In a single process, the interval grows while there is nothing to remove.
            idle = before == self.swept and not shared
            before, pause_s = (
                self.swept,
                min(2 * pause_s, limits.IDLE_S) if idle else limits.SWEEP_S,
            )
            await self._store.clock.sleep(pause_s)

    async def sweep(self) -> int:
        """Remove one batch; return the number of removed records."""
        if not self._placement.holds(0):
            return 0
        before_ms = self._store.clock.now_ms() - limits.SWEEP_SLACK_MS
        count = await self._store.engine.sweep(before_ms)
        self.swept += count
        return count
