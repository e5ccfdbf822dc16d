"""Connections to the application's database are cut at every message, in both directions."""

import asyncio
from typing import Any

import asyncpg
import pytest

import onceward
from onceward import sql
from onceward.testing.postgres import PostgresServer
from tests.sql.cutting import Cutter
from tests.sql.shops import make_postgres, paid, run

WAIT_S = 60.0
# A prime number of messages apart; a long run takes each one.
STRIDE = 11

pytestmark = pytest.mark.outage


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    return make_postgres(server, schema)


def through(shop: str, cutter: Cutter) -> str:
    host, _, name = shop.rpartition("/")
    return f"{host.rpartition(':')[0]}:{cutter.port}/{name}"


@pytest.mark.parametrize("after", [False, True], ids=["lost", "arrives"])
async def test_each_row_of_an_outbox_becomes_one_job_wherever_it_is_cut(
    after: bool, shop: str, server: PostgresServer, soak: bool
) -> None:
    number, cut, letters = 0, True, set()
    while cut:
        # Key retention is so short that only the record of accepted rows remains.
        app = onceward.App("memory://", slots=1)
        app.queue("q", key_retention_s=0.001, job_retention_s=0.001)
        runs: list[Any] = []

        @app.handler("q")
        async def work(job: onceward.Job, runs: list[Any] = runs) -> None:
            runs.append(job.body)

        run(shop, *[f"SELECT onceward_enqueue('q', '{body}')" for body in (1, 2)])
        run(shop, "SELECT onceward_enqueue('no queue', 'true')")
        async with Cutter(server.port, number, after=after) as cutter:
            app.sql_outbox(through(shop, cutter), poll_s=0.001)
            async with app, asyncio.timeout(WAIT_S):
                query = "SELECT count(*) FROM onceward_outbox"
                watch = await asyncpg.connect(shop)
                while await watch.fetchval(query) or len(runs) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await watch.close()
            cut = cutter.cut
            letters.add(cutter.passed[-1:])
        assert sorted(runs) == [1, 2], (number, cutter.passed)
        failed = "WITH gone AS (DELETE FROM onceward_outbox_failed RETURNING 1) SELECT count(*)"
        assert run(shop, f"{failed} FROM gone") == [(1,)]
        number += 1 if soak else STRIDE
        if number > 150:  # it polls for as long as it runs
            break
    assert len(letters) > 3


@pytest.mark.parametrize("after", [False, True], ids=["lost", "arrives"])
async def test_a_step_takes_effect_once_wherever_it_is_cut(
    after: bool, shop: str, server: PostgresServer, soak: bool
) -> None:
    number, cut = 0, True
    app = onceward.App("memory://", slots=1)
    url = ""

    async def pay(connection: Any, job: str) -> str:
        await connection.execute("INSERT INTO paid (job) VALUES ($1)", job)
        return "paid"

    @app.handler("q", retry_first_s=0.001, attempts_max=5)
    async def work(job: onceward.Job) -> str:
        return str(await job.sql_step(url, pay, job.id))

    async with app:
        while cut:
            async with Cutter(server.port, number, after=after) as cutter:
                url = through(shop, cutter)
                async with asyncio.timeout(WAIT_S):
                    job_id = (await app.send("q", number)).id
                    job = await app.wait(job_id)
                cut = cutter.cut
            assert (job.state, job.result) == ("succeeded", "paid"), (number, cutter.passed)
            found = paid(shop)
            assert found.count(job_id) == 1, (number, cutter.passed)
            number += 1 if soak else STRIDE
    assert number > 40


@pytest.mark.parametrize("after", [False, True], ids=["lost", "arrives"])
async def test_an_application_that_is_cut_off_enqueues_all_or_nothing(
    after: bool, shop: str, server: PostgresServer, soak: bool
) -> None:
    number, cut, committed = 0, True, 0
    while cut:
        async with Cutter(server.port, number, after=after) as cutter:
            try:
                connection = await asyncpg.connect(through(shop, cutter), timeout=WAIT_S)
                async with connection.transaction():
                    await connection.execute("INSERT INTO paid (job) VALUES ('x')")
                    await sql.enqueue_async(connection, "q", number, key=str(number))
                await connection.close()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                pass
            cut = cutter.cut
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        while run(shop, query) != [(1,)]:  # noqa: ASYNC110 - until the server has noticed
            await asyncio.sleep(0)
        [(rows, messages)] = run(
            shop,
            "SELECT (SELECT count(*) FROM paid), (SELECT count(*) FROM onceward_outbox)",
        )
        assert rows == messages, (number, cutter.passed)
        committed = int(str(rows))
        number += 1 if soak else STRIDE
    assert committed
