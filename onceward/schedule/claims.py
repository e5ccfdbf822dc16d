"""Claims: leases ready jobs to the workers that request them.

A worker that waits is served when a job arrives: by this node's own commit, by a hint, or
at the latest at the next poll. Jobs come from this node's own slots first; it looks into
those of others too, a little later, so that jobs are worked on wherever their workers are.
A claim that its worker is not there any more to receive is given back.
"""

import asyncio
from collections.abc import Callable

from onceward import limits
from onceward.engine.base import Delete, Put
from onceward.errors import BadInput, Unavailable
from onceward.schedule import (
    Claim,
    Schedule,
    admit_lease,
    admit_queue,
    admit_worker,
    is_whole,
)
from onceward.schedule.claim_queue import ClaimQueue
from onceward.schedule.claiming import CLAIMS_AT_ONCE, QueuedRequest, Started, nothing_started
from onceward.schedule.local_workers import Capacity
from onceward.schedule.placement import Placement
from onceward.schedule.records import LocalWorker
from onceward.schedule.settings_cache import SettingsCache
from onceward.store import Store
from onceward.store.transaction import Transaction


class Claims:
    """The claim queues of this node, by queue."""

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        placement: Placement,
        queue_settings: SettingsCache,
        started: Started = nothing_started,
    ) -> None:
        """`started` hears of each job that is handed out."""
        self._store = store
        self._queue_settings = queue_settings
        self._schedule = schedule
        self._placement = placement
        self._started = started
        self._claim_queues: dict[str, ClaimQueue] = {}
        self._closed = False
        self._unhook = [
            store.on_change("ready", self._made_ready),
            store.on_change("permit", self._permitted),
        ]
        placement.on_change(self._placed)
        queue_settings.on_change(self._set)
        if not store.engine.shared:
            # Else a commit may go unnoticed whose caller is cancelled, and its jobs with it.
            schedule.local_worker = self._local_worker

    async def claim(
        self,
        queue: str,
        worker: str,
        *,
        lease_ms: int,
        most: int = 1,
        wait_s: float = 0.0,
    ) -> list[Claim]:
        """Lease up to `most` ready jobs of a queue to a worker.

        The most urgent first, as far as this node knows where those are. Waits up to `wait_s`
        for the first; an empty list when there is none. May return fewer than there are.
        Raises `BadInput`, `Unavailable` when the node is stopping, and what `Store.run`
        raises.
        """
        admit_queue(queue)
        admit_worker(worker)
        admit_lease(lease_ms)
        if not is_whole(most) or most < 1:
            raise BadInput(f"a worker asks for 1 or more jobs, not {most!r}")
        if self._closed:
            # Not an empty answer: a worker that asks again and again would never rest.
            raise Unavailable("the node is stopping: ask another one", code="node_stopped")
        loop = asyncio.get_running_loop()
        most = min(most, CLAIMS_AT_ONCE)
        request = QueuedRequest(worker, lease_ms, most, wait_s > 0, loop.create_future())
        claim_queue = self._claim_queue(queue)
        claim_queue.ask(request)
        timer = loop.call_later(wait_s, claim_queue.give_up, request) if wait_s > 0 else None
        try:
            return await request.answer
        except asyncio.CancelledError:
            claim_queue.cancelled(request)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def enrol(self, queue: str, capacity: Capacity) -> Callable[[], None]:
        """Fill the hands of a worker with jobs of a queue; returns what ends that."""
        admit_queue(queue)
        admit_worker(capacity.local_worker.name)
        admit_lease(capacity.local_worker.lease_ms)
        claim_queue = self._claim_queue(queue)
        claim_queue.enrol(capacity)
        return lambda: claim_queue.dismiss(capacity)

    def _claim_queue(self, queue: str) -> ClaimQueue:
        claim_queue = self._claim_queues.get(queue)
        if claim_queue is None:
            claim_queue = self._claim_queues[queue] = ClaimQueue(
                queue,
                self._store,
                self._schedule,
                self._placement,
                self._queue_settings,
                self._started,
            )
        return claim_queue

    def _local_worker(self, tx: Transaction, queue: str) -> LocalWorker | None:
        """Reserve a worker of this node for a new job; see `Schedule.local_worker`."""
        claim_queue = self._claim_queues.get(queue)
        if claim_queue is None or tx.end_hooks is None:
            return None
        capacity = claim_queue.free_capacity()
        return None if capacity is None else capacity.reserve(tx)

    async def run(self) -> None:
        """Poll until cancelled, and forget the desks where nobody asks any more."""
        clock = self._store.clock
        while True:
            await clock.sleep(limits.POLL_S)
            now_ns = clock.elapsed_ns()
            for queue, claim_queue in list(self._claim_queues.items()):
                if claim_queue.idle and now_ns - claim_queue.asked_ns > limits.DESK_IDLE_S * 1e9:
                    claim_queue.close()
                    del self._claim_queues[queue]
            if self._store.engine.shared:
                self._poll(now_ns)

    def _poll(self, now_ns: int) -> None:
        """Look for what other nodes made ready; with many queues, not in all of them each time."""
        scans = limits.POLL_SCANS_PER_S * limits.POLL_S
        for queue in list(self._claim_queues):
            if scans > 0:
                claim_queue = self._claim_queues[queue] = self._claim_queues.pop(queue)
                scans -= claim_queue.poll(now_ns)

    async def close(self) -> None:
        """Answer those who wait with nothing, and finish what is under way; twice is once."""
        if not self._closed:
            self._closed = True
            for unhook in self._unhook:
                unhook()
        for claim_queue in self._claim_queues.values():
            claim_queue.close()
            await claim_queue.finish()

    def _made_ready(self, write: Put | Delete) -> None:
        """An own commit is durable: note what it made ready, or took away."""
        partition, sort = write.key
        slot, claim_queue = partition[6:10], self._claim_queues.get(partition[11:])
        if claim_queue is not None and slot.isdecimal():
            note = claim_queue.arrived if type(write) is Put else claim_queue.taken
            note(int(slot), sort)

    def _permitted(self, write: Put | Delete) -> None:
        """The same for permits that were given back."""
        if type(write) is Delete:
            self._set(write.key[0][7:])

    def _set(self, queue: str) -> None:
        """More may be allowed than before."""
        claim_queue = self._claim_queues.get(queue)
        if claim_queue is not None:
            claim_queue.open()

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for claim_queue in self._claim_queues.values():
            claim_queue.look(sorted(gained))
