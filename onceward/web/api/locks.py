"""HTTP functions for locks: clients renew a lease by its ID."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from onceward import keys, limits
from onceward.api import locks as api
from onceward.errors import BadInput, LockHeld, Unavailable
from onceward.ids import LENGTH
from onceward.locks import Request as LockRequest
from onceward.locks import Stand, admit_names, admit_owner
from onceward.locks.held import Lock as HeldLock
from onceward.locks.held import Terms
from onceward.locks.records import Head, name_slot
from onceward.observe.paging import page_of
from onceward.store.transaction import Transaction
from onceward.web.auth import Access
from onceward.web.calls import Call, binder
from onceward.web.routes import Route

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.ACQUIRE)
async def acquire(call: Call, asked: api.AcquireLocks) -> api.HeldLocks:
    for name in asked.names:
        _admit(name)
        call.caller.insist("lock", name)
    if len(set(asked.names)) < len(asked.names):
        raise BadInput(f"{str(sorted(asked.names))[:200]} has a lock twice; remove the duplicate")
    capacities = dict.fromkeys(asked.names, asked.capacity)
    admit_names(capacities)
    owner = asked.owner or call.caller.user
    admit_owner(owner)
    if asked.keep_place and asked.request is None:
        raise BadInput("keep_place needs the member request, which identifies the waiter")
    wait_s = None if asked.keep_place else asked.wait_ms / 1000
    terms = Terms(capacities, asked.lease_ms, wait_s, owner)
    locks, store = call.app.locks, call.app.store
    id_ = None
    if asked.request is not None:
        _admit_request(asked.request)
        # Scoped to the caller and signed, so that other callers cannot derive the id that releases
        # it.
        mark = store.server_keys.sign("lock", keys.join(call.caller.id, asked.request))
        id_ = f"{mark[:LENGTH]}{name_slot(min(capacities), locks.table.slots):03x}"
    acquiring = locks.acquire(terms, id_)
    if asked.keep_place:
        acquiring = _within(asked.wait_ms / 1000, acquiring, asked.names)
    waits = asked.wait_ms or asked.keep_place
    lock = await (call.patiently(acquiring) if waits else acquiring)
    if lock is None:
        # The waiter keeps its place until its lease ends, for a retry with the same request id.
        raise Unavailable("the server is stopping; retry", code="node_stopped")
    until_ms = store.clock.now_ms() + int(lock.left_s * 1000)
    return api.HeldLocks(lock.id, lock.tokens[asked.names[0]], lock.tokens, until_ms)


async def _within(
    wait_s: float, acquiring: Coroutine[Any, Any, HeldLock], names: list[str]
) -> HeldLock:
    """A cancelled request with an id stays in the queue until its lease ends."""
    try:
        async with asyncio.timeout(wait_s):
            return await acquiring
    except TimeoutError:
        raise LockHeld(
            f"another holder has the lock on {', '.join(names)}; repeat this request, which "
            "keeps its place"
        ) from None


@answers(api.RENEW)
async def renew(call: Call, asked: api.RenewLocks) -> api.RenewedLocks:
    table = call.app.locks.table

    async def fn(tx: Transaction) -> int:
        await tx.fetch(table.read_to_renew(asked.id))
        _insist(call.caller, await table.get(tx, asked.id))
        return await table.renew(tx, asked.id, asked.lease_ms)

    return api.RenewedLocks(await call.app.store.run(fn))


@answers(api.RELEASE)
async def release(call: Call, asked: api.ReleaseLocks) -> api.ReleasedLocks:
    table = call.app.locks.table

    async def fn(tx: Transaction) -> bool:
        held = await table.get(tx, asked.id)
        if held is None:
            return False
        _insist(call.caller, held)
        await table.release(tx, asked.id)
        return True

    return api.ReleasedLocks(await call.app.store.run(fn))


@answers(api.GET)
async def get(call: Call, name: str) -> api.Lock:
    found = await call.app.locks.status(name)
    if found is None:
        raise BadInput(f"lock {name!r} not found; check its name", code="no_such_lock", name=name)
    holders, waiters = _shown(found.holders), _shown(found.waiters)
    return api.Lock(name, found.capacity, found.token, found.held, found.waiting, holders, waiters)


@answers(api.LIST)
async def list_(call: Call, asked: api.FindLocks) -> api.LockPage:
    after = call.unseal("after", asked.after)
    if asked.prefix:
        keys.admit_name(asked.prefix, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
    if not call.caller.grants.for_any("lock"):
        return api.LockPage([], None)

    async def read(after: str, most: int) -> list[tuple[str, tuple[str, Head]]]:
        found = await call.app.locks.find(prefix=asked.prefix, after=after, limit=most)
        return [(name, (name, head)) for name, head in found]

    found, next_ = await page_of(
        call.app.store.clock,
        read,
        lambda lock: call.caller.may("lock", lock[0]),
        after=after,
        limit=asked.limit,
    )
    lines = [
        api.LockSummary(name, head.capacity, head.token, head.held, head.waiting, head.used_ms)
        for name, head in found
    ]
    return api.LockPage(lines, call.seal(next_))


def _shown(stands: list[Stand]) -> list[api.LockHolder]:
    """Without the lease ids, since an id is enough to release the lock."""
    return [api.LockHolder(stand.owner, stand.since_ms, stand.number) for stand in stands]


def _insist(caller: Access, request: LockRequest | None) -> None:
    for name in [] if request is None else request.names:
        caller.insist("lock", name)


def _admit(name: str) -> None:
    if "\x00" in name:
        raise BadInput(
            f"the name {name[:100]!a} of a lock contains NUL; remove it", code="bad_name"
        )


def _admit_request(made_up: str) -> None:
    if len(made_up) != LENGTH or not (made_up.isascii() and made_up.isalnum()):
        raise BadInput(
            f"`request` must be {LENGTH} letters and digits that the caller generates, not "
            f"{made_up[:100]!a}"
        )
