"""The clock guard: records the time, and releases a held clock once it is confirmed."""

from collections.abc import Callable

from onceward import limits
from onceward.errors import PASSING
from onceward.store.store import LAST_TIME, Store
from onceward.store.transaction import Transaction


class Timekeeper:
    """Writes down what time it is, for the next start to compare its clock with."""

    def __init__(self, store: Store, on_step: Callable[[], None]) -> None:
        """`on_step` is called after time has moved on at once."""
        self._store = store
        self._on_step = on_step

    async def run(self) -> None:
        """Note the time every so often, until cancelled. Trouble with the engine is waited out."""
        store = self._store
        while True:
            pause_s = limits.CLOCK_HELD_S if store.clock_held else limits.CLOCK_NOTE_S
            await store.clock.sleep(pause_s)
            try:
                await self.note()
            except PASSING:
                pass

    async def note(self) -> None:
        """Note the time; believe a held clock if it was confirmed by another node, or set right."""
        held = self._store.clock_held
        noted_ms = await self._store.run(lambda tx: note_time(tx, held=held))
        if held and abs(self._store.clock.wall_ms - noted_ms) <= limits.CLOCK_AHEAD_MS:
            self._believe()

    async def confirm(self) -> int:
        """Believe the wall clock, here and on all nodes that hold theirs; returns by how many ms
        time moves on here. Idempotent."""
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
    """Note the time of a transaction; returns which one is noted now."""
    last_ms = await tx.get(LAST_TIME, int) or 0
    now_ms = tx.now_ms
    if last_ms > now_ms and (held or last_ms - now_ms > limits.CLOCK_AHEAD_MS):
        return last_ms  # another node has confirmed its clock, or this one is wrong
    if abs(now_ms - last_ms) < limits.CLOCK_NOTE_S * 1_000 and not held:
        return last_ms
    tx.put(LAST_TIME, now_ms)
    return now_ms
