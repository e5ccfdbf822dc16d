"""Transfers between accounts, by many callers over a bad network, with exact accounts.

Every transfer has an id of its own, and in one commit changes two accounts and leaves a note.
So what was applied can be counted: each note once, and each balance what the notes say.
"""

import asyncio
from collections.abc import Callable

import msgspec

from onceward import keys, limits
from onceward.engine.base import Engine, Record
from onceward.errors import Contention, OutcomeUnknown, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction

ACCOUNTS = 64
START = 1_000


class Ledger:
    """What the callers were told about their transfers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self._more = asyncio.Condition()

    async def found(self) -> None:
        async def accounts(tx: Transaction) -> None:
            for key in [("account", keys.number(number)) for number in range(ACCOUNTS)]:
                tx.put(key, START)

        await self.store.run(accounts)

    async def work(self, stopped: Callable[[], bool]) -> None:
        """Transfer, one after the other, until told to stop."""
        ids = self.store.ids
        while not stopped():
            id_ = ids.new()
            source, target = int(ids.fraction() * ACCOUNTS), int(ids.fraction() * ACCOUNTS)
            try:
                await self.store.run(lambda tx: _transfer(tx, id_, source, target))  # noqa: B023
            except (Unavailable, Contention):
                self.refused.add(id_)
                await self.store.clock.sleep(0.005)
            except OutcomeUnknown:
                self.unknown.add(id_)
            else:
                self.acknowledged.add(id_)
                async with self._more:
                    self._more.notify_all()

    async def progress(self, transfers: int) -> None:
        """Wait until so many more were acknowledged."""
        enough = len(self.acknowledged) + transfers
        async with self._more:
            await self._more.wait_for(lambda: len(self.acknowledged) >= enough)

    async def audit(self, engine: Engine) -> int:
        """Assert that everyone was told the truth; returns how many transfers there are."""
        now_ms = self.store.clock.now_ms()
        accounts = await engine.scan("account", now_ms)
        balances = {record.key[1]: int(record.value) for record in accounts}
        moved = dict.fromkeys(map(keys.number, range(ACCOUNTS)), START)
        found: set[str] = set()
        for end in "0123456789ABCDEFGHJKMNPQRSTVWXYZ":
            for record in await scan_all(engine, keys.join("transfer", end), now_ms):
                source, target = msgspec.json.decode(record.value)
                found.add(record.key[1])
                moved[source] -= 1
                moved[target] += 1
        assert balances == moved, "every transfer was applied once"
        assert self.acknowledged <= found, "what was acknowledged is there"
        assert not self.refused & found, "what was refused is not"
        assert found <= self.acknowledged | self.unknown
        return len(found)


async def _transfer(tx: Transaction, id_: str, source: int, target: int) -> None:
    tx.put((keys.join("transfer", id_[-1]), id_), [keys.number(source), keys.number(target)])
    if source != target:
        for number, change in ((source, -1), (target, 1)):
            key = ("account", keys.number(number))
            tx.put(key, await tx.get(key, int) + change)


async def scan_all(engine: Engine, partition: str, now_ms: int) -> list[Record]:
    """All records of a partition, however many there are."""
    found: list[Record] = []
    start, most = "", limits.SCAN_RECORDS_MAX
    while True:
        page = await engine.scan(partition, now_ms, start=start, limit=most)
        found += page
        if len(page) < most:
            return found
        start = keys.after(page[-1].key[1])
