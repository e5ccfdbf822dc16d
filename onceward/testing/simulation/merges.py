"""The scenario for debounce keys and batch keys: each message is handled in exactly one job."""

import asyncio
import random
from collections import defaultdict
from typing import Any

from onceward.app import App
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import Call, violated
from onceward.work.job import Job


class Merges(Handlers):
    """Messages with few keys, so that they meet jobs in every stage."""

    clients = (2, 4)
    operations = (10, 25)

    def setup(self, random: random.Random) -> None:
        self.keys = random.choice((1, 2, 4))
        self.lease_s_job = random.choice((3.0, 8.0))
        self.linger_s = random.choice((0.0, 0.3, 2.0))
        self.wait_s = random.choice((0.0, 0.2, 1.0))
        self.size = random.choice((1, 2, 4, 1_000))
        self.ordered = random.random() < 0.3

    def message(self, random: random.Random) -> tuple[str, Any]:
        fails = random.random() < 0.4
        return random.choice(("batched", "debounced")), [random.getrandbits(60), fails]

    def options(self, queue: str, body: Any, random: random.Random) -> dict[str, Any]:
        key = f"k{random.randrange(self.keys)}"
        order = {"order_key": key} if self.ordered else {}
        if queue == "batched":
            return {"batch_key": key, "batch_s": self.wait_s, "batch_size": self.size, **order}
        return {
            "debounce_key": key,
            "debounce_s": self.wait_s,
            "debounce_max_s": 2 * self.wait_s,
            **order,
        }

    def declare(self, app: App, outside: Outside) -> None:
        async def handle(job: Job) -> None:
            outside.note("run", job.id, job.body)
            messages = job.body if job.queue == "batched" else [job.body]
            await asyncio.sleep(self.linger_s * outside.node.random.random())
            if job.attempt == 1 and any(fails for _, fails in messages):
                raise RuntimeError("not yet")
            job.tx.put(("handled", job.id), job.body)

        for queue in ("batched", "debounced"):
            options: dict[str, Any] = {"retry_first_s": 1, "retry_max_s": 2, "attempts_max": 0}
            app.handler(queue, lease_s=self.lease_s_job, concurrency=4, **options)(handle)

    def judge_outcome(self, outcome: Outcome) -> None:
        runs: defaultdict[str, list[Any]] = defaultdict(list)
        for effect in outcome.effects:
            runs[effect.id].append(effect.value)
        handled = outcome.records("handled")
        for id_, job in outcome.jobs.items():
            if any(body != handled.get(id_) for body in [*runs[id_], job["body"]]):
                violated("another body", f"{id_} had {runs[id_]}, {handled.get(id_)}, {job}")
        calls = [call for call in outcome.history.calls if call.request[0] == "accept"]
        by_body = {call.request[2][0]: call for call in calls}
        messages = [
            tuple(m) for id_, body in handled.items() for m in _messages(outcome, id_, body)
        ]
        if len(set(messages)) != len(messages):
            violated("twice", f"a message is in two jobs: {messages}")
        for call in calls:
            id_ = outcome.accepted[call.id]
            found = [by_body[number] for number, _ in _messages(outcome, id_, handled[id_])]
            if call.request[1] == "batched":
                if call not in found:
                    violated("lost", f"{call.id} was accepted as {id_}, which has {handled[id_]}")
            else:
                _judge_last(call, found[0], id_)


def _judge_last(call: Call, last: Call, id_: str) -> None:
    """A job with a debounce key has a body that was not replaced by that of a later message."""
    if last.request[3]["debounce_key"] != call.request[3]["debounce_key"]:
        violated("lost", f"{call.id} was accepted as {id_}, a job of another key")
    if last.returned_ns < call.called_ns:
        violated("lost", f"{id_} ran with the body of {last.id}, but {call.id} was sent later")


def _messages(outcome: Outcome, id_: str, body: Any) -> list[Any]:
    found: list[Any] = body if outcome.jobs[id_]["queue"] == "batched" else [body]
    return found
