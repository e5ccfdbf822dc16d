"""Claims: hands ready jobs out to the workers that ask for them.

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
from onceward.parts.schedule import (
    Claim,
    Schedule,
    admit_lease,
    admit_queue,
    admit_worker,
    is_whole,
)
from onceward.service.book import Book
from onceward.service.desk import Desk
from onceward.service.hands import Hands
from onceward.service.picker import CLAIMS_AT_ONCE
from onceward.service.placement import Placement
from onceward.service.request import Waiting
from onceward.store import Store
from onceward.transaction import Transaction


class Claims:
    """The desks of this node, by queue."""

    def __init__(self, store: Store, schedule: Schedule, placement: Placement, book: Book) -> None:
        self._store = store
        self._book = book
        self._schedule = schedule
        self._placement = placement
        self._desks: dict[str, Desk] = {}
        self._closed = False
        self._unhook = [
            store.on_change("ready", self._made_ready),
            store.on_change("permit", self._permitted),
        ]
        placement.on_change(self._placed)
        book.on_change(self._set)
        if not store.engine.shared:
            # Else a commit may go unnoticed whose caller is cancelled, and its jobs with it.
            schedule.taker = self._taker

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
        request = Waiting(worker, lease_ms, most, wait_s > 0, loop.create_future())
        desk = self._desk(queue)
        desk.ask(request)
        timer = loop.call_later(wait_s, desk.give_up, request) if wait_s > 0 else None
        try:
            return await request.answer
        except asyncio.CancelledError:
            desk.cancelled(request)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def enrol(self, queue: str, hands: Hands) -> Callable[[], None]:
        """Fill the hands of a worker with jobs of a queue; returns what ends that."""
        admit_queue(queue)
        admit_worker(hands.worker)
        admit_lease(hands.lease_ms)
        desk = self._desk(queue)
        desk.enrol(hands)
        return lambda: desk.dismiss(hands)

    def _desk(self, queue: str) -> Desk:
        desk = self._desks.get(queue)
        if desk is None:
            desk = self._desks[queue] = Desk(
                queue, self._store, self._schedule, self._placement, self._book
            )
        return desk

    def _taker(self, tx: Transaction, queue: str) -> Hands | None:
        """Who takes a job at once that would be ready."""
        desk = self._desks.get(queue)
        return None if desk is None or tx.end_hooks is None else desk.taker()

    async def run(self) -> None:
        """Poll until cancelled, and forget the desks where nobody asks any more."""
        clock = self._store.clock
        while True:
            await clock.sleep(limits.POLL_S)
            now_ns = clock.elapsed_ns()
            for queue, desk in list(self._desks.items()):
                if desk.idle and now_ns - desk.asked_ns > limits.DESK_IDLE_S * 1e9:
                    desk.close()
                    del self._desks[queue]
            if self._store.engine.shared:
                self._poll(now_ns)

    def _poll(self, now_ns: int) -> None:
        """Look for what other nodes made ready; with many queues, not in all of them each time."""
        scans = limits.POLL_SCANS_PER_S * limits.POLL_S
        for queue in list(self._desks):
            if scans > 0:
                desk = self._desks[queue] = self._desks.pop(queue)
                scans -= desk.poll(now_ns)

    async def close(self) -> None:
        """Answer those who wait with nothing, and finish what is under way; twice is once."""
        if not self._closed:
            self._closed = True
            for unhook in self._unhook:
                unhook()
        for desk in self._desks.values():
            desk.close()
            await desk.finish()

    def _made_ready(self, write: Put | Delete) -> None:
        """An own commit is durable: note what it made ready, or took away."""
        partition, sort = write.key
        slot, desk = partition[6:10], self._desks.get(partition[11:])
        if desk is not None and slot.isdecimal():
            note = desk.arrived if type(write) is Put else desk.taken
            note(int(slot), sort)

    def _permitted(self, write: Put | Delete) -> None:
        """The same for permits that were given back."""
        if type(write) is Delete:
            self._set(write.key[0][7:])

    def _set(self, queue: str) -> None:
        """More may be allowed than before."""
        desk = self._desks.get(queue)
        if desk is not None:
            desk.open()

    def _placed(self, gained: set[int], lost: set[int]) -> None:
        for desk in self._desks.values():
            desk.look(sorted(gained))
