"""The scenario for jobs that wait: for children, for the first of several, and for events."""

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any

from onceward.app import App
from onceward.errors import AlreadyEnded, ChildFailed, Fail, NoSuchJob, Unavailable
from onceward.store.transaction import Transaction
from onceward.testing.simulation.handlers import Handlers, Outcome, Outside
from onceward.testing.simulation.history import violated
from onceward.testing.simulation.network import Client, Message
from onceward.testing.simulation.world import Node
from onceward.work.children import ChildJob
from onceward.work.job import Job

_EVENT = "go"


class Families(Handlers):
    """Parents that gather children, wait for the first one and for events; some are cancelled."""

    clients = (2, 4)
    operations = (4, 10)

    def setup(self, random: random.Random) -> None:
        self.lease_s_job = random.choice((3.0, 5.0, 15.0))
        self.limit = random.choice((0, 0, 1, 3))

    def message(self, random: random.Random) -> tuple[str, Any]:
        return "parent", {
            "gathers": [random.choice((0, 1, 3, 6, 20)) for _ in range(random.randint(0, 2))],
            "any": random.choice((0, 0, 1, 4)),
            "events": random.choice((0, 1, 2)),
            "timeout_s": random.choice((None, None, 0.0, 2.0)),
            "keep": random.random() < 0.2,
            "fails": random.random() < 0.1,
            "bad_child": random.random() < 0.2,
            "linger_s": random.choice((0.0, random.random() * 4)),
            "child_s": random.choice((0.0, random.random() * 2)),
        }

    def options(self, queue: str, body: Any, random: random.Random) -> dict[str, Any]:
        return {"order_key": f"k{random.randrange(2)}"} if random.random() < 0.2 else {}

    def declare(self, app: App, outside: Outside) -> None:
        options: dict[str, Any] = {
            "lease_s": self.lease_s_job,
            "retry_first_s": 0.2,
            "retry_max_s": 1,
            "attempts_max": 0,
        }

        @app.handler("parent", concurrency=4, **options)
        async def parent(job: Job) -> Any:
            return await _parent(job, outside)

        @app.handler("child", limit=self.limit, concurrency=4, **options)
        async def child(job: Job) -> int:
            await asyncio.sleep(job.body["child_s"] * outside.node.random.random())
            await _count(job)
            if job.body["bad"]:
                raise Fail("a bad child")
            return int(job.body["n"]) * 2

    async def client(self, client: Client) -> None:
        dice = client.random
        for _ in range(client.operations):
            queue, body = self.message(dice)
            options = self.options(queue, body, dice)
            id_ = (await client.call(["accept", queue, body, options]))["id"]
            await client.think()
            for number in range(body["events"]):
                await client.call(["emit", id_, f"{id_}/{number}"])
                if dice.random() < 0.5:
                    await client.think()
            if dice.random() < 0.1:
                await client.call(["cancel", id_])
        while await client.call(["unfinished"]) or await client.call(["unfinished"]):  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def handle(self, node: Node, message: Message) -> Any:
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        what, *rest = message.request
        if what in ("accept", "unfinished"):
            return await super().handle(node, message)
        try:
            if what == "cancel":
                await app.cancel(rest[0])
                return "cancelled"
            await app.emit(rest[0], _EVENT, rest[1], key=message.id)
        except (AlreadyEnded, NoSuchJob):
            return "ended"
        return "sent"

    async def _unfinished(self, tx: Transaction) -> list[str]:
        """Also what a parent that has ended has left to be cleaned up."""
        rows = [row for slot in range(self.slots) for row in await tx.scan(f"job#{slot:04d}")]
        failed = {row.key[1][:-4] for row in rows if row.value.get("stage") == "failed"}
        left = await super()._unfinished(tx)
        for slot in range(self.slots):
            for row in await tx.scan(f"family#{slot:04d}"):
                if row.key[1].partition("#")[0] not in failed:
                    left.append(row.key[1])
        return left

    def judge_outcome(self, outcome: Outcome) -> None:
        children: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for job in outcome.jobs.values():
            if job["queue"] == "child":
                children[job["parent"][0]].append(job)
        cancels = {call.request[1] for call in outcome.history.calls if call.request[0] == "cancel"}
        seen: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        for effect in outcome.effects:
            seen[effect.id, effect.what].append(effect.value)
        for (id_, what), values in seen.items():
            if any(value != values[0] for value in values):
                violated("another answer", f"{what} of {id_} was {values} in its attempts")
        effects = outcome.records("effects")
        for id_, job in outcome.jobs.items():
            times = effects.get(id_, 0)
            if times != (job["state"] == "succeeded"):
                violated("not once", f"{id_} is {job['state']} and took effect {times} times")
            if job["queue"] == "parent":
                _judge_parent(id_, job, children[id_], id_ in cancels)

    def unfinished(self, final: Any) -> list[str]:
        left = [key[1] for key in final if key[0].startswith("family#")]
        return [*super().unfinished(final), *left]


def _judge_parent(
    id_: str, job: dict[str, Any], children: list[dict[str, Any]], cancelled: bool
) -> None:
    body, state = job["body"], job["state"]
    permitted = {"failed" if body["fails"] else "succeeded"} | (
        {"cancelled"} if cancelled else set()
    )
    if state not in permitted:
        violated("wrong end", f"{id_} is {state}: {job.get('reason')}")
    asked = [*body["gathers"], *([body["any"]] if body["any"] else [])]
    places = Counter((child["parent"][1], child["parent"][2]) for child in children)
    wanted = [(call, n) for call, total in enumerate(asked, 1) for n in range(total)]
    if any(times > 1 for times in places.values()) or not places.keys() <= set(wanted):
        violated("child", f"{id_} has the children {places}")
    if state == "cancelled":
        return
    if set(places) != set(wanted):
        violated("child", f"{id_} has the children {sorted(places)}, not {wanted}")
    gathered = {
        (child["parent"][1], child["parent"][2]): child["state"]
        for child in children
        if child["parent"][1] <= len(body["gathers"])
    }
    for (call, n), ended in gathered.items():
        if ended != ("failed" if _bad(body, n) else "succeeded"):
            violated("child", f"child {n} of call {call} of {id_} is {ended}")
    if state == "succeeded":
        _judge_result(id_, body, job["result"])


def _judge_result(id_: str, body: dict[str, Any], result: dict[str, Any]) -> None:
    for total, found in zip(body["gathers"], result["gathers"], strict=True):
        if found != ["failed" if _bad(body, n) else 2 * n for n in range(total)]:
            violated("result", f"{id_} gathered {found}")
    if body["any"]:
        position, value = result["any"]
        if value != ("failed" if _bad(body, position) else 2 * position):
            violated("result", f"{id_} got {value} from child {position}")
    got = [value for value in result["events"] if value != "timeout"]
    if got != [f"{id_}/{number}" for number in range(len(got))]:
        violated("event", f"{id_} consumed {got}")
    if body["timeout_s"] is None and len(got) != body["events"]:
        violated("event", f"{id_} consumed {got}")


def _bad(body: dict[str, Any], n: int) -> bool:
    return bool(body["bad_child"]) and n == 0


async def _parent(job: Job, outside: Outside) -> Any:
    body, gathers = job.body, []

    def children(total: int) -> list[ChildJob[Any]]:
        return [
            ChildJob("child", {"n": n, "bad": _bad(body, n), "child_s": body["child_s"]})
            for n in range(total)
        ]

    for number, total in enumerate(body["gathers"]):
        found = await job.gather(*children(total), keep=body["keep"], return_exceptions=True)
        gathers.append(["failed" if isinstance(one, ChildFailed) else one for one in found])
        outside.note(f"gather {number}", job.id, gathers[-1])
    first: Any = None
    if body["any"]:
        try:
            first = list(await job.wait_any(*children(body["any"]), keep=body["keep"]))
        except ChildFailed:
            first = [0, "failed"]
        outside.note("any", job.id, first)
    events = []
    for number in range(body["events"]):
        try:
            events.append(await job.wait_for(_EVENT, timeout_s=body["timeout_s"]))
        except TimeoutError:
            events.append("timeout")
        outside.note(f"event {number}", job.id, events[-1])
    await asyncio.sleep(body["linger_s"])
    if body["fails"]:
        raise Fail("not to be done")
    await _count(job)
    return {"gathers": gathers, "any": first, "events": events}


async def _count(job: Job) -> None:
    key = ("effects", job.id)
    job.tx.put(key, (await job.tx.get(key) or 0) + 1)
