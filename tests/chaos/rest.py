"""What is in a database when all servers have ended: read past them, with the engine."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import asyncpg  # type: ignore[import-untyped]
import msgspec

from onceward import engine as engines
from onceward import keys, limits
from onceward.engine.base import Engine, Record
from onceward.errors import NoSuchJob, NoSuchTimer
from onceward.parts import all_rules
from onceward.schedule import Schedule
from onceward.store import Store
from onceward.webhooks.timers import TimerTable
from tests.chaos.history import Found, History, Order
from tests.chaos.terms import EFFECTS, ORDERS
from tests.chaos.world import World
from tests.server_process import ONCEWARD, ROOT, environment

SLOTS = 16
TOGETHER = 50
CALLER = "user:developer"
"""Whose timers they are, of those who need no key."""


async def find_at_rest(world: World, history: History, found: Found) -> None:
    """Note what is there, and what is wrong with it."""
    if world.postgres is None:
        found.problems += await _check_file(str(world.path))
    else:
        found.problems += await _check_table(world.postgres.url)
    async with engines.create(world.database) as engine:
        store = Store(engine)
        schedule = Schedule(store.ids, SLOTS)
        timers = TimerTable(schedule)

        async def job(id_: str) -> None:
            try:
                view = await store.run(lambda tx: schedule.get(tx, id_))
                found.jobs[id_] = view.state
            except NoSuchJob:
                pass

        async def timer(id_: str) -> None:
            try:
                view = await store.run(partial(timers.get, id_=id_, caller=CALLER))
                found.timers[id_] = view.status
            except NoSuchTimer:
                pass

        ids = [id_ for message in history.messages.values() for id_ in message.ids]
        for first in range(0, len(ids), TOGETHER):
            await asyncio.gather(*[job(id_) for id_ in ids[first : first + TOGETHER]])
        for id_ in history.timers:
            await timer(id_)
        async for record in _all(engine, keys.USER + EFFECTS):
            found.effects[record.key[1]] = int(record.value)
        async for record in _all(engine, keys.USER + ORDERS):
            last, count, wrong = msgspec.json.decode(record.value)
            found.orders[record.key[1]] = Order(last, count, [tuple(pair) for pair in wrong])


async def _all(engine: Engine, partition: str) -> AsyncIterator[Record]:
    start = ""
    while page := await engine.scan(partition, 0, start=start, limit=limits.SCAN_RECORDS_MAX):
        for record in page:
            yield record
        start = keys.after(page[-1].key[1])


async def _check_file(path: str) -> list[str]:
    """What `onceward db check` says."""
    checking = await asyncio.create_subprocess_exec(
        *(*ONCEWARD, "db", "check", "--quiet", path),
        cwd=ROOT,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await checking.communicate()
    problems = said.decode().splitlines()
    if checking.returncode and not problems:
        problems = [f"onceward db check ended with {checking.returncode}"]
    return problems


async def _check_table(url: str) -> list[str]:
    """The same rules on the records of a server."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT * FROM chaos.record")
    finally:
        await connection.close()
    records = {}
    for row in rows:
        key = (row["partition"], row["sort"])
        value = row["value"]
        text = value if isinstance(value, bytes) else value.encode()
        records[key] = Record(key, text, 0, row["expires_at_ms"])
    return [
        f"{record.key}: {problem}"
        for record in records.values()
        for rule in all_rules()
        if record.key[0].partition("#")[0] == rule.kind
        for problem in rule.judge(record, records.get)
    ]
