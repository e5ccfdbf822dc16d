"""Takeover: ends the attempts of an earlier process on a single-process database.

On such a database the previous process has ended with its handlers, so their leases need not
expire first. Leases of remote workers, over HTTP or by `app.claim`, stay.
"""

import logging
from functools import partial

from onceward import keys, limits
from onceward.errors import PASSING, OncewardError
from onceward.keys import Key
from onceward.schedule import Schedule, due_partition
from onceward.store import Store
from onceward.store.transaction import Transaction

logger = logging.getLogger("onceward")

_PAGE = 1_000


class Takeover:
    """Searches once for leases of handlers of an earlier process."""

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        if not store.engine.shared:
            schedule.process = store.ids.token(4)
        self.taken = 0
        """The number of attempts that were ended."""

    async def run(self) -> None:
        """Scan all slots. If the engine is unavailable, it stops, and the leases expire
        normally."""
        if not self._schedule.process:
            return
        try:
            for slot in range(self._schedule.slots):
                await self._look(due_partition(slot))
        except PASSING:
            pass

    async def _look(self, partition: str) -> None:
        # Entries that are already due are processed anyway. Leases of handlers end before `end`.
        now_ms = self._store.clock.now_ms()
        start, end = f"{now_ms:016d}", f"{now_ms + limits.TAKEOVER_MS:016d}"
        while True:
            scan = partial(_entries, partition=partition, start=start, end=end)
            entries = await self._store.run(scan)
            for entry in entries:
                if self._schedule.is_former(entry):
                    await self._take(entry)
            if len(entries) < _PAGE:
                return
            start = keys.after(entries[-1][1])

    async def _take(self, entry: Key) -> None:
        try:
            await self._store.run(partial(self._schedule.abandon, entry=entry))
            self.taken += 1
        except PASSING:
            raise
        except OncewardError as error:  # an unreadable record: the lease expires normally
            logger.warning("cannot end the lease %s of an earlier process: %s", entry[1], error)


async def _entries(tx: Transaction, partition: str, start: str, end: str) -> list[Key]:
    rows = await tx.scan(partition, start=start, end=end, limit=_PAGE)
    return [row.key for row in rows]
