"""Senders are told apart, with what they repeat and how quickly they are answered."""

import pytest

from onceward import limits
from onceward.errors import KeyReused
from onceward.service.senders import OTHERS
from tests.service.apps import Apps
from tests.service.cluster import virtual


@virtual
async def test_what_a_sender_sends_and_repeats_is_counted() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 0.02
        for _ in range(3):
            await app.accept("q", 1, key="a", caller="ann")
        with pytest.raises(KeyReused):
            await app.accept("q", 2, key="a", caller="ann")
        verdicts = await app.accept_many(
            "q", [{"body": 1, "key": "a", "caller": "bob"}, {"body": 1}, {"body": 2, "key": "b"}]
        )
        assert len(verdicts) == 3
        found = {(queue, name): sender for queue, name, sender in app.senders}
        assert list(found) == [("q", ""), ("q", "app:ann"), ("q", "app:bob")]
        ann = found["q", "app:ann"]
        assert (ann.first, ann.repeats, ann.refused) == (1, 2, 1)
        assert ann.last_ms <= app.store.clock.now_ms()
        assert ann.ack_seconds.count == 3
        slowest = ann.ack_seconds.quantile(1.0)
        assert slowest is not None
        assert slowest >= 0.02
        assert (found["q", "app:bob"].first, found["q", ""].first) == (1, 1)
        assert app.meters.total("accepted", queue="q", duplicate="no") == 3
        assert app.meters.total("accepted", queue="q", duplicate="yes") == 2


@virtual
async def test_senders_that_are_made_up_do_not_fill_the_memory() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        messages = [
            {"body": n, "key": str(n), "caller": f"c{n}"} for n in range(limits.METERS_MAX + 20)
        ]
        await app.accept_many("q", messages)
        found = list(app.senders)
        assert len(found) == limits.METERS_MAX + 1
        [(queue, _, others)] = [one for one in found if one[1] == OTHERS]
        assert (queue, others.first) == (OTHERS, 20)
