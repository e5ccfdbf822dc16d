"""The scenario for operators: cancels, moves, pauses and timers during normal work."""

import asyncio
import random
from collections import Counter
from typing import Any

from onceward.app import App
from onceward.errors import AlreadyEnded, NoSuchJob, NoSuchTimer, Unavailable
from onceward.store.transaction import Transaction
from onceward.testing.simulation.handlers import Outcome
from onceward.testing.simulation.history import violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.work import Work
from onceward.testing.simulation.world import Node

_QUEUES = ("work", "ordered", "gated")
_PAUSE_S = 1.0


class Operators(Work):
    """Messages as in `Work`, and operators who cancel, move and pause jobs."""

    operations = (8, 20)

    async def client(self, client: Client) -> None:
        dice = client.random
        jobs: list[str] = []
        timers: list[str] = []
        for _ in range(client.operations):
            kind = dice.random()
            if kind < 0.5 or not (jobs or timers):
                queue, body = self.message(dice)
                options = self.options(queue, body, dice)
                if dice.random() < 0.3:
                    options["delay_s"] = dice.random() * 5
                jobs.append((await client.call(["accept", queue, body, options]))["id"])
            elif kind < 0.7:
                delay_s = dice.choice((0.0, dice.random() * 10))
                timers.append(await client.call(["timer", delay_s]))
            elif kind < 0.85:
                await self._interfere(client, dice, jobs, timers)
            else:
                queue = dice.choice(_QUEUES)
                await client.call(["pause", queue])
                await client.think()
                await client.call(["resume", queue])
            await client.think()
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):
            for queue in _QUEUES:
                await client.call(["resume", queue])  # a pause may have come late
            await asyncio.sleep(_PAUSE_S)

    async def _interfere(
        self, client: Client, dice: random.Random, jobs: list[str], timers: list[str]
    ) -> None:
        verb = dice.choice(("cancel", "move"))
        if timers and (not jobs or dice.random() < 0.5):
            await client.call([f"{verb} timer", dice.choice(timers), dice.random() * 5])
        else:
            await client.call([verb, dice.choice(jobs), dice.random() * 5])

    async def handle(self, node: Node, message: Message) -> Any:
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        what, *rest = message.request
        if what in ("accept", "unfinished"):
            return await super().handle(node, message)
        try:
            return await self._act(app, message.id, what, rest)
        except AlreadyEnded as ended:
            return str(ended.details["state"])
        except (NoSuchJob, NoSuchTimer):
            return "gone"

    async def _act(self, app: App, id_: str, what: str, rest: list[Any]) -> str:
        if what == "timer":
            body = {"what": "count", "timer": id_}
            await app.timers.set(id_, queue="work", body=body, delay_s=rest[0], replace=False)
            return id_
        if what == "cancel":
            await app.cancel(rest[0])
            return "cancelled"
        if what == "move":
            await app.move(rest[0], delay_s=rest[1])
            return "moved"
        if what == "cancel timer":
            await app.timers.cancel(rest[0])
            return "cancelled"
        if what == "move timer":
            await app.timers.move(rest[0], delay_s=rest[1])
            return "moved"
        await (app.queues.pause if what == "pause" else app.queues.resume)(rest[0])
        return what

    async def _unfinished(self, tx: Transaction) -> list[str]:
        left = await super()._unfinished(tx)
        for slot in range(self.slots):
            rows = await tx.scan(f"timer#{slot:016d}")
            left += [row.key[1] for row in rows if row.value.get("state", "active") == "active"]
        return left

    def ends(self, id_: str, what: str) -> tuple[str, ...]:
        return (*super().ends(id_, what), "cancelled")

    def judge_outcome(self, outcome: Outcome) -> None:
        asked: set[str] = set()
        made = Counter(job["body"].get("timer") for job in outcome.jobs.values())
        for call in outcome.history.calls:
            what, *rest = call.request
            if what not in ("cancel", "cancel timer"):
                continue
            asked.add(rest[0])
            if not any(answer.body == "cancelled" for answer in call.answers):
                continue
            if what == "cancel" and outcome.jobs[rest[0]]["state"] != "cancelled":
                violated("not cancelled", f"{rest[0]} is {outcome.jobs[rest[0]]['state']}")
            if what == "cancel timer" and made[rest[0]]:
                violated("not cancelled", f"the timer {rest[0]} fired {made[rest[0]]} times")
        for id_, job in outcome.jobs.items():
            if job["state"] == "cancelled" and id_ not in asked:
                violated("wrong end", f"{id_} is cancelled without a request")
        for call in outcome.history.calls:
            if call.request[0] == "timer" and made[call.id] != 1 and call.id not in asked:
                violated("timer", f"{call.id} fired {made[call.id]} times")
            if call.request[0] == "timer" and made[call.id] > 1:
                violated("timer", f"{call.id} fired {made[call.id]} times")
        super().judge_outcome(outcome)
