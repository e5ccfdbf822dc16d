"""A process to be killed and paused: a node with workers, on a database that it shares.

Run as `python -m tests.schedule.clerk URL NAME WALL_OFFSET_MS`. On stdout come "started", then
"done ID" for each job whose completion was acknowledged and "stale ID" for each that was
refused, "contended" when others were faster again and again, and "stopped" when the node has
stopped, which it does after SIGTERM. The machine's wall clock seems to be off by so much.

The effect of a job is committed together with its completion: it is counted, and if it has an
order key, written behind the others of that key.
"""

import asyncio
import os
import signal
import sys
import time
from random import Random

from onceward import keys
from onceward.clock import Clock
from onceward.engine.postgres import PostgresEngine
from onceward.errors import Contention, StaleToken, Unavailable
from onceward.keys import Key
from onceward.node import Node
from onceward.schedule import Claim
from onceward.store import Store
from onceward.store.transaction import Transaction

QUEUE = "work"
WORKERS = 12
LEASE_MS = 1_500
"""Of nodes, and of jobs."""
EFFECTS = "effect"
WORK_S_MAX = 0.05


def effect_key(id_: str) -> Key:
    return EFFECTS, id_


def log_partition(order_key: str) -> str:
    return keys.join("log", order_key)


def say(text: str) -> None:
    data = f"{text}\n".encode()
    while data:
        data = data[os.write(1, data) :]


async def finish(node: Node, claim: Claim) -> None:
    async def fn(tx: Transaction) -> None:
        await node.schedule.complete(tx, claim.id, claim.token)
        tx.put(effect_key(claim.id), (await tx.get(effect_key(claim.id)) or 0) + 1)
        if claim.options.order_key is not None:
            count_key = ("count", claim.options.order_key)
            count = await tx.get(count_key) or 0
            tx.put(count_key, count + 1)
            tx.put((log_partition(claim.options.order_key), keys.number(count)), claim.body)

    await node.store.run(fn)


async def work(node: Node, name: str, random: Random) -> None:
    """Claim, work and complete until the node stops."""
    while True:
        try:
            claims = await node.claims.claim(
                QUEUE, name, lease_ms=LEASE_MS, most=random.randint(1, 4), wait_s=5
            )
        except Contention:
            say("contended")
            continue
        except Unavailable as error:
            if error.code != "node_stopped":
                raise
            return
        for claim in claims:
            await node.store.clock.sleep(random.uniform(0, WORK_S_MAX))
            try:
                await finish(node, claim)
                say(f"done {claim.id}")
            except StaleToken:
                say(f"stale {claim.id}")


async def main(url: str, name: str, wall_offset_ms: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clock = Clock(lambda: time.time_ns() + wall_offset_ms * 1_000_000)
    async with PostgresEngine(url) as engine:
        node = await Node(Store(engine, clock), name=name, lease_ms=LEASE_MS).start()
        say("started")
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(work(node, f"{name}.{number}", Random()))
            group.create_task(node.wait())
            await stop.wait()
            await node.stop()
            say("stopped")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
