"""The dispatcher: acts on what is due in the slots that this node owns, and hands out
what is ready.

It sleeps until the next entry. Entries of commits by this node's own store come in by
its hook; those of other nodes by hints, or at the latest at the next poll. What is due is
selected by `due <= now`, so a stalled minute is caught up, in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from onceward import keys, limits
from onceward.engine.base import Put, Watch
from onceward.errors import OncewardError
from onceward.keys import Key
from onceward.parts.schedule import (
    JOB_DUE,
    LEASE_DUE,
    Claim,
    Schedule,
    due_partition,
    ready_partition,
)
from onceward.service.agenda import Agenda
from onceward.service.placement import Placement
from onceward.store import Commit, Store
from onceward.transaction import Transaction

Act = Callable[[Transaction, Key], Awaitable[None]]


class Dispatcher:
    """Acts on due entries by their kind, and claims ready jobs for workers."""

    def __init__(self, store: Store, schedule: Schedule, placement: Placement) -> None:
        self._store = store
        self._schedule = schedule
        self._placement = placement
        self._acts: dict[str, Act] = {JOB_DUE: schedule.promote, LEASE_DUE: schedule.expire}
        self._agendas: dict[int, Agenda] = {}
        self._watches: dict[int, Watch] = {}
        self._wake = asyncio.Event()
        self._wake_ms: int | None = None
        self._stopping = False
        self._ready = ReadySlots(store, placement)
        self._unhook = store.on_durable(self._saw)
        placement.on_change = self._placed
        self.acted = 0
        """How many due entries this node has acted on."""

    def on_due(self, kind: str, act: Act) -> None:
        """Let `act(tx, entry)` handle due entries of a kind; it must remove the entry."""
        self._acts[kind] = act

    async def run(self) -> None:
        """Act on what is due until `stop`. Trouble with the engine is waited out."""
        while not self._stopping:
            self._wake.clear()
            try:
                worked = await self._turn()
            except OncewardError as error:
                if not error.kind.retry:
                    raise
                for agenda in self._agendas.values():
                    agenda.stale = True
                worked = False
            if not worked:
                await self._sleep()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._unhook()
        self._placed(set(), set(self._agendas))
        self._ready.close()

    async def claim(
        self,
        queue: str,
        worker: str,
        *,
        lease_ms: int,
        most: int = 1,
        wait_s: float = 0.0,
    ) -> list[Claim]:
        """Lease up to `most` ready jobs of a queue to a worker, from this node's slots.

        Waits up to `wait_s` for the first one; an empty list when there is none.
        """
        claims: list[Claim] = []
        try:
            async with asyncio.timeout(wait_s or None):
                while True:
                    arrived = self._ready.arrival(queue)
                    for slot in self._ready.candidates(queue):
                        claims += await self._claim_in(
                            slot, queue, worker, lease_ms, most - len(claims)
                        )
                        if len(claims) >= most:
                            return claims
                    if claims or not wait_s:
                        return claims
                    await arrived.wait()
        except TimeoutError:
            return claims

    async def _claim_in(
        self, slot: int, queue: str, worker: str, lease_ms: int, most: int
    ) -> list[Claim]:
        partition = ready_partition(slot, queue)
        most = min(most, limits.CLAIMS_AT_ONCE)

        async def claim(tx: Transaction) -> tuple[list[Claim], bool]:
            found = await tx.scan(partition, str, limit=most)
            claims = [await self._schedule.claim(tx, row.key, worker, lease_ms) for row in found]
            return [claim for claim in claims if claim is not None], len(found) < most

        claims, drained = await self._store.run(claim, line=partition)
        if drained:
            self._ready.drained(queue, slot)
        return claims

    async def _turn(self) -> bool:
        """Act on what is due now; says whether there was anything."""
        now_ms = self._store.clock.now_ms()
        work: list[tuple[str, int]] = []
        for slot, agenda in list(self._agendas.items()):
            if agenda.stale:
                limit = limits.AGENDA_ENTRIES
                front = await self._store.engine.scan(due_partition(slot), now_ms, limit=limit)
                agenda.refresh(front, limit)
            if self._placement.holds(slot):
                work += [(sort, slot) for sort in agenda.take(now_ms, limits.AGENDA_ENTRIES)]
        work.sort()
        by_slot: dict[int, list[str]] = {}
        for sort, slot in work:
            by_slot.setdefault(slot, []).append(sort)
        await asyncio.gather(*[self._act_all(slot, sorts) for slot, sorts in by_slot.items()])
        return bool(work)

    async def _act_all(self, slot: int, sorts: list[str]) -> None:
        partition = due_partition(slot)
        for start in range(0, len(sorts), limits.DUE_AT_ONCE):
            entries = [(partition, sort) for sort in sorts[start : start + limits.DUE_AT_ONCE]]

            async def act(tx: Transaction, entries: list[Key] = entries) -> None:
                for entry in entries:
                    await self._acts[keys.split(entry[1])[2]](tx, entry)

            await self._store.run(act)
            self.acted += len(entries)

    async def _sleep(self) -> None:
        upcoming = [a.next_ms for a in self._agendas.values() if a.next_ms is not None]
        self._wake_ms = min(upcoming, default=None)
        left_s = limits.POLL_S
        if self._wake_ms is not None:
            left_s = min(left_s, (self._wake_ms - self._store.clock.now_ms()) / 1000)
        try:
            async with asyncio.timeout(max(left_s, 0)):
                await self._wake.wait()
        except TimeoutError:
            if left_s == limits.POLL_S:
                self._poll()
        self._wake_ms = None

    def _poll(self) -> None:
        """Hints may be missing altogether: look for what other nodes have committed."""
        for agenda in self._agendas.values():
            agenda.stale = True
        self._ready.poll()

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for slot in lost:
            if self._agendas.pop(slot, None) is not None:
                self._watches.pop(slot).close()
        for slot in gained:
            self._agendas[slot] = Agenda()
            watch = self._watches[slot] = self._store.engine.watch(due_partition(slot))
            watch.on_hint = partial(self._hinted, slot)
        self._ready.poll()
        self._wake.set()

    def _hinted(self, slot: int) -> None:
        # Own commits come by the hook, with their keys: the hint adds nothing to them.
        if self._store.engine.answers_can_be_lost and slot in self._agendas:
            self._agendas[slot].stale = True
            self._wake.set()

    def _saw(self, commit: Commit) -> None:
        """An own commit is durable: note what it made due or ready."""
        for write in commit.writes:
            if type(write) is not Put:
                continue
            kind, _, rest = write.key[0].partition("#")
            if kind == "due":
                agenda = self._agendas.get(int(rest))
                if agenda is not None and agenda.add(write.key[1]):
                    self._wake.set()
            elif kind == "ready":
                _, slot, queue = keys.split(write.key[0])
                self._ready.arrived(queue, int(slot))


class ReadySlots:
    """Which of the node's slots may have ready jobs, by queue; wrong only by a look too many."""

    def __init__(self, store: Store, placement: Placement) -> None:
        self._store = store
        self._placement = placement
        self._maybe: dict[str, dict[int, None]] = {}
        self._arrivals: dict[str, asyncio.Event] = {}

    def arrival(self, queue: str) -> asyncio.Event:
        """An event for the next arrival in a queue."""
        event = self._arrivals.get(queue)
        if event is None or event.is_set():
            event = self._arrivals[queue] = asyncio.Event()
        return event

    def candidates(self, queue: str) -> Iterable[int]:
        """The slots to look into, the one looked into last at the end."""
        maybe = self._maybe.get(queue)
        if maybe is None:
            maybe = self._maybe[queue] = dict.fromkeys(sorted(self._placement.owned))
        for slot in list(maybe):
            if slot not in self._placement.owned:
                maybe.pop(slot, None)
            elif slot in maybe:
                maybe[slot] = maybe.pop(slot)
                yield slot

    def arrived(self, queue: str, slot: int) -> None:
        maybe = self._maybe.get(queue)
        if maybe is not None and slot in self._placement.owned:
            maybe[slot] = None
        event = self._arrivals.get(queue)
        if event is not None:
            event.set()

    def drained(self, queue: str, slot: int) -> None:
        self._maybe.get(queue, {}).pop(slot, None)

    def poll(self) -> None:
        """Look into every slot again."""
        self._maybe.clear()
        for event in self._arrivals.values():
            event.set()

    def close(self) -> None:
        self._maybe.clear()
