"""A process of the SQL shop: `python -m tests.examples.shop_child FOLDER node`, or `customer`.

A customer places orders, and appends the number of each one that was committed to a file.
"""

import asyncio
import os
import sys
from pathlib import Path
from random import Random

import uvloop
from sqlalchemy import text

from examples.sql_shop import shop
from onceward.clock import Clock
from tests.examples.shop_crew import ITEMS

WAITING_MAX = 30


async def buy(folder: Path) -> None:
    random, clock = Random(), Clock()
    with open(folder / f"orders.{os.getpid()}", "ab", buffering=0) as committed:
        while True:
            number, item = f"{random.getrandbits(64):016x}", random.choice(ITEMS)
            try:
                await shop.place(number, item)
            except Exception as error:  # the database is busy, or the connection was lost
                print(f"{number}: {error}", file=sys.stderr)
            else:
                committed.write(f"{number}\n".encode())
            while await waiting() > WAITING_MAX:
                await clock.sleep(0.05)


async def waiting() -> int:
    """The number of orders that have no invoice."""
    count = "SELECT (SELECT count(*) FROM orders) - (SELECT count(*) FROM invoices)"
    async with shop.Session() as session:
        return int((await session.execute(text(count))).scalar_one())


def work() -> None:
    # Without keys, only the lease of the outbox prevents a second job for a row.
    for queue in ("orders", "invoices"):
        shop.app.queue(queue, key_retention_s=0.001, retry_first_s=0.01, retry_max_s=0.1)
    shop.app.name = f"node{os.getpid()}"
    shop.app.work()


def main() -> None:
    folder, what = sys.argv[1:]
    if what == "node":
        work()
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(buy(Path(folder)))


if __name__ == "__main__":
    main()
