"""Operations on locks: named leases with fencing tokens."""

from typing import Annotated

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.jobs import LeaseMs
from onceward.api.messages import WaitMs
from onceward.api.operation import Body, Operation, Query


class AcquireLocks(Body):
    """The names to lock: all of them, or none."""

    names: list[str]
    """The names of the locks."""
    owner: str = ""
    """The name of the holder, shown with the lock."""
    lease_ms: LeaseMs = limits.LOCK_LEASE_MS
    """The length of the lease."""
    wait_ms: WaitMs = 0
    """How long to wait for the locks."""
    capacity: Annotated[int, Meta(ge=1, le=limits.LOCK_CAPACITY_MAX)] = 1
    """How many holders a name can have at the same time."""
    request: str | None = None
    """26 letters and digits, chosen by the client. Requests with the same value are one request,
    so that a client can retry after a timeout."""
    keep_place: bool = False
    """Whether the waiter keeps its place in the queue when the wait is over, for another request
    with the same `request`. It keeps the place until its lease ends."""


class HeldLocks(msgspec.Struct):
    """Locks that are held until the lease ends. Renew the lease to keep them."""

    id: str
    """Renew and release the locks by this id."""
    token: int
    """The fencing token of the first name."""
    tokens: dict[str, int]
    """The fencing tokens by name."""
    lease_until_ms: int


class RenewLocks(Body):
    """A longer lease."""

    id: str
    """The id that `acquire` returned."""
    lease_ms: LeaseMs | None = None
    """The length of the lease, from now. By default, as before."""


class RenewedLocks(msgspec.Struct):
    """The end of the lease."""

    lease_until_ms: int


class ReleaseLocks(Body):
    """Locks to release."""

    id: str
    """The id that `acquire` returned."""


class ReleasedLocks(msgspec.Struct):
    """Whether the locks were held, or waited for, until now."""

    released: bool


class LockHolder(msgspec.Struct):
    """A holder of a lock, or a waiter."""

    owner: str
    since_ms: int
    number: int
    """The token of a holder, or the position of a waiter."""


class Lock(msgspec.Struct):
    """A lock with its holders and waiters, in order."""

    name: str
    capacity: int
    token: int
    """The last token that was granted."""
    held: int
    waiting: int
    holders: list[LockHolder]
    waiters: list[LockHolder]


class FindLocks(Query):
    """Which locks to list."""

    prefix: str = ""
    """The beginning of the names."""
    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""


class LockSummary(msgspec.Struct):
    """A lock in a list."""

    name: str
    capacity: int
    token: int
    held: int
    waiting: int
    used_ms: int


class LockPage(msgspec.Struct):
    """Locks that were used recently, by name."""

    locks: list[LockSummary]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


ACQUIRE = Operation(
    name="locks.acquire",
    method="POST",
    path="/v1/locks/acquire",
    summary="Acquire locks, all or none",
    scope="lock:{each name}",
    body=AcquireLocks,
    response=HeldLocks,
    errors=("bad_name", "bad_key", "lock_held", "too_many_waiters", "lock_capacity", "lock_lost"),
    waits=True,
    fills=("request",),
)

RENEW = Operation(
    name="locks.renew",
    method="POST",
    path="/v1/locks/renew",
    summary="Renew the lease of locks",
    scope="lock:{each name}",
    body=RenewLocks,
    response=RenewedLocks,
    errors=("bad_key", "lock_lost"),
    returns="lease_until_ms",
)

RELEASE = Operation(
    name="locks.release",
    method="POST",
    path="/v1/locks/release",
    summary="Release locks",
    scope="lock:{each name}",
    body=ReleaseLocks,
    response=ReleasedLocks,
    errors=("bad_key",),
    returns="released",
    done_member="released",
)

LIST = Operation(
    name="locks.list",
    method="GET",
    path="/v1/locks",
    summary="List recently used locks",
    scope="lock:{each name}",
    query=FindLocks,
    response=LockPage,
    errors=("bad_name",),
)

GET = Operation(
    name="locks.get",
    method="GET",
    path="/v1/locks/{name}",
    summary="Show a lock with its holders and waiters",
    scope="lock:{name}",
    response=Lock,
    errors=("no_such_lock", "bad_name"),
)
