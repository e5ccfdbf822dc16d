"""Messages with keys, some sent more than once and some that fail at first; and lines of messages
with an order key, of which each is sent when the one before it was acknowledged."""

import asyncio
from random import Random
from typing import Any

from onceward.client import Client, Job
from tests.chaos.history import Line, Message
from tests.chaos.world import World

SENDERS, LINES = 6, 8
"""Half of the lines are worked on in the server, and half by workers over HTTP."""
AT_ONCE = 8


class Messages:
    """Sends them until it is told to stop."""

    def __init__(self, world: World, seed: int, pause_s: float) -> None:
        self._world = world
        self._seed = seed
        self._pause_s = pause_s
        self._ended: set[str] = set()
        self._by_line: dict[str, set[str]] = {}
        self.repeated = 0

    async def run(self, stopped: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(self._send(f"m{number}", stopped))
            for number in range(LINES):
                group.create_task(self._queue_up(f"line{number}", number % 2 == 0, stopped))

    async def _send(self, name: str, stopped: asyncio.Event) -> None:
        chance, count = Random(f"{self._seed} {name}"), 0
        while not stopped.is_set():
            count += 1
            key = f"{name}-{count}"
            body = {"key": key, "fails": int(chance.random() < 0.1)}
            times = 2 if chance.random() < 0.2 else 1
            message = self._world.history.messages[key] = Message(key)
            sends = [self._accept("work", body, message) for _ in range(times)]
            await asyncio.gather(*sends)
            self.repeated += times - 1
            await self._world.clock.sleep(chance.uniform(0, 2) * self._pause_s)

    async def _queue_up(self, name: str, inside: bool, stopped: asyncio.Event) -> None:
        chance = Random(f"{self._seed} {name}")
        line = self._world.history.lines[name] = Line(inside=inside)
        queue, n = "orders" if inside else "outside-orders", 0
        while not stopped.is_set():
            n += 1
            message = Message(f"{name}-{n}", counted=False)
            self._world.history.messages[message.key] = message
            body = {"line": name, "n": n}
            await self._accept(queue, body, message, order_key=name)
            line.acknowledged = n
            await self._world.clock.sleep(chance.uniform(0, 2) * self._pause_s)

    async def _accept(
        self, queue: str, body: dict[str, Any], message: Message, **options: Any
    ) -> None:
        async def accept(client: Client) -> None:
            receipt = await client.send(queue, body, key=message.key, **options)
            message.ids.add(receipt.id)

        await self._world.insist(accept)

    async def settle(self) -> None:
        """Wait until all that was accepted has ended."""
        room = asyncio.Semaphore(AT_ONCE)

        async def wait(id_: str) -> None:
            async def ask(client: Client) -> Job:
                return await client.jobs.get(id_, wait_s=1)

            async with room:
                while not (await self._world.insist(ask)).ended:
                    pass

        messages = self._world.history.messages.values()
        async with asyncio.TaskGroup() as group:
            for id_ in [id_ for message in messages for id_ in message.ids]:
                group.create_task(wait(id_))

    @property
    def figures(self) -> dict[str, int]:
        history = self._world.history
        acknowledged = [one for one in history.messages.values() if one.ids]
        return {
            "messages accepted": sum(one.counted for one in acknowledged),
            "messages sent again": self.repeated,
            "messages in order": sum(line.acknowledged for line in history.lines.values()),
            "large messages": sum(one.key.startswith("load") for one in acknowledged),
        }
