"""The drainer: each row of an outbox becomes one job, whatever fails between two databases."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import BadInput
from onceward.sql.records import drain_key
from onceward.sql.server import Outbox
from onceward.work.job import Job
from tests.schedule.cluster import TestEngine, virtual
from tests.sql.table import Reader, Table, lost
from tests.work.apps import Apps, no_tasks_left


def declare(app: App, reader: Any, runs: list[Any], **settings: Any) -> None:
    app.sql_outbox(reader)

    @app.handler("q", **settings)
    async def work(job: Job) -> None:
        runs.append(job.body)


@virtual
async def test_each_row_becomes_one_job_and_is_deleted() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    rows = [table.add("q", number) for number in range(250)]
    async with app:
        await table.emptied.wait()
        receipts = [
            await app.run(lambda tx, m=row.message: app.inbox.find(tx, "q", m)) for row in rows
        ]
        for receipt in receipts:
            await app.wait(receipt.id)
    assert sorted(runs) == list(range(250))
    assert apps.problems == []


@virtual
async def test_options_and_keys_of_a_row_are_those_of_its_job() -> None:
    apps, table = Apps(shared=False), Table()
    app = apps.make()
    app.sql_outbox(Reader(table))
    options = {"priority": 1, "tags": ["a"], "limit_key": "l", "attempts_max": 2}
    table.add("q", {"n": 1}, key="mine", order_key="o", delay_s=4.5, **options)
    async with app:
        await table.emptied.wait()
        receipt = await app.send("q", {"n": 1}, key="mine")
        assert receipt.duplicate
        job = await app.job(receipt.id)
    assert (job.due_ms, job.options.order_key, job.options.limit_key) == (4_500, "o", "l")
    assert (job.options.priority, job.options.tags, job.attempts_max) == (1, ("a",), 2)


@virtual
async def test_rows_with_a_debounce_key_or_a_batch_key_share_a_job() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    for number in range(30):
        table.add("q", number, batch_key="k", batch_s=1, batch_size=20)
        table.add("q", number, debounce_key="k", debounce_s=1)
    table.add("q", 1, batch_key="k")
    async with app:
        await table.emptied.wait()
        await apps.sleep(10)
    assert sorted(runs, key=str) == [29, list(range(20)), list(range(20, 30))]
    [why] = table.failed.values()
    assert "batch_key needs batch_s" in why


@virtual
async def test_small_rows_for_many_large_batches_take_several_commits() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    async with app:
        for number in range(15):
            batch: Any = {"batch_key": f"k{number}", "batch_s": 60}
            await app.send("q", "x" * 340_000, **batch)
            table.add("q", number, **batch)
        await table.emptied.wait()
        await apps.sleep(100)
    assert not table.failed
    assert sorted(body[1] for body in runs) == list(range(15))


@virtual
async def test_keys_of_a_queue_that_derives_them_come_from_the_body() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs, key_fields=["id"])
    table.add("q", {"id": "7"})
    table.add("q", {"id": "7"})
    async with app:
        await table.emptied.wait()
        await app.wait((await app.send("q", {"id": "7"})).id)
    assert runs == [{"id": "7"}]


@virtual
async def test_rows_that_cannot_be_accepted_move_aside_and_the_others_are_accepted() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    bad = {
        table.add("no queue", 1).message: "a queue name must have",
        table.add("q", raw="{").message: "is not JSON",
        table.add("q", 1, colour="red").message: "unknown",
        table.add("q", 1, priority="x").message: "a priority must be",
        table.add("q", 1, priority=[]).message: "a priority must be",
        table.add("q", 1, delay_s=-1).message: "a delay must be",
        table.add("q", 1, delay_s=1, due_ms=1).message: "not both",
        table.add("q", "x" * 400_000).message: "at most 350000 bytes",
        table.add("q", 1, order_key="").message: "an order key must have",
        table.add("q", 1, caller="ann").message: "unknown",
    }
    table.add("q", "first", key="same")
    bad[table.add("q", "other", key="same").message] = "already used with another body"
    async with app:
        await table.emptied.wait()
        await app.wait((await app.send("q", "first", key="same")).id)
        assert app.meters.total("outbox_rows", outbox="table", verdict="failed") == len(bad)
        verdicts = {labels["verdict"] for labels, _ in app.meters.labelled("outbox_rows")}
        assert verdicts == {"accepted", "failed"}  # both exist before their first event
    assert runs[-1] == "first"
    assert set(table.failed) == set(bad)
    for message, words in bad.items():
        assert words in table.failed[message]


@virtual
async def test_a_full_queue_delays_its_own_rows_only() -> None:
    apps, table = Apps(shared=False), Table()
    app = apps.make()
    app.sql_outbox(Reader(table))
    app.queue("small", depth_max=1)
    for number in range(3):
        table.add("small", number)
    table.add("q", "other")
    async with app:
        while len(table.rows) > 2:
            await apps.sleep(0.1)
        assert [row.queue for row in table.rows.values()] == ["small", "small"]
        for number in range(3):
            [claim] = await app.claim("small", "w", lease_s=9, wait_s=9)
            assert claim.body == number
            await app.complete(claim.id, claim.token)
    assert not table.rows
    assert not table.failed


@virtual
async def test_a_row_whose_deletion_was_lost_is_not_accepted_again_without_its_key() -> None:
    apps, table, runs = Apps(shared=True), Table(), list[Any]()
    first, second = apps.make(), apps.make()
    readers = [Reader(table), Reader(table)]
    readers[0].before_remove = lost
    declare(first, readers[0], runs, key_retention_s=0.001, job_retention_s=0.001)
    declare(second, readers[1], runs, key_retention_s=0.001, job_retention_s=0.001)
    table.add("q", 1)
    process = await apps.start(first)
    while not runs:
        await apps.sleep(0.1)
    await apps.sleep(60)
    assert len(table.rows) == 1
    assert first.alarms.get("outbox_unavailable") is not None
    process.kill()
    async with second:
        await table.emptied.wait()
        await apps.sleep(60)
    assert runs == [1]


@virtual
async def test_a_node_that_was_paused_accepts_nothing_after_another_has_taken_over() -> None:
    apps, table, runs = Apps(shared=True), Table(), list[Any]()
    first, second = apps.make(), apps.make()
    paused, reader = Reader(table), Reader(table)
    declare(first, paused, runs, key_retention_s=0.001, job_retention_s=0.001)
    declare(second, reader, runs, key_retention_s=0.001, job_retention_s=0.001)
    process = await apps.start(first)
    while not paused.reads:
        await apps.sleep(0.1)
    read = paused.read

    async def read_and_pause(without: Any, limit: int) -> Any:
        rows = await read(without, limit)
        if rows:
            process.pause()
        await apps.sleep(0)
        return rows

    paused.read = read_and_pause  # type: ignore[method-assign]
    table.add("q", 1)
    async with second:
        await table.emptied.wait()
        await apps.sleep(60)  # the key has expired
        process.resume()
        await apps.sleep(60)
        assert runs == [1]
        process.kill()


@virtual
async def test_ids_that_come_back_and_rows_that_commit_late_are_accepted() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    async with app:
        for number in range(3):
            table.add("q", number, id_=7)
            await table.emptied.wait()
        table.add("q", "late", id_=2)
        await table.emptied.wait()
        table.add("q", "last")
        await table.emptied.wait()
        await apps.sleep(1)
    assert Counter(runs) == Counter([0, 1, 2, "late", "last"])


@virtual
async def test_one_node_reads_and_another_takes_over_when_it_stops_or_dies() -> None:
    apps, table, runs = Apps(shared=True), Table(), list[Any]()
    readers, processes = [Reader(table) for _ in range(3)], []
    nodes = [apps.make() for _ in readers]
    for app, reader in zip(nodes, readers, strict=True):
        declare(app, reader, runs)
        processes.append(await apps.start(app))
    await apps.sleep(30)
    assert sorted(bool(reader.reads) for reader in readers) == [False, False, True]
    for count in range(2):
        [at] = [number for number, reader in enumerate(readers) if reader.reads > 1]
        if count:
            await processes[at].spawn(nodes[at].stop())
        else:
            processes[at].kill()
        readers[at].reads = 0
        table.add("q", count)
        before = apps.loop.time()
        await table.emptied.wait()
        assert apps.loop.time() - before < (3 if count else 9)
        while len(runs) <= count:
            await apps.sleep(0.1)
        await apps.sleep(1)
    assert runs == [0, 1]
    for process in processes:
        process.kill()


@virtual
async def test_a_database_that_fails_raises_an_alarm_until_it_works_again() -> None:
    apps, table = Apps(shared=False), Table()
    app, reader = apps.make(), Reader(table)
    app.sql_outbox(reader)
    reader.before_remove = lost
    table.add("q", 1)
    async with app:
        while app.alarms.get("outbox_unavailable") is None:
            await apps.sleep(0.1)
        alarm = app.alarms.get("outbox_unavailable")
        assert alarm is not None
        assert "outbox table: the connection was lost" in alarm.message
        reader.before_remove = lambda: None
        await table.emptied.wait()
        while app.alarms.get("outbox_unavailable") is not None:
            await apps.sleep(0.1)


@virtual
async def test_after_a_stop_no_task_is_left_and_the_lease_is_free() -> None:
    apps, table = Apps(shared=False), Table()
    app = apps.make()
    app.sql_outbox(Reader(table))
    before = asyncio.all_tasks()
    table.add("q", 1)
    async with app:
        await table.emptied.wait()
    assert no_tasks_left(before) == []
    assert apps.value(drain_key("table"), internal=True)["until_ms"] == 0


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        (7, {}, "must be text"),
        ("mysql://shop", {}, "unsupported database URL 'mysql://shop'"),
        ("sqlite:///", {}, "unsupported"),
        ("sqlite:///shop.db", {"notify": True}, "no NOTIFY"),
        ("sqlite:///shop.db", {"name": ""}, "the name of an outbox"),
        ("sqlite:///shop.db", {"name": "x" * 300}, "the name of an outbox"),
        ("sqlite:///shop.db", {"poll_s": 0}, "poll_s must be more than 0"),
        ("sqlite:///shop.db", {"idle_poll_s": "soon"}, "idle_poll_s must be"),
        ("sqlite:///shop.db", {"lease_s": 0}, "lease_s must be more than 0"),
        ("postgresql://u:secret@h/shop?schema=A;B", {}, "invalid schema name"),
    ],
)
def test_a_declaration_is_checked(url: Any, options: dict[str, Any], words: str) -> None:
    app = App("memory://")
    with pytest.raises(BadInput, match=words) as raised:
        app.sql_outbox(url, **options)
    assert "secret" not in str(raised.value)


def test_an_outbox_is_declared_once() -> None:
    app = App("memory://")
    app.sql_outbox("sqlite:///shop.db")
    with pytest.raises(BadInput, match=r"shop.db' is already declared"):
        app.sql_outbox("sqlite:///shop.db")


def drain_commits(apps: Apps, name: str) -> int:
    """How many commits have written the record of an outbox."""
    return len(apps.commits_of(drain_key(name), internal=True))


@virtual
async def test_a_database_of_one_node_takes_the_lease_only_for_rows() -> None:
    apps, table, runs = Apps(shared=False), Table(), list[Any]()
    app = apps.make()
    declare(app, Reader(table), runs)
    async with app:
        await apps.sleep(60)
        assert drain_commits(apps, "table") == 0
        table.add("q", 1)
        await table.emptied.wait()
        before = drain_commits(apps, "table")
        assert before == 2, "the lease, and the row"
        await apps.sleep(60)
        assert drain_commits(apps, "table") == before
    assert runs == [1]


@virtual
async def test_the_own_outbox_is_read_by_one_node_without_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps, table, runs = Apps(shared=True), Table(), list[Any]()
    readers = [Reader(table) for _ in range(3)]
    waiting = iter(readers)
    monkeypatch.setattr(TestEngine, "outbox_url", "postgresql://own")
    monkeypatch.setattr(
        "onceward.running.own_outbox",
        lambda engine: Outbox("own", next(waiting), asyncio.Event(), 0.02, 0.25),
    )
    nodes, processes = [apps.make() for _ in readers], []
    for app in nodes:

        @app.handler("q")
        async def work(job: Job) -> None:
            runs.append(job.body)

        processes.append(await apps.start(app))
    for count in range(3):
        await apps.sleep(30)  # rows make it poll faster for a while
        for reader in readers:
            reader.reads = 0
        before = drain_commits(apps, "own")
        await apps.sleep(30)
        [at] = [number for number, reader in enumerate(readers) if reader.reads]
        assert 100 < readers[at].reads < 130
        assert drain_commits(apps, "own") == before
        table.add("q", count)
        await table.emptied.wait()
        while len(runs) <= count:
            await apps.sleep(0.1)
        processes[at].kill()
        if count < 2:
            table.add("q", "after")
            begun = apps.loop.time()
            await table.emptied.wait()
            assert apps.loop.time() - begun < 15
            while "after" not in runs:
                await apps.sleep(0.1)
            runs.remove("after")
    assert runs == [0, 1, 2]


@virtual
async def test_a_paused_reader_of_the_own_outbox_accepts_nothing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps, table, runs = Apps(shared=True), Table(), list[Any]()
    paused, reader = Reader(table), Reader(table)
    waiting = iter([paused, reader])
    monkeypatch.setattr(TestEngine, "outbox_url", "postgresql://own")
    monkeypatch.setattr(
        "onceward.running.own_outbox",
        lambda engine: Outbox("own", next(waiting), asyncio.Event(), 0.02, 0.25),
    )
    nodes = [apps.make(), apps.make()]
    for app in nodes:

        @app.handler("q", key_retention_s=0.001, job_retention_s=0.001)
        async def work(job: Job) -> None:
            runs.append(job.body)

    process = await apps.start(nodes[0])
    while not paused.reads:
        await apps.sleep(0.1)
    read = paused.read

    async def read_and_pause(without: Any, limit: int) -> Any:
        rows = await read(without, limit)
        if rows and limit > 1:
            process.pause()
        await apps.sleep(0)
        return rows

    paused.read = read_and_pause  # type: ignore[method-assign]
    table.add("q", 1)
    async with nodes[1]:
        await table.emptied.wait()
        await apps.sleep(60)  # the key has expired
        process.resume()
        await apps.sleep(60)
        assert runs == [1]
        process.kill()
