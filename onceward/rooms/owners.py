"""The owner of a room: the node that holds the slot of the room's ID.

On a shared database each node publishes its address in a record with a secret, encrypted with the
server key that all nodes have. A node that presents the secret proves that it belongs to the
cluster. If two nodes serve a room for a moment, no harm is done: steps are versioned writes. A node
that has lost a room does not retry a commit of its steps, since the next owner may have rejected
them.
"""

import asyncio
from contextlib import suppress
from hmac import compare_digest
from zlib import crc32

import msgspec

from onceward import limits
from onceward.errors import PASSING, SecretUnreadable, Unavailable
from onceward.json_values import decode
from onceward.keys import Key
from onceward.schedule.placement import Placement, SlotOwner, slot_key
from onceward.store import Store
from onceward.store.transaction import Transaction

HUBS = "hub"


class Address(msgspec.Struct, frozen=True):
    """The address of a node's hub, and the secret to present there."""

    url: str
    secret: str


class Owners:
    """Determines which node serves a room."""

    def __init__(self, store: Store, placement: Placement) -> None:
        self._store = store
        self._placement = placement
        self._secret = store.ids.token()
        self._announcing: asyncio.Task[None] | None = None

    def slot(self, id_: str) -> int:
        return crc32(id_.encode()) % self._placement.slots

    def own(self, id_: str) -> bool:
        """Whether this node serves a room."""
        return not self._store.engine.shared or self._placement.holds(self.slot(id_))

    def is_node(self, secret: str) -> bool:
        """Whether a caller presented this node's secret."""
        return compare_digest(secret.encode(), self._secret.encode())

    def announce(self, url: str) -> None:
        """Start to publish the address of this node."""
        if self._store.engine.shared and self._announcing is None:
            self._announcing = asyncio.create_task(self._announce(url), name="onceward-address")

    async def close(self) -> None:
        """Stop publishing the address. Idempotent."""
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.wait([self._announcing])
            self._announcing = None

    async def find(self, id_: str) -> Address:
        """The address of the node that serves a room.

        Raises `Unavailable` if the room has no owner at this time, or the owner has not published
        its address.
        """
        now_ms = self._store.clock.now_ms()
        slot = slot_key(self.slot(id_))
        [record] = await self._store.engine.get([slot], now_ms)
        owner = "" if record is None else decode(record.value, SlotOwner, slot).owner
        if owner and owner != self._placement.node:
            key: Key = (HUBS, owner)
            [record] = await self._store.engine.get([key], now_ms)
            if record is not None:
                address: Address = decode(record.value, Address, key)
                with suppress(SecretUnreadable):  # its node has just received another key
                    secret = self._store.server_keys.decrypt(address.secret, *key)
                    return Address(address.url, secret)
        raise Unavailable("the room is moving to another node; try again", code="room_moved")

    async def _announce(self, url: str) -> None:
        async def tell(tx: Transaction) -> None:
            expires_ms = tx.now_ms + limits.ADDRESS_MS
            key: Key = (HUBS, self._placement.node)
            address = Address(url, tx.server_keys.encrypt(self._secret, *key))
            tx.put(key, address, expires_at_ms=expires_ms)

        while True:
            told = self._placement.node
            try:
                if told:
                    await self._store.run(tell)
            except PASSING:
                told = ""
            # The node gets a new name when other nodes have declared it failed.
            for _ in range(limits.ADDRESS_LOOKS):
                await self._store.clock.sleep(limits.ADDRESS_MS / 3_000 / limits.ADDRESS_LOOKS)
                if self._placement.node != told:
                    break
