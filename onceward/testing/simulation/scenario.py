"""The base class of scenarios: the workload and its verdict."""

import random
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from onceward.clock import Clock
from onceward.engine.base import Engine
from onceward.ids import Ids
from onceward.store import Store
from onceward.testing.simulation.history import History, Mode
from onceward.testing.simulation.network import Client, Message

if TYPE_CHECKING:
    from onceward.testing.simulation.world import Node


class Scenario:
    """Clients that ask, nodes that answer, and a judge.

    Derive from it, and override three methods:

    - `request(random)`: what a client asks next. Plain data; draw everything from `random`.
    - `handle(node, message)`: the code under test. Runs on a node, with `node.run(fn)` for
      transactions; may be cut off anywhere, and may run several times for one message, also
      long after that was answered. What it returns is the answer. Raised errors that allow a
      retry (`errors.TABLE`) leave the client without one, and it asks again; any other
      exception ends the simulation as a failure.
    - `judge(history)`: looks at all requests and answers and at the final records, and calls
      `violated(kind, message)` if they cannot be right. It should share no code with what
      it judges. Check what must hold whatever went wrong: nothing acknowledged is missing,
      nothing happened twice, answers fit into one order.

    And where needed: `setup` to draw sizes, `prepare` for initial records, `start` for a
    node's background work, `client` for clients whose next request depends on an answer.
    A new instance is made for every run. There must be no other source of chance or time
    than `random`, `node.ids` and `node.clock`, no threads, and no iteration over sets.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("shared", "local")
    servers: ClassVar[tuple[int, int]] = (1, 3)
    clients: ClassVar[tuple[int, int]] = (2, 6)
    operations: ClassVar[tuple[int, int]] = (30, 70)
    lasts_s: ClassVar[tuple[float, ...]] = (5.0, 20.0, 60.0)
    """For how long things go wrong, one of these; or until all clients are done."""
    without: ClassVar[frozenset[str]] = frozenset()
    """Kinds of faults that cannot happen here, such as lost hints where nothing watches."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """What else must happen in a set of runs: what `judge` counts in `history.seen`, and
    ends of nodes named in `node.crash`."""
    calm_s: float = 0.0
    """How long the world goes on when all is calm and all clients are done, before it is judged;
    `setup` may draw it."""

    def setup(self, random: random.Random) -> None:
        """Choose what is different from run to run."""

    async def prepare(self, store: Store) -> None:
        """Write the initial records, before anything can go wrong."""

    async def start(self, node: "Node") -> None:
        """Called on every node that starts, before it gets messages; must return soon.

        Background work goes on as a task: `node.spawn(...)`.
        """

    async def client(self, client: Client) -> None:
        """The life of one client."""
        for _ in range(client.operations):
            await client.call(self.request(client.random))
            await client.think()

    def request(self, random: random.Random) -> Any:
        """What a client asks next."""
        raise NotImplementedError

    def handle(self, node: "Node", message: Message) -> Awaitable[Any]:
        """Serve one message on a node."""
        raise NotImplementedError

    def judge(self, history: History) -> None:
        """Raise a `Violation` if this cannot have come about rightly."""
        raise NotImplementedError

    def make_engine(self, engine: Engine) -> Engine:
        """The engine that a node uses, given the one that fails by plan: wrap it to test one."""
        return engine

    def make_store(self, engine: Engine, clock: Clock, ids: Ids) -> Store:
        """The store that a node uses: replace it to put another one to the test."""
        return Store(engine, clock, ids)


class Combined(Scenario):
    """Several scenarios in one world, so that they disturb each other; each judges its own."""

    parts: ClassVar[tuple[type[Scenario], ...]] = ()

    def __init__(self) -> None:
        self._parts = [part() for part in self.parts]
        self._weights = [1.0] * len(self._parts)

    def setup(self, random: random.Random) -> None:
        for part in self._parts:
            part.setup(random)
        # Some runs are all about one part, so that its callers get into each other's way.
        self._weights = [random.choice((0.0, 0.0, 0.3, 1.0)) for _ in self._parts]
        self._weights[random.randrange(len(self._parts))] += 2.0

    async def prepare(self, store: Store) -> None:
        for part in self._parts:
            await part.prepare(store)

    async def start(self, node: "Node") -> None:
        for part in self._parts:
            await part.start(node)

    def request(self, random: random.Random) -> Any:
        [index] = random.choices(range(len(self._parts)), self._weights)
        return index, self._parts[index].request(random)

    def handle(self, node: "Node", message: Message) -> Awaitable[Any]:
        index: int
        index, request = message.request
        return self._parts[index].handle(node, Message(message.id, request))

    def judge(self, history: History) -> None:
        for index, part in enumerate(self._parts):
            calls = [
                replace(call, request=call.request[1])
                for call in history.calls
                if call.request[0] == index
            ]
            part.judge(replace(history, calls=calls))
