"""Locks on a node: waits for grants, renews leases, and reports losses.

    async with locks.hold("printer", wait_s=10) as lock:
        ...
        await store.run(write)    # `await lock.guard(tx)` in it fails if the lock is lost

Waiting is event-driven: the transaction that grants a request writes its record. Commits of this
node are reported by the store's hook, those of other nodes by a hint or the next poll. A holder
measures its lease from before it sent the last renewal, with a monotonic clock, so it stops before
other nodes consider the lease expired.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any

from onceward import limits
from onceward.engine.base import Delete, Put
from onceward.errors import (
    PASSING,
    BadInput,
    LockHeld,
    LockLost,
    OutcomeUnknown,
    TooManyWaiters,
    Unavailable,
)
from onceward.json_values import decode
from onceward.locks import (
    Head,
    LockTable,
    Request,
    Status,
    admit_names,
    admit_owner,
    request_key,
)
from onceward.locks.held import Hold, Lock, Terms
from onceward.quantities import milliseconds
from onceward.schedule import admit_lease
from onceward.schedule.wakeup import Wakeup
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins


class Locks:
    """The locks of a database, as used on this node."""

    def __init__(self, store: Store, table: LockTable) -> None:
        """The dispatchers of the nodes end expired leases."""
        self.store = store
        self.table = table
        self._followers: dict[str, Callable[[], None]] = {}
        self._own: set[str] = set()
        self._news: dict[str, bytes] = {}
        self._holds: dict[Hold, None] = {}
        self._leaving: dict[str, tuple[Terms, int]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rivals: dict[str, int] = {}
        """Lines that other nodes use as well, and until when their records are not used from
        memory."""
        self._closed = False
        self._unhook = store.on_change("ask", self._saw)

    def hold(
        self,
        *names: str,
        capacity: int | Mapping[str, int] = 1,
        lease_s: float = limits.LOCK_LEASE_MS / 1000,
        wait_s: float | None = None,
        owner: str = "",
        cancel: bool = True,
    ) -> Hold:
        """Hold all these names during an `async with` block; the lease is renewed automatically.

        Args:
            capacity: The number of concurrent holders, for all names or by name.
            lease_s: The lease in seconds: how long the names stay held after a crash.
            wait_s: The maximum time to wait; None waits without a limit.
            owner: The name of the holder, for operators.
            cancel: Whether to cancel the body and raise `LockLost` when the lease is lost.
                `lock.lost` is set in any case.

        Raises `LockHeld` when the wait is over, `BadInput` (a name in use with another capacity
        included), `TooManyWaiters`, and the errors of `Store.run`.
        """
        for name in names:
            if type(name) is not str:
                raise BadInput(
                    f"the name of a lock must be text, not {type(name).__name__}", code="bad_name"
                )
        if len(set(names)) < len(names):
            raise BadInput(f"{str(sorted(names))[:200]} has a lock twice; remove the duplicate")
        capacities = _capacities(names, capacity)
        admit_names(capacities)
        admit_owner(owner)
        lease_ms = milliseconds(lease_s, "a lease", limits.LEASE_MS_MAX / 1000)
        admit_lease(lease_ms)
        if wait_s is not None and (
            type(wait_s) not in (int, float) or not wait_s >= 0 or math.isinf(wait_s)
        ):
            raise BadInput(
                f"`wait_s` must be 0 or more seconds, or None for no limit, not {wait_s!r}"
            )
        return Hold(self, Terms(capacities, lease_ms, wait_s, owner), cancel)

    @joins
    async def guard(self, tx: Transaction, name: str, token: int) -> None:
        """Make a transaction commit only while the token holds the lock. Raises `LockLost`."""
        await self.table.guard(tx, name, token)

    @joins
    async def gate(self, tx: Transaction, resource: str, token: int) -> None:
        """Admit a token to an external resource unless a newer token was admitted."""
        await self.table.gate(tx, resource, token)

    async def status(self, name: str) -> Status | None:
        """The holders and waiters of a lock; None if it does not exist or was not used recently."""
        return await self.store.run(lambda tx: self.table.status(tx, name))

    async def find(
        self, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[tuple[str, Head]]:
        """Up to `limit` locks in use, in the order of their names, the first after `after`."""
        return await self.store.run(
            lambda tx: self.table.find(tx, prefix=prefix, after=after, most=limit)
        )

    async def close(self) -> None:
        """End all waiting and release all locks held here. Idempotent.

        Waiters get `Unavailable`, and holders `LockLost`.
        """
        if not self._closed:
            self._closed = True
            self._unhook()
        for ring in list(self._followers.values()):
            ring()
        for hold in list(self._holds):
            hold.lose("the node is stopping")
        for id_, (terms, until_ns) in self._leaving.items():
            # it ends no earlier than the first release
            self.spawn(self.release(id_, terms, until_ns))
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def acquire(self, terms: Terms, id_: str | None = None) -> Lock:
        """Acquire a lock, or wait for it. Idempotent with an `id_` from `LockTable.new_id`.

        With an id, an interrupted call leaves the request until its lease expires. Raises the
        errors of `hold`, `LockHeld`, and `LockLost` if the request with that id has ended.
        """
        clock, meters = self.store.clock, self.store.meters
        begun_ns = clock.elapsed_ns()
        try:
            lock = await self._acquire(terms, id_)
        except LockHeld:
            meters.count("lock_requests", outcome="refused")
            raise
        meters.count("lock_requests", outcome="granted")
        meters.histogram("lock_wait_seconds").observe((clock.elapsed_ns() - begun_ns) / 1e9)
        return lock

    async def _acquire(self, terms: Terms, id_: str | None) -> Lock:
        clock = self.store.clock
        over_ns = None if terms.wait_s is None else clock.elapsed_ns() + int(terms.wait_s * 1e9)
        while True:
            self._must_be_open()
            new_id = id_ or self.table.new_id(terms.capacities)
            try:
                lock = await self._stand(new_id, terms, over_ns, new=id_ is None)
            except (BadInput, TooManyWaiters, LockHeld):
                raise
            except (Exception, asyncio.CancelledError):
                if id_ is None:
                    # Cancelled or interrupted: the request may be waiting or held.
                    self.spawn(self.release(new_id, terms, clock.elapsed_ns() + terms.lease_ns))
                raise
            if lock is not None:
                return lock
            if id_ is not None:
                raise LockLost(
                    f"the request {id_} expired while it waited; acquire the locks again", id=id_
                )
            # This process was suspended for longer than the lease of the request: queue again.

    async def _stand(
        self, id_: str, terms: Terms, over_ns: int | None, *, new: bool
    ) -> Lock | None:
        before_ns = self.store.clock.elapsed_ns()
        patient = terms.wait_s is None or terms.wait_s > 0
        runs = count()

        async def ask(tx: Transaction) -> Request | None:
            self._look_for_rivals(tx, terms.line, next(runs))
            if new:
                tx.assume_absent(request_key(id_))
            tx.on_durable(partial(self._asked, request_key(id_)[0]))
            ask = self.table.join if patient else self.table.acquire
            return await ask(
                tx, terms.capacities, lease_ms=terms.lease_ms, owner=terms.owner, id_=id_
            )

        wakeup, engine = Wakeup(), self.store.engine
        self.follow(id_, wakeup.ring)
        hints = engine.watch(request_key(id_)[0]) if engine.shared else None
        if hints is not None:
            hints.others_only = True  # `_saw` reports those of this node, with the record
            hints.on_hint = wakeup.ring
        try:
            request = await self.store.run(ask, line=terms.line)
            if request is None:
                raise _held(terms)
            if request.held:
                return Lock(self, request, before_ns + terms.lease_ns)
            return await self._wait(id_, terms, over_ns, wakeup)
        finally:
            if hints is not None:
                hints.close()
            self.unfollow(id_, wakeup.ring)

    async def _wait(
        self, id_: str, terms: Terms, over_ns: int | None, wakeup: Wakeup
    ) -> Lock | None:
        """Wait for the grant. Returns None if the request has expired; raises `LockHeld` on
        timeout.
        """
        clock, pause_s = self.store.clock, 0.0
        looked_ns = renewed_ns = clock.elapsed_ns()
        while True:
            renew_ns = renewed_ns + terms.lease_ns // limits.LOCK_RENEWALS_PER_LEASE
            wakes_ns = [renew_ns] if over_ns is None else [renew_ns, over_ns]
            if self.store.engine.shared:
                wakes_ns.append(looked_ns + self._poll_ns())
            if await wakeup.rest(clock, min(wakes_ns)):
                continue
            self._must_be_open()
            wakeup.rung = False
            if (lock := self._granted_here(id_, terms)) is not None:
                return lock
            looked_ns = clock.elapsed_ns()
            over = over_ns is not None and looked_ns >= over_ns
            try:
                request = await self._look(id_, over=over, renew=looked_ns >= renew_ns)
            except PASSING as error:
                if over:
                    self.spawn(self.release(id_, terms, looked_ns + terms.lease_ns))
                    raise _held(terms) from error
                pause_s = min(2 * pause_s + 0.01, limits.POLL_S)
                await clock.sleep(pause_s)
                wakeup.ring()
                continue
            pause_s = 0.0
            if request is not None and request.held:
                return Lock(self, request, looked_ns + terms.lease_ns)
            if over:
                raise _held(terms)
            if request is None:
                return None
            if looked_ns >= renew_ns:
                renewed_ns = looked_ns

    def _granted_here(self, id_: str, terms: Terms) -> Lock | None:
        """A lock that a commit of this node granted.

        Its lease uses the clock of this node, so its end is known without a renewal.
        """
        key = request_key(id_)
        news = self._news.pop(key[0], None)
        if news is None:
            return None
        clock, request = self.store.clock, decode(news, Request, key)
        left_ms = request.until_ms - clock.now_ms()
        if not request.held or left_ms < terms.lease_ms // 2:
            return None
        return Lock(self, request, clock.elapsed_ns() + left_ms * 1_000_000)

    async def _look(self, id_: str, *, over: bool, renew: bool) -> Request | None:
        async def look(tx: Transaction) -> Request | None:
            await tx.fetch(self.table.read_to_renew(id_))
            request = await (self.table.withdraw(tx, id_) if over else self.table.get(tx, id_))
            if request is not None and (request.held or renew):
                # After its own renewal, a holder knows the start of its lease: the grant may have
                # been delayed.
                await self.table.renew(tx, id_)
            return request

        return await self.store.run(look)

    async def release(self, id_: str, terms: Terms, until_ns: int) -> bool:
        """End a request in any state; return whether it existed until then.

        While the engine is unavailable, it retries until the lease has expired.
        """
        clock, pause_s, unknown, runs = self.store.clock, 0.0, False, count()

        async def release(tx: Transaction) -> None:
            self._look_for_rivals(tx, terms.line, next(runs))
            await tx.fetch_unknown(self.table.read_to_release(id_, terms.capacities))
            await self.table.release(tx, id_, room=terms.release_room)

        while True:
            try:
                await self.store.run(release, line=terms.line)
                return True
            except LockLost:
                return unknown
            except PASSING as error:
                unknown = unknown or isinstance(error, OutcomeUnknown)
                pause_s = min(2 * pause_s + 0.01, limits.POLL_S)
                if clock.elapsed_ns() + pause_s * 1e9 >= until_ns:
                    return True
            await clock.sleep(pause_s)

    def _look_for_rivals(self, tx: Transaction, line: str, conflicts: int) -> None:
        """Read from the database after a conflict, and for a while after that: the copies in memory
        of a lock that several nodes use are useless."""
        if not tx.keeps or (line not in self._rivals and not conflicts):
            return
        now_ns = self.store.clock.elapsed_ns()
        if conflicts:
            if len(self._rivals) >= limits.LOCK_KEYS_KEPT:
                self._rivals.clear()
            self._rivals[line] = now_ns + int(limits.LOCK_RIVALS_S * 1e9)
        if self._rivals[line] > now_ns:
            tx.keeps = False
        else:
            del self._rivals[line]

    async def let_go(self, id_: str, terms: Terms, until_ns: int) -> bool:
        """`release` that continues in the background if the caller is cancelled."""
        self._leaving[id_] = terms, until_ns
        try:
            return await self.release(id_, terms, until_ns)
        except asyncio.CancelledError:
            self.spawn(self.release(id_, terms, until_ns))
            raise
        finally:
            del self._leaving[id_]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a task to its end, even if the caller is cancelled."""
        task = asyncio.create_task(work, name="onceward-locks")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a stopped engine is reported elsewhere

    def enter(self, hold: Hold) -> None:
        self._holds[hold] = None

    def leave(self, hold: Hold) -> None:
        self._holds.pop(hold, None)

    def follow(self, id_: str, ring: Callable[[], None]) -> None:
        """Call `ring` when a commit of this node has changed the record of a request."""
        self._followers[request_key(id_)[0]] = ring

    def unfollow(self, id_: str, ring: Callable[[], None]) -> None:
        """Remove the callback. Idempotent."""
        partition = request_key(id_)[0]
        self._own.discard(partition)
        self._news.pop(partition, None)
        if self._followers.get(partition) == ring:
            del self._followers[partition]

    def _asked(self, partition: str) -> None:
        """Mark a durable request, so that `_saw` ignores its own commit. The caller may be gone."""
        if partition in self._followers:
            self._own.add(partition)

    def _saw(self, write: Put | Delete) -> None:
        """Wake the request that a durable commit of this node has changed."""
        partition = write.key[0]
        ring = self._followers.get(partition)
        if ring is None:
            return
        if partition in self._own:
            self._own.discard(partition)  # its own commit, which is known
            return
        if type(write) is Put:
            self._news[partition] = write.value
        ring()

    def _poll_ns(self) -> int:
        period_s = max(limits.POLL_S, len(self._followers) / limits.POLL_SCANS_PER_S)
        return int(period_s * 1e9)

    def _must_be_open(self) -> None:
        if self._closed:
            raise Unavailable("the node is stopping; use another one", code="node_stopped")


def _capacities(names: tuple[str, ...], capacity: int | Mapping[str, int]) -> dict[str, int]:
    if not isinstance(capacity, Mapping):
        return dict.fromkeys(names, capacity)
    others = [name for name in capacity if name not in names]
    if others:
        raise BadInput(
            f"`capacity` names {others[0]!r}, which is not among the requested locks; omit it"
        )
    return {name: capacity.get(name, 1) for name in names}


def _held(terms: Terms) -> LockHeld:
    names = ", ".join(terms.capacities)
    waited = f" for {terms.wait_s} s" if terms.wait_s else ""
    return LockHeld(
        f"another holder has the lock on {names}{waited}; retry later", names=list(terms.capacities)
    )
