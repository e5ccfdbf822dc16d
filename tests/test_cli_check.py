"""`onceward db check` knows the rules of the parts, not only those of the file."""

import asyncio
from pathlib import Path

import pytest

from onceward import cli, keys
from onceward.client import Client
from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import TABLE
from onceward.ids import Ids
from onceward.job_options import JobOptions
from onceward.rooms.part import Rooms
from onceward.rooms.records import log_partition
from onceward.schedule import Schedule, job_key, ready_partition, slot_of
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.databases import closed
from tests.web.showroom import Shop, open_shop

Capture = pytest.CaptureFixture[str]


async def scheduled(path: Path) -> list[str]:
    """A database with jobs that are ready, due and in line; returns their ids."""
    async with SQLiteEngine(str(path)) as engine:
        store = Store(engine)
        schedule = Schedule(Ids(store.clock.now_ms), slots=4)

        async def send(tx: Transaction) -> list[str]:
            later_ms = tx.now_ms + 60_000
            return [
                await schedule.send(tx, "mail", "ready"),
                await schedule.send(tx, "mail", "later", due_ms=later_ms),
                await schedule.send(
                    tx, "mail", "head", JobOptions(order_key="ada"), due_ms=later_ms
                ),
                await schedule.send(tx, "mail", "behind it", JobOptions(order_key="ada")),
            ]

        return await store.run(send)


async def break_it(path: Path, ids: list[str]) -> None:
    """Remove the entry of the ready job, and the job at the head of an order key."""
    async with SQLiteEngine(str(path)) as engine:
        store = Store(engine)

        async def fn(tx: Transaction) -> None:
            [ready] = await tx.scan(ready_partition(slot_of(ids[0]), "mail"))
            tx.delete(ready.key)
            tx.delete(job_key(ids[2]))

        await store.run(fn)


async def test_a_schedule_as_it_should_be_is_fine(tmp_path: Path, capsys: Capture) -> None:
    await scheduled(tmp_path / "a.db")
    assert cli.main(["db", "check", str(tmp_path / "a.db")]) == 0
    assert " is intact: 9 records" in capsys.readouterr().out


async def test_broken_records_of_the_schedule_are_reported(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    ids = await scheduled(path)
    await break_it(path, ids)
    assert cli.main(["db", "check", str(path)]) == TABLE["damaged"].exit
    shown = capsys.readouterr()
    problems = shown.out.splitlines()
    [ready] = [line for line in problems if ids[0] in line]
    assert ready.startswith(f"record job#{slot_of(ids[0]):04d} {ids[0]}#job: ")
    assert "the job's stage is ready, but its entry in ready#" in ready
    [due] = [line for line in problems if line.startswith("record due#")]
    assert f"job '{ids[2]}' not found" in due
    [order] = [line for line in problems if line.startswith("record order#")]
    assert "the order key has no job at its head" in order
    assert len(problems) == 3
    assert "3 problems found" in shown.err


async def test_a_room_without_its_log_is_reported(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    async with SQLiteEngine(str(path)) as engine:
        store = Store(engine)
        rooms = Rooms(store.ids, slots=4)
        _, made = await store.run(lambda tx: rooms.create(tx, "board"))
        for number in range(3):
            await store.run(lambda tx, n=number: rooms.map_set(tx, "board", "m", "k", n))
    assert cli.main(["db", "check", str(path)]) == 0
    async with SQLiteEngine(str(path)) as engine:

        async def damage(tx: Transaction) -> None:
            tx.delete((log_partition("board", made.epoch), keys.number(2)))

        await Store(engine).run(damage)
    capsys.readouterr()
    assert cli.main(["db", "check", str(path)]) == TABLE["damaged"].exit
    [problem] = capsys.readouterr().out.splitlines()
    assert problem.endswith("0000000000000003: entry 2 of the log is missing")


async def test_a_database_with_something_of_everything_is_fine(
    tmp_path: Path, capsys: Capture
) -> None:
    with open_shop(tmp_path) as server:
        async with Client(server.url) as client:
            await Shop(server).fill(client)
        await asyncio.to_thread(server.stop)
    assert cli.main(["db", "check", str(tmp_path / "shop.db")]) == 0, capsys.readouterr().out


async def test_records_that_make_no_sense_are_reported_too(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    await closed(path, {("lock", "what is this"): b"1", ("job", "x#job"): b"2"})
    assert cli.main(["db", "check", str(path)]) == TABLE["damaged"].exit
    problems = capsys.readouterr().out.splitlines()
    assert problems[0] == "record job x#job: not a job"
    assert problems[1].startswith("record lock what is this: its rule failed: ")
