"""The clock guard: records the time, and releases a held clock once it is confirmed."""

from collections.abc import Callable

from onceward import limits
from onceward.errors import PASSING
from onceward.store.store import LAST_TIME, Store
from onceward.store.transaction import Transaction


class Timekeeper:
    """Records the time, so that the next start can compare its clock with it."""

    def __init__(self, store: Store, on_step: Callable[[], None]) -> None:
        """`on_step` is called after the time has jumped forward."""
        self._store = store
        self._on_step = on_step

    async def run(self) -> None:
        """Record the time at intervals until cancelled. Temporary errors of the engine are
        ignored."""
        store = self._store
        while True:
            pause_s = limits.CLOCK_HELD_S if store.clock_held else limits.CLOCK_NOTE_S
            await store.clock.sleep(pause_s)
            try:
                await self.note()
            except PASSING:
                pass

    async def note(self) -> None:
        """Record the time. Release a held clock if another node confirmed it or it was
        corrected."""
        held = self._store.clock_held
        noted_ms = await self._store.run(lambda tx: note_time(tx, held=held))
        if held and abs(self._store.clock.wall_ms - noted_ms) <= limits.CLOCK_AHEAD_MS:
            self._believe()

    async def confirm(self) -> int:
        """Confirm the wall clock, on this node and on all nodes that hold theirs.

        Returns the step of the time on this node in ms. Idempotent.
        """
        wall_ms = self._store.clock.wall_ms

        async def fn(tx: Transaction) -> None:
            tx.put(LAST_TIME, wall_ms)

        await self._store.run(fn)
        return self._believe()

    def _believe(self) -> int:
        step_ms = self._store.believe_clock()
        if step_ms:
            self._on_step()
        return step_ms


async def note_time(tx: Transaction, *, held: bool) -> int:
    """Record the time of a transaction; return the time that is recorded now."""
    last_ms = await tx.get(LAST_TIME, int) or 0
    now_ms = tx.now_ms
    if last_ms > now_ms and (held or last_ms - now_ms > limits.CLOCK_AHEAD_MS):
        return last_ms  # another node has confirmed its clock, or this clock is wrong
    if abs(now_ms - last_ms) < limits.CLOCK_NOTE_S * 1_000 and not held:
        return last_ms
    tx.put(LAST_TIME, now_ms)
    return now_ms
