"""The scenario for output of jobs: streams with steps and retries, and readers that follow them."""

import asyncio
import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from onceward.api.jobs import ENDED
from onceward.app import App
from onceward.errors import Unavailable
from onceward.keys import Key
from onceward.schedule.records import output_key
from onceward.store.transaction import Transaction
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import Stored, violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.world import Node
from onceward.work import output
from onceward.work.job import Job

_PAD_CHARS = 6_000  # a few such chunks are a page


class Streams(Handlers):
    """Handlers that stream in steps and outside of them, fail, and conflict with each other."""

    clients = (2, 3)
    operations = (3, 6)

    def setup(self, random: random.Random) -> None:
        self.lease_s_job = random.choice((3.0, 5.0, 15.0))

    def message(self, random: random.Random) -> tuple[str, Any]:
        parts = random.randint(1, 4)
        return "story", {
            "parts": [
                {"step": part + 1 < parts and random.random() < 0.6, "chunks": random.randint(1, 8)}
                for part in range(parts)
            ],
            "pad": random.choice((0, 0, _PAD_CHARS)),
            "pause_s": random.choice((0.0, 0.1, 0.5)),
            "fails": random.choice((0.0, 0.3)),
            "shared": random.random() < 0.3,
        }

    def declare(self, app: App, outside: Outside) -> None:
        @app.handler(
            "story",
            concurrency=4,
            lease_s=self.lease_s_job,
            retry_first_s=0.2,
            retry_max_s=1,
            attempts_max=0,
        )
        async def story(job: Job) -> int:
            return await _story(job, outside.node.random)

    async def client(self, client: Client) -> None:
        readers = []
        for _ in range(client.operations):
            queue, body = self.message(client.random)
            id_ = (await client.call(["accept", queue, body, {}]))["id"]
            readers.append(asyncio.create_task(_read(client, id_)))
            await client.think()
        for reader in readers:
            await reader
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def handle(self, node: Node, message: Message) -> Any:
        if message.request[0] != "read":
            return await super().handle(node, message)
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        _, id_, after = message.request

        async def read(tx: Transaction) -> Any:
            job = await app.node.schedule.get(tx, id_)
            return msgspec.to_builtins(await output.read(tx, id_, job, after))

        return await app.store.run(read)

    def judge_outcome(self, outcome: Outcome) -> None:
        streams = _streams(outcome.history.final)
        for id_, job in outcome.jobs.items():
            stream = streams.get(id_, [])
            _judge_stream(id_, job["body"], stream)
            found = outcome.history.final[output_key(id_)].value
            if found.get("progress") != 1.0:
                violated("progress", f"the last progress of {id_} is {found.get('progress')}")
            if job["result"] != sum(part["chunks"] for part in job["body"]["parts"]):
                violated("result", f"{id_} returned {job['result']}")
        for call in outcome.history.calls:
            if call.request[0] == "read" and call.request[2] == 0 and call.answers:
                _judge_order(call.request[1], [one["seq"] for one in call.answer["chunks"]])


async def _story(job: Job, dice: random.Random) -> int:
    body, told = job.body, 0
    run = f"{job.attempt} {dice.random()}"

    async def tell(part: int) -> int:
        count = int(body["parts"][part]["chunks"])
        for number in range(count):
            await asyncio.sleep(body["pause_s"] * dice.random())
            chunk = {"part": part, "number": number, "run": run, "pad": "x" * body["pad"]}
            await job.stream(chunk)
        return count

    for part, plan in enumerate(body["parts"]):
        await job.progress(part / len(body["parts"]), f"part {part}")
        told += await (job.step(f"part {part}", tell, part) if plan["step"] else tell(part))
        if dice.random() < body["fails"]:
            raise ValueError("it has failed on purpose")
    await job.progress(1)
    if body["shared"]:  # a conflict runs the handler again
        key = ("shared", "number")
        job.tx.put(key, (await job.tx.get(key) or 0) + 1)
    return told


async def _read(client: Client, id_: str) -> None:
    """Follow a job, and compare what a reader has seen with what is stored in the end."""
    seen: list[Any] = []
    after = 0
    while True:
        found = await client.call(["read", id_, after])
        if found["restarted"]:
            seen.clear()
        _judge_order(id_, [after, *[one["seq"] for one in found["chunks"]]])
        seen += found["chunks"]
        after = found["seq"]
        if found["state"] in ENDED and not found["more"]:
            break
        await asyncio.sleep(client.random.random() * 2)
    whole, after, more = [], 0, True
    while more:
        found = await client.call(["read", id_, after])
        whole += found["chunks"]
        after, more = found["seq"], found["more"]
    if seen != whole:
        violated("reader", f"a reader of {id_} has seen {_brief(seen)}, not {_brief(whole)}")


def _judge_order(id_: str, seqs: list[int]) -> None:
    if any(one >= other for one, other in pairwise(seqs)):
        violated("order", f"the positions of chunks of {id_} are {seqs}")


def _streams(final: Mapping[Key, Stored]) -> dict[str, list[Any]]:
    """The stored streams: pages, and then the last chunks."""
    found: dict[str, list[Any]] = {}
    for key in sorted(final):
        if key[0].startswith("output#"):
            found.setdefault(key[1].partition("#")[0], []).extend(final[key].value)
    for key in final:
        if key[0].startswith("job#") and key[1].endswith("#output"):
            id_ = key[1].removesuffix("#output")
            found.setdefault(id_, []).extend(final[key].value.get("tail", []))
    return found


def _judge_stream(id_: str, body: dict[str, Any], stream: list[Any]) -> None:
    """Each part is there once and whole, from one run; those outside of steps from the last one."""
    _judge_order(id_, [seq for seq, *_ in stream])
    chunks = [value for _, value, *_ in stream]
    last = chunks[-1]["run"] if chunks else None
    for part, plan in enumerate(body["parts"]):
        told = [chunk for chunk in chunks if chunk["part"] == part]
        if [chunk["number"] for chunk in told] != list(range(plan["chunks"])):
            violated("stream", f"part {part} of {id_} is {_brief(told)}")
        runs = {chunk["run"] for chunk in told}
        if len(runs) != 1 or (not plan["step"] and runs != {last}):
            violated("stream", f"part {part} of {id_} is of several runs: {_brief(told)}")
    if any(chunk["pad"] != "x" * body["pad"] for chunk in chunks):
        violated("stream", f"chunks of {id_} have changed")


def _brief(chunks: list[Any]) -> list[Any]:
    values = [one.get("value", one) for one in chunks]
    return [(one["part"], one["number"], one["run"][:6]) for one in values]
