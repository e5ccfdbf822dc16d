"""Simulation of an application's own handlers.

Derive from `Handlers`, declare your handlers on the application of each node, define the messages
of clients, and check the outcome. Nodes crash, pause and restart, messages arrive several times,
and commits conflict. Every accepted message must finally have succeeded, failed, or be in doubt.

    class Payments(Handlers):
        def declare(self, app, outside):
            @app.handler("payments")
            async def pay(job):
                await job.step("pay", outside.call, "pay", job.id, at_most_once=True)

        def message(self, random):
            return "payments", {"amount": random.randint(1, 9)}

        def judge_outcome(self, outcome):
            for id_, times in outcome.counts("pay").items():
                if times > 1:
                    violated("paid twice", f"{id_} {times} times")

    simulate_many(Payments, range(1000))

External systems (a bank, a provider, another database) are simulated by an `Outside`. It continues
while nodes crash. A call to it takes time, and its caller may be interrupted before or after the
call has taken effect.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from onceward.api.jobs import ENDED
from onceward.app import App
from onceward.errors import OncewardError, Unavailable
from onceward.keys import USER, Key
from onceward.schedule import state_of
from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import Call, History, Stored, violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.world import Node

_RETRY_S = 0.5


@dataclass(slots=True)
class Effect:
    """A call that the outside world has carried out."""

    what: str
    id: str
    value: Any
    node: str


@dataclass(slots=True)
class OutsideWorld:
    """The outside world, shared by all nodes and unaffected by crashes."""

    effects: list[Effect] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)


class Outside:
    """The outside world as seen by one node, over a network with delays."""

    def __init__(self, world: OutsideWorld, node: Node) -> None:
        self._world = world
        self.node = node

    def note(self, what: str, id_: str, value: Any = None) -> None:
        """Record an effect immediately."""
        self._world.effects.append(Effect(what, id_, value, self.node.name))

    async def call(self, what: str, id_: str, value: Any = None) -> str:
        """Make a call that takes effect each time; returns a receipt."""
        await self._travel()
        self.note(what, id_, value)
        receipt = f"{what} {len(self._world.effects)}"
        await self._travel()
        return receipt

    async def call_once(self, what: str, id_: str, value: Any = None) -> str:
        """Make a call that takes effect once for its id, as with an idempotency key. Repeated calls
        get the receipt of the first one."""
        await self._travel()
        key = f"{what}/{id_}"
        if key not in self._world.answers:
            self.note(what, id_, value)
            self._world.answers[key] = f"{what} {len(self._world.effects)}"
        await self._travel()
        return str(self._world.answers[key])

    async def get(self, name: str, default: Any = None) -> Any:
        """Read an external value."""
        await self._travel()
        value = self._world.values.get(name, default)
        await self._travel()
        return value

    async def set(self, name: str, value: Any) -> None:
        """Write an external value unconditionally."""
        await self._travel()
        self._world.values[name] = value
        await self._travel()

    async def _travel(self) -> None:
        await asyncio.sleep(self.node.random.random() * 0.2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    history: History
    jobs: dict[str, dict[str, Any]]
    """The final records of all jobs, by id."""
    accepted: dict[str, str]
    """The ids of accepted jobs, by the keys of their messages."""
    effects: list[Effect]
    values: dict[str, Any]

    def counts(self, what: str) -> Counter[str]:
        """How often a call took effect, by its id."""
        return Counter(effect.id for effect in self.effects if effect.what == what)

    def records(self, partition: str) -> dict[str, Any]:
        """The application's final records of a partition."""
        return self.history.values(USER + partition)


class Handlers(Scenario):
    """Nodes that run an application, and clients that send it messages, each with a key."""

    clients = (2, 4)
    operations = (8, 20)
    without = frozenset({"hints lost", "function run again"})
    lease_s: ClassVar[float] = 3.0
    slots: ClassVar[int] = 4

    def declare(self, app: App, outside: Outside) -> None:
        """Declare handlers and queues on the application of a node."""
        raise NotImplementedError

    def message(self, random: random.Random) -> tuple[str, Any]:
        """The next message of a client: queue and body."""
        raise NotImplementedError

    def options(self, queue: str, body: Any, random: random.Random) -> dict[str, Any]:
        """Options of `App.send` for a message, such as an order key."""
        return {}

    def judge_outcome(self, outcome: Outcome) -> None:
        """Call `violated` if the outcome breaks a guarantee."""

    # The implementation of the scenario.

    def __init__(self) -> None:
        self._world = OutsideWorld()
        self._apps: dict[str, App] = {}

    async def start(self, node: Node) -> None:
        node.spawn(self._run(node))

    async def _run(self, node: Node) -> None:
        while node.name not in self._apps:
            app = App(
                node.engine,
                name=node.name,
                slots=self.slots,
                node_lease_s=self.lease_s,
                store=lambda engine: node.store,
            )
            self.declare(app, Outside(self._world, node))
            try:
                self._apps[node.name] = await app.start()
            except OncewardError as error:
                if not error.kind.retry:
                    raise
                await asyncio.sleep(_RETRY_S)
                await node.engine.open()

    async def client(self, client: Client) -> None:
        for _ in range(client.operations):
            queue, body = self.message(client.random)
            options = self.options(queue, body, client.random)
            await client.call(["accept", queue, body, options])
            await client.think()
        # Twice in a row: while all slots are scanned, a job that ends may send another one into a
        # slot that was already scanned.
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):  # noqa: ASYNC110
            await asyncio.sleep(2 * _RETRY_S)

    async def handle(self, node: Node, message: Message) -> Any:
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        what, *rest = message.request
        if what == "unfinished":
            return await app.store.run(self._unfinished)
        queue, body, options = rest
        receipt = await app.send(queue, body, key=message.id, **options)
        return {"id": receipt.id, "duplicate": receipt.duplicate}

    async def _unfinished(self, tx: Transaction) -> list[str]:
        """Jobs that have not ended, including those that other jobs have sent."""
        rows = [row for slot in range(self.slots) for row in await tx.scan(f"job#{slot:04d}")]
        jobs = [row for row in rows if row.key[1].endswith("#job")]
        return [row.key[1] for row in jobs if row.value["stage"] not in ENDED]

    def unfinished(self, final: Mapping[Key, Stored]) -> list[str]:
        return [
            f"job {id_} of queue {job['queue']!r} is {job['state']} after "
            f"{job.get('attempt', 0)} attempts {job.get('reason', '')}".rstrip()
            for id_, job in _jobs(final).items()
            if job["state"] not in ENDED
        ]

    def judge(self, history: History) -> None:
        jobs = _jobs(history.final)
        accepted: dict[str, str] = {}
        for call in history.calls:
            if call.request[0] == "accept":
                self._judge_receipts(call, accepted)
        for key, id_ in accepted.items():
            if id_ not in jobs:
                violated("lost", f"{key} was accepted as {id_}, which is missing")
            if jobs[id_]["state"] not in ENDED:
                violated("stuck", f"{key} is {jobs[id_]['state']}")
        world = self._world
        self.judge_outcome(Outcome(history, jobs, accepted, world.effects, world.values))

    def _judge_receipts(self, call: Call, accepted: dict[str, str]) -> None:
        ids = {answer.body["id"] for answer in call.answers}
        if len(ids) > 1:
            violated("two jobs", f"{call.id} led to {sorted(ids)}")
        first = [answer for answer in call.answers if not answer.body["duplicate"]]
        if len({answer.node for answer in first}) > 1:
            violated("two jobs", f"{call.id} was new more than once: {first}")
        accepted[call.id] = ids.pop()


def _jobs(final: Mapping[Key, Stored]) -> dict[str, dict[str, Any]]:
    """The records of jobs by id, with their public states."""
    return {
        key[1].removesuffix("#job"): {
            **stored.value,
            "state": state_of(stored.value["stage"], stored.value.get("attempt", 0)),
        }
        for key, stored in final.items()
        if key[0].startswith("job#") and key[1].endswith("#job")
    }
