"""Jobs, timers and entries whose records cannot be read: visible, and in nobody's way."""

import asyncio
from pathlib import Path

import pytest

from onceward.app import App
from onceward.engine.base import DAMAGED, Put
from onceward.errors import NotFailed
from onceward.keys import Key
from onceward.schedule import (
    Job,
    due_partition,
    job_key,
    line_partition,
    ready_partition,
    slot_of,
)
from onceward.webhooks.timers import timer_partition
from onceward.work.bulk import failed_jobs
from tests.databases import corrupt
from tests.schedule.cluster import Cluster, Member, virtual
from tests.web.asgi import serving
from tests.work.apps import Apps

BAD_RECORDS = [DAMAGED, b'{"queue":7}', b"17"]


async def spoil(member: Member, key: Key, value: bytes) -> None:
    """Let a record be as one that does not verify, or that is of another kind."""
    records = member.engine.memory.table
    row = records.get(key)
    assert row is not None
    if value == DAMAGED:
        records.put(type(row)(key, value, row.version, row.expires_at_ms))
    else:
        await member.engine.commit([Put(key, value)], member.clock.now_ms())


async def failed(member: Member, queue: str = "q") -> list[tuple[str, Job]]:
    found = await member.run(lambda tx: failed_jobs(tx, queue))
    return [(letter.id, letter.job) for letter in found]


@pytest.mark.parametrize("value", BAD_RECORDS)
@virtual
async def test_a_ready_job_that_cannot_be_read_becomes_a_dead_letter(value: bytes) -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n) for n in range(5)]
    await spoil(member, job_key(ids[1]), value)
    bodies: list[int] = []
    while claims := await member.claim(most=2):
        bodies += [claim.body for claim in claims]
    assert bodies == [0, 2, 3, 4]
    await cluster.until(lambda: member.store.alarms.get("damaged_records") is not None)
    [(id_, job)] = await failed(member)
    assert (id_, job.state, job.quarantined) == (ids[1], "failed", True)
    assert "is not valid" in job.reason
    alarm = member.store.alarms.get("damaged_records")
    assert alarm is not None
    assert ids[1] in alarm.message
    assert member.store.meters.total("quarantined") == 1
    with pytest.raises(NotFailed, match="record is unreadable"):
        await member.run(lambda tx: member.node.schedule.retry(tx, ids[1]))
    await member.run(lambda tx: member.node.schedule.cancel(tx, ids[1]))
    assert await failed(member) == []


@virtual
async def test_successors_of_an_order_key_go_on_after_one_that_cannot_be_read() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n, order_key="k") for n in range(5)]
    for number in (1, 2):
        await spoil(member, job_key(ids[number]), DAMAGED)
    bodies = []
    while claims := await member.claim():
        bodies.append(claims[0].body)
        await member.complete(claims[0])
    assert bodies == [0, 3, 4]
    assert [id_ for id_, _ in await failed(member)] == ids[1:3]


@virtual
async def test_an_order_key_goes_on_when_its_head_cannot_be_read() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n, order_key="k") for n in range(3)]
    await spoil(member, job_key(ids[0]), DAMAGED)
    [claim] = await member.claim(wait_s=60)
    assert claim.body == 1
    [(id_, job)] = await failed(member)
    assert (id_, job.options.order_key) == (ids[0], "k")


@virtual
async def test_an_order_key_goes_on_past_an_entry_that_cannot_be_read() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n, order_key="k") for n in range(3)]
    line = line_partition(slot_of(ids[1]), "q", "k")
    [first, _] = sorted(key for key in cluster.records if key[0] == line)
    await spoil(member, first, DAMAGED)
    [claim] = await member.claim()
    await member.complete(claim)
    [claim] = await member.claim()
    assert claim.body == 2
    assert member.store.alarms.get("damaged_records") is not None


@virtual
async def test_a_limit_key_goes_on_past_a_parked_job_that_cannot_be_read() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.queue("q", limit_per_key=1)
    async with app:
        ids = [(await app.send("q", n, limit_key="k")).id for n in range(3)]
        [claim] = await app.claim("q", "w", lease_s=60)
        table = apps.memory.table
        row = table.get(job_key(ids[1]))
        assert row is not None
        table.put(type(row)(row.key, DAMAGED, row.version))
        await app.complete(claim.id, claim.token)
        [claim] = await app.claim("q", "w", lease_s=60, wait_s=60)
        assert claim.body == 2


@pytest.mark.parametrize("value", BAD_RECORDS)
@virtual
async def test_a_delayed_job_that_cannot_be_read_becomes_a_dead_letter(value: bytes) -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n, delay_ms=1_000) for n in range(3)]
    await spoil(member, job_key(ids[0]), value)
    found: list[int] = []
    while len(found) < 2:
        found += [claim.body for claim in await member.claim(wait_s=60, most=2)]
    assert sorted(found) == [1, 2]
    await cluster.until(lambda: member.store.meters.total("quarantined") == 1)
    # If not even the queue can be read, it is listed under a name of its own.
    assert [id_ for id_, _ in await failed(member, "damaged")] == ids[:1]


@virtual
async def test_a_leased_job_that_cannot_be_read_ends_with_its_lease() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send(1, order_key="k")
    await member.send(2, order_key="k")
    await member.claim(lease_ms=1_000)
    await spoil(member, job_key(id_), DAMAGED)
    [claim] = await member.claim(wait_s=60)
    assert claim.body == 2
    assert [found for found, _ in await failed(member)] == [id_]


@virtual
async def test_an_entry_that_cannot_be_read_costs_no_job() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    await member.send(1)
    await member.send(2, delay_ms=1_000)
    for key in [k for k in cluster.records if k[0] in (ready_partition(0, "q"), due_partition(0))]:
        await spoil(member, key, DAMAGED)
    bodies = [(await member.claim(wait_s=60))[0].body for _ in range(2)]
    assert bodies == [1, 2]


@virtual
async def test_a_timer_that_cannot_be_read_raises_an_alarm_and_stops_no_other() -> None:
    apps = Apps(shared=False)
    app = apps.make(slots=1)
    async with app:
        for id_ in ("bad", "good"):
            await app.timers.set(id_, queue="q", body=id_, delay_s=5)
        table = apps.memory.table
        [bad] = [
            row for row in table.range(timer_partition(0), "", None, False) if b'"bad"' in row.value
        ]
        table.put(type(bad)(bad.key, DAMAGED, bad.version))
        [claim] = await app.claim("q", "w", lease_s=60, wait_s=60)
        assert claim.body == "good"
        while app.alarms.get("damaged_records") is None:
            await apps.sleep(1)
        found = await app.timers.find(limit=10)
        assert [timer.id for timer in found] == ["good"]


@virtual
async def test_readiness_and_metrics_show_records_that_cannot_be_read() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        id_ = (await caller.app.send("q", 1)).id
        table = apps.memory.table
        row = table.get(job_key(id_))
        assert row is not None
        table.put(type(row)(row.key, DAMAGED, row.version))
        assert await caller.app.claim("q", "w", lease_s=60, wait_s=5) == []
        ready = await caller.ok("GET", "/readyz")
        assert [alarm["code"] for alarm in ready["alarms"]] == ["damaged_records"]
        text = (await caller("GET", "/metrics")).body.decode()
        assert 'onceward_alarm{code="damaged_records"} 1' in text
        assert 'onceward_quarantined_total{queue="q"} 1' in text
        found = await caller.ok("GET", "/v1/queues/q/failed")
        assert [letter["id"] for letter in found["jobs"]] == [id_]


async def test_rot_in_a_file_costs_only_the_job_that_it_hits(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with App(f"sqlite:///{path}", slots=1) as app:
        for name in ("first", "second", "third"):
            await app.send("q", name)
    corrupt(path, b'"second"', b'"sec\xefnd"')
    async with App(f"sqlite:///{path}", slots=1) as app:
        bodies = []
        while claims := await app.claim("q", "w", lease_s=60):
            bodies += [claim.body for claim in claims]
        assert bodies == ["first", "third"]
        while not (letters := await app.queues.failed("q")):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert len(letters) == 1
        assert app.alarms.get("damaged_records") is not None


@virtual
async def test_a_lock_goes_to_the_next_when_a_waiter_cannot_be_read() -> None:
    apps = Apps(shared=False)
    async with apps.make(slots=1) as app:
        table = apps.memory.table
        got: list[str] = []

        async def hold(name: str) -> None:
            async with app.locks.hold("printer", owner=name, wait_s=60):
                got.append(name)

        async with app.locks.hold("printer", owner="a"):
            waits = []
            for name in ("b", "c"):
                waits.append(asyncio.create_task(hold(name)))
                await apps.sleep(1)
            [spoilt] = [
                row
                for partition in list(table.partitions)
                for row in table.range(partition, "", None, False)
                if partition.startswith("ask#") and row.value and b'"b"' in row.value
            ]
            table.put(type(spoilt)(spoilt.key, DAMAGED, spoilt.version))
        await waits[1]
        assert got == ["c"]
        assert app.alarms.get("damaged_records") is not None
        waits[0].cancel()


@pytest.mark.parametrize("partition", ["node", "slot"])
@virtual
async def test_nodes_go_on_when_a_record_of_theirs_cannot_be_read(partition: str) -> None:
    cluster = Cluster(4)
    member = await cluster.start()
    key = next(key for key in cluster.records if key[0] == partition)
    await spoil(member, key, DAMAGED)
    await cluster.until(lambda: member.store.alarms.get("damaged_records") is not None)
    await cluster.until(lambda: cluster.all_owned)
    await member.send(1)
    [claim] = await member.claim(wait_s=60)
    assert claim.body == 1
