"""Takeover: ends the attempts of an earlier process on a single-process database.

Whoever has opened such a database knows that the process before it is gone, and its handlers with
it. Their leases need not run out. Leases of workers elsewhere, over HTTP or by `app.claim`, stay.
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
    """Looks once for leases of handlers of a former process."""

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        if not store.engine.shared:
            schedule.process = store.ids.token(4)
        self.taken = 0
        """How many attempts were ended."""

    async def run(self) -> None:
        """Look through all slots. Trouble with the engine ends it: then the leases run out."""
        if not self._schedule.process:
            return
        try:
            for slot in range(self._schedule.slots):
                await self._look(due_partition(slot))
        except PASSING:
            pass

    async def _look(self, partition: str) -> None:
        # What is due by now is acted on in any case. No lease of a handler is longer than that.
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
        except OncewardError as error:  # a record that cannot be read: the lease runs out
            logger.warning("the lease %s of a former process stays: %s", entry[1], error)


async def _entries(tx: Transaction, partition: str, start: str, end: str) -> list[Key]:
    rows = await tx.scan(partition, start=start, end=end, limit=_PAGE)
    return [row.key for row in rows]
