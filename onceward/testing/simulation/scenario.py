"""The base class of scenarios: the workload and its verdict."""

import random
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from onceward.clock import Clock
from onceward.engine.base import Engine
from onceward.ids import Ids
from onceward.keys import Key
from onceward.store import Store
from onceward.testing.simulation.history import History, Mode, Stored
from onceward.testing.simulation.network import Client, Message

if TYPE_CHECKING:
    from onceward.testing.simulation.world import Node


class Scenario:
    """Clients that send requests, nodes that respond, and checks.

    Derive from it, and override three methods:

    - `request(random)`: the next request of a client. Plain data; draw everything from `random`.
    - `handle(node, message)`: the code under test. Runs on a node, with `node.run(fn)` for
      transactions. It may be interrupted anywhere, and may run several times for one message, even
      long after a response. Its return value is the response. After errors that allow a retry
      (`errors.TABLE`) the client gets no response and repeats the request. Any other exception
      fails the simulation.
    - `judge(history)`: checks all requests and responses and the final records, and calls
      `violated(kind, message)` for a broken guarantee. It should share no code with the code under
      test. Check guarantees that hold under all faults: nothing acknowledged is missing, nothing
      happened twice, the responses fit into one order.

    Optional: `setup` to draw sizes, `prepare` for initial records, `start` for a node's background
    work, and `client` for clients whose next request depends on a response. A new instance is
    created for every run. The only sources of randomness and time must be `random`, `node.ids` and
    `node.clock`. Threads and iteration over sets are not allowed.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("shared", "local")
    servers: ClassVar[tuple[int, int]] = (1, 3)
    clients: ClassVar[tuple[int, int]] = (2, 6)
    operations: ClassVar[tuple[int, int]] = (30, 70)
    lasts_s: ClassVar[tuple[float, ...]] = (5.0, 20.0, 60.0)
    """How long faults occur, one of these; or until all clients are done."""
    without: ClassVar[frozenset[str]] = frozenset()
    """Kinds of faults that cannot occur here, such as lost hints without watches."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Further events that must occur in a set of runs: those that `judge` counts in `history.seen`,
    and ends of nodes named in `node.crash`."""
    patience_s: ClassVar[float] = 300.0
    """How long clients may wait for responses after the last fault."""
    calm_s: float = 0.0
    """How long the world continues after all faults and clients have ended, before the checks;
    `setup` may draw it."""

    def setup(self, random: random.Random) -> None:
        """Choose the parameters that differ from run to run."""

    async def prepare(self, store: Store) -> None:
        """Write the initial records, before any fault."""

    async def start(self, node: "Node") -> None:
        """Called on every starting node, before it gets messages; must return soon.

        Start background work as a task: `node.spawn(...)`.
        """

    async def client(self, client: Client) -> None:
        """The course of one client."""
        for _ in range(client.operations):
            await client.call(self.request(client.random))
            await client.think()

    def request(self, random: random.Random) -> Any:
        """The next request of a client."""
        raise NotImplementedError

    def handle(self, node: "Node", message: Message) -> Awaitable[Any]:
        """Serve one message on a node."""
        raise NotImplementedError

    def judge(self, history: History) -> None:
        """Raise a `Violation` if the history breaks a guarantee."""
        raise NotImplementedError

    def unfinished(self, final: Mapping[Key, Stored]) -> list[str]:
        """What the final records show as unfinished, for the report of a run that is stuck."""
        return []

    def make_engine(self, engine: Engine) -> Engine:
        """The engine of a node, given the one with faults. Wrap it to test an engine."""
        return engine

    def make_store(self, engine: Engine, clock: Clock, ids: Ids) -> Store:
        """The store of a node. Replace it to test another store."""
        return Store(engine, clock, ids)


class Combined(Scenario):
    """Several scenarios in one world, so that they interfere; each checks its own part."""

    parts: ClassVar[tuple[type[Scenario], ...]] = ()

    def __init__(self) -> None:
        self._parts = [part() for part in self.parts]
        self._weights = [1.0] * len(self._parts)

    def setup(self, random: random.Random) -> None:
        for part in self._parts:
            part.setup(random)
        # Some runs use mainly one part, so that its callers conflict with each other.
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
