"""Simulated clients, and the network between them and the nodes."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.testing.simulation.history import Answer, Call

if TYPE_CHECKING:
    from onceward.testing.simulation.world import World

RETRY_S = 0.4
"""The average time until a client's first retry; it doubles with every retry."""


class Message(NamedTuple):
    """A request as it arrives at a node, possibly not for the first time."""

    id: str
    """The same for all deliveries of one request."""
    request: Any


class Network:
    """Delays, reorders, duplicates and drops messages."""

    def __init__(self, world: "World", random: random.Random) -> None:
        self.on_their_way = 0
        self._world = world
        self._random = random
        self._sent = 0
        self._arrived: dict[str, int] = {}

    def send(self, to: str, name: str, arrive: Callable[..., None], *args: Any) -> None:
        """Deliver a message later, once, twice or never."""
        weather, draw = self._world.weather, self._random.random
        if draw() < weather.drop and self._world.allows(f"{name} to {to} dropped"):
            self._world.happened("message dropped", f"{name} to {to}")
            return
        copies = 1
        if draw() < weather.duplicate and self._world.allows(f"{name} to {to} duplicated"):
            self._world.happened("message duplicated", f"{name} to {to}")
            copies = 2
        for _ in range(copies):
            slow = draw() < 0.1
            delay_s = draw() * max(weather.slow_delay_s if slow else 0, 2 * weather.delay_s)
            self._sent += 1
            self.on_their_way += 1
            self._world.later(delay_s, self._arrive, self._sent, to, arrive, args)

    def _arrive(
        self, number: int, to: str, arrive: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self.on_their_way -= 1
        if number < self._arrived.get(to, 0):
            self._world.happened("message reordered")
        self._arrived[to] = max(number, self._arrived.get(to, 0))
        arrive(*args)


class Client:
    """Sends requests, and repeats them with the same message id until a response arrives."""

    def __init__(
        self, world: "World", name: str, random: random.Random, operations: int, think_s: float
    ) -> None:
        self.name = name
        self.random = random
        self.operations = operations
        """The number of calls that this client should make."""
        self._world = world
        self._think_s = think_s
        self._calls = 0

    async def call(self, request: Any) -> Any:
        """Send a request to some node until a response arrives; returns the response."""
        self._calls += 1
        call = Call(f"{self.name}-{self._calls}", self.name, request, self._world.loop.time_ns())
        self._world.calls.append(call)
        answered: asyncio.Future[None] = self._world.loop.create_future()
        self._ask(call, answered, RETRY_S)
        await answered
        return call.answer

    async def think(self) -> None:
        """Wait briefly, or sometimes long."""
        long = self.random.random() < 0.05
        await asyncio.sleep(self.random.random() * self._think_s * (50 if long else 2))

    def _ask(self, call: Call, answered: "asyncio.Future[None]", retry_s: float) -> None:
        if answered.done():
            return
        server = self.random.choice(self._world.servers)
        self._world.trace.note(f"{call.id} asks {server.name}: {call.request}")
        message = Message(call.id, call.request)

        def reply(node: str, body: Any) -> None:
            name = f"{call.id} answer"
            self._world.network.send(self.name, name, self._hear, call, answered, node, body)

        self._world.network.send(server.name, call.id, server.receive, message, reply)
        pause_s = retry_s * (0.5 + self.random.random())
        self._world.later(pause_s, self._ask, call, answered, min(2 * retry_s, 4.0))

    def _hear(self, call: Call, answered: "asyncio.Future[None]", node: str, body: Any) -> None:
        self._world.trace.note(f"{call.id} hears from {node}: {body}")
        call.answers.append(Answer(self._world.loop.time_ns(), node, body))
        if not answered.done():
            answered.set_result(None)
