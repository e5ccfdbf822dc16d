"""The claim queue: workers of one queue that wait for its ready jobs.

Requests are served first come, first served. One transaction serves several requests from
several slots. The claim queue tracks which slots may have ready jobs; an outdated entry costs
one unnecessary scan.

Priorities are strict within a slot. Slots with the most urgent jobs are scanned first, and among
those the slots with the oldest jobs. This order uses the node's own commits and its last scan of
each slot. A slot that has not been scanned, or that another node has changed, counts as urgent.

Local workers do not send requests: the claim queue fills their free capacity.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any

from onceward import limits
from onceward.errors import PASSING, NoSuchJob, OncewardError, StaleToken
from onceward.keys import Key
from onceward.schedule import Claim, Schedule, permit_partition, ready_partition
from onceward.schedule.claiming import (
    CLAIMS_AT_ONCE,
    Claimer,
    ClaimRequest,
    QueuedRequest,
    Started,
    nothing_started,
)
from onceward.schedule.local_workers import Capacity
from onceward.schedule.placement import Placement
from onceward.schedule.ready_entries import ReadyEntries
from onceward.schedule.settings_cache import SettingsCache
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.unreadable import quarantine


class ClaimQueue:
    """Serves the claim requests for one queue."""

    def __init__(
        self,
        queue: str,
        store: Store,
        schedule: Schedule,
        placement: Placement,
        queue_settings: SettingsCache,
        started: Started = nothing_started,
    ) -> None:
        self.asked_ns = 0
        """Time of the last request."""
        self._queue = queue
        self._store = store
        self._schedule = schedule
        self._placement = placement
        self._queue_settings = queue_settings
        self._claimed = store.meters.counter("claimed", queue=queue)
        self._wait_seconds = store.meters.histogram("wait_seconds", queue=queue)
        self._line: deque[QueuedRequest] = deque()
        self._capacity: deque[Capacity] = deque()
        self._hasty = False  # whether a request in the queue does not wait for jobs
        # `_slots` maps slots that may have jobs to the first possible entry. `_busy` has the slots
        # that are being scanned, `_again` those of them that changed during the scan, and
        # `_elsewhere` the slots of other nodes, which are scanned later.
        self._slots: dict[int, str] = {}
        self._busy: set[int] = set()
        self._again: dict[int, str] = {}
        self._elsewhere: dict[int, None] = {}
        self._elsewhere_ns = 0
        self._ready_entries = ReadyEntries(queue)
        self._claimer = Claimer(
            queue, store, schedule, queue_settings, self._ready_entries, started
        )
        self._rounds = 0
        self._shut = False  # while the queue's settings allow no further claims
        self._opened = 0
        self._matching = False
        self._closed = False
        # Hooks and hints may call from any context, including another node's commit.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches = []
        if store.engine.shared:
            watch = store.engine.watch(permit_partition(queue))
            watch.others_only = True
            watch.on_hint = self.open
            self._watches.append(watch)
            for slot in range(placement.slots):
                watch = store.engine.watch(ready_partition(slot, queue))
                watch.others_only = True
                watch.on_hint = partial(self.hinted, slot)
                self._watches.append(watch)
        # All slots, owned ones first, so that a request without a wait finds jobs in any slot.
        owned = placement.owned
        self.look(sorted(range(placement.slots), key=lambda slot: slot not in owned))

    @property
    def idle(self) -> bool:
        return not self._line and not self._capacity and not self._rounds

    def enrol(self, capacity: Capacity) -> None:
        """Fill the free capacity of a worker with jobs from now on."""
        capacity.post = self
        self._capacity.append(capacity)
        self.freed()

    def dismiss(self, capacity: Capacity) -> None:
        """Stop giving jobs to a worker. It returns jobs that are already on their way."""
        capacity.gone = True
        if capacity in self._capacity:
            self._capacity.remove(capacity)

    def free_capacity(self) -> Capacity | None:
        """The capacity of a worker that can take a new job before it is ready.

        None unless all ready jobs are about to be claimed, so that new jobs do not overtake them
        for long, and None for queues that are paused or have a limit or a rate.
        """
        if not self._capacity or self._ready_entries.count > CLAIMS_AT_ONCE:
            return None
        for slots in (self._slots, self._busy):
            if slots and not all(map(self._ready_entries.knows, slots)):
                return None
        settings = self._queue_settings(self._queue)
        if settings.paused or settings.rate or settings.limit:
            return None
        for capacity in self._capacity:
            if capacity.takes_new:
                return capacity
        return None

    def freed(self) -> None:
        """A worker has more free capacity than before."""
        if self._slots:
            self._match_soon()

    def handed_over(self, claims: list[Claim]) -> None:
        """Count jobs that were leased by a durable commit, with the time that they waited."""
        self._claimed.value += len(claims)
        now_ms = self._store.clock.now_ms()
        for claim in claims:
            # A job that an operator has retried has no due time.
            due_ms = claim.due_ms or (0 if claim.reason else claim.created_ms)
            if due_ms:
                self._wait_seconds.observe(max(now_ms - due_ms, 0) / 1000)

    def ask(self, request: QueuedRequest) -> None:
        """Add a request to the queue. It always gets a response; one that waits gets it in time."""
        self.asked_ns = self._store.clock.elapsed_ns()
        self._line.append(request)
        self._hasty = self._hasty or not request.patient
        self._match_soon()

    def give_up(self, request: QueuedRequest) -> None:
        """End the wait of a request. A request that is being served gets the jobs found for it."""
        request.time_is_up = True
        if request in self._line:
            self._line.remove(request)
            request.dismiss()

    def cancelled(self, request: QueuedRequest) -> None:
        """The caller of a request was cancelled: release the jobs it was given."""
        answer = request.answer
        if request in self._line:
            self._line.remove(request)
        elif answer.done() and not answer.cancelled() and answer.exception() is None:
            self.give_back(answer.result())

    def arrived(self, slot: int, sort: str) -> None:
        """A local commit has made a job ready."""
        self._ready_entries.put(slot, sort)
        self._mark(slot, sort)

    def taken(self, slot: int, sort: str) -> None:
        """A local commit has removed an entry."""
        self._ready_entries.take(slot, sort)

    def hinted(self, slot: int) -> None:
        """A job may have become ready in a slot."""
        self._ready_entries.forget(slot)
        self._mark(slot, "")

    def _mark(self, slot: int, first: str) -> None:
        """Note that a slot may have ready jobs, the first of them at `first`."""
        if slot in self._placement.owned:
            marked = self._marked(slot)
            marked[slot] = min(first, marked.get(slot, first))
            if self._wanted:
                self._match_soon()
        else:
            # The owner of the slot serves it first. This node scans for the remaining jobs later.
            if not self._elsewhere:
                self._loop.call_later(
                    limits.POLL_HINTED_S, self._look_elsewhere, context=self._context
                )
            self._elsewhere[slot] = None

    def open(self) -> None:
        """Resume after changed settings, a returned permit, or the next interval of the rate."""
        self._opened += 1
        if self._shut and not self._closed:
            self._shut = False
            self._match_soon()

    def look(self, slots: Iterable[int]) -> None:
        """Scan these slots at the next request, or now if a request is waiting."""
        for slot in slots:
            self._ready_entries.forget(slot)
            self._marked(slot).setdefault(slot, "")
        if self._wanted:
            self._match_soon()

    @property
    def _wanted(self) -> bool:
        """Whether a request or a worker may be waiting for jobs."""
        return bool(self._line or self._capacity)

    def _marked(self, slot: int) -> dict[int, str]:
        return self._again if slot in self._busy else self._slots

    def poll(self, now_ns: int) -> int:
        """Scan this node's slots, and occasionally all slots; returns the number of scanned slots.

        Without waiting requests, the slots are only marked and scanned at the next request: returns
        0.
        """
        slots = sorted(self._placement.owned)
        if now_ns >= self._elsewhere_ns:
            self._elsewhere_ns = now_ns + int(limits.POLL_ELSEWHERE_S * 1e9)
            slots = list(range(self._placement.slots))
        self.look(slots)
        self.open()
        return len(slots) if self._wanted else 0

    def close(self) -> None:
        """Answer all waiting requests with an empty list."""
        for watch in self._watches:
            watch.close()
        self._watches.clear()
        self._slots.clear()
        self._elsewhere.clear()
        self._capacity.clear()
        self._closed = True
        self._answer_all()

    async def finish(self) -> None:
        """Wait for running transactions."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _look_elsewhere(self) -> None:
        slots = list(self._elsewhere)
        self._elsewhere.clear()
        self.look(slots)

    def _match_soon(self) -> None:
        # Deferred: other requests may arrive in the same turn of the event loop and share a
        # transaction.
        if not self._matching:
            self._matching = True
            self._loop.call_soon(self._match, context=self._context)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="onceward-claim", context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _match(self) -> None:
        """Assign waiting requests to slots and start transactions."""
        self._matching = False
        while self._slots and self._rounds < limits.CLAIM_ROUNDS_MAX and not self._shut:
            requests = self._requests()
            if not requests:
                break
            first = sorted(self._slots, key=self._slots.__getitem__)[: limits.CLAIM_SLOTS]
            slots = {slot: self._slots.pop(slot) for slot in first}
            self._busy.update(slots)
            self._rounds += 1
            self._spawn(self._round(slots, requests))
        if self._hasty and (not self._slots or self._shut) and not self._rounds:
            for request in [request for request in self._line if not request.patient]:
                self._line.remove(request)
                request.dismiss()
            self._hasty = False

    def _requests(self) -> list[ClaimRequest]:
        """The requests to serve in one transaction."""
        requests: list[ClaimRequest] = []
        wanted = 0
        while self._line and wanted < CLAIMS_AT_ONCE:
            requests.append(self._line.popleft())
            wanted += requests[-1].most
        for capacity in tuple(self._capacity) if wanted < CLAIMS_AT_ONCE else ():
            asking = capacity.ask(max(CLAIMS_AT_ONCE - wanted, 0))
            if asking is not None:
                self._capacity.rotate(-1)
                requests.append(asking)
                wanted += asking.most
        return requests

    def _answer_all(self) -> None:
        for request in self._line:
            request.dismiss()
        self._line.clear()

    async def _round(self, slots: dict[int, str], requests: list[ClaimRequest]) -> None:
        handed: list[list[Claim]] = [[] for _ in requests]
        left = slots
        error: Exception | None = None
        opened = self._opened
        try:
            handed, left, allowed = await self._store.run(
                partial(self._claimer.claim, slots, requests)
            )
            for claims in handed:
                self.handed_over(claims)
            # Unless the quota grew during the transaction: then the next round checks it again.
            if not allowed.jobs and opened == self._opened:
                self._close_until(allowed.again_ms)
        except Exception as raised:
            error = raised
        if self._ready_entries.unread:
            unread, self._ready_entries.unread = self._ready_entries.unread, {}
            self._spawn(self._quarantine(unread))
        self._rounds -= 1
        self._busy.difference_update(slots)
        for slot in slots:
            if slot in self._again:
                again = self._again.pop(slot)
                left[slot] = min(again, left.get(slot, again))
        self._slots.update(left)
        unserved: list[QueuedRequest] = []
        for request, claims in zip(requests, handed, strict=True):
            if request.gone:
                self.give_back(claims)
            elif error is not None:
                request.fail(error)
            elif claims or not isinstance(request, QueuedRequest) or request.time_is_up:
                request.give(claims)
            else:
                unserved.append(request)
        self._line.extendleft(reversed(unserved))
        if self._closed:
            self._answer_all()
        else:
            self._match()

    def _close_until(self, again_ms: int) -> None:
        self._shut = True
        if again_ms:
            pause_s = max(again_ms - self._store.clock.now_ms(), 1) / 1000
            self._loop.call_later(pause_s, self.open, context=self._context)

    def give_back(self, claims: list[Claim]) -> None:
        """Release claimed jobs to other workers. The attempts do not count."""
        if claims:
            self._spawn(self._release(claims))

    async def _quarantine(self, entries: dict[Key, OncewardError]) -> None:
        """Quarantine jobs whose records cannot be read, so that operators see them."""
        for entry, error in entries.items():
            await quarantine(self._store, self._schedule, entry, error)

    async def _release(self, claims: list[Claim]) -> None:
        async def release(tx: Transaction) -> None:
            for claim in claims:
                try:
                    await self._schedule.release(tx, claim.id, claim.token)
                except (NoSuchJob, StaleToken):
                    pass  # the lease has ended, which released the job

        for tries in range(limits.GIVE_BACK_TRIES_MAX):
            try:
                await self._store.run(release)
                return
            except PASSING:
                if self._closed:
                    return
            except OncewardError:
                return
            await self._store.clock.sleep(limits.GIVE_BACK_PAUSE_S * 2**tries)
        # The database is unreachable: the jobs become available again when their leases expire.
