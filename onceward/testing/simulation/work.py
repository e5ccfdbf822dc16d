"""The scenario for messages and handlers: exactly-once effects, in order, with steps."""

import asyncio
import random
from itertools import pairwise
from typing import Any

from onceward.app import App
from onceward.errors import Fail, Retry
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import violated
from onceward.work.job import Job

_POISON = 3
"""The number of attempts of a message that always fails."""


class Work(Handlers):
    """Messages that count, call the outside world, send others, sleep, fail and retry."""

    clients = (2, 5)
    operations = (10, 30)

    def setup(self, random: random.Random) -> None:
        self.lease_s_job = random.choice((3.0, 5.0, 15.0))
        self.limit = random.choice((0, 0, 1, 3))
        self.limit_per_key = random.choice((0, 1, 2))
        self.order_keys = random.choice((1, 2, 5))

    def message(self, random: random.Random) -> tuple[str, Any]:
        what = random.choices(
            ("count", "steps", "hold", "flaky", "poison", "fail", "sleep", "send"),
            (4, 4, 3, 2, 1, 1, 1, 2),
        )[0]
        body = {"what": what, "failures": random.randint(1, 2), "pause_s": random.random() * 3}
        if random.random() < 0.4:
            body["linger_s"] = random.random() * 4
        return random.choice(("work", "ordered", "gated")), body

    def options(self, queue: str, body: Any, random: random.Random) -> dict[str, Any]:
        key = f"k{random.randrange(self.order_keys)}"
        options: dict[str, Any] = {"attempts_max": _POISON} if body["what"] == "poison" else {}
        if queue == "ordered":
            options["order_key"] = key
        if queue == "gated":
            options["limit_key"] = key
        return options

    def declare(self, app: App, outside: Outside) -> None:
        options: dict[str, Any] = {
            "lease_s": self.lease_s_job,
            "retry_first_s": 0.2,
            "retry_max_s": 1,
            "attempts_max": 0,
        }

        async def handle(job: Job) -> Any:
            return await _handle(job, outside)

        app.handler("work", limit=self.limit, **options)(handle)
        app.handler("ordered", **options)(handle)
        app.handler("gated", limit_per_key=self.limit_per_key, **options)(handle)

        @app.handler("sent", **options)
        async def sent(job: Job) -> None:
            await _count(job)
            job.tx.put(("child", job.body["parent"]), job.id)

    def ends(self, id_: str, what: str) -> tuple[str, ...]:
        """The permitted final states of a message."""
        ends = {"poison": ("failed",), "fail": ("failed",), "hold": ("succeeded", "in_doubt")}
        return ends.get(what, ("succeeded",))

    def judge_outcome(self, outcome: Outcome) -> None:
        effects = outcome.records("effects")
        steps, holds = outcome.counts("step"), outcome.counts("hold")
        attempts, children = outcome.counts("attempt"), outcome.records("child")
        for id_, job in outcome.jobs.items():
            what, state = job["body"].get("what", "sent"), job["state"]
            times = effects.get(id_, 0)
            if state not in self.ends(id_, what):
                violated("wrong end", f"{id_} ({what}) is {state}: {job.get('reason')}")
            if times != (state == "succeeded"):
                violated("not once", f"{id_} ({what}) is {state} and took effect {times} times")
            if state == "cancelled":
                continue
            if what == "poison" and (job["attempt"] != _POISON or attempts[id_] > _POISON):
                violated(
                    "attempts", f"{id_} failed at {job['attempt']} after {attempts[id_]} attempts"
                )
            if what == "steps" and not steps[id_]:
                violated("step lost", f"{id_} is {state}, but its step never ran")
            if holds[id_] > 1 or (what == "hold" and state == "succeeded" and not holds[id_]):
                violated("not at most once", f"{id_} is {state}, called {holds[id_]} times")
            if (what == "send") != (id_ in children):
                violated("child", f"{id_} ({what}) has the child {children.get(id_)}")
        sent = [id_ for id_, job in outcome.jobs.items() if job["queue"] == "sent"]
        if sorted(children.values()) != sorted(sent):
            violated("child", f"{sorted(sent)} were sent, {children} are known")
        self._judge_results(outcome)
        self._judge_order(outcome)

    def _judge_results(self, outcome: Outcome) -> None:
        """The job must use the recorded result of its step in all attempts."""
        receipts = {
            (effect.id, f"{effect.what} {number}")
            for number, effect in enumerate(outcome.effects, 1)
        }
        for id_, job in outcome.jobs.items():
            if job["state"] == "succeeded" and job["body"].get("what") in ("steps", "hold"):
                for receipt in job["result"]:
                    if (id_, receipt) not in receipts:
                        violated("result", f"{id_} ended with {job['result']}")

    def _judge_order(self, outcome: Outcome) -> None:
        """A message that was accepted before another one was sent is handled before it."""
        order = outcome.records("order")
        calls = {
            outcome.accepted[call.id]: call
            for call in outcome.history.calls
            if call.request[0] == "accept"
        }
        by_key: dict[str, list[tuple[int, str]]] = {}
        for id_, job in outcome.jobs.items():
            key = job.get("options", {}).get("order_key")
            if key and job["state"] == "succeeded":
                by_key.setdefault(key, []).append((order[id_], id_))
        for key, handled in by_key.items():
            numbers = [number for number, _ in sorted(handled)]
            if len(set(numbers)) != len(numbers):
                violated("order", f"{key}: two have the same number in {handled}")
            for (_, one), (_, other) in pairwise(sorted(handled)):
                if calls[other].returned_ns < calls[one].called_ns:
                    violated("order", f"{key}: {one} ran before {other}, but was sent later")


async def _handle(job: Job, outside: Outside) -> Any:
    what, body = job.body["what"], job.body
    receipts: list[Any] = []
    if what == "flaky" and job.attempt <= body["failures"]:
        raise Retry("not yet", after_s=0.3) if body["failures"] > 1 else RuntimeError("flaky")
    if what == "poison":
        outside.note("attempt", job.id)
        if outside.node.random.random() < body.get("kills", 0.0):
            outside.node.crash("crash in a handler")
            await asyncio.sleep(0)
        raise RuntimeError("poison")
    if what == "fail":
        raise Fail("not to be done")
    if what == "sleep":
        await job.sleep(body["pause_s"])
    if what == "steps":
        receipts = [
            await job.step("first", outside.call, "step", job.id),
            await job.step("second", outside.call, "step", job.id),
        ]
    if what == "hold":
        receipts = [await job.step("hold", outside.call, "hold", job.id, at_most_once=True)]
    await asyncio.sleep(body.get("linger_s", 0.0))
    await _count(job)
    if what == "send":
        await job.send("sent", {"parent": job.id})
    return receipts


async def _count(job: Job) -> None:
    """Record the effect, and its position among those of its order key."""
    key = ("effects", job.id)
    job.tx.put(key, (await job.tx.get(key) or 0) + 1)
    if job.order_key is not None:
        last = ("last", job.order_key)
        number = (await job.tx.get(last) or 0) + 1
        job.tx.put(last, number)
        job.tx.put(("order", job.id), number)
