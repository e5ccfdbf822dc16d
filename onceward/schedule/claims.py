"""Claims: leases ready jobs to the workers that request them.

A waiting worker is served when a job arrives: through a local commit, a hint from another node,
or the next poll. Jobs come from this node's own slots first. After a short delay the node also
scans slots of other nodes, so that jobs run on any node that has workers for them. A claim whose
worker has gone is released.
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
        """`started` is called for each job that is handed out."""
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

        The most urgent jobs come first, as far as this node has seen them. Waits up to `wait_s` for
        the first job, and returns an empty list if none arrives. It may return fewer jobs than are
        ready. Raises `BadInput`, `Unavailable` when the node is stopping, and the errors of
        `Store.run`.
        """
        admit_queue(queue)
        admit_worker(worker)
        admit_lease(lease_ms)
        if not is_whole(most) or most < 1:
            raise BadInput(f"a worker must request 1 or more jobs, not {most!r}")
        if self._closed:
            # Not an empty list: a worker that polls in a loop would never pause.
            raise Unavailable(
                "this node is stopping; send the request to another node", code="node_stopped"
            )
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

    def give_back(self, queue: str, claims: list[Claim]) -> None:
        """Release claimed jobs that their worker cannot receive. The attempts do not count."""
        if not self._closed:
            self._claim_queue(queue).give_back(claims)

    def enrol(self, queue: str, capacity: Capacity) -> Callable[[], None]:
        """Fill a worker's free capacity with jobs of a queue; returns a function that ends this."""
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

    def _local_worker(self, tx: Transaction, queue: str, slot: int) -> LocalWorker | None:
        """Reserve a worker of this node for a new job; see `Schedule.local_worker`. The workers of
        another node are the first to get the jobs of its slots."""
        claim_queue = self._claim_queues.get(queue)
        if claim_queue is None or tx.end_hooks is None or tx.session is not None:
            return None
        if self._store.engine.shared and slot not in self._placement.owned:
            return None
        capacity = claim_queue.free_capacity()
        return None if capacity is None else capacity.reserve(tx)

    async def run(self) -> None:
        """Poll until cancelled, and close claim queues that have had no requests for a while."""
        clock, shared = self._store.clock, self._store.engine.shared
        while True:
            await clock.sleep(limits.POLL_S if shared else limits.IDLE_S)
            now_ns = clock.elapsed_ns()
            for queue, claim_queue in list(self._claim_queues.items()):
                if claim_queue.idle and now_ns - claim_queue.asked_ns > limits.DESK_IDLE_S * 1e9:
                    claim_queue.close()
                    del self._claim_queues[queue]
            if shared:
                self._poll(now_ns)

    def _poll(self, now_ns: int) -> None:
        """Scan for jobs that other nodes made ready. With many queues, scan some of them each
        time."""
        scans = limits.POLL_SCANS_PER_S * limits.POLL_S
        for queue in list(self._claim_queues):
            if scans > 0:
                claim_queue = self._claim_queues[queue] = self._claim_queues.pop(queue)
                scans -= claim_queue.poll(now_ns)

    async def close(self) -> None:
        """Answer waiting requests with empty lists and finish running transactions. Idempotent."""
        if not self._closed:
            self._closed = True
            for unhook in self._unhook:
                unhook()
        await self._store.finish()  # they may have leased jobs to workers that have gone
        for claim_queue in self._claim_queues.values():
            claim_queue.close()
            await claim_queue.finish()

    def _made_ready(self, write: Put | Delete) -> None:
        """Note ready entries that a durable local commit has added or removed."""
        partition, sort = write.key
        slot, claim_queue = partition[6:10], self._claim_queues.get(partition[11:])
        if claim_queue is not None and slot.isdecimal():
            note = claim_queue.arrived if type(write) is Put else claim_queue.taken
            note(int(slot), sort)

    def _permitted(self, write: Put | Delete) -> None:
        """Note permits that a durable local commit has returned."""
        if type(write) is Delete:
            self._set(write.key[0][7:])

    def _set(self, queue: str) -> None:
        """The settings or permits of a queue have changed: it may allow more jobs."""
        claim_queue = self._claim_queues.get(queue)
        if claim_queue is not None:
            claim_queue.open()

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for claim_queue in self._claim_queues.values():
            claim_queue.look(sorted(gained))
