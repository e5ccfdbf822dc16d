"""Placement: which node looks after which slots.

Every node has a record that it changes at each heartbeat. A node is gone when an
observer has seen that record unchanged for the full lease on the observer's own clock:
then the observer removes the record, and whoever the slots belong to by then takes them.
A node that stops in good order gives up its slots and its record at once. A node that
finds its own record gone (it was paused, or cut off) owns nothing any more, and starts
again under a new name.

Slots are divided by rendezvous hashing over the nodes alive: each node works out for
itself which slots should be its own, so a node that comes or goes moves no more slots
than it must. Two owners by mistake are possible for a moment and harmless: what they do
are versioned writes, and one of them loses.
"""

import asyncio
from collections.abc import Callable
from zlib import crc32

import msgspec

from onceward import limits
from onceward.errors import OncewardError
from onceward.keys import Key
from onceward.store import Store
from onceward.transaction import Transaction

NODES = "node"
SLOTS = "slot"
# A commit that moves this many slots stays far below the limit.
_SLOTS_AT_ONCE = 32


class Beat(msgspec.Struct):
    """A node's record: it is alive while this changes."""

    count: int


class Slot(msgspec.Struct):
    """A slot's record, changed only when it changes hands. `owner` is empty between two."""

    owner: str
    epoch: int


def slot_key(slot: int) -> Key:
    return SLOTS, f"{slot:04d}"


def rightful_owner(slot: int, nodes: list[str]) -> str:
    """The node with the highest draw for this slot."""
    return max(nodes, key=lambda node: (crc32(f"{slot}:{node}".encode()), node))


class Watchlist:
    """When each other node's record was last seen to change, by this node's own clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self, beats: dict[str, int], at_ns: int) -> None:
        self._seen = {
            node: self._seen[node]
            if node in self._seen and self._seen[node][0] == count
            else (count, at_ns)
            for node, count in beats.items()
        }

    def gone(self, at_ns: int, lease_ns: int) -> dict[str, int]:
        """Nodes unchanged for the full lease, with the count they stopped at."""
        return {
            node: count for node, (count, since) in self._seen.items() if at_ns - since >= lease_ns
        }


class Placement:
    """This node's share of the slots: `owned` is kept up to date while `run` runs."""

    def __init__(
        self,
        store: Store,
        slots: int,
        *,
        name: str = "node",
        lease_ms: int = limits.NODE_LEASE_MS,
    ) -> None:
        self.node = ""
        self.owned: set[int] = set()
        self.on_change: Callable[[set[int], set[int]], None] = lambda gained, lost: None
        """Called with the slots gained and lost, after either is true."""
        self._store = store
        self._slots = slots
        self._name = name
        self._lease_ms = lease_ms
        self._count = 0
        self._held_until_ns = 0
        self._watchlist = Watchlist()
        self._changed = asyncio.Event()
        self._stopping = False

    def holds(self, slot: int) -> bool:
        """Whether the slot is this node's, and its lease has not run out meanwhile."""
        return slot in self.owned and self._store.clock.elapsed_ns() < self._held_until_ns

    async def run(self) -> None:
        """Beat, look, take and give until `stop`. Trouble with the engine is waited out."""
        # Slots alone are watched: they change when a share does. Every beat changes a node's
        # record; nodes that answered each other's beats with beats would never rest.
        with self._store.engine.watch(SLOTS) as watch:
            watch.on_hint = self._changed.set
            while not self._stopping:
                try:
                    await self.step()
                except OncewardError as error:
                    if not error.kind.retry:
                        raise
                if not self.holds_any():
                    self._own(set())
                await self._pause()

    def holds_any(self) -> bool:
        return self._store.clock.elapsed_ns() < self._held_until_ns

    async def _pause(self) -> None:
        if self._stopping:
            return
        self._changed.clear()  # what this node's own step changed is no news
        try:
            async with asyncio.timeout(self._lease_ms / 3000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """Give up the slots and the record, so that others need not wait for the lease."""
        self._stopping = True
        self._changed.set()
        owned = sorted(self.owned)
        self._own(set())

        async def leave(tx: Transaction) -> None:
            tx.delete((NODES, self.node))

        if self.node:
            # First the record: the others leave this node out of account from then on, and
            # the slots' changes make them look.
            await self._store.run(leave)
            for start in range(0, len(owned), _SLOTS_AT_ONCE):
                await self._give(owned[start : start + _SLOTS_AT_ONCE])
            self.node = ""

    async def step(self) -> None:
        """One heartbeat, one look around, and what follows from it."""
        await self._beat()
        others = await self._store.run(self._nodes)
        now_ns = self._store.clock.elapsed_ns()
        self._watchlist.look({n: b for n, b in others.items() if n != self.node}, now_ns)
        for node, count in self._watchlist.gone(now_ns, self._lease_ms * 1_000_000).items():
            await self._bury(node, count)
            others.pop(node, None)
        nodes = sorted(others)
        if self.node not in others or self._stopping:
            return
        rightful = [s for s in range(self._slots) if rightful_owner(s, nodes) == self.node]
        surplus = sorted(self.owned - set(rightful))
        if surplus:
            self._own(self.owned - set(surplus))
        for start in range(0, len(surplus), _SLOTS_AT_ONCE):
            await self._give(surplus[start : start + _SLOTS_AT_ONCE])
        owned: set[int] = set()
        for start in range(0, len(rightful), _SLOTS_AT_ONCE):
            owned |= await self._take(rightful[start : start + _SLOTS_AT_ONCE])
        if not self._stopping:
            self._own(owned)

    async def _nodes(self, tx: Transaction) -> dict[str, int]:
        return {row.key[1]: row.value.count for row in await tx.scan(NODES, Beat)}

    async def _beat(self) -> None:
        before_ns = self._store.clock.elapsed_ns()

        async def beat(tx: Transaction) -> bool:
            key = (NODES, self.node)
            record = await tx.get(key, Beat) if self.node else None
            if record is None:
                return False
            tx.put(key, Beat(self._count + 1))
            return True

        if not await self._store.run(beat):
            # Never registered, or given up by the others: start anew under a new name.
            self._own(set())
            self.node = f"{self._name}~{self._store.ids.new()}"
            self._count = 0

            async def register(tx: Transaction) -> None:
                tx.put((NODES, self.node), Beat(1))

            await self._store.run(register)
        self._count += 1
        # The lease counts from before the renewal was sent.
        self._held_until_ns = before_ns + self._lease_ms * 1_000_000

    async def _bury(self, node: str, count: int) -> None:
        async def bury(tx: Transaction) -> None:
            beat = await tx.get((NODES, node), Beat)
            if beat is not None and beat.count == count:
                tx.delete((NODES, node))

        await self._store.run(bury)

    async def _give(self, slots: list[int]) -> None:
        async def give(tx: Transaction) -> None:
            for slot, record in await self._read(tx, slots):
                if record is not None and record.owner == self.node:
                    tx.put(slot_key(slot), Slot("", record.epoch))

        await self._store.run(give)

    async def _take(self, slots: list[int]) -> set[int]:
        """Take those of the slots that nobody alive owns; returns which are this node's now."""

        async def take(tx: Transaction) -> set[int]:
            mine = set()
            alive: dict[str, bool] = {self.node: True, "": False}
            for slot, record in await self._read(tx, slots):
                owner = record.owner if record else ""
                if owner not in alive:
                    alive[owner] = await tx.get((NODES, owner), Beat) is not None
                if owner != self.node:
                    if alive[owner]:
                        continue
                    tx.put(slot_key(slot), Slot(self.node, record.epoch + 1 if record else 1))
                mine.add(slot)
            return mine

        return await self._store.run(take)

    async def _read(self, tx: Transaction, slots: list[int]) -> list[tuple[int, Slot | None]]:
        records = await tx.get_many([slot_key(slot) for slot in slots], Slot)
        return list(zip(slots, records, strict=True))

    def _own(self, slots: set[int]) -> None:
        gained, lost = slots - self.owned, self.owned - slots
        self.owned = slots
        if gained or lost:
            self.on_change(gained, lost)
