"""A process to be killed: it sends items with batch keys, and runs the batches.

Run as `python -m tests.batch_child URL NAME`. It prints a line for each item that it has sent, and
ends by itself when all batches have ended.
"""

import asyncio
import sys
from typing import Any

import uvloop

from onceward.app import App
from onceward.keys import Key
from onceward.store.transaction import Transaction
from onceward.work.inbox import Receipt
from onceward.work.job import Job

ITEMS = 300
SIZE = 10
LEASE_S = 1.0
_SENDERS = 6
_GROUP = 5


def effect_key(item: int) -> Key:
    """Where the effects of an item are counted."""
    return "effect", str(item)


def options(item: int) -> dict[str, Any]:
    return {
        "key": f"item {item}",
        "batch_key": f"k{item % 4}",
        "batch_s": 0.1,
        "batch_size": SIZE,
    }


class Child:
    """The application."""

    def __init__(self, url: str, name: str) -> None:
        self.app = App(url, name=name, slots=4, node_lease_s=LEASE_S, drain_s=LEASE_S)
        self.app.handler("work", lease_s=LEASE_S, concurrency=4, attempts_max=0)(self.work)
        self.ids: set[str] = set()

    async def work(self, job: Job) -> None:
        for item in job.body:
            key = effect_key(item)
            job.tx.put(key, (await job.tx.get(key) or 0) + 1)

    async def send(self, sender: int) -> None:
        """Send a share of the items: alone, together, and in a transaction."""
        mine = range(sender, ITEMS, _SENDERS)
        for start in range(0, len(mine), _GROUP):
            group = mine[start : start + _GROUP]
            if sender % 3 == 0:
                receipts = [await self.app.send("work", item, **options(item)) for item in group]
            elif sender % 3 == 1:
                verdicts = await self.app.send_many(
                    "work", [{"body": item, **options(item)} for item in group]
                )
                receipts = [one for one in verdicts if isinstance(one, Receipt)]
                assert len(receipts) == len(group), verdicts
            else:
                receipts = await self.app.run(lambda tx, group=group: self.send_within(tx, group))
            for receipt in receipts:
                self.ids.add(receipt.id)
                print(receipt.id, flush=True)

    async def send_within(self, tx: Transaction, group: range) -> list[Receipt]:
        return [await self.app.send("work", item, tx=tx, **options(item)) for item in group]

    async def run(self) -> None:
        async with self.app as app:
            await asyncio.gather(*[self.send(sender) for sender in range(_SENDERS)])
            for id_ in self.ids:
                await app.wait(id_)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Child(*sys.argv[1:]).run())
