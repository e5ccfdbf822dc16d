"""The free capacity of a local worker: the number of jobs it can take now.

The claim queue fills it with ready jobs. While capacity is free, a new job is leased to the worker
by the commit that adds it, which saves a commit and a wait.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from onceward.schedule import Claim
from onceward.schedule.records import HandedOver, LocalWorker
from onceward.store.transaction import Transaction


class CapacityListener(Protocol):
    """The claim queue, as seen by the capacity of a worker."""

    def freed(self) -> None:
        """The worker has more free capacity than before."""

    def handed_over(self, claims: list[Claim]) -> None:
        """Count jobs that were leased to the worker by the commits that added them."""

    def give_back(self, claims: list[Claim]) -> None:
        """Release jobs that the worker does not take."""


class Capacity:
    """The free capacity of one worker, less the capacity reserved for jobs on their way to it."""

    def __init__(
        self,
        worker: str,
        lease_ms: int,
        *,
        free: Callable[[], int],
        take: Callable[[list[Claim]], None],
        failed: Callable[[Exception], None],
        batch: int = 0,
    ) -> None:
        """`free` returns how many jobs the worker can take now, `take` gives it jobs, and `failed`
        gets the error of a failed claim. `batch` is the maximum per claim; a worker with batches
        gets ready jobs only, which run together."""
        self.local_worker = LocalWorker(worker, lease_ms)
        self.failed = failed
        self.gone = False
        """Whether the worker has stopped taking jobs."""
        self.post: CapacityListener | None = None
        self._free = free
        self._take = take
        self._batch = batch
        self._spoken_for = 0
        self._asking = False
        self._reserved: dict[Transaction, int] = {}

    @property
    def free(self) -> int:
        """The number of jobs that the worker can take, without reserved capacity."""
        return 0 if self.gone else max(self._free() - self._spoken_for, 0)

    @property
    def takes_new(self) -> bool:
        return not self._batch and self.free > 0

    def freed(self) -> None:
        """Report more free capacity to the claim queue."""
        if self.post is not None:
            self.post.freed()

    def ask(self, most: int) -> "Asking | None":
        """A request for ready jobs; at most one at a time."""
        most = min(most, self.free, self._batch or most)
        if self._asking or most < 1:
            return None
        self._asking = True
        self._spoken_for += most
        return Asking(self, most)

    def answered(self, asking: "Asking", claims: list[Claim]) -> None:
        self._asking = False
        self._spoken_for -= asking.most
        self.take(claims)

    def take(self, claims: list[Claim]) -> None:
        assert self.post is not None
        if self.gone:
            self.post.give_back(claims)
        elif claims:
            self._take(claims)

    def reserve(self, tx: Transaction) -> LocalWorker:
        """Reserve capacity for a job that a transaction adds. When its commit is durable, the
        worker takes the jobs that the transaction has handed over."""
        reserved = self._reserved.get(tx, 0)
        if not reserved:
            tx.on_end(partial(self._ended, tx))
        self._reserved[tx] = reserved + 1
        self._spoken_for += 1
        return self.local_worker

    def _ended(self, tx: Transaction, durable: bool) -> None:
        reserved = self._reserved.pop(tx)
        self._spoken_for -= reserved
        claims = [
            note.claim
            for note in (tx.notes if durable or tx.outcome_unknown else ())
            if isinstance(note, HandedOver) and note.worker is self.local_worker
        ]
        if claims:
            assert self.post is not None
            if durable:
                self.post.handed_over(claims)
                self.take(claims)
            else:  # those that exist after all need not wait for the end of their lease
                self.post.give_back(claims)
        if len(claims) < reserved or not durable:
            self.freed()


@dataclass(eq=False, slots=True)
class Asking:
    """A request of a local worker for ready jobs."""

    capacity: Capacity
    most: int

    @property
    def worker(self) -> str:
        return self.capacity.local_worker.name

    @property
    def lease_ms(self) -> int:
        return self.capacity.local_worker.lease_ms

    @property
    def local(self) -> bool:
        return True

    @property
    def gone(self) -> bool:
        return False  # `Capacity.take` releases jobs that come too late

    def give(self, claims: list[Claim]) -> None:
        self.capacity.answered(self, claims)

    def fail(self, error: Exception) -> None:
        self.capacity.answered(self, [])
        self.capacity.failed(error)
