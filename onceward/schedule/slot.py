"""A slot of the schedule that this node owns, with its next due entries.

The entries are kept in memory and scanned at intervals, since a commit can add one at any position.
"""

import asyncio
from collections.abc import Callable

from onceward import keys, limits
from onceward.errors import PASSING
from onceward.schedule import due_ms_of, due_partition
from onceward.schedule.due_entries import DueEntries, Troubles
from onceward.schedule.placement import Placement
from onceward.store import Store

_NONE = "~"  # after all entries


class Slot:
    """The next due entries of one slot, scanned at intervals until it is stopped."""

    def __init__(
        self,
        number: int,
        store: Store,
        placement: Placement,
        comes_first: Callable[["Slot"], None],
    ) -> None:
        """`comes_first` is called when the first entry may have changed."""
        self.number = number
        self.partition = due_partition(number)
        self.due_entries = DueEntries()
        self.troubles = Troubles()
        self.queued: str | None = None
        """The first entry of this slot in the dispatcher's heap."""
        self.busy = False
        """Whether a task processes entries of this slot; then the other tasks skip it."""
        self._store = store
        self._clock = store.clock
        self._placement = placement
        self._comes_first = comes_first
        self._wake = asyncio.Event()
        self._stopped = False
        self._looked_ns = 0
        self._look_ns = 0
        self._watch = None
        self._sees_all = not self._store.engine.shared
        """Whether all commits are those of this process."""
        self._unseen = ""
        """The next entry that is not cached; empty if scans at short intervals find it."""
        if not self._sees_all:
            self._watch = self._store.engine.watch(self.partition)
            self._watch.others_only = True
            self._watch.on_hint = self._hinted

    @property
    def held(self) -> bool:
        """Whether this node may process its entries."""
        return self._placement.holds(self.number)

    def stop(self) -> None:
        self._stopped = True
        self.due_entries.clear()
        if self._watch is not None:
            self._watch.close()
        self._wake.set()

    def look_again(self) -> None:
        """Scan all entries again, including those that failed."""
        self.troubles = Troubles()
        self._stale()

    def ended(self, sort: str, *, again: bool = False) -> None:
        """The processing of a taken entry has ended; `again`: it failed and must be repeated."""
        self.due_entries.ended(sort)
        if self.troubles:
            self._wake.set()  # to look sooner
        if again:
            self.troubles.passed = ""
            self._stale()

    def _stale(self) -> None:
        self.due_entries.stale = True
        self._wake.set()

    def added(self, sort: str) -> None:
        if self.due_entries.add(sort):
            self._comes_first(self)
        elif sort < self._unseen and self.due_entries.beyond(sort):
            self._look_before(sort)

    def _look_before(self, sort: str) -> None:
        """Scan before an entry is due that is too far in the future to be cached."""
        self._unseen = sort
        ahead_ms = due_ms_of(sort) - limits.AGENDA_AHEAD_MS - self._clock.now_ms()
        look_ns = self._clock.elapsed_ns() + ahead_ms * 1_000_000
        if look_ns < self._look_ns:
            self._look_ns = look_ns
            self._wake.set()

    def removed(self, sort: str) -> None:
        self.due_entries.remove(sort)
        if self.due_entries.stale:
            self._wake.set()

    def take(self) -> None:
        """Take the first entry for processing."""
        self.due_entries.take()
        if self.due_entries.stale:
            self._wake.set()

    def lost(self) -> None:
        """Another node owns the slot now, or will soon."""
        self._wake.set()

    def _hinted(self) -> None:
        # Rate-limited: many hints may arrive, and some engines also send them for local commits.
        look_ns = self._looked_ns + int(limits.POLL_HINTED_S * 1e9)
        if look_ns < self._look_ns:
            self._look_ns = look_ns
            self._wake.set()

    async def run(self) -> None:
        pause_s = 0.0
        while not self._stopped:
            self._wake.clear()
            if not self.held:
                # The lease expired. If it is renewed, the slot is scanned again.
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
                await asyncio.sleep(0)  # yield to other tasks, also with an engine that never waits
                continue
            await self._sleep()

    async def _look(self) -> None:
        now_ms, now_ns = self._clock.now_ms(), self._clock.elapsed_ns()
        period_s = limits.POLL_ALONE_S
        if not self._sees_all:
            owned = len(self._placement.owned)
            period_s = max(limits.POLL_S, owned / limits.POLL_SCANS_PER_S)
        # Spread the scans of slots over time.
        calm = self._sees_all and not self.troubles
        look_s = limits.LOOK_ALONE_S if calm else period_s
        look_s *= 0.75 + self._store.ids.fraction() / 4
        self._looked_ns, self._look_ns = now_ns, now_ns + int(look_s * 1e9)
        self._unseen = _NONE if calm else ""
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
            if self._unseen:
                later = await self._store.engine.scan(
                    self.partition, now_ms, start=end, limit=1, skip_damaged=True
                )
                for record in later:
                    if record.key[1] < self._unseen:
                        self._look_before(record.key[1])
        else:
            self._unseen = ""  # it is scanned again when these are processed

    async def _sleep(self) -> None:
        if self.troubles:
            soon_ns = self._clock.elapsed_ns() + int(limits.POLL_ALONE_S * 1e9)
            self._look_ns = min(self._look_ns, soon_ns)
        left_s = max(self._look_ns - self._clock.elapsed_ns(), 0) / 1e9
        waking = asyncio.get_running_loop().call_later(left_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            waking.cancel()
