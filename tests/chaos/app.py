"""What is served while everything fails: work in steps, work in order, and a game.

The environment says where: CHAOS_DATABASE, CHAOS_NAME, and CHAOS_LEDGER for the ledger's port.
What is left by those who are killed is taken up soon.
"""

import os
from typing import Any

from onceward import limits
from onceward.app import App
from onceward.clock import boot_ns
from onceward.errors import Retry
from onceward.tables.games import Outcome, Rules, won
from onceward.work.job import Job
from tests.chaos.outside import tell
from tests.chaos.terms import EFFECTS, LEASE_S, ORDERS

WRONG_MAX = 10
PAUSES = {"retry_first_s": 0.05, "retry_max_s": 0.5}
QUICK: dict[str, Any] = {"lease_s": LEASE_S, "attempts_max": 0, **PAUSES}

limits.OUTWARD_SLACK_S = 1.0
app = App(
    os.environ["CHAOS_DATABASE"],
    name=os.environ["CHAOS_NAME"],
    slots=16,
    node_lease_s=LEASE_S,
    drain_s=10,
)


async def _tell(what: str, subject: str, job: Job) -> int:
    port = int(os.environ["CHAOS_LEDGER"])
    answer = await tell(port, what=what, subject=subject, job=job.id, begun_ns=boot_ns())
    return int(answer["receipt"])


@app.handler("work", concurrency=16, **QUICK)
async def work(job: Job) -> Any:
    """Two steps outside, and one effect inside, in the commit that ends the job."""
    key = job.body["key"]
    first = await job.step("first", _tell, "first", key, job)
    second = await job.step("second", _tell, "second", key, job)
    if job.attempt <= job.body["fails"]:
        raise Retry("it is to fail at first")
    count = await job.tx.get((EFFECTS, key), int) or 0
    job.tx.put((EFFECTS, key), count + 1)
    return [first, second]


@app.handler("orders", concurrency=16, **QUICK)
async def order(job: Job) -> None:
    """Notes in the database what came after what."""
    key, n = (ORDERS, job.body["line"]), job.body["n"]
    found: Any = await job.tx.get(key, list)
    last, count, wrong = found or [0, 0, []]
    if n != last + 1 and len(wrong) < WRONG_MAX:
        wrong.append([last, n])
    job.tx.put(key, [max(n, last), count + 1, wrong])


@app.handler("fired", concurrency=16, **QUICK)
async def fired(job: Job) -> None:
    """What timers do that call nobody."""
    await job.step("tell", _tell, "fired", job.body["timer"], job)


@app.handler("ballast", concurrency=4, **QUICK)
async def ballast(job: Job) -> int:
    """What fills a disk."""
    return len(job.body["load"])


class Nim(Rules):
    """Who takes the last match wins."""

    name, seats = "nim", ("first", "second")

    def start(self, seed: str) -> Any:
        return {"left": 9, "taker": ""}

    def moves(self, state: Any, seat: str) -> list[int]:
        return [count for count in (1, 2, 3) if count <= state["left"]]

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return {"left": state["left"] - move, "taker": seat}

    def outcome(self, state: Any) -> Outcome | None:
        return None if state["left"] else won(state["taker"])


app.game(Nim())
app.queue("outside-orders", attempts_max=0, **PAUSES)
