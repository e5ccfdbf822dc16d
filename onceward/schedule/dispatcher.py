"""The dispatcher: processes due entries in the slots that this node owns.

Of each slot the near future is kept in memory: entries of commits by this node's own store
come in by its hook; those of other nodes by hints, or at the latest at the next look. A few
hands act on what is due, the earliest first, whatever slot it stands in: what is due at the same
time shares commits, and all else that the node does has its turn between them. What is due is
selected by `due <= now`, so a stalled minute is caught up, in the order of the entries' times.
An entry that cannot be acted on stays, holds nobody up, and is tried again later.
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
from onceward.schedule.due_entries import kind_of
from onceward.schedule.placement import Placement
from onceward.schedule.register import PART
from onceward.schedule.slot import Slot
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.unreadable import quarantine, report

# What an act is given the time to get over, and no entry is blamed for.
_ENGINE_TROUBLE = (EngineStopped, OutcomeUnknown, Unavailable)


def _no_keys(entry: Key) -> Iterable[Key]:
    return ()


class Kind(NamedTuple):
    """How to act on a kind of due entries."""

    act: Callable[[Transaction, Key], Awaitable[None]]
    reads: Callable[[Key], Iterable[Key]]
    writes: int


class Entry(NamedTuple):
    """Something due that a hand acts on."""

    slot: Slot
    kind: Kind
    sort: str

    @property
    def key(self) -> Key:
        return self.slot.partition, self.sort


class Dispatcher:
    """Acts on due entries by their kind, in the slots that this node owns."""

    def __init__(self, store: Store, schedule: Schedule, placement: Placement) -> None:
        self.acted = 0
        """How many due entries this node has acted on."""
        self.lateness = store.meters.histogram("lateness_seconds")
        self.kinds: dict[str, Kind] = {}
        self.store = store
        self.placement = placement
        self._schedule = schedule
        schedule.on_quarantined = partial(report, store)
        self._clock = store.clock
        self._slots: dict[int, Slot] = {}
        # The first entry of each slot and its number, once, as the slot has it in `queued`; and
        # some that are not the first any more.
        self._firsts: list[tuple[str, int]] = []
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._unhook = store.on_change("due", self._saw)
        placement.on_change(self._placed)
        self.act_on(PART.due, schedule)

    def act_on(self, kinds: Iterable[Due], made: Any) -> None:
        """Act on due entries of a part with the methods of its object."""
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
        """Let `act(tx, entry)` handle due entries of a kind. It must remove the entry.

        Which may be gone: another node, or whoever it belonged to, can have been faster.
        Several may share a commit: `writes` is how many writes and checked reads of it one
        takes at the most, `reads` are keys to get beforehand, all with one call. If `act`
        raises, the entry is tried again later.
        """
        self.kinds[kind] = Kind(act, reads, writes)
        for slot in self._slots.values():
            slot.look_again()

    @property
    def troubles(self) -> dict[Key, Exception]:
        """Entries that could not be acted on, and why; they are tried again.

        Of a kind that is not known here, one; and not all, if there are very many.
        """
        return {
            (slot.partition, sort): error
            for slot in self._slots.values()
            for sort, error in slot.troubles.errors.items()
        }

    def time_moved(self) -> None:
        """Time has moved on at once: look what is due."""
        for slot in self._slots.values():
            slot.look_again()
        self._wake.set()

    async def run(self) -> None:
        """Act on what is due until `stop`. Trouble with the engine is waited out."""
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
        """Let `run` come to its end, after what is under way; twice is once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake.set()
            self._unhook()
            self._placed(set(), set(self._slots))

    def _comes_first(self, slot: Slot) -> None:
        """The first entry of a slot may be another than before."""
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
        """An own commit is durable: note what has changed in due."""
        partition, sort = write.key
        number = partition[4:]
        slot = self._slots.get(int(number)) if number.isdecimal() else None
        if slot is not None:
            if type(write) is Put:
                slot.added(sort)
            else:
                slot.removed(sort)

    async def _work(self) -> None:
        """One of the hands: act on what is due, and rest a little when nothing is left, so that
        what comes next comes together."""
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
                await asyncio.sleep(0)  # whatever the engine does: others have their turn
            else:
                await self._clock.sleep(limits.DISPATCH_REST_S)

    def _batch(self) -> tuple[list[Entry], bool]:
        """What is due now, the earliest first, as much as fits into one commit; and whether
        there is more."""
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
                error = BadInput(f"nothing on this node knows how to act on the kind {name!r}")
                slot.troubles.add_unknown(sort, error, now_ms)
            slot.take()
            if kind is None:
                slot.ended(sort)
            if alone:
                return batch, True
        return batch, False

    def _first(self) -> Slot | None:
        """The slot of the first entry of all, which then stands first in `_firsts`."""
        firsts = self._firsts
        while firsts:
            sort, number = firsts[0]
            slot = self._slots.get(number)
            if slot is None or slot.queued != sort:
                heappop(firsts)  # another one of its slot has come first since
                continue
            known = slot.due_entries.next
            if known == sort and slot.held and not slot.busy:
                return slot
            heappop(firsts)
            slot.queued = None
            if known is not None and not slot.busy:  # if it is, this comes at the end of that
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
        """An entry could not be acted on: it is tried again later, unless it is that of a job whose
        record cannot be read."""
        if isinstance(error, OncewardError) and error.code == "damaged":
            known = kind_of(entry.sort) in (JOB_DUE, LEASE_DUE)
            if known and await quarantine(self.store, self._schedule, entry.key, error):
                return
            self.store.alarms.damaged(entry.key, error.message)
        entry.slot.troubles.add(entry.sort, error, self._clock.now_ms())

    async def _sleep(self) -> None:
        """Until something is due, or may be."""
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
