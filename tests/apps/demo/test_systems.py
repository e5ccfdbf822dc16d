"""All systems are one application; an order becomes one parcel, and a pull one job for workers."""

import asyncio

import pytest

from apps.demo.settings import ORDERS, PARCELS, PULLS, Settings
from apps.demo.systems import Pullers, declare, make_app
from onceward.errors import NotDone
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

TOLD = Settings(
    parent=1,
    port=1,
    database="memory://",
    outside="http://127.0.0.1:9/outside",
    control="http://127.0.0.1:9/control",
    secret="s" * 32,
)
ASK = {"timeout_s": 1.0, "key": "job-1"}


def test_the_server_has_all_systems_and_a_front_page() -> None:
    mounted = set(make_app(TOLD).mounted)
    assert mounted == {"/", "/demo", "/rps", "/tictactoe", "/board", "/credit"}


@virtual
async def test_an_order_that_comes_ten_times_is_one_parcel() -> None:
    app = Apps(shared=False).make()
    declare(app, TOLD)
    async with app:
        sent = [app.send(ORDERS, {"order": "o-1"}, key="o-1") for _ in range(10)]
        receipts = await asyncio.gather(*sent, app.send(ORDERS, "no order at all", key="odd"))
        assert len({receipt.id for receipt in receipts}) == 2
        done = [await app.wait(receipts[at].id) for at in (0, -1)]
        assert [job.state for job in done] == ["succeeded", "succeeded"]
        assert done[0].result["order"] == "o-1"
        parcels = await app.claim(PARCELS, "worker", lease_s=1.0, max=10)
        assert {(parcel.id, parcel.body["order"]) for parcel in parcels} == {
            (job.result["parcel"], job.result["order"]) for job in done
        }


@virtual
async def test_a_pull_is_one_job_for_its_key_and_what_is_given_up_was_not_done() -> None:
    app = Apps(shared=False).make()
    app.queue(PULLS)
    async with app:
        pullers = Pullers(app)
        asked = [asyncio.create_task(pullers.pull("", "r-1", {}, **ASK)) for _ in range(3)]
        [claim] = await app.claim(PULLS, "worker", lease_s=1.0, max=10, wait_s=5.0)
        assert claim.body == {"reference": "r-1", "fields": {}}
        await app.complete(claim.id, claim.token, {"score": 700})
        assert await asyncio.gather(*asked) == [{"score": 700}] * 3
        given_up = asyncio.create_task(pullers.pull("", "r-2", {}, **{**ASK, "key": "job-2"}))
        [claim] = await app.claim(PULLS, "worker", lease_s=1.0, wait_s=5.0)
        await app.fail(claim.id, claim.token, "no such person", final=True)
        with pytest.raises(NotDone, match="failed: no such person"):
            await given_up
