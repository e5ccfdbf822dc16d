"""The dispatcher: acts on what is due, in the slots that this node owns.

Each slot has a runner of its own, which sleeps until the next entry. Entries of commits by
this node's own store come in by its hook; those of other nodes by hints, or at the latest
at the next poll. What is due is selected by `due <= now`, so a stalled minute is caught up,
in the order of the entries' times. An entry that cannot be acted on stays, holds nobody up,
and is tried again later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from onceward import keys, limits
from onceward.engine.base import Delete, Put
from onceward.errors import (
    PASSING,
    BadInput,
    EngineStopped,
    OutcomeUnknown,
    Unavailable,
)
from onceward.keys import Key
from onceward.parts.schedule import (
    EXPIRE_WRITES,
    JOB_DUE,
    LEASE_DUE,
    PROMOTE_WRITES,
    Schedule,
    due_ms_of,
    due_partition,
)
from onceward.service.agenda import Agenda, Troubles, kind_of
from onceward.service.placement import Placement
from onceward.service.together import InTurn
from onceward.store import Store
from onceward.transaction import Transaction

# What an act is given the time to get over, and no entry is blamed for.
_ENGINE_TROUBLE = (EngineStopped, OutcomeUnknown, Unavailable)


class Kind(NamedTuple):
    """How to act on a kind of due entries."""

    act: Callable[[Transaction, Key], Awaitable[None]]
    reads: Callable[[Key], Iterable[Key]]
    writes: int


class Dispatcher:
    """Acts on due entries by their kind; a runner for each slot that this node owns."""

    def __init__(self, store: Store, schedule: Schedule, placement: Placement) -> None:
        self.acted = 0
        """How many due entries this node has acted on."""
        self.lateness = store.meters.histogram("lateness_seconds")
        self.kinds: dict[str, Kind] = {}
        self.store = store
        self.placement = placement
        hands = limits.DISPATCH_HANDS if store.engine.shared else 1
        self.acts = InTurn(store, hands=hands, rest_s=limits.DISPATCH_REST_S)
        """What is due in several slots at once shares commits, and leaves room for all else."""
        self._runners: dict[int, SlotRunner] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._unhook = store.on_change("due", self._saw)
        placement.on_change(self._placed)
        self.on_due(
            JOB_DUE, schedule.promote, reads=schedule.read_to_promote, writes=PROMOTE_WRITES
        )
        self.on_due(LEASE_DUE, schedule.expire, reads=schedule.read_to_expire, writes=EXPIRE_WRITES)

    def on_due(
        self,
        kind: str,
        act: Callable[[Transaction, Key], Awaitable[None]],
        *,
        writes: int,
        reads: Callable[[Key], Iterable[Key]] = lambda entry: (),
    ) -> None:
        """Let `act(tx, entry)` handle due entries of a kind. It must remove the entry.

        Which may be gone: another node, or whoever it belonged to, can have been faster.
        Several may share a commit: `writes` is how many writes and checked reads of it one
        takes at the most, `reads` are keys to get beforehand, all with one call. If `act`
        raises, the entry is tried again later.
        """
        self.kinds[kind] = Kind(act, reads, writes)
        for runner in self._runners.values():
            runner.look()

    @property
    def troubles(self) -> dict[Key, Exception]:
        """Entries that could not be acted on, and why; they are tried again.

        Of a kind that is not known here, one; and not all, if there are very many.
        """
        return {
            (runner.partition, sort): error
            for runner in self._runners.values()
            for sort, error in runner.troubles.errors.items()
        }

    async def run(self) -> None:
        """Act on what is due until `stop`. Trouble with the engine is waited out."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for runner in self._runners.values():
                    self._group.create_task(runner.run())
                await self._stopping.wait()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self.stop()

    def stop(self) -> None:
        """Let `run` come to its end, after what is under way; twice is once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._unhook()
            self._placed(set(), set(self._runners))

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for slot in sorted(lost & self._runners.keys()):
            self._runners.pop(slot).stop()
        for slot in sorted(gained) if not self._stopping.is_set() else ():
            runner = self._runners[slot] = SlotRunner(self, slot)
            if self._group is not None:
                self._group.create_task(runner.run())

    def _saw(self, write: Put | Delete) -> None:
        """An own commit is durable: note what has changed in due."""
        partition, sort = write.key
        slot = partition[4:]
        runner = self._runners.get(int(slot)) if slot.isdecimal() else None
        if runner is not None:
            if type(write) is Put:
                runner.added(sort)
            else:
                runner.removed(sort)


class SlotRunner:
    """Acts on what is due in one slot, until it is stopped."""

    def __init__(self, dispatcher: Dispatcher, slot: int) -> None:
        self.slot = slot
        self.partition = due_partition(slot)
        self.troubles = Troubles()
        self._dispatcher = dispatcher
        self._store = dispatcher.store
        self._clock = dispatcher.store.clock
        self._agenda = Agenda()
        self._wake = asyncio.Event()
        self._stopped = False
        self._looked_ns = 0
        self._look_ns = 0
        self._watch = None
        if self._store.engine.shared:
            self._watch = self._store.engine.watch(self.partition)
            self._watch.others_only = True
            self._watch.on_hint = self._hinted

    def stop(self) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.close()
        self._wake.set()

    def look(self) -> None:
        """Look at all entries again, also those that gave trouble."""
        self.troubles = Troubles()
        self._agenda.stale = True
        self._wake.set()

    def added(self, sort: str) -> None:
        if self._agenda.add(sort):
            self._wake.set()

    def removed(self, sort: str) -> None:
        self._agenda.remove(sort)
        if self._agenda.stale:
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
            try:
                worked = await self._turn()
                pause_s = 0.0
            except PASSING:
                self._agenda.stale = True
                self.troubles.passed = ""  # what was under way comes back
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s + 0.05, limits.POLL_S)
                continue
            if worked:
                await asyncio.sleep(0)  # whatever the engine does: others have their turn
            else:
                await self._sleep()

    async def _turn(self) -> bool:
        """Look, or act on some of what is due; says whether there was anything to do."""
        if not self._dispatcher.placement.holds(self.slot):
            # The lease ran out. Should it be renewed after all, it starts afresh.
            self._agenda.clear()
            self._look_ns = self._clock.elapsed_ns() + int(limits.POLL_S * 1e9)
            return False
        if self._agenda.stale or self._clock.elapsed_ns() >= self._look_ns:
            await self._look()
            return True
        batch = self._batch()
        if batch:
            await self._act(batch, alone=batch[0][1][1] in self.troubles)
        return bool(batch)

    async def _look(self) -> None:
        now_ms, now_ns = self._clock.now_ms(), self._clock.elapsed_ns()
        period_s = limits.POLL_ALONE_S
        if self._store.engine.shared:
            owned = len(self._dispatcher.placement.owned)
            period_s = max(limits.POLL_S, owned / limits.POLL_SCANS_PER_S)
        # Not all slots at the same moment.
        look_s = period_s * (0.75 + self._store.ids.fraction() / 4)
        self._looked_ns, self._look_ns = now_ns, now_ns + int(look_s * 1e9)
        troubles = self.troubles
        self._agenda.begin()
        found: list[str] = []
        seen: set[str] = set()
        first = start = troubles.passed
        end = keys.number(now_ms + int(period_s * 1e3) + limits.AGENDA_AHEAD_MS)
        while start < end and len(found) < limits.AGENDA_ENTRIES:
            page = await self._store.engine.scan(
                self.partition, now_ms, start=start, end=end, limit=limits.AGENDA_ENTRIES
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
        self._agenda.fill(found, start, cut=start < end, start=first)
        troubles.settle([sort for sort in troubles if first <= sort < start and sort not in seen])
        if start == end:
            troubles.reached_end(now_ms)

    def _batch(self) -> list[tuple[Kind, Key]]:
        """What is due now, as much as fits into one commit."""
        now_ms = self._clock.now_ms()
        room = limits.COMMIT_WRITES_MAX - 1
        batch: list[tuple[Kind, Key]] = []
        while (sort := self._agenda.next) is not None and due_ms_of(sort) <= now_ms:
            name = kind_of(sort)
            kind = self._dispatcher.kinds.get(name)
            if kind is None:
                error = BadInput(f"nothing on this node knows how to act on the kind {name!r}")
                self.troubles.add_unknown(self._agenda.take(), error, now_ms)
                continue
            room -= kind.writes
            alone = sort in self.troubles
            if batch and (room < 0 or alone):
                break
            batch.append((kind, (self.partition, self._agenda.take())))
            if alone:
                break
        return batch

    async def _act(self, batch: list[tuple[Kind, Key]], *, alone: bool = False) -> None:
        """Act on a batch; `alone`: in a commit of its own, since it may give trouble."""

        async def act(tx: Transaction) -> None:
            for kind, entry in batch:
                await kind.act(tx, entry)

        try:
            if alone:
                await self._store.run(act)
            else:
                reads = [key for kind, entry in batch for key in kind.reads(entry)]
                writes = sum(kind.writes for kind, _ in batch)
                await self._dispatcher.acts.run(act, writes=writes, reads=reads)
        except _ENGINE_TROUBLE:
            raise
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._act([one], alone=True)
            else:
                self.troubles.add(batch[0][1][1], error, self._clock.now_ms())
            return
        self._dispatcher.acted += len(batch)
        lateness, now_ms = self._dispatcher.lateness, self._clock.now_ms()
        for _, (_, sort) in batch:
            lateness.observe(max(now_ms - due_ms_of(sort), 0) / 1000)
        if self.troubles:
            self.troubles.settle([entry[1] for _, entry in batch])

    async def _sleep(self) -> None:
        left_ns = self._look_ns - self._clock.elapsed_ns()
        next_ms = self._agenda.next_ms
        if next_ms is not None:
            left_ns = min(left_ns, next_ms * 1_000_000 - self._clock.now_ns())
        loop = asyncio.get_running_loop()
        waking = loop.call_later(max(left_ns, 0) / 1e9, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            waking.cancel()
