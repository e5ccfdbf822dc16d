"""Placement: assignment of slots to nodes by heartbeats and rendezvous hashing.

Every node has a record that it changes with each heartbeat. A node counts as gone when an observer
has seen its record unchanged for the full lease, measured by the observer's clock. The observer
then removes the record, and the nodes that the slots now belong to take them. A node that stops
normally gives up its record and its slots immediately. A node that finds its own record removed
(after a pause or a network failure) owns nothing, and registers under a new name; names are never
reused.

Slots are divided evenly by rendezvous hashing over the live nodes. Each node computes its own
share, gives up other slots, and takes the slots of its share that have no live owner. The commit
that takes a slot checks the records of the taker and of the previous owner. Two nodes may briefly
both act as owner of a slot. That is harmless: they use versioned writes, and one of them fails.
"""

import asyncio
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from onceward import limits
from onceward.errors import PASSING, OncewardError
from onceward.json_values import decode
from onceward.keys import Key
from onceward.store import Store
from onceward.store.transaction import Transaction

NODES = "node"
SLOTS = "slot"
# Each slot may have a different owner, whose record is checked as well.
_SLOTS_AT_ONCE = 48
# One write per node.
_NODES_AT_ONCE = limits.COMMIT_WRITES_MAX


class Heartbeat(msgspec.Struct):
    """The record of a node. The node is alive while the count grows."""

    count: int
    lease_ms: int = limits.NODE_LEASE_MS
    """The node counts as gone after this time without a change."""


class SlotOwner(msgspec.Struct):
    """The record of a slot, changed with its owner. `owner` is empty between two owners."""

    owner: str
    epoch: int


def slot_key(slot: int) -> Key:
    return SLOTS, f"{slot:04d}"


def divide(slots: int, nodes: Iterable[str]) -> dict[str, set[int]]:
    """The share of each node; all nodes compute the same result.

    Each slot goes to the node with the highest draw for it that has capacity left. Shares differ by
    as little as possible, and few slots move when a node joins or leaves.
    """
    shares: dict[str, set[int]] = {node: set() for node in nodes}
    room = -(-slots // len(shares))
    for slot in range(slots):
        nodes_left = [node for node in shares if len(shares[node]) < room]
        shares[max(nodes_left, key=lambda node: _draw(slot, node))].add(slot)
    return shares


def _draw(slot: int, node: str) -> tuple[bytes, str]:
    return blake2b(f"{slot}:{node}".encode(), digest_size=8).digest(), node


class Watchlist:
    """How long each other node's record has been unchanged, by this node's own clock.

    Between two looks at most one heartbeat interval of the other node is counted. If this node
    could not look for a while because the engine was unavailable, other nodes may have been unable
    to send heartbeats.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Heartbeat, int]] = {}
        self._looked_ns = 0

    def look(self, beats: dict[str, Heartbeat], at_ns: int) -> None:
        """Note heartbeats that were read before `at_ns`."""
        passed_ns = at_ns - self._looked_ns
        self._looked_ns = at_ns
        before, self._seen = self._seen, {}
        for node, beat in beats.items():
            unchanged_ns = 0
            if node in before and before[node][0] == beat:
                beat_ns = beat.lease_ms * 1_000_000 // limits.BEATS_PER_LEASE
                unchanged_ns = before[node][1] + min(passed_ns, beat_ns)
            self._seen[node] = beat, unchanged_ns

    @property
    def gone(self) -> dict[str, Heartbeat]:
        """Nodes whose heartbeat was unchanged for their full lease, with that heartbeat."""
        return {
            node: beat
            for node, (beat, unchanged_ns) in self._seen.items()
            if unchanged_ns >= beat.lease_ms * 1_000_000
        }


class Placement:
    """This node's share of the slots; `run` keeps `owned` up to date."""

    def __init__(
        self,
        store: Store,
        slots: int,
        *,
        name: str = "node",
        lease_ms: int = limits.NODE_LEASE_MS,
    ) -> None:
        self.node = ""
        """The name of this node's record; empty while it has none."""
        self.slots = slots
        self.owned: set[int] = set()
        self._store = store
        self._name = name
        self._lease_ms = lease_ms
        self._stepped_ns = 0
        self._held_until_ns = 0
        self._watchlist = Watchlist()
        self._divided: tuple[tuple[str, ...], dict[str, set[int]]] = ((), {})
        self._changed = asyncio.Event()
        self._hooks: list[Callable[[set[int], set[int]], None]] = []
        self._stopping = False
        store.on_stopped = self._changed.set

    def on_change(self, hook: Callable[[set[int], set[int]], None]) -> None:
        """Call `hook` with the slots gained and lost at each change; it must not raise."""
        self._hooks.append(hook)

    def holds(self, slot: int) -> bool:
        """Whether this node owns the slot and its lease is valid."""
        return slot in self.owned and self._holds_lease()

    async def run(self) -> None:
        """Send heartbeats, take slots and give up slots until `stop`; then give up all slots.

        Waits while the engine is unavailable. After a full lease without the engine, it owns
        nothing, unless no other process can use the database. Then it needs no heartbeats: it only
        checks now and then, and after a failed commit, that the engine works.
        """
        # Only slots are watched: they change when a share does. Records of nodes change with every
        # heartbeat; watching them would make nodes react to each other's heartbeats without end.
        with self._store.engine.watch(SLOTS) as watch:
            watch.on_hint = self._changed.set
            while not self._stopping:
                self._changed.clear()
                self._stepped_ns = self._store.clock.elapsed_ns()
                steps = limits.BEATS_PER_LEASE
                alone = not self._store.engine.shared and self._holds_lease()
                try:
                    await (self._read(NODES, Heartbeat) if alone else self.step())
                except PASSING:
                    steps = limits.BEAT_TRIES_PER_LEASE
                if not self._holds_lease():
                    self._own(set())
                await self._pause(limits.IDLE_S if alone else self._lease_ms / steps / 1000)
        await self._leave()

    def stop(self) -> None:
        """End `run`."""
        self._stopping = True
        self._changed.set()

    async def step(self) -> None:
        """Send one heartbeat, read those of the other nodes, and take or give up slots."""
        await self._beat()
        alive = await self._look()
        if self.node not in alive:
            return  # another node has removed this one since the heartbeat; the next one notices
        rightful = self._share(alive)
        owners = {int(sort): slot.owner for sort, slot in await self._read(SLOTS, SlotOwner)}
        mine = {slot for slot, owner in owners.items() if owner == self.node}
        surplus = sorted(mine - rightful)
        self._own(mine & rightful)
        for start in range(0, len(surplus), _SLOTS_AT_ONCE):
            await self._give(surplus[start : start + _SLOTS_AT_ONCE])
        free = sorted(slot for slot in rightful - mine if owners.get(slot) not in alive)
        for start in range(0, len(free), _SLOTS_AT_ONCE):
            taken = await self._take(free[start : start + _SLOTS_AT_ONCE])
            self._own(self.owned | taken)

    async def _pause(self, step_s: float) -> None:
        # Always yield to other tasks.
        await asyncio.sleep(0)
        # Measured from the start of one heartbeat to the next, including times of suspension.
        passed_ns = self._store.clock.elapsed_ns() - self._stepped_ns
        left_s = step_s - passed_ns / 1e9
        try:
            async with asyncio.timeout(max(left_s, 0)):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> None:
        before_ns = self._store.clock.elapsed_ns()

        async def beat(tx: Transaction) -> bool:
            key = (NODES, self.node)
            [record] = (
                await tx.get_many([key], Heartbeat, skip_damaged=True) if self.node else [None]
            )
            if record is None:
                return False
            tx.put(key, Heartbeat(record.count + 1, self._lease_ms))
            return True

        if not await self._store.run(beat):
            # Not registered yet, or removed by other nodes: register under a new name.
            self._own(set())
            self.node = f"{self._name}~{self._store.ids.new()}"

            async def register(tx: Transaction) -> None:
                tx.put((NODES, self.node), Heartbeat(1, self._lease_ms))

            await self._store.run(register)
        # The lease counts from before the renewal was sent.
        self._held_until_ns = before_ns + self._lease_ms * 1_000_000

    async def _look(self) -> set[str]:
        """The names of live nodes; removes the records of the others."""
        beats: dict[str, Heartbeat] = dict(await self._read(NODES, Heartbeat))
        alive = set(beats)
        beats.pop(self.node, None)
        gone = beats  # on a single-process database, all other nodes are earlier processes
        if self._store.engine.shared:
            self._watchlist.look(beats, self._store.clock.elapsed_ns())
            gone = self._watchlist.gone
        nodes = sorted(gone)
        for start in range(0, len(nodes), _NODES_AT_ONCE):
            some = {node: gone[node] for node in nodes[start : start + _NODES_AT_ONCE]}
            alive -= await self._bury(some)
        return alive

    async def _bury(self, gone: dict[str, Heartbeat]) -> set[str]:
        """Remove the records of nodes, except those that have changed since; returns the removed.

        Several share a commit: a crash loop leaves many, and this node's lease must not expire
        while it removes them.
        """

        async def bury(tx: Transaction) -> set[str]:
            beats = await tx.get_many(
                [(NODES, node) for node in gone], Heartbeat, skip_damaged=True
            )
            buried: set[str] = set()
            for (node, last), beat in zip(gone.items(), beats, strict=True):
                if beat is None or beat.count == last.count:
                    tx.delete((NODES, node))
                    buried.add(node)
            return buried

        return await self._store.run(bury)

    def _share(self, alive: set[str]) -> set[int]:
        nodes = tuple(sorted(alive))
        if self._divided[0] != nodes:
            self._divided = nodes, divide(self.slots, nodes)
        return self._divided[1][self.node]

    async def _give(self, slots: list[int]) -> None:
        async def give(tx: Transaction) -> None:
            records = await tx.get_many(
                [slot_key(slot) for slot in slots], SlotOwner, skip_damaged=True
            )
            for slot, record in zip(slots, records, strict=True):
                if record is not None and record.owner == self.node:
                    tx.put(slot_key(slot), SlotOwner("", record.epoch))

        await self._store.run(give)

    async def _take(self, slots: list[int]) -> set[int]:
        """Take those of the slots that have no live owner; returns them."""

        async def take(tx: Transaction) -> set[int]:
            taken: set[int] = set()
            if await tx.get((NODES, self.node), Heartbeat) is None:
                return taken
            records = await tx.get_many(
                [slot_key(slot) for slot in slots], SlotOwner, skip_damaged=True
            )
            owners = sorted({record.owner for record in records if record and record.owner})
            beats = await tx.get_many(
                [(NODES, owner) for owner in owners], Heartbeat, skip_damaged=True
            )
            alive = {owner for owner, beat in zip(owners, beats, strict=True) if beat}
            for slot, record in zip(slots, records, strict=True):
                if record is None or record.owner not in alive:
                    tx.put(slot_key(slot), SlotOwner(self.node, record.epoch + 1 if record else 1))
                    taken.add(slot)
            return taken

        return await self._store.run(take)

    async def _leave(self) -> None:
        """Give up the record and the slots, so that other nodes need not wait for the lease."""
        owned = sorted(self.owned)
        self._own(set())

        async def leave(tx: Transaction) -> None:
            tx.delete((NODES, self.node))

        try:
            # The record goes first: the other nodes then exclude this one, and the changed slots
            # make them recompute their shares.
            if self.node:
                await self._store.run(leave)
            for start in range(0, len(owned), _SLOTS_AT_ONCE):
                await self._give(owned[start : start + _SLOTS_AT_ONCE])
        except PASSING:
            pass  # the database is unreachable: other nodes take over when the lease expires

    async def _read(self, partition: str, type: type[msgspec.Struct]) -> list[tuple[str, Any]]:
        # Bypasses the store: transactions check the result again before they act on it.
        records = await self._store.engine.scan(
            partition,
            self._store.clock.now_ms(),
            limit=limits.SCAN_RECORDS_MAX,
            skip_damaged=True,
        )
        found: list[tuple[str, Any]] = []
        for record in records:
            try:
                found.append((record.key[1], decode(record.value, type, record.key)))
            except OncewardError as error:
                # A node without a heartbeat is gone, and a slot without a readable owner is free.
                self._store.alarms.damaged(record.key, error.message)
        return found

    def _holds_lease(self) -> bool:
        if not self._store.engine.shared:
            return self._held_until_ns > 0
        return self._store.clock.elapsed_ns() < self._held_until_ns

    def _own(self, slots: set[int]) -> None:
        gained, lost = slots - self.owned, self.owned - slots
        self.owned = slots
        if gained or lost:
            for hook in self._hooks:
                hook(gained, lost)
