"""The delivery status of a reply never goes back, in whatever order reports come."""

from itertools import permutations

import pytest

from apps.rps import deliveries
from apps.rps.deliveries import STAGE
from onceward.app import App
from onceward.store.user_records import UserTransaction

TO, SID = "+12025550101", "SM0"


async def report(app: App, *statuses: str) -> list[bool]:
    """Whether each of some statuses has changed the delivery."""
    changed = []
    for status in statuses:

        async def record(tx: UserTransaction, status: str = status) -> bool:
            return await deliveries.record(tx, TO, "reply", SID, status) is not None

        changed.append(await app.run(record))
    return changed


@pytest.mark.parametrize("end", ["delivered", "undelivered", "failed"])
async def test_the_last_stage_wins_in_any_order(end: str) -> None:
    for order in permutations(["queued", "sending", "sent", end]):
        async with App("memory://") as app:
            await report(app, *order, *order)
            [found] = await app.run(lambda tx: deliveries.newest(tx, TO))
            assert (found["id"], found["sid"], found["status"]) == ("reply", SID, end)
            assert found["sent_ms"] <= found["at_ms"]


async def test_a_status_that_was_reported_changes_nothing() -> None:
    async with App("memory://") as app:
        assert await report(app, "queued", "queued", "sent", "queued") == [True, False, True, False]


def test_what_is_delivered_or_not_is_the_end_but_for_reading() -> None:
    assert STAGE["sent"] < STAGE["delivered"] == STAGE["failed"] == STAGE["undelivered"]
    assert STAGE["delivered"] < STAGE["read"]
