"""A slot of the schedule that this node owns, with its next due entries.

Kept in memory, and looked for again and again, since a commit can land behind any cursor.
"""

import asyncio
from collections.abc import Callable

from onceward import keys, limits
from onceward.errors import PASSING
from onceward.schedule import due_partition
from onceward.schedule.due_entries import DueEntries, Troubles
from onceward.schedule.placement import Placement
from onceward.store import Store


class Slot:
    """What is due soon in one slot: looked for again and again, until it is stopped."""

    def __init__(
        self,
        number: int,
        store: Store,
        placement: Placement,
        comes_first: Callable[["Slot"], None],
    ) -> None:
        """`comes_first` hears when the first entry may be another one than before."""
        self.number = number
        self.partition = due_partition(number)
        self.due_entries = DueEntries()
        self.troubles = Troubles()
        self.queued: str | None = None
        """Which entry of it the dispatcher takes for its first."""
        self.busy = False
        """Whether a hand acts on some of it: then no other one does."""
        self._store = store
        self._clock = store.clock
        self._placement = placement
        self._comes_first = comes_first
        self._wake = asyncio.Event()
        self._stopped = False
        self._looked_ns = 0
        self._look_ns = 0
        self._watch = None
        if self._store.engine.shared:
            self._watch = self._store.engine.watch(self.partition)
            self._watch.others_only = True
            self._watch.on_hint = self._hinted

    @property
    def held(self) -> bool:
        """Whether this node may act on it."""
        return self._placement.holds(self.number)

    def stop(self) -> None:
        self._stopped = True
        self.due_entries.clear()
        if self._watch is not None:
            self._watch.close()
        self._wake.set()

    def look_again(self) -> None:
        """Look at all entries again, also those that gave trouble."""
        self.troubles = Troubles()
        self._stale()

    def ended(self, sort: str, *, again: bool = False) -> None:
        """An entry that was taken was acted on; `again`: it must be, for that was in vain."""
        self.due_entries.ended(sort)
        if again:
            self.troubles.passed = ""
            self._stale()

    def _stale(self) -> None:
        self.due_entries.stale = True
        self._wake.set()

    def added(self, sort: str) -> None:
        if self.due_entries.add(sort):
            self._comes_first(self)

    def removed(self, sort: str) -> None:
        self.due_entries.remove(sort)
        if self.due_entries.stale:
            self._wake.set()

    def take(self) -> None:
        """Somebody acts on the first entry."""
        self.due_entries.take()
        if self.due_entries.stale:
            self._wake.set()

    def lost(self) -> None:
        """It is another node's now, or will be."""
        self._wake.set()

    def _hinted(self) -> None:
        # Many may come, and on some engines also for own commits: so not at every hint.
        look_ns = self._looked_ns + int(limits.POLL_HINTED_S * 1e9)
        if look_ns < self._look_ns:
            self._look_ns = look_ns
            self._wake.set()

    async def run(self) -> None:
        pause_s = 0.0
        while not self._stopped:
            self._wake.clear()
            if not self.held:
                # The lease ran out. Should it be renewed after all, it starts afresh.
                self.due_entries.clear()
                self._look_ns = self._clock.elapsed_ns() + int(limits.POLL_S * 1e9)
            elif self.due_entries.stale or self._clock.elapsed_ns() >= self._look_ns:
                try:
                    await self._look()
                    pause_s = 0.0
                except PASSING:
                    self._stale()
                    await self._clock.sleep(pause_s)
                    pause_s = min(2 * pause_s + 0.05, limits.POLL_S)
                    continue
                self._comes_first(self)
                await asyncio.sleep(0)  # whatever the engine does: others have their turn
                continue
            await self._sleep()

    async def _look(self) -> None:
        now_ms, now_ns = self._clock.now_ms(), self._clock.elapsed_ns()
        period_s = limits.POLL_ALONE_S
        if self._store.engine.shared:
            owned = len(self._placement.owned)
            period_s = max(limits.POLL_S, owned / limits.POLL_SCANS_PER_S)
        # Not all slots at the same moment.
        look_s = period_s * (0.75 + self._store.ids.fraction() / 4)
        self._looked_ns, self._look_ns = now_ns, now_ns + int(look_s * 1e9)
        troubles = self.troubles
        self.due_entries.begin()
        found: list[str] = []
        seen: set[str] = set()
        first = start = troubles.passed
        end = keys.number(now_ms + int(period_s * 1e3) + limits.AGENDA_AHEAD_MS)
        while start < end and len(found) < limits.AGENDA_ENTRIES:
            page = await self._store.engine.scan(
                self.partition,
                now_ms,
                start=start,
                end=end,
                limit=limits.AGENDA_ENTRIES,
                skip_damaged=True,
            )
            sorts = [record.key[1] for record in page]
            start = keys.after(page[-1].key[1]) if len(page) == limits.AGENDA_ENTRIES else end
            if troubles:
                seen.update(sort for sort in sorts if sort in troubles)
                sorts = [sort for sort in sorts if not troubles.rests(sort, now_ms)]
                if not found and not sorts:
                    troubles.pass_over(start, now_ms)
                await asyncio.sleep(0)  # these may be many pages
            found += sorts
        self.due_entries.fill(found, start, cut=start < end, start=first)
        troubles.settle([sort for sort in troubles if first <= sort < start and sort not in seen])
        if start == end:
            troubles.reached_end(now_ms)

    async def _sleep(self) -> None:
        left_s = max(self._look_ns - self._clock.elapsed_ns(), 0) / 1e9
        waking = asyncio.get_running_loop().call_later(left_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            waking.cancel()
