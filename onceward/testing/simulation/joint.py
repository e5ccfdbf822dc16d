"""The scenario for joint commits: statements of the application, records and the end of a job.

The tables of the application are in Onceward's database, as in PostgreSQL. Statements read what is
committed, and rows that a transaction has read and changed must be the same at its commit, as with
row locks. Serials of invoices have no gaps, so each invoice that is lost or repeated shows.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from onceward.app import App
from onceward.engine.base import (
    ABSENT,
    ANY,
    Delete,
    Engine,
    Expectation,
    Put,
    Session,
    Version,
    Write,
)
from onceward.errors import Fail, Retry, Unavailable
from onceward.store.user_records import UserTransaction
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import Mode, violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.world import Node
from onceward.work.job import Job

TABLE = "sql"
"""The partition with the rows of the application."""


class Aborted(Exception):
    """The database aborted a statement because of concurrent transactions."""


class Connection:
    """The connection of a session, over a network: each row has a name and a value."""

    def __init__(self, engine: Engine, node: Node) -> None:
        self.changes: dict[str, Any] = {}
        self.ended = False
        self._engine = engine
        self._node = node
        self._seen: dict[str, Expectation] = {}

    async def get(self, name: str) -> Any:
        """The value of a row, or None."""
        await self._travel()
        if name in self.changes:
            return self.changes[name]
        [record] = await self._engine.get([(TABLE, name)], self._node.clock.now_ms())
        self._seen[name] = ABSENT if record is None else record.version
        return None if record is None else json.loads(record.value)

    async def put(self, name: str, value: Any) -> None:
        """Write a row."""
        await self._travel()
        self.changes[name] = value

    async def _travel(self) -> None:
        await asyncio.sleep(self._node.random.random() * 0.1)
        if self.ended:
            raise Unavailable("the connection is closed")
        if not self._node.calm and self._node.random.random() < 0.05:
            raise Aborted

    def writes(self) -> list[Write]:
        """What the statements have changed."""
        return [
            Put((TABLE, name), json.dumps(value).encode(), None, self._seen.get(name, ANY))
            for name, value in self.changes.items()
        ]


class JointSession(Session):
    """A transaction of the application on the simulated database."""

    connection: Connection

    def __init__(self, engine: Engine, node: Node) -> None:
        self.connection = Connection(engine, node)
        self._engine = engine

    def conflicts(self, error: BaseException) -> bool:
        return isinstance(error, Aborted)

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        every = [*writes, *self.connection.writes()] or [Delete((TABLE, "none"))]
        self.discard()
        return await self._engine.commit(every, now_ms, visible)

    async def rollback(self) -> None:
        self.discard()

    def discard(self) -> None:
        self.connection.ended = True


class Joint(Handlers):
    """Orders whose invoices are rows of the application, and changes outside of jobs."""

    modes: ClassVar[tuple[Mode, ...]] = ("shared",)
    clients = (2, 4)
    operations = (8, 20)

    def setup(self, random: random.Random) -> None:
        self.lease_s_job = random.choice((2.0, 5.0))

    async def start(self, node: Node) -> None:
        node.faults.make_session = lambda: JointSession(node.faults, node)
        await super().start(node)

    def message(self, random: random.Random) -> tuple[str, Any]:
        return "orders", {"fails": random.random() < 0.15}

    def declare(self, app: App, outside: Outside) -> None:
        random_ = outside.node.random
        options: dict[str, Any] = {"lease_s": self.lease_s_job, "retry_first_s": 0.2}

        @app.handler("orders", attempts_max=0, **options)
        async def order(job: Job) -> int:
            await asyncio.sleep(random_.random() * 3)
            connection = await job.sql()
            serial: int = await _next(connection, "serial")
            await connection.put(f"invoice {serial:06}", job.id)
            job.tx.put(("billed", job.id), serial)
            await job.send("mail", job.id)
            if job.body["fails"]:
                raise Fail("not to be billed")
            if random_.random() < 0.2:
                raise Retry("not yet", after_s=0.3)
            return serial

        @app.handler("mail", attempts_max=0, **options)
        async def mail(job: Job) -> None:
            key = ("mailed", job.body)
            job.tx.put(key, (await job.tx.get(key) or 0) + 1)

    async def client(self, client: Client) -> None:
        for _ in range(client.operations):
            if client.random.random() < 0.3:
                await client.call(["adjust"])
            else:
                await client.call(["accept", *self.message(client.random), {}])
            await client.think()
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def handle(self, node: Node, message: Message) -> Any:
        if message.request[0] != "adjust" or (app := self._apps.get(node.name)) is None:
            return await super().handle(node, message)

        key = ("adjusted", node.token(message))

        async def adjust(tx: UserTransaction) -> None:
            tx.put(key, await _next(await tx.sql(), "adjustments"))

        try:
            return await app.run(adjust)
        except Aborted:
            raise Unavailable("aborted outside of a conflict") from None

    def judge_outcome(self, outcome: Outcome) -> None:
        rows = outcome.history.values(TABLE)
        invoices = {int(name[8:]): id_ for name, id_ in rows.items() if name.startswith("invoice")}
        if sorted(invoices) != [*range(1, rows.get("serial", 0) + 1)]:
            violated("serials", f"{rows.get('serial')} serials for {sorted(invoices)}")
        billed = outcome.records("billed")
        if {serial: id_ for id_, serial in billed.items()} != invoices:
            violated("apart", f"the records are {billed}, but the invoices are {invoices}")
        orders = {id_: job for id_, job in outcome.jobs.items() if job["queue"] == "orders"}
        wanted = Counter(id_ for id_, job in orders.items() if job["state"] == "succeeded")
        if (found := Counter(invoices.values())) != wanted:
            violated("not once", f"invoices {found} for the jobs {wanted}")
        for id_, job in orders.items():
            if job["state"] != ("failed" if job["body"]["fails"] else "succeeded"):
                violated("wrong end", f"{id_} is {job['state']}: {job.get('reason')}")
            if job["state"] == "succeeded" and job["result"] != billed[id_]:
                violated("apart", f"{id_} returned {job['result']}, and has {billed[id_]}")
        if outcome.records("mailed") != wanted:
            violated("mail", f"mails {outcome.records('mailed')} for the jobs {wanted}")
        adjusted = sorted(outcome.records("adjusted").values())
        if adjusted != [*range(1, rows.get("adjustments", 0) + 1)]:
            violated("adjusted", f"{adjusted}, and the row has {rows.get('adjustments')}")


async def _next(connection: Connection, name: str) -> int:
    value: int = (await connection.get(name) or 0) + 1
    await connection.put(name, value)
    return value
