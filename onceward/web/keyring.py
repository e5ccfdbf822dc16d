"""The keyring: API keys created while the server runs.

The database holds their digests. Each node caches them and reads them again every few seconds.
"""

from collections.abc import Callable, Collection

from onceward import ids, limits
from onceward.callers import Caller
from onceward.errors import BadInput, OncewardError
from onceward.keys import Key
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.web.auth import KEY_PREFIX, Access, admit_caller, digest_of
from onceward.web.grants import Grants, admit_scopes
from onceward.web.records import API_KEYS, StoredKey
from onceward.webhooks import suspensions

_KEY_BYTES = 32


class Keyring:
    """The keys of one database, as cached by this node."""

    def __init__(
        self, store: Store, on_removed: Callable[[Access], None] = lambda caller: None
    ) -> None:
        """`on_removed` is called with the caller of each revoked key: the object that `caller`
        returned."""
        self._store = store
        self._on_removed = on_removed
        self.keys: dict[str, StoredKey] = {}
        """The keys by digest, in hex."""
        self._callers: dict[str, Access] = {}

    def caller(self, digest: str) -> Access | None:
        """Return the caller with the key of this digest."""
        return self._callers.get(digest)

    async def run(self) -> None:
        """Reload the keys at intervals, until cancelled."""
        while True:
            await self._store.clock.sleep(limits.KEYS_S)
            try:
                await self.load()
            except OncewardError:
                pass  # the next interval retries; other checks report storage errors

    async def load(self) -> None:
        """Load all keys."""

        async def fn(tx: Transaction) -> dict[str, StoredKey]:
            rows = await tx.scan(API_KEYS, StoredKey, limit=limits.KEYS_MAX, skip_damaged=True)
            return {row.key[1]: row.value for row in rows}

        self._take(await self._store.run(fn))

    async def make(self, name: str, scopes: tuple[str, ...], by: str) -> tuple[str, str]:
        """Create a key; returns the key and its digest. The key itself is not stored. Raises
        `BadInput`."""
        try:
            admit_caller(name)
            admit_scopes(scopes)
        except OncewardError as error:
            raise BadInput(error.message, code="bad_value") from error
        if not scopes:
            raise BadInput(
                "scopes are missing; give all, or for example send:orders", code="bad_value"
            )
        if len(self.keys) >= limits.KEYS_MAX:
            raise BadInput(
                f"there are already {limits.KEYS_MAX} keys; remove one first", code="bad_value"
            )
        key = KEY_PREFIX + ids.random_bytes(_KEY_BYTES).hex()
        digest = digest_of(key).partition(":")[2]

        async def fn(tx: Transaction) -> StoredKey:
            stored = StoredKey(name, scopes, tx.now_ms, by)
            tx.put(_key(digest), stored)
            await suspensions.resume(tx, Caller("key", "", name).id)
            return stored

        self._take({**self.keys, digest: await self._store.run(fn)})
        return key, digest

    async def remove(self, digest: str, by: str, others: Collection[str] = ()) -> bool:
        """Remove a key, here immediately and on other nodes within seconds. Returns whether it
        existed.

        The removal of a caller's last key suspends the caller; `others` are callers with other
        keys.
        """

        suspended = False

        async def fn(tx: Transaction) -> str:
            nonlocal suspended
            known = await tx.get(_key(digest), StoredKey)
            if known is None:
                return ""
            tx.delete(_key(digest))
            suspended = await self._suspend_without_keys(tx, known.name, by, others)
            return known.name

        async def again(tx: Transaction) -> None:
            # The cache now includes keys that were created or removed at the same time.
            if not await self._suspend_without_keys(tx, removed, by, others) and suspended:
                await suspensions.resume(tx, Caller("key", "", removed).id)

        removed = await self._store.run(fn)
        if removed:
            await self._store.run(again)
        self._take({known: key for known, key in self.keys.items() if known != digest})
        return bool(removed)

    async def _suspend_without_keys(
        self, tx: Transaction, name: str, by: str, others: Collection[str]
    ) -> bool:
        """Suspend a caller without keys. Returns whether it has none."""
        caller = Caller("key", "", name).id
        rows = await tx.scan(API_KEYS, StoredKey, limit=limits.KEYS_MAX, skip_damaged=True)
        if caller in others or any(row.value.name == name for row in rows):
            return False
        await suspensions.suspend(tx, caller, by)
        return True

    def _take(self, found: dict[str, StoredKey]) -> None:
        before, self.keys = self._callers, found
        self._callers = {
            digest: before.get(digest) or Access(Caller("key", "", key.name), Grants.of(key.scopes))
            for digest, key in found.items()
        }
        for digest, caller in before.items():
            if digest not in found:
                self._on_removed(caller)


def _key(digest: str) -> Key:
    return API_KEYS, digest
