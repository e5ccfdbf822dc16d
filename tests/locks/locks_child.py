"""A process with a node and many users of locks: says each step on its standard output.

`python -m tests.locks.locks_child <database> <name> <users>`; ends when its input does.
"""

import asyncio
import json
import os
import random
import sys
from functools import partial
from typing import Any

from onceward import engine
from onceward.clock import Clock
from onceward.errors import PASSING
from onceward.locks import LockTable
from onceward.locks.server import Locks
from onceward.node import Node
from onceward.store import Store
from onceward.testing.locks import LockUser

# Most uses are of names that few want at the same time, the others all of the same few: if
# all were hot, one dead holder would let everybody wait.
HOT = {"h0": 1, "h1": 1, "h2": 1, "s2": 2, "s3": 3}
COLD = {f"c{n}": 1 for n in range(200)}
CAPACITIES = {**HOT, **COLD}
LEASE_MS = 1_000
NODE_LEASE_MS = 2_000


def say(*words: Any) -> None:
    """Straight to the pipe: what was said is heard, also if the process is killed next."""
    os.write(1, json.dumps(words).encode() + b"\n")


async def live(user: LockUser, clock: Clock, name: str, stop: asyncio.Event) -> None:
    """Use locks, again and again."""
    chance = random.Random(name)
    number = 0
    while not stop.is_set():
        number += 1
        some = HOT if chance.random() < 0.15 else COLD
        names = chance.sample(sorted(some), chance.choice((1, 1, 1, 2, 3)))
        pieces = [chance.choice((0, 0, 0, 0.002, 0.02)) for _ in range(chance.choice((0, 1, 1, 2)))]
        if chance.random() < 0.001:
            pieces.append(2 * LEASE_MS / 1000)
        try:
            await user.use(
                f"{name}-{number}",
                {lock: CAPACITIES[lock] for lock in names},
                lease_ms=LEASE_MS,
                wait_s=chance.choice((None, None, None, 0, 0.05, 1)),
                work=[partial(clock.sleep, piece_s) for piece_s in pieces],
            )
        except PASSING as error:
            say("trouble", error.code)
            await clock.sleep(0.05)


async def main(url: str, name: str, users: int) -> None:
    async with await engine.open(url) as database:
        store = Store(database)

        def note(what: str, use: str, facts: dict[str, Any]) -> None:
            say(store.clock.elapsed_ns(), what, use, facts)

        async with Node(store, name=name, slots=8, lease_ms=NODE_LEASE_MS) as node:
            node.act_on_parts()
            locks = Locks(store, node.parts.get(LockTable))
            user = LockUser(locks, note)
            stop = asyncio.Event()
            asyncio.get_running_loop().add_reader(0, stop.set)
            say("ready")
            async with asyncio.TaskGroup() as group:
                for number in range(users):
                    group.create_task(live(user, store.clock, f"{name}.{number}", stop))
            await locks.close()
        say("over", node.dispatcher.acted)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
