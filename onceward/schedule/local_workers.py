"""Hands: how many jobs a worker of this node would take now, at the desk of its queue.

The desk fills them with what is ready. And a job that would become ready while hands are free
is leased to them by the same commit that makes it: that is one commit less, and one wait.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from onceward.schedule import Claim
from onceward.store.transaction import Transaction


class CapacityListener(Protocol):
    """Where hands are known."""

    def freed(self) -> None:
        """They would take more than before."""

    def promised(self, claims: list[Claim]) -> None:
        """They take these, which were leased to them by the commits that made them."""

    def give_back(self, claims: list[Claim]) -> None:
        """They do not take these any more."""


class Capacity:
    """The free hands of one worker. What they take they have promised to before."""

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
        """`free` says how many jobs the worker would take now, `take` gives it some, `failed`
        tells it that none could be claimed. With `batch` it gets so many at once at the most,
        and none but what is ready: those wait for each other."""
        self.worker = worker
        self.lease_ms = lease_ms
        self.failed = failed
        self.gone = False
        """Whether it takes nothing any more."""
        self.post: CapacityListener | None = None
        self._free = free
        self._take = take
        self._batch = batch
        self._spoken_for = 0
        self._asking = False
        self._promised: dict[Transaction, list[Claim]] = {}

    @property
    def free(self) -> int:
        """How many jobs it would take, besides those it may get."""
        return 0 if self.gone else max(self._free() - self._spoken_for, 0)

    @property
    def takes_new(self) -> bool:
        return not self._batch and self.free > 0

    def freed(self) -> None:
        """It would take more than before."""
        if self.post is not None:
            self.post.freed()

    def ask(self, most: int) -> "Asking | None":
        """A request for ready jobs; one at a time."""
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

    def promise(self, tx: Transaction, claim: Claim) -> None:
        """Take a job, once the commit that makes it is durable."""
        promised = self._promised.get(tx)
        if promised is None:
            promised = self._promised[tx] = []
            tx.on_end(lambda durable: self._made(tx, durable))
        promised.append(claim)
        self._spoken_for += 1

    def _made(self, tx: Transaction, durable: bool) -> None:
        claims = self._promised.pop(tx)
        self._spoken_for -= len(claims)
        if durable:
            assert self.post is not None
            self.post.promised(claims)
            self.take(claims)
        else:
            self.freed()


@dataclass(eq=False, slots=True)
class Asking:
    """A request of hands for what is ready."""

    capacity: Capacity
    most: int

    @property
    def worker(self) -> str:
        return self.capacity.worker

    @property
    def lease_ms(self) -> int:
        return self.capacity.lease_ms

    @property
    def local(self) -> bool:
        return True

    @property
    def gone(self) -> bool:
        return False  # they give it back themselves

    def give(self, claims: list[Claim]) -> None:
        self.capacity.answered(self, claims)

    def fail(self, error: Exception) -> None:
        self.capacity.answered(self, [])
        self.capacity.failed(error)
