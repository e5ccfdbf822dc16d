"""The scenario for recurring timers: pauses, changes and overlap policies during crashes."""

import asyncio
from collections import Counter
from itertools import combinations, pairwise
from typing import Any

from onceward.app import App
from onceward.errors import AlreadyEnded, KeyReused, NoSuchTimer, Unavailable
from onceward.store.transaction import Transaction
from onceward.testing.simulation.handlers import Outcome
from onceward.testing.simulation.history import violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.weather import CLOCK_OFFSET_MS_MAX
from onceward.testing.simulation.work import Work
from onceward.testing.simulation.world import Node

_PAUSE_S = 1.0
# Times of two nodes differ by up to this.
_SLACK_MS = 2 * CLOCK_OFFSET_MS_MAX


class Recurring(Work):
    """Timers that end after some firings, and operators who pause, resume and change them."""

    operations = (6, 14)

    async def client(self, client: Client) -> None:
        dice = client.random
        timers: list[str] = []
        for _ in range(client.operations):
            if not timers or dice.random() < 0.3:
                every_s, overlap = 0.2 + dice.random() * 2, dice.choice(("allow", "skip", "queue"))
                asked = ["recurring", every_s, dice.randint(1, 6), overlap, dice.random() * 3]
                timers.append(await client.call(asked))
            else:
                verb = dice.choice(("pause timer", "resume timer", "change timer", "move timer"))
                await client.call([verb, dice.choice(timers), 0.2 + dice.random() * 3])
            await client.think()
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):
            for timer in timers:
                await client.call(["resume timer", timer])  # a pause may have come late
            await asyncio.sleep(_PAUSE_S)

    async def handle(self, node: Node, message: Message) -> Any:
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        what, *rest = message.request
        if what == "unfinished":
            return await super().handle(node, message)
        try:
            return await self._act(app, message.id, what, rest)
        except AlreadyEnded as ended:
            return str(ended.details["state"])
        except NoSuchTimer:
            return "gone"

    async def _act(self, app: App, id_: str, what: str, rest: list[Any]) -> str:
        if what == "recurring":
            every_s, times, overlap, linger_s = rest
            body = {"what": "count", "timer": id_, "linger_s": linger_s, "overlap": overlap}
            try:
                await app.timers.set(
                    id_,
                    queue="work",
                    body=body,
                    every_s=every_s,
                    times=times,
                    overlap=overlap,
                    replace=False,
                )
            except KeyReused:  # it came again, after a change
                pass
            return id_
        if what == "pause timer":
            return (await app.timers.pause(rest[0])).status
        if what == "resume timer":
            return (await app.timers.resume(rest[0])).status
        if what == "change timer":
            return (await app.timers.update(rest[0], {"every_s": rest[1]})).status
        return (await app.timers.move(rest[0], delay_s=rest[1])).status

    async def _unfinished(self, tx: Transaction) -> list[str]:
        left = await super()._unfinished(tx)
        for slot in range(self.slots):
            rows = await tx.scan(f"timer#{slot:016d}")
            left += [
                row.key[1]
                for row in rows
                if row.value.get("state", "active") in ("active", "suspended")
            ]
        return left

    def judge_outcome(self, outcome: Outcome) -> None:
        made = Counter(job["body"].get("timer") for job in outcome.jobs.values())
        for call in outcome.history.calls:
            if call.request[0] == "recurring" and made[call.id] != call.request[2]:
                violated(
                    "timer", f"{call.id} fired {made[call.id]} times, not {call.request[2]} times"
                )
        for id_ in made:
            self._judge_overlap(outcome, id_)
        super().judge_outcome(outcome)

    def _judge_overlap(self, outcome: Outcome, timer: str) -> None:
        """Firings of a timer end before the next one starts, unless its policy allows otherwise."""
        jobs = [job for job in outcome.jobs.values() if job["body"].get("timer") == timer]
        if len(jobs) < 2 or jobs[0]["body"]["overlap"] != "skip":
            return
        for one, other in combinations(jobs, 2):
            ended_ms = min(one["ended_ms"], other["ended_ms"])
            if ended_ms - max(one["created_ms"], other["created_ms"]) > _SLACK_MS:
                violated("overlap", f"{timer} fired during its last firing")

    def _judge_order(self, outcome: Outcome) -> None:
        """Queued firings of a timer are handled in the order of their times."""
        order = outcome.records("order")
        by_key: dict[str, list[tuple[int, int]]] = {}
        for id_, job in outcome.jobs.items():
            key = job.get("options", {}).get("order_key")
            if key and job["state"] == "succeeded":
                by_key.setdefault(key, []).append((order[id_], job["created_ms"]))
        for key, handled in by_key.items():
            for (_, first_ms), (_, second_ms) in pairwise(sorted(handled)):
                if first_ms - second_ms > _SLACK_MS:
                    violated("order", f"{key}: a firing was handled before an earlier one")
