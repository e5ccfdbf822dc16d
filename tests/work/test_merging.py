"""Messages with a debounce key or a batch key share a job until it starts."""

import asyncio
from typing import Any

import msgspec
import pytest

import onceward
from onceward import limits
from onceward.app import App
from onceward.engine.base import DAMAGED
from onceward.errors import BadInput, KeyReused, QueueFull
from onceward.schedule import job_key
from onceward.work.inbox import Receipt
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps
from tests.work.test_children_faults import spoil

DEBOUNCE: dict[str, Any] = {"debounce_key": "doc-7", "debounce_s": 5}
BATCH: dict[str, Any] = {"batch_key": "ann", "batch_s": 10}


def make(apps: Apps, **options: Any) -> tuple[App, list[tuple[float, Any]]]:
    """An application that notes the bodies of its jobs, with the seconds since its start."""
    app, ran = apps.make(), []
    begun_ms = apps.clock.now_ms()

    @app.handler("work", **options)
    async def work(job: Job) -> Any:
        ran.append((round((apps.clock.now_ms() - begun_ms) / 1000, 1), job.body))
        if isinstance(job.body, dict):
            await apps.sleep(job.body["for_s"])
        return job.body if len(str(job.body)) < 1_000 else None

    return app, ran


def keys_left(apps: Apps) -> list[Any]:
    return [key for key in apps.records if key[0].startswith("merge#")]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@virtual
async def test_the_last_body_runs_once_after_the_messages_pause(shared: bool) -> None:
    apps = Apps(shared=shared)
    app, ran = make(apps)
    async with app:
        ids = set()
        for number in range(4):
            ids.add((await app.send("work", number, **DEBOUNCE)).id)
            await apps.sleep(3)
        assert ran == []
        await apps.sleep(10)
        assert ran == [(14.0, 3)]
        assert len(ids) == 1
        assert (await app.send("work", 4, **DEBOUNCE)).id not in ids
        await apps.sleep(10)
        assert [body for _, body in ran] == [3, 4]
    assert apps.problems == []
    assert keys_left(apps) == []


@virtual
async def test_a_job_is_postponed_up_to_the_maximum_only() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    async with app:
        for number in range(8):
            await app.send("work", number, debounce_max_s=12, **DEBOUNCE)
            await apps.sleep(3.5)
        await apps.sleep(20)
    assert ran == [(12.0, 3), (26.0, 7)]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@virtual
async def test_a_batch_starts_when_it_is_full_or_its_time_is_up(shared: bool) -> None:
    apps = Apps(shared=shared)
    app, ran = make(apps)
    async with app:
        await apps.sleep(1)
        for number in range(7):
            await app.send("work", number, batch_size=3, **BATCH)
            await apps.sleep(0.1)
        await apps.sleep(60)
    assert [body for _, body in ran] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [at < 3 for at, _ in ran] == [True, True, False]
    assert ran[2][0] == pytest.approx(11.6, abs=0.2)
    assert apps.problems == []
    assert keys_left(apps) == []


@virtual
async def test_a_batch_starts_before_a_message_that_does_not_fit_into_a_body() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    large = "x" * 150_000
    async with app:
        for _ in range(3):
            await app.send("work", large, **BATCH)
        await apps.sleep(1)
        assert [len(body) for _, body in ran] == [2]
        await app.send("work", large, batch_size=1, **BATCH)
        await apps.sleep(1)
        assert [len(body) for _, body in ran] == [2, 1, 1], "its size was reached"
        with pytest.raises(BadInput, match="350000"):
            await app.send("work", "x" * 350_000, **BATCH)
        await apps.sleep(60)
    assert sum(len(body) for _, body in ran) == 4
    assert keys_left(apps) == []


@pytest.mark.parametrize("options", [DEBOUNCE, BATCH], ids=["debounce", "batch"])
@virtual
async def test_a_repeated_message_counts_once(options: Any) -> None:
    apps = Apps(shared=False)
    app, ran = make(apps, job_retention_s=0, key_retention_s=60)
    async with app:
        first = await app.send("work", 1, key="a", **options)
        await app.send("work", 2, key="b", **options)
        again = await app.send("work", 1, key="a", **options)
        assert (again.id, again.duplicate, again.state) == (first.id, True, "scheduled")
        with pytest.raises(KeyReused):
            await app.send("work", 3, key="a", **options)
        await apps.sleep(20)
        assert [body for _, body in ran] == [2 if options is DEBOUNCE else [1, 2]]
        late = await app.send("work", 1, key="a", **options)
        assert (late.id, late.duplicate, late.state) == (first.id, True, "succeeded")
        assert late.result == ran[0][1]
        assert apps.problems == []
        await apps.sleep(100)
        assert not (await app.send("work", 1, key="a", **options)).duplicate
    assert apps.problems == []


@virtual
async def test_messages_are_part_of_transactions_and_of_batches() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)

    @app.handler("sender")
    async def sender(job: Job) -> None:
        await job.send("work", "from a job", **BATCH)
        await job.send("work", "and another", **BATCH)

    async with app:

        async def undone(tx: onceward.Transaction) -> None:
            await app.send("work", "never", tx=tx, **BATCH)
            raise ZeroDivisionError

        async def done(tx: onceward.Transaction) -> None:
            await app.send("work", "one", tx=tx, **BATCH)
            await app.send("work", "two", tx=tx, **BATCH)

        with pytest.raises(ZeroDivisionError):
            await app.run(undone)
        await app.run(done)
        await app.send("sender", None)
        await apps.sleep(1)
        verdicts = await app.send_many(
            "work", [{"body": n, **BATCH} for n in range(40)] + [{"body": 0, "batch_key": "x"}]
        )
        assert isinstance(verdicts.pop(), BadInput)
        assert len({verdict.id for verdict in verdicts if isinstance(verdict, Receipt)}) == 1
        await apps.sleep(20)
    assert [body for _, body in ran] == [["one", "two", "from a job", "and another", *range(40)]]


@virtual
async def test_senders_queues_and_kinds_have_their_own_keys() -> None:
    apps = Apps(shared=False)
    app, _ = make(apps)
    app.queue("other")
    async with app:
        ids = {
            (await app.send("work", 1, **BATCH)).id,
            (await app.send("work", 1, caller="bob", **BATCH)).id,
            (await app.send("other", 1, **BATCH)).id,
            (await app.send("work", 1, debounce_key="ann", debounce_s=9)).id,
            (await app.send("work", 1, batch_key="bea", batch_s=9)).id,
        }
        assert len(ids) == 5


@virtual
async def test_a_job_that_waits_for_others_takes_messages_until_it_starts() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps, concurrency=1, limit_per_key=1)
    async with app:
        # Behind its order key, behind its limit key, and behind all workers.
        await app.send("work", {"for_s": 300}, order_key="o", limit_key="l")
        for name, value in (("order_key", "o"), ("limit_key", "l"), ("priority", 9)):
            for number in range(3):
                await app.send("work", number, batch_key=name, batch_s=1, **{name: value})  # type: ignore[misc]
                await app.send("work", number, debounce_key=name, debounce_s=1, **{name: value})  # type: ignore[misc]
                await apps.sleep(5)
            assert len(ran) == 1
        with pytest.raises(BadInput, match="has the order_key 'o', not None; use the same"):
            await app.send("work", 9, batch_key="order_key", batch_s=1)
        await app.queues.pause("work")
        await apps.sleep(60)
        await app.send("work", 3, batch_key="priority", batch_s=1)
        await app.queues.resume("work")
        await apps.sleep(600)
    bodies = [body for _, body in ran[1:]]
    assert sorted(bodies, key=str) == [2, 2, 2, [0, 1, 2, 3], [0, 1, 2], [0, 1, 2]]
    assert apps.problems == []


@virtual
async def test_a_job_that_has_started_takes_no_more_messages() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    fails, ran = True, []

    @app.handler("work", attempts_max=2, retry_first_s=20)
    async def work(job: Job) -> None:
        ran.append((job.id, job.attempt, job.body))
        await apps.sleep(3)
        if fails:
            raise ValueError("not yet")

    async with app:
        ids = []
        for number in range(60):
            receipt = await app.send("work", number, batch_key="k", batch_s=1)
            ids.append(receipt.id)
            await apps.sleep(1.0)
            if number == 30:
                fails = False
                await app.queues.redrive("work")
        await apps.sleep(60)
        assert sorted({number for _, _, body in ran for number in body}) == list(range(60))
        assert len({(id_, tuple(body)) for id_, _, body in ran}) == len({id_ for id_, _, _ in ran})
        for number, id_ in enumerate(ids):
            assert number in (await app.job(id_)).body
        assert max(attempt for _, attempt, _ in ran) == 2
    assert apps.problems == []


@virtual
async def test_after_a_cancellation_the_next_message_makes_a_new_job() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    async with app:
        for number in range(3):
            receipt = await app.send("work", number, **BATCH)
            if number < 2:
                await app.cancel(receipt.id)
                assert keys_left(apps) == []
        await app.move(receipt.id)
        await apps.sleep(0.1)
        assert [body for _, body in ran] == [[2]]


@virtual
async def test_a_full_queue_takes_no_new_job_and_leaves_the_old_one() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps, depth_max=1)
    async with app:
        for number in range(2):
            await app.send("work", number, **BATCH)

        async def work(tx: onceward.Transaction) -> None:
            with pytest.raises(QueueFull):
                await app.send("work", "x" * 349_994, tx=tx, **BATCH)
            tx.put(("seen", "1"), True)

        await app.run(work)
        await apps.sleep(2)
        assert ran == []
        await app.send("work", 2, **BATCH)
        await apps.sleep(20)
    assert [body for _, body in ran] == [[0, 1, 2]]


@virtual
async def test_a_message_that_fits_into_no_batch_leaves_the_batch_as_it_is() -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    async with app:
        await app.send("work", 0, **BATCH)

        async def work(tx: onceward.Transaction) -> None:
            with pytest.raises(BadInput, match="not 350001"):
                await app.send("work", "x" * 349_997, tx=tx, **BATCH)
            tx.put(("seen", "1"), True)

        await app.run(work)
        await apps.sleep(2)
        assert ran == []
        await app.send("work", 1, **BATCH)
        await apps.sleep(20)
    assert [body for _, body in ran] == [[0, 1]]


@pytest.mark.parametrize("value", [DAMAGED, b"17"])
@pytest.mark.parametrize("what", ["key", "job"])
@virtual
async def test_a_record_that_cannot_be_read_takes_no_messages(what: str, value: bytes) -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    async with app:
        first = await app.send("work", 1, **BATCH)
        [place] = keys_left(apps)
        spoil(apps, place if what == "key" else job_key(first.id), value)
        second = await app.send("work", 2, **BATCH)
        assert second.id != first.id
        await app.send("work", 3, **BATCH)
        await apps.sleep(60)
        assert sorted(body for _, body in ran) == ([[1], [2, 3]] if what == "key" else [[2, 3]])
        if what == "job":
            assert (await app.job(first.id)).quarantined


class Mail(msgspec.Struct):
    to: str


@virtual
async def test_items_of_a_typed_batch_are_converted() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    sent: list[Mail] = []

    @app.handler("mails")
    async def mails(job: onceward.Job[list[Mail]]) -> None:
        sent.extend(job.body)

    async with app:
        for name in ("ann", "bea"):
            await mails.enqueue(Mail(name), **BATCH)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            await mails.enqueue({"to": 7}, **BATCH)  # type: ignore[arg-type]
        await apps.sleep(20)
    assert sent == [Mail("ann"), Mail("bea")]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"debounce_key": "k"}, "debounce_key needs debounce_s"),
        ({"debounce_s": 5}, "debounce_s needs debounce_key"),
        ({"batch_key": "k"}, "batch_key needs batch_s"),
        ({"batch_key": "k", "batch_size": 7}, "batch_key needs batch_s"),
        ({"batch_size": 7}, "batch_size needs batch_key"),
        ({"batch_key": "k", "batch_s": 1, "debounce_s": 1}, "debounce_s needs debounce_key"),
        ({**DEBOUNCE, **BATCH}, "not both"),
        ({**DEBOUNCE, "debounce_max_s": 4}, "at least debounce_s, 5, not 4"),
        ({**DEBOUNCE, "delay_s": 5}, "omit delay_s"),
        ({**BATCH, "due_ms": 5}, "omit due_ms"),
        ({**BATCH, "batch_size": 0}, "1 to 1000, not 0"),
        ({**BATCH, "batch_size": limits.MERGE_MESSAGES_MAX + 1}, "1 to 1000, not 1001"),
        ({**BATCH, "batch_size": True}, "not True"),
        ({**BATCH, "batch_s": -1}, "batch_s must be 0 to"),
        ({**BATCH, "batch_s": "soon"}, "not soon"),
        ({**DEBOUNCE, "debounce_s": float("nan")}, "not nan"),
        ({**BATCH, "batch_key": ""}, "1 to 256 bytes, not 0"),
        ({**BATCH, "batch_key": "é" * 129}, "not 258"),
        ({**BATCH, "batch_key": 7}, "a batch key"),
        ({"batchkey": "k"}, "batchkey"),
    ],
)
@virtual
async def test_bad_input_is_refused_and_adds_nothing(options: dict[str, Any], match: str) -> None:
    apps = Apps(shared=False)
    app, ran = make(apps)
    async with app:
        await app.send("work", "kept", **BATCH)
        with pytest.raises(BadInput, match=match):
            await app.send("work", 1, **options)
        [verdict] = await app.send_many("work", [{"body": 1, **options}])
        assert isinstance(verdict, BadInput)
        with pytest.raises(BadInput, match="omit delay_s"):
            await app.send("work", 1, **{**BATCH, "batch_key": "x", "delay_s": 1})
        await apps.sleep(20)
    assert [body for _, body in ran] == [["kept"]]


async def crowd(urls: list[str]) -> None:
    """Many senders and workers on all nodes: each message is in one job, the last body runs."""
    apps = [App(url, name=f"n{n}", slots=4) for n, url in enumerate(urls)]
    ran: list[list[int]] = []
    last: dict[str, Any] = {}
    all_ran = asyncio.Event()

    async def work(job: Job) -> None:
        ran.append(job.body)
        if sum(map(len, ran)) == 300:
            all_ran.set()

    async def index(job: Job) -> None:
        last["ran"] = max(last.get("ran", 0), job.body)

    for app in apps:
        app.handler("work")(work)
        app.handler("index")(index)
    try:
        for app in apps:
            await app.start()
        sends = [
            apps[n % len(apps)].send("work", n, batch_key=f"k{n % 3}", batch_s=0.05, batch_size=20)
            for n in range(300)
        ]
        await asyncio.gather(*sends)
        for number in range(10):
            receipt = await apps[number % len(apps)].send(
                "index", number, debounce_key="k", debounce_s=0.05
            )
        async with asyncio.timeout(60):
            await all_ran.wait()
            assert (await apps[0].wait(receipt.id)).state == "succeeded"
    finally:
        for app in apps:
            await app.stop()
    assert sorted(number for body in ran for number in body) == list(range(300))
    assert max(map(len, ran)) <= 20
    assert last["ran"] == 9


async def test_messages_are_merged_on_sqlite(tmp_path: Any) -> None:
    await crowd([f"sqlite:///{tmp_path}/app.db"])


async def test_messages_are_merged_by_two_nodes_on_postgresql(url: str) -> None:
    await crowd([url, url])
