"""Senders take turns in a fair queue: a backlog of one does not delay another."""

from pathlib import Path
from typing import Any

import pytest

from onceward import cli, limits
from onceward.app import App
from onceward.work.fairness import Fairness
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

BACKLOG = 10_000


async def send(app: App, sender: str, count: int, **options: object) -> list[str]:
    """Jobs of one sender; their ids."""
    messages = [{"body": sender, "key": f"{n}", "caller": sender, **options} for n in range(count)]
    return [receipt.id for receipt in await app.send_many("q", messages)]  # type: ignore[union-attr]


async def started(app: App, count: int, most: int = 1) -> list[str]:
    """Whose jobs a worker gets next, one after the other."""
    senders: list[str] = []
    while len(senders) < count:
        claims = await app.claim("q", "w", lease_s=60, max=most, wait_s=5)
        senders += [claim.body for claim in claims]
        for claim in claims:
            await app.complete(claim.id, claim.token)
    return senders


@virtual
@pytest.mark.parametrize("slots", [1, 8])
async def test_a_newcomer_does_not_wait_for_the_backlog_of_another(slots: int) -> None:
    apps = Apps(shared=False)
    app = apps.make(slots=slots)
    app.queue("q", fair=True)
    async with app:
        await send(app, "bulk", BACKLOG)
        assert await started(app, 20) == ["bulk"] * 20
        await send(app, "new", 1)
        assert "new" in await started(app, 3)
    assert apps.problems == []


@virtual
async def test_without_the_setting_who_came_first_comes_first() -> None:
    app = Apps(shared=False).make(slots=1)
    async with app:
        await send(app, "bulk", 50)
        await send(app, "new", 1)
        assert await started(app, 51) == ["bulk"] * 50 + ["new"]


@virtual
async def test_senders_with_backlogs_take_turns() -> None:
    app = Apps(shared=False).make(slots=4)
    app.queue("q", fair=True)
    async with app:
        for sender in ("a", "b", "c"):
            await send(app, sender, 40)
        senders = await started(app, 60)
        assert {senders.count(sender) for sender in "abc"} <= {19, 20, 21}
        assert max(senders[start : start + 9].count("a") for start in range(50)) <= 5


@virtual
@pytest.mark.parametrize("slots", [1, 8])
async def test_a_newcomer_at_another_node_does_not_wait_either(slots: int) -> None:
    apps = Apps(shared=True)
    first, second = apps.make(slots=slots), apps.make(slots=slots)
    first.queue("q", fair=True)
    async with first, second:
        await send(first, "bulk", 500)
        await started(first, 20)
        await apps.sleep(limits.FAIR_READ_S + 0.1)
        await send(second, "new", 1)
        await apps.sleep(2)  # until the first node has heard of it
        assert "new" in await started(first, 5)
    assert apps.problems == []


@virtual
async def test_after_a_restart_a_newcomer_does_not_wait_either() -> None:
    apps = Apps(shared=False)
    app = apps.make(slots=4)
    app.queue("q", fair=True)
    async with app:
        await send(app, "bulk", 500)
        await started(app, 20)
    app = apps.make(slots=4)
    async with app:
        await send(app, "new", 1)
        assert "new" in await started(app, 3)


@virtual
async def test_jobs_of_an_order_key_stay_in_order_in_a_fair_queue() -> None:
    apps = Apps(shared=False)
    app = apps.make(slots=2)
    seen: dict[str, list[int]] = {}

    @app.handler("q", fair=True, concurrency=4)
    async def work(job: Job) -> None:
        seen.setdefault(job.order_key or "", []).append(job.body["n"])

    async with app:
        ids = []
        for n in range(60):
            sender, order = f"s{n % 3}", f"k{n % 5}"
            receipt = await app.send("q", {"n": n}, key=f"{n}", caller=sender, order_key=order)
            ids.append(receipt.id)
        for id_ in ids:
            await app.wait(id_)
    assert sorted(n for numbers in seen.values() for n in numbers) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert apps.problems == []


@virtual
async def test_priorities_come_before_turns() -> None:
    app = Apps(shared=False).make(slots=2)
    app.queue("q", fair=True)
    async with app:
        await send(app, "bulk", 20, priority=1)
        await send(app, "new", 1, priority=2)
        assert await started(app, 21) == ["bulk"] * 20 + ["new"]


@virtual
async def test_idle_senders_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAIR_SENDERS_KEPT", 10)
    app = Apps(shared=False).make(slots=1)
    app.queue("q", fair=True)
    async with app:
        for number in range(50):
            await send(app, f"s{number}", 2)
            await started(app, 2)
        await send(app, "new", 1)
        assert await started(app, 1) == ["new"]


@virtual
async def test_very_many_senders_are_not_looked_through_for_each_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FAIR_SENDERS_KEPT", 10)
    looked = []
    forget_idle = Fairness._forget_idle

    def forget(course: Any) -> None:
        looked.append(len(course.last))
        forget_idle(course)

    monkeypatch.setattr(Fairness, "_forget_idle", staticmethod(forget))
    app = Apps(shared=False).make(slots=1)
    app.queue("q", fair=True)
    async with app:
        for number in range(200):
            await send(app, f"s{number}", 1)
        assert looked == [11, 23, 47, 95, 191]
        await started(app, 200)


async def check_engine(url: str) -> None:
    """The same on a real engine, in real time."""
    app = App(url, slots=4)
    app.queue("q", fair=True, depth_max=201)
    async with app:
        await send(app, "bulk", 200)
        assert await started(app, 5) == ["bulk"] * 5
        await send(app, "new", 1)
        assert "new" in await started(app, 5)
        await send(app, "late", 5)
        found = await app.send_many("q", [{"body": "late", "key": f"more-{n}"} for n in range(50)])
        assert "queue_full" in {getattr(one, "code", "") for one in found}


async def test_it_holds_in_a_file(tmp_path: Path) -> None:
    await check_engine(f"sqlite:///{tmp_path / 'app.db'}")
    assert cli.main(["db", "check", str(tmp_path / "app.db"), "--quiet"]) == 0


async def test_it_holds_on_postgresql(url: str) -> None:
    await check_engine(url)
