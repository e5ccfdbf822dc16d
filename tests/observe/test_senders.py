"""Senders are told apart, with what they repeat and how quickly they are answered."""

from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import KeyReused, Unavailable
from onceward.observe.senders import OTHERS
from onceward.store.user_records import UserTransaction
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_what_a_sender_sends_and_repeats_is_counted() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 0.02
        for _ in range(3):
            await app.send("q", 1, key="a", caller="ann")
        with pytest.raises(KeyReused):
            await app.send("q", 2, key="a", caller="ann")
        verdicts = await app.send_many(
            "q",
            [
                {"body": 1, "key": "a", "caller": "bob"},
                {"body": 1, "key": ""},
                {"body": 2, "key": "b"},
            ],
        )
        assert len(verdicts) == 3
        found = {(queue, name): sender for queue, name, sender in app.senders}
        assert list(found) == [("q", ""), ("q", "app:ann"), ("q", "app:bob")]
        ann = found["q", "app:ann"]
        assert (ann.first, ann.repeats, ann.rejected) == (1, 2, 1)
        assert ann.last_ms <= app.store.clock.now_ms()
        assert ann.ack_seconds.count == 3
        slowest = ann.ack_seconds.quantile(1.0)
        assert slowest is not None
        assert slowest >= 0.02
        assert (found["q", "app:bob"].first, found["q", ""].first) == (1, 1)
        assert app.meters.total("accepted", queue="q", duplicate="no") == 3
        assert app.meters.total("accepted", queue="q", duplicate="yes") == 2


def counts(app: App, queue: str = "q", name: str = "app:ann") -> tuple[int, int, int, float, float]:
    """New messages, repeats and refusals of a sender, and the metrics of the queue."""
    found = {(queue, name): sender for queue, name, sender in app.senders}.get((queue, name))
    metrics = [app.meters.total("accepted", queue=queue, duplicate=text) for text in ("no", "yes")]
    told = (0, 0, 0) if found is None else (found.first, found.repeats, found.rejected)
    return *told, metrics[0], metrics[1]


@virtual
async def test_a_message_of_a_transaction_counts_when_that_is_durable() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        apps.engines[0].latency_s = 0.02
        runs = 0

        async def accept(tx: UserTransaction) -> None:
            nonlocal runs
            runs += 1
            await app.send("q", 1, key="a", caller="ann", tx=tx)
            await tx.get(("mine", "x"))
            if runs == 1:  # in its own way: it runs again, and counts once
                await app.run(conflict)
            tx.put(("mine", "x"), runs)
            assert counts(app) == (0, 0, 0, 0, 0)

        async def conflict(tx: UserTransaction) -> None:
            tx.put(("mine", "x"), "theirs")

        await app.run(accept)
        assert runs == 2
        assert counts(app) == (1, 0, 0, 1, 0)
        # When its sender is answered only the application knows.
        [(_, _, sender)] = list(app.senders)
        assert sender.ack_seconds.count == 0
        app.senders.acknowledged("q", "app:ann", 0.5)
        assert (sender.ack_seconds.count, sender.slowest_s) == (1, 0.5)

        async def again(tx: UserTransaction) -> None:  # which writes nothing
            await app.send("q", 1, key="a", caller="ann", tx=tx)

        await app.run(again)
        assert counts(app) == (1, 1, 0, 1, 1)

        async def refused(tx: UserTransaction) -> None:
            with pytest.raises(KeyReused):
                await app.send("q", 2, key="a", caller="ann", tx=tx)

        await app.run(refused)
        assert counts(app) == (1, 1, 1, 1, 1)


@virtual
async def test_a_message_that_was_rolled_back_counts_nothing() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:

        async def fail(tx: UserTransaction) -> None:
            await app.send("q", 1, key="a", caller="ann", tx=tx)
            raise ValueError("no")

        async def undo(tx: UserTransaction) -> None:
            mark = tx.mark()
            await app.send("q", 1, key="a", caller="ann", tx=tx)
            tx.undo(mark)

        with pytest.raises(ValueError, match="no"):
            await app.run(fail)
        await app.run(undo)
        assert counts(app) == (0, 0, 0, 0, 0)


@virtual
async def test_messages_of_handlers_count_with_the_end_of_their_job() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("one")
    async def one(job: Job) -> None:
        await job.send("q", 1, key="a", caller="ann")
        if job.attempt == 1:
            raise ValueError("not yet")

    @app.handler("many", batch=3)
    async def many(jobs: list[Job]) -> list[Any]:
        for job in jobs:
            await job.send("q", 1, key=f"{job.body}", caller="ann")
        return [None] * len(jobs)

    async with app:
        receipt = await app.send("one", 1, key="1")
        assert (await app.wait(receipt.id, 1_000)).attempt == 2
        assert counts(app) == (1, 0, 0, 1, 0)
        sent = [(await app.send("many", text)).id for text in ("a", "b")]
        for id_ in sent:
            assert (await app.wait(id_, 1_000)).state == "succeeded"
        assert counts(app) == (2, 1, 0, 2, 1)


@virtual
async def test_a_batch_that_fails_half_way_counts_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        run, runs = app.store.run, 0

        async def once(*args: Any, **options: Any) -> Any:
            nonlocal runs
            runs += 1
            if runs > 1:
                raise Unavailable("storage is away")
            return await run(*args, **options)

        messages = [{"body": n, "key": str(n), "caller": "ann"} for n in range(40)]
        with monkeypatch.context() as patch:
            patch.setattr(app.store, "run", once)
            with pytest.raises(Unavailable):
                await app.send_many("q", messages)
        stored = counts(app)[0]
        assert 0 < stored < 40
        await app.send_many("q", messages)
        assert counts(app) == (40, stored, 0, 40, stored)


@virtual
async def test_senders_that_are_made_up_do_not_fill_the_memory() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        messages = [
            {"body": n, "key": str(n), "caller": f"c{n}"} for n in range(limits.METERS_MAX + 20)
        ]
        await app.send_many("q", messages)
        found = list(app.senders)
        assert len(found) == limits.METERS_MAX + 1
        [(queue, _, others)] = [one for one in found if one[1] == OTHERS]
        assert (queue, others.first) == (OTHERS, 20)
