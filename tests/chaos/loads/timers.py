"""Timers that call a receiver or queue a job: some are moved, some cancelled, some repeat."""

import asyncio
import time
from random import Random
from typing import Any

from onceward.client import Client
from onceward.client import Timer as TimerView
from onceward.errors import AlreadyEnded
from tests.chaos.history import Timer
from tests.chaos.world import World

SETTERS = 3
DELAY_S_MAX = 3.0
EVERY_S = 1.0
OVER = ("success", "cancelled")
AT_ONCE = 8


class Timers:
    """Sets them until it is told to stop."""

    def __init__(self, world: World, seed: int, pause_s: float) -> None:
        self._world = world
        self._seed = seed
        self._pause_s = pause_s
        self._moved = self._cancelled = 0

    async def run(self, stopped: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SETTERS):
                name = f"t{number}"
                await self._set(f"{name}-every", EVERY_S, repeats=True)
                group.create_task(self._set_many(name, stopped))

    async def _set_many(self, name: str, stopped: asyncio.Event) -> None:
        chance, count = Random(f"{self._seed} {name}"), 0
        while not stopped.is_set():
            count += 1
            id_ = f"{name}-{count}"
            timer = await self._set(
                id_, chance.uniform(0.1, DELAY_S_MAX), webhook=chance.random() < 0.7
            )
            draw = chance.random()
            if draw < 0.15:
                await self._move(id_, timer, chance.uniform(0.1, DELAY_S_MAX))
            elif draw < 0.3:
                await self._cancel(id_, timer)
            await self._world.clock.sleep(chance.uniform(0, 2) * self._pause_s)

    async def _set(
        self, id_: str, delay_s: float, *, webhook: bool = True, repeats: bool = False
    ) -> Timer:
        target: dict[str, Any] = {"queue": "fired", "body": {"timer": id_}}
        if webhook:
            target = {"url": self._world.outside.url}
        delay_s = round(delay_s, 3)
        target["every_s" if repeats else "delay_s"] = delay_s

        async def ask(client: Client) -> TimerView:
            return await client.timers.create(id=id_, **target)

        timer = Timer(time.time() * 1_000, round(delay_s * 1_000), repeats=repeats, webhook=webhook)
        self._world.history.timers[id_] = timer
        timer.due_ms = (await self._world.insist(ask)).due_ms
        return timer

    async def _move(self, id_: str, timer: Timer, delay_s: float) -> None:
        delay_s = round(delay_s, 3)
        asked_ms = time.time() * 1_000
        try:
            view = await self._world.insist(lambda client: client.timers.move(id_, delay_s=delay_s))
        except AlreadyEnded:
            # Before it was moved, or after that, if the answer to it was lost.
            view = await self._world.insist(lambda client: client.timers.get(id_))
        if view.due_ms != timer.due_ms:  # else it had fired when it was to be moved
            timer.asked_ms, timer.delay_ms = asked_ms, round(delay_s * 1_000)
            timer.due_ms = view.due_ms
            self._moved += 1

    async def _cancel(self, id_: str, timer: Timer) -> None:
        try:
            view = await self._world.insist(lambda client: client.timers.cancel(id_))
        except AlreadyEnded:
            return
        timer.cancelled = view.state == "cancelled"
        self._cancelled += timer.cancelled

    async def settle(self) -> None:
        """Wait until all have fired, and their calls are answered; what repeats is cancelled."""
        room = asyncio.Semaphore(AT_ONCE)

        async def wait(id_: str, timer: Timer) -> None:
            async with room:
                if timer.repeats:
                    await self._cancel(id_, timer)
                while True:
                    view = await self._world.insist(lambda client: client.timers.get(id_))
                    done = view.last is None or view.last.state == "succeeded"
                    if view.state in OVER and done:
                        return
                    await self._world.clock.sleep(0.2)

        async with asyncio.TaskGroup() as group:
            for id_, timer in self._world.history.timers.items():
                group.create_task(wait(id_, timer))

    @property
    def figures(self) -> dict[str, int]:
        history = self._world.history
        return {
            "timers set": sum(timer.due_ms is not None for timer in history.timers.values()),
            "timers moved": self._moved,
            "timers cancelled": self._cancelled,
            "firings arrived": len({visit.job for visit in history.visits}),
            "firings repeated under the same id": len(history.visits)
            - len({visit.job for visit in history.visits}),
        }
