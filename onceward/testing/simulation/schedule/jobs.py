"""Simulated clients that send jobs, and nodes that schedule them."""

import random
from collections.abc import Awaitable
from typing import Any, Final

from onceward import node as service
from onceward.errors import OncewardError, Unavailable
from onceward.job_options import job_options
from onceward.schedule import Schedule
from onceward.schedule.placement import Placement
from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import History
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.schedule.slots import judge_slots
from onceward.testing.simulation.schedule.verdict import judge_jobs
from onceward.testing.simulation.schedule.workers import Worker
from onceward.testing.simulation.world import Node

ALWAYS_FAILS: Final = 99
_IDS_AT_ONCE: Final = 20
# The time that a node needs beyond two leases to find its share: several calls in sequence.
_LATENCY_S: Final = 2.0
_LOOK_S: Final = 0.5


class Everywhere(Placement):
    """Acts as the owner of every slot, regardless of the records."""

    def holds(self, slot: int) -> bool:
        return True

    def _own(self, slots: set[int]) -> None:
        super()._own(set(range(self.slots)))


class EverywhereNode(service.Node):
    placement_type = Everywhere


class Jobs(Scenario):
    """Every message sends one to three jobs, once; a client is done when all of them have ended."""

    servers = (1, 5)
    clients = (1, 4)
    operations = (4, 14)
    lasts_s = (5.0, 15.0, 30.0)
    kinds = (
        "node stopped",
        "lease renewed",
        "lease ran out",
        "lease ran out at work",
        "stale completion refused",
        "claim given back",
        "job released",
        "job retried",
        "job failed",
        "job given up",
        "head retried while others waited",
        "slot taken over",
        "slot handed over",
        "two owners at once",
        "slots judged",
    )

    def setup(self, random: random.Random) -> None:
        self.services: dict[str, service.Node] = {}
        self.slots = random.choice((1, 4, 8))
        self.node_lease_ms = random.choice((2_000, 3_000, 5_000))
        self.queues = ("q", "r")[: random.randint(1, 2)]
        self.order_keys = random.randint(1, 3)
        self.workers = random.randint(1, 2)
        # With workers on one node only, the others must leave their jobs to it.
        self.workers_everywhere = random.random() < 0.75
        self.stops = random.choice((0.0, 0.5))
        self.two_owners = random.random() < 0.25
        if not self.two_owners and random.random() < 0.3:
            self.calm_s = 2 * self.node_lease_ms / 1000 + _LATENCY_S

    def make_service(self, node: Node) -> service.Node:
        """The service that a node runs. Replace it to test another one."""
        kind = EverywhereNode if self.two_owners else service.Node
        return kind(node.store, name=node.name, slots=self.slots, lease_ms=self.node_lease_ms)

    async def start(self, node: Node) -> None:
        node.tell("starts", "")
        chance = random.Random(node.random.getrandbits(64))
        running = await self._start_service(node)
        placement = running.placement
        placement.on_change(
            lambda gained, lost: node.tell("owns", [placement.node, sorted(placement.owned)])
        )
        node.tell("owns", [placement.node, sorted(placement.owned)])
        self.services[node.name] = running
        node.spawn(running.wait())
        if self.workers_everywhere or node.name.startswith("a."):
            for queue in self.queues:
                for number in range(self.workers):
                    name = f"{node.name}/{queue}{number}"
                    worker = Worker(node, running, name, queue, chance.getrandbits(64))
                    node.spawn(self.employ(worker).run())
        node.spawn(_tell_troubles(node, running))
        if chance.random() < self.stops:
            node.spawn(_stop(node, running, chance.random() * 10))

    async def _start_service(self, node: Node) -> service.Node:
        while True:
            try:
                return await self.make_service(node).start()
            except OncewardError as error:
                if not error.kind.retry:
                    raise
                await node.clock.sleep(0.2)

    def employ(self, worker: Worker) -> Worker:
        """The worker of a node. Replace it to test another one."""
        return worker

    async def client(self, client: Client) -> None:
        """Send all jobs, then wait until all have ended."""
        ids: list[str] = []
        for _ in range(client.operations):
            ids += await client.call(self.request(client.random))
            await client.think()
        for start in range(0, len(ids), _IDS_AT_ONCE):
            await client.call(["wait", ids[start : start + _IDS_AT_ONCE]])

    def request(self, random: random.Random) -> Any:
        return ["send", [self._draw(random) for _ in range(random.choice((1, 1, 1, 2, 3)))]]

    def _draw(self, random: random.Random) -> dict[str, Any]:
        attempts_max = random.choice((0, 0, 1, 2, 3))
        fails = random.choice((0, 0, 0, 0, 1, 2, ALWAYS_FAILS if attempts_max else 1))
        body = {
            "fails": fails,
            "pause_ms": random.choice((0, 100, 1_000)),
            "follow": random.random() < 0.1,
        }
        return {
            "queue": random.choice(self.queues),
            "order_key": random.choice((None, *(f"k{n}" for n in range(self.order_keys)))),
            "delay_ms": random.choice((0, 0, 0, 10, 500, 2_000, 5_000)),
            "priority": random.choice((0, 5, 5, 9)),
            "attempts_max": attempts_max,
            "body": body,
        }

    def handle(self, node: Node, message: Message) -> Awaitable[Any]:
        schedule = self.services[node.name].schedule
        what, about = message.request
        if what == "send":
            return node.run(lambda tx: self.send(tx, schedule, message.id, about))
        return _wait(node, schedule, about)

    async def send(
        self, tx: Transaction, schedule: Schedule, name: str, jobs: list[dict[str, Any]]
    ) -> list[str]:
        """Send the jobs of a message, once; returns their ids."""
        key = ("sent", name)
        sent: list[dict[str, Any]] | None = await tx.get(key)
        if sent is None:
            sent = [await send_one(tx, schedule, job) for job in jobs]
            tx.put(key, sent)
        return [job["id"] for job in sent]

    def judge(self, history: History) -> None:
        judge_jobs(history)
        judge_slots(
            history,
            self.slots,
            lease_ns=self.node_lease_ms * 1_000_000,
            bound_ns=round(self.calm_s * 1e9),
            two_owners=self.two_owners,
        )


async def send_one(tx: Transaction, schedule: Schedule, job: dict[str, Any]) -> dict[str, Any]:
    """Send a job; returns the facts about it that the checks need."""
    due_ms = tx.now_ms + job["delay_ms"] if job["delay_ms"] else 0
    id_ = await schedule.send(
        tx,
        job["queue"],
        job["body"],
        job_options(job),
        due_ms=due_ms,
    )
    line = None if job["order_key"] is None else f"{job['queue']}/{job['order_key']}"
    return {"id": id_, "line": line, "due_ms": due_ms, "attempts_max": job["attempts_max"]}


async def _wait(node: Node, schedule: Schedule, ids: list[str]) -> str:
    """Respond once the jobs, and the jobs that they have sent, have ended. Until then, raise an
    error after which the client repeats the request."""

    async def ended(tx: Transaction) -> bool:
        left = list(ids)
        for id_ in left:
            if (await schedule.get(tx, id_)).stage not in ("succeeded", "failed"):
                return False
            left += [e["follow"] for e in await tx.get(("effect", id_)) or [] if e["follow"]]
        return True

    if not await node.run(ended):
        raise Unavailable("not all of the jobs have ended")
    return "ended"


async def _stop(node: Node, running: service.Node, after_s: float) -> None:
    """Stop a node normally; its server restarts."""
    await node.clock.sleep(after_s)
    if not node.calm:
        node.tell("leaves", "")
        await running.stop()
        node.crash("node stopped")


async def _tell_troubles(node: Node, running: service.Node) -> None:
    """Report failed due entries. Nothing is damaged here, so they are bugs of the dispatcher."""
    while True:
        await node.clock.sleep(_LOOK_S)
        for entry, error in running.dispatcher.troubles.items():
            node.tell("trouble", f"{'/'.join(entry)}: {error!r}")
