"""The scenario for SQL outboxes and SQL steps: one shop database beside Onceward's.

Clients run transactions in the shop that enqueue messages; some are rolled back, some commit late.
Row ids are those of PostgreSQL or SQLite, chosen by the seed. Every committed row must become one
job, in the order of commits for each order key, and its SQL step must take effect once.
"""

import asyncio
import json
import random
import sqlite3
import weakref
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from onceward.app import App
from onceward.errors import NotFailed, Retry, Unavailable
from onceward.sql.messages import Row
from onceward.sql.schema import statements
from onceward.sql.sources import Removal
from onceward.store.transaction import Transaction
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.world import Node
from onceward.work.job import Job


class ShopDatabase:
    """The database of the application, unaffected by crashes of nodes."""

    def __init__(self, *, ids_return: bool) -> None:
        self.rows: dict[int, Row] = {}
        self.committed: list[tuple[str, str | None]] = []
        """Bodies and order keys in the order of commits."""
        self.failed: list[str] = []
        self.tables = sqlite3.connect(":memory:")
        """The tables of SQL steps, and one of the application."""
        weakref.finalize(self, self.tables.close)
        for statement in (*statements("sqlite"), "CREATE TABLE paid (body TEXT)"):
            self.tables.execute(statement)
        self._ids_return = ids_return
        self._last_id = 0
        self._locks: dict[str, asyncio.Lock] = {}

    async def transaction(self, body: str, order_key: str | None, random: random.Random) -> bool:
        """Enqueue a message, and commit after a while or roll back; returns whether it committed.
        The id is drawn as by the database: behind the lock of the order key, and on SQLite by the
        only writer."""
        lock = self._locks.setdefault("" if self._ids_return else order_key or body, asyncio.Lock())
        async with lock:
            self._last_id = 1 + max(self.rows, default=0) if self._ids_return else self._last_id + 1
            id_ = self._last_id
            await asyncio.sleep(random.random() ** 3 * 3)
            if random.random() < 0.2:
                return False
            if self._ids_return:  # rows were deleted, without other writers
                id_ = 1 + max(self.rows, default=0)
            message = f"{random.getrandbits(128):032x}"
            queue = "ordered" if order_key else "orders"
            self.rows[id_] = Row(id_, message, queue, json.dumps(body), None, order_key, "{}", 0)
            self.committed.append((body, order_key))
            return True


class ShopSource:
    """The outbox of the shop, as one node reads it over a network that loses responses."""

    name = "shop"

    def __init__(self, shop: ShopDatabase, node: Node) -> None:
        self._shop = shop
        self._node = node

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        await self._travel()
        rows = [row for _, row in sorted(self._shop.rows.items()) if row.queue not in without]
        await self._travel()
        if not self._node.calm and self._node.random.random() < 0.05:
            await asyncio.sleep(self._node.random.random() * 20)  # longer than the lease
        return rows[:limit]

    async def remove(self, rows: Sequence[Removal]) -> None:
        await self._travel()
        for id_, message, reason in rows:
            if reason is not None:
                self._shop.failed.append(f"row {id_}: {reason}")
            found = self._shop.rows.get(id_)
            if found is not None and found.message == message:
                del self._shop.rows[id_]
        await self._travel()

    async def migrate(self, *, notify: bool) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    async def _travel(self) -> None:
        await asyncio.sleep(self._node.random.random() * 0.2)
        if not self._node.calm and self._node.random.random() < 0.1:
            raise Unavailable("the connection to the shop was lost")


class Shop(Handlers):
    """Orders from transactions in the database of a shop."""

    clients = (2, 4)
    operations = (8, 20)

    def setup(self, random: random.Random) -> None:
        self.shop = ShopDatabase(ids_return=random.random() < 0.5)
        self.lease_s_job = random.choice((2.0, 5.0))
        self.order_keys = random.choice((1, 3))
        self._serial = 0

    def message(self, random: random.Random) -> tuple[str, Any]:
        order_key = f"k{random.randrange(self.order_keys)}" if random.random() < 0.5 else None
        return "orders", order_key

    def source(self, node: Node) -> Any:
        """The outbox as a node reads it."""
        return ShopSource(self.shop, node)

    def declare(self, app: App, outside: Outside) -> None:
        app.sql_outbox(self.source(outside.node), lease_s=1.0)
        random_ = outside.node.random

        async def order(job: Job) -> None:
            await asyncio.sleep(random_.random() * 2)
            await job.sql_step(self.shop.tables, _pay, job.body)
            if random_.random() < 0.2:
                raise Retry("not yet", after_s=0.3)
            await asyncio.sleep(random_.random())
            key = ("orders", job.body)
            job.tx.put(key, (await job.tx.get(key) or 0) + 1)
            if job.order_key is not None:
                last = ("last", job.order_key)
                number = (await job.tx.get(last) or 0) + 1
                job.tx.put(last, number)
                job.tx.put(("order", job.body), number)

        # Keys are kept for less time than most pauses last.
        options: dict[str, Any] = {"lease_s": self.lease_s_job, "key_retention_s": 0.5}
        app.handler("orders", retry_first_s=0.2, attempts_max=2, **options)(order)
        app.handler("ordered", retry_first_s=0.2, attempts_max=0, **options)(order)

    async def client(self, client: Client) -> None:
        for _ in range(client.operations):
            _, order_key = self.message(client.random)
            self._serial += 1
            await self.shop.transaction(f"order {self._serial}", order_key, client.random)
            await client.think()
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def handle(self, node: Node, message: Message) -> Any:
        if (app := self._apps.get(node.name)) is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        unfinished: list[str] = []
        for slot in range(self.slots):
            for row in await app.store.run(partial(Transaction.scan, partition=f"job#{slot:04d}")):
                if row.key[1].endswith("#job") and row.value["stage"] != "succeeded":
                    unfinished.append(row.key[1].removesuffix("#job"))
                    if row.value["stage"] == "failed":
                        # An operator retries it. Its step must not run again.
                        with suppress(NotFailed):  # a repeated message has retried it
                            await app.queues.retry(unfinished[-1])
        return [*unfinished, *self.shop.rows]

    def judge_outcome(self, outcome: Outcome) -> None:
        if self.shop.failed:
            violated("row failed", f"{self.shop.failed}")
        committed = [body for body, _ in self.shop.committed]
        handled = outcome.records("orders")
        if lost := set(committed) - handled.keys():
            violated("row lost", f"{sorted(lost)} were committed, but no job has handled them")
        if odd := handled.keys() - set(committed):
            violated("row from nowhere", f"{sorted(odd)} were rolled back, but handled")
        if often := {body: times for body, times in handled.items() if times > 1}:
            violated("row twice", f"handled more than once: {often}")
        paid = Counter(body for (body,) in self.shop.tables.execute("SELECT body FROM paid"))
        if paid != Counter(committed):
            violated("step twice", f"paid {paid - Counter(committed)} too often")
        order = outcome.records("order")
        keys = {key for _, key in self.shop.committed if key}
        for key in sorted(keys):
            numbers = [order[body] for body, other in self.shop.committed if other == key]
            if numbers != sorted(numbers):
                violated("order", f"rows of {key} were handled as {numbers}")


def _pay(tables: sqlite3.Connection, body: str) -> str:
    tables.execute("INSERT INTO paid (body) VALUES (?)", (body,))
    return "paid"
