"""Held locks of a node, and the context manager that holds them."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward import limits
from onceward.errors import BadInput, LockLost
from onceward.locks import Request, hold_key, release_writes
from onceward.locks.renewal import Renewal
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins

if TYPE_CHECKING:
    from onceward.locks.server import Locks


class Terms(NamedTuple):
    """The parameters of a request."""

    capacities: dict[str, int]
    lease_ms: int
    wait_s: float | None
    owner: str

    @property
    def line(self) -> str:
        return f"lock {min(self.capacities)}"

    @property
    def lease_ns(self) -> int:
        return self.lease_ms * 1_000_000

    @property
    def release_room(self) -> int:
        return limits.COMMIT_WRITES_MAX - release_writes(len(self.capacities), 0)


class Lock:
    """A held lock: a token for each name, and a signal when it is lost."""

    def __init__(self, locks: "Locks", request: Request, until_ns: int) -> None:
        self.id = request.id
        self.tokens = dict(request.tokens)
        """The fencing token of each name."""
        self.lost = asyncio.Event()
        """Set when the lease has expired or another process released the lock."""
        self.reason = ""
        """The reason of the loss."""
        self.until_ns = until_ns
        self._locks = locks

    @property
    def token(self) -> int:
        """The fencing token of a lock with one name."""
        [token] = self.tokens.values()
        return token

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this node can determine by its clock."""
        return not self.lost.is_set() and self.left_s > 0

    @property
    def left_s(self) -> float:
        """The remaining seconds of the lease, without a renewal."""
        return (self.until_ns - self._locks.store.clock.elapsed_ns()) / 1e9

    @joins
    async def guard(self, tx: Transaction) -> None:
        """Make a transaction commit only while all names are held. Raises `LockLost`."""
        table = self._locks.table
        await tx.fetch([hold_key(name, token, table.slots) for name, token in self.tokens.items()])
        for name, token in self.tokens.items():
            await table.guard(tx, name, token)


class Hold:
    """The context manager of `Locks.hold`, for one use."""

    def __init__(self, locks: "Locks", terms: Terms, cancel: bool) -> None:
        self._locks = locks
        self._terms = terms
        self._cancel = cancel
        self._lock: Lock | None = None
        self._renewal: Renewal | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False

    async def __aenter__(self) -> Lock:
        if self._task is not None:
            raise BadInput(
                f"the hold of {', '.join(self._terms.capacities)[:200]} was already used; call "
                "`hold` again"
            )
        self._task = asyncio.current_task()
        assert self._task is not None
        self._lock = lock = await self._locks.acquire(self._terms)
        self._cancelling = self._task.cancelling()
        self._locks.enter(self)
        self._renewal = Renewal(self._locks, self, lock, self._terms.lease_ns)
        return lock

    def lose(self, reason: str) -> None:
        """Report the loss of the lock and cancel the task that holds it."""
        assert self._lock is not None
        assert self._task is not None
        if not self._lock.lost.is_set():
            self._lock.reason = reason
            self._lock.lost.set()
            self._locks.store.meters.count("locks_lost")
            if self._cancel:
                self._cancelled = True
                self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # Breaks the reference cycle, so that both are freed without the garbage collector.
        renewal, self._renewal = self._renewal, None
        assert self._lock is not None
        assert renewal is not None
        assert self._task is not None
        lock, terms = self._lock, self._terms
        self._locks.leave(self)
        renewal.close()
        if isinstance(error, GeneratorExit):
            return  # no task is left to wait; the lease expires
        lost = lock.lost.is_set()
        if lost:
            # Lost as far as this node can determine; other nodes may still see it held.
            self._locks.spawn(self._locks.release(lock.id, terms, lock.until_ns))
        if self._cancelled and self._task.uncancel() > self._cancelling:
            return  # also cancelled by another task
        if not lost:
            lost = not await self._locks.let_go(lock.id, terms, lock.until_ns)
            if lost:
                lock.reason = lock.reason or "it expired, or another process released it"
                lock.lost.set()
                self._locks.store.meters.count("locks_lost")
        if lost and self._cancel and (kind is None or (self._cancelled and _is_cancel(error))):
            raise LockLost(
                f"the lock on {', '.join(lock.tokens)} was lost: {lock.reason}. Acquire it again",
                id=lock.id,
            ) from error


def _is_cancel(error: BaseException | None) -> bool:
    return isinstance(error, asyncio.CancelledError)
