"""The dispatcher: processes due entries in the slots that this node owns.

It keeps the near future of each slot in memory. Entries of local commits arrive through a hook of
the store; those of other nodes through hints, or at the latest with the next scan. A few tasks
process due entries of all slots, earliest first. Entries that are due together share commits, and
the tasks yield to the event loop in between. Entries are selected by `due <= now`, so the
dispatcher catches up after a stall in the order of their times. An entry that fails stays in
place, delays no other entry, and is retried later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from onceward import limits
from onceward.engine.base import Delete, Put
from onceward.errors import (
    PASSING,
    BadInput,
    Damaged,
    EngineStopped,
    OncewardError,
    OutcomeUnknown,
    Unavailable,
)
from onceward.keys import Key
from onceward.parts import Due
from onceward.schedule import (
    JOB_DUE,
    LEASE_DUE,
    Schedule,
    due_ms_of,
)
from onceward.schedule.children import CHILDREN_DUE
from onceward.schedule.due_entries import kind_of
from onceward.schedule.placement import Placement
from onceward.schedule.register import PART
from onceward.schedule.slot import Slot
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.unreadable import quarantine, report

# Temporary errors of the engine: the dispatcher waits, and no entry counts as faulty.
_ENGINE_TROUBLE = (EngineStopped, OutcomeUnknown, Unavailable)


def _no_keys(entry: Key) -> Iterable[Key]:
    return ()


class Kind(NamedTuple):
    """How to process a kind of due entries."""

    act: Callable[[Transaction, Key], Awaitable[None]]
    reads: Callable[[Key], Iterable[Key]]
    writes: int


class Entry(NamedTuple):
    """A due entry that is being processed."""

    slot: Slot
    kind: Kind
    sort: str

    @property
    def key(self) -> Key:
        return self.slot.partition, self.sort


class Dispatcher:
    """Processes due entries by their kind, in the slots that this node owns."""

    def __init__(self, store: Store, schedule: Schedule, placement: Placement) -> None:
        self.acted = 0
        """The number of due entries that this node has processed."""
        self.lateness = store.meters.histogram("lateness_seconds")
        self.kinds: dict[str, Kind] = {}
        self.store = store
        self.placement = placement
        self._schedule = schedule
        schedule.on_quarantined = partial(report, store)
        self._clock = store.clock
        self._slots: dict[int, Slot] = {}
        # A heap of the first entry of each slot, as in the slot's `queued`, and its number. It may
        # also contain outdated entries.
        self._firsts: list[tuple[str, int]] = []
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._unhook = store.on_change("due", self._saw)
        placement.on_change(self._placed)
        self.act_on(PART.due, schedule)

    def act_on(self, kinds: Iterable[Due], made: Any) -> None:
        """Process due entries of a part with the methods of its object."""
        for due in kinds:
            act = getattr(made, due.act.__name__)
            reads = _no_keys if due.reads is None else getattr(made, due.reads.__name__)
            self.on_due(due.kind, act, reads=reads, writes=due.writes)

    def on_due(
        self,
        kind: str,
        act: Callable[[Transaction, Key], Awaitable[None]],
        *,
        writes: int,
        reads: Callable[[Key], Iterable[Key]] = _no_keys,
    ) -> None:
        """Register `act(tx, entry)` for due entries of a kind. It must remove the entry.

        The entry may be gone already: another node, or its owner, can remove it first. Several
        entries may share a commit: `writes` is the maximum number of writes and checked reads of
        one entry. `reads` returns the keys to prefetch with one call. If `act` raises, the entry is
        retried later.
        """
        self.kinds[kind] = Kind(act, reads, writes)
        for slot in self._slots.values():
            slot.look_again()

    @property
    def troubles(self) -> dict[Key, Exception]:
        """Entries that could not be processed, with their errors; they are retried.

        Holds one entry for each unknown kind, and a limited number of others.
        """
        return {
            (slot.partition, sort): error
            for slot in self._slots.values()
            for sort, error in slot.troubles.errors.items()
        }

    def time_moved(self) -> None:
        """Check for due entries after a jump of the clock."""
        for slot in self._slots.values():
            slot.look_again()
        self._wake.set()

    async def run(self) -> None:
        """Process due entries until `stop`. Waits while the engine is unavailable."""
        capacity = (
            limits.DISPATCH_HANDS_SHARED if self.store.engine.shared else limits.DISPATCH_HANDS
        )
        try:
            async with asyncio.TaskGroup() as self._group:
                for slot in self._slots.values():
                    self._group.create_task(slot.run(), name="onceward-slot")
                for _ in range(capacity):
                    self._group.create_task(self._work(), name="onceward-dispatch")
                await self._stopping.wait()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self.stop()

    def stop(self) -> None:
        """End `run` after the commits in progress. Idempotent."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake.set()
            self._unhook()
            self._placed(set(), set(self._slots))

    def _comes_first(self, slot: Slot) -> None:
        """Update the heap after a slot's first entry may have changed."""
        sort = slot.due_entries.next
        if sort is not None and sort != slot.queued:
            self._queue(slot, sort)
            if self._firsts[0] == (sort, slot.number):
                self._wake.set()

    def _queue(self, slot: Slot, sort: str) -> None:
        slot.queued = sort
        heappush(self._firsts, (sort, slot.number))

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for number in sorted(lost & self._slots.keys()):
            self._slots.pop(number).stop()
        for number in sorted(gained) if not self._stopping.is_set() else ():
            slot = Slot(number, self.store, self.placement, self._comes_first)
            self._slots[number] = slot
            if self._group is not None:
                self._group.create_task(slot.run(), name="onceward-slot")

    def _saw(self, write: Put | Delete) -> None:
        """Note due entries that a durable local commit has added or removed."""
        partition, sort = write.key
        number = partition[4:]
        slot = self._slots.get(int(number)) if number.isdecimal() else None
        if slot is not None:
            if type(write) is Put:
                slot.added(sort)
            else:
                slot.removed(sort)

    async def _work(self) -> None:
        """Process due entries in batches. Pause briefly when none are left, so that the next ones
        share a commit."""
        pause_s = 0.0
        while not self._stopping.is_set():
            self._wake.clear()
            batch, more = self._batch()
            if not batch:
                await self._sleep()
                continue
            passing = False
            slots = {entry.slot.number: entry.slot for entry in batch}
            for slot in slots.values():
                slot.busy = True
            try:
                await self._act(batch)
            except PASSING:
                passing = True
            for entry in batch:
                entry.slot.ended(entry.sort, again=passing)
            for slot in slots.values():
                slot.busy = False
                self._comes_first(slot)
            if passing:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s + 0.05, limits.POLL_S)
                continue
            pause_s = 0.0
            if more:
                await asyncio.sleep(0)  # yield to other tasks, also with an engine that never waits
            else:
                await self._clock.sleep(limits.DISPATCH_REST_S)

    def _batch(self) -> tuple[list[Entry], bool]:
        """The due entries that fit into one commit, earliest first, and whether there are more."""
        now_ms = self._clock.now_ms()
        room = limits.COMMIT_WRITES_MAX
        batch: list[Entry] = []
        while (slot := self._first()) is not None:
            sort = self._firsts[0][0]
            if due_ms_of(sort) > now_ms:
                break
            name = kind_of(sort)
            kind = self.kinds.get(name)
            alone = sort in slot.troubles
            if kind is not None:
                room -= kind.writes
                if batch and (room < 0 or alone):
                    return batch, True
                batch.append(Entry(slot, kind, sort))
            else:
                error = BadInput(
                    f"this node has no code for due entries of the kind {name!r}; run the same "
                    "version on all nodes"
                )
                slot.troubles.add_unknown(sort, error, now_ms)
            slot.take()
            if kind is None:
                slot.ended(sort)
            if alone:
                return batch, True
        return batch, False

    def _first(self) -> Slot | None:
        """The slot with the earliest entry, which is then the first of `_firsts`."""
        firsts = self._firsts
        while firsts:
            sort, number = firsts[0]
            slot = self._slots.get(number)
            if slot is None or slot.queued != sort:
                heappop(firsts)  # the slot has a newer first entry
                continue
            known = slot.due_entries.next
            if known == sort and slot.held and not slot.busy:
                return slot
            heappop(firsts)
            slot.queued = None
            if known is not None and not slot.busy:  # a busy slot is queued when its batch ends
                if known != sort:
                    self._queue(slot, known)
                else:
                    slot.lost()
        return None

    async def _act(self, batch: list[Entry]) -> None:
        async def act(tx: Transaction) -> None:
            known = [key for entry in batch for key in entry.kind.reads(entry.key)]
            await tx.fetch(known[: limits.GET_KEYS_MAX])
            for entry in batch:
                await entry.kind.act(tx, entry.key)

        try:
            await self.store.run(act)
        except Exception as error:
            if isinstance(error, _ENGINE_TROUBLE) and not isinstance(error, Damaged):
                raise
            if len(batch) > 1:
                for one in batch:
                    await self._act([one])
            else:
                await self._set_aside(batch[0], error)
            return
        self.acted += len(batch)
        now_ms = self._clock.now_ms()
        for entry in batch:
            self.lateness.observe(max(now_ms - due_ms_of(entry.sort), 0) / 1000)
            if entry.slot.troubles:
                entry.slot.troubles.settle([entry.sort])

    async def _set_aside(self, entry: Entry, error: Exception) -> None:
        """Retry an entry later, or quarantine it if the record of its job cannot be read."""
        if isinstance(error, OncewardError) and error.code == "damaged":
            known = kind_of(entry.sort) in (JOB_DUE, LEASE_DUE, CHILDREN_DUE)
            if known and await quarantine(self.store, self._schedule, entry.key, error):
                return
            self.store.alarms.damaged(entry.key, error.message)
        entry.slot.troubles.add(entry.sort, error, self._clock.now_ms())

    async def _sleep(self) -> None:
        """Wait until an entry is due or may be."""
        waking = None
        if self._first() is not None:
            due_ns = due_ms_of(self._firsts[0][0]) * 1_000_000
            left_s = max(due_ns - self._clock.now_ns(), 0) / 1e9
            waking = asyncio.get_running_loop().call_later(left_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if waking is not None:
                waking.cancel()
