"""Pauses, limits and rates of queues, on one node and on two."""

from collections import Counter

import pytest

from onceward.app import App
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


class Shop:
    """Nodes with the same handler, which notes what is at work."""

    def __init__(self, apps: Apps, nodes: int, work_s: float = 1.0) -> None:
        self.apps = apps
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.begun: list[float] = []
        self.nodes = [apps.make() for _ in range(nodes)]
        for app in self.nodes:

            @app.handler("q", concurrency=50)
            async def work(job: Job) -> None:
                for name in ("all", str(job.body)):
                    self.at_work[name] += 1
                    self.most[name] = max(self.most[name], self.at_work[name])
                self.begun.append(apps.loop.time())
                await apps.sleep(work_s)
                for name in ("all", str(job.body)):
                    self.at_work[name] -= 1

    async def start(self) -> App:
        for app in self.nodes:
            await self.apps.start(app)
        await self.apps.sleep(12)  # for the nodes to find their shares
        return self.nodes[0]

    async def done(self, ids: list[str]) -> float:
        """Wait for jobs; how long that took."""
        begun_s = self.apps.loop.time()
        for id_ in ids:
            assert (await self.nodes[0].wait(id_)).state == "succeeded"
        assert self.apps.problems == []
        return self.apps.loop.time() - begun_s


def shops(apps_shared: int) -> Apps:
    return Apps(shared=apps_shared > 1)


@pytest.mark.parametrize("nodes", [1, 2])
@virtual
async def test_no_more_jobs_of_a_queue_are_at_work_than_its_limit(nodes: int) -> None:
    apps = shops(nodes)
    shop = Shop(apps, nodes)
    app = await shop.start()
    await app.queues.configure("q", limit=3)
    await apps.sleep(6)
    took_s = await shop.done([(await app.send("q", n)).id for n in range(30)])
    assert shop.most["all"] == 3
    assert took_s == pytest.approx(10, abs=2), "and as many as that, all the time"


@pytest.mark.parametrize("nodes", [1, 2])
@virtual
async def test_a_limit_that_is_lowered_counts_for_what_is_handed_out_next(nodes: int) -> None:
    apps = shops(nodes)
    shop = Shop(apps, nodes)
    app = await shop.start()
    await app.queues.configure("q", limit=10)
    await apps.sleep(6)
    ids = [(await app.send("q", n)).id for n in range(40)]
    await apps.sleep(0.5)
    await app.queues.configure("q", limit=2)
    await apps.sleep(6)
    shop.most.clear()
    await shop.done(ids)
    assert shop.most["all"] == 2


@pytest.mark.parametrize("nodes", [1, 2])
@virtual
async def test_no_more_jobs_of_a_key_are_at_work_than_its_limit(nodes: int) -> None:
    apps = shops(nodes)
    shop = Shop(apps, nodes)
    app = await shop.start()
    await app.queues.configure("q", limit_per_key=2)
    await apps.sleep(6)
    ids = [(await app.send("q", n % 3, limit_key=f"k{n % 3}")).id for n in range(30)]
    took_s = await shop.done(ids)
    assert {shop.most[name] for name in "012"} == {2}
    assert shop.most["all"] == 6
    assert took_s == pytest.approx(5, abs=2)


@virtual
async def test_a_limit_of_a_key_that_is_lowered_counts_while_others_wait() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, 1)
    app = await shop.start()
    await app.queues.configure("q", limit_per_key=5)
    ids = [(await app.send("q", "k", limit_key="k")).id for n in range(20)]
    await apps.sleep(0.5)
    assert shop.at_work["k"] == 5
    await app.queues.configure("q", limit_per_key=1)
    await apps.sleep(2.2)
    shop.most.clear()
    await shop.done(ids)
    assert shop.most["k"] == 1


@virtual
async def test_a_limit_of_a_key_that_is_lifted_lets_all_of_them_through() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, 1)
    app = await shop.start()
    await app.queues.configure("q", limit_per_key=1)
    ids = [(await app.send("q", "k", limit_key="k")).id for n in range(31)]
    await apps.sleep(0.5)
    await app.queues.configure("q", limit_per_key=0)
    assert await shop.done(ids) < 6, "each that ends lets two in"


@pytest.mark.parametrize("nodes", [1, 2])
@virtual
async def test_no_more_jobs_are_begun_in_a_second_than_the_rate_says(nodes: int) -> None:
    apps = shops(nodes)
    shop = Shop(apps, nodes, work_s=0.01)
    app = await shop.start()
    await app.queues.configure("q", rate=5)
    await apps.sleep(6)
    took_s = await shop.done([(await app.send("q", n)).id for n in range(50)])
    assert took_s == pytest.approx(10, abs=2)
    busiest = max(sum(t <= other < t + 0.99 for other in shop.begun) for t in shop.begun)
    assert busiest <= 6


@pytest.mark.parametrize("nodes", [1, 2])
@virtual
async def test_a_paused_queue_rests_on_all_nodes_until_it_is_resumed(nodes: int) -> None:
    apps = shops(nodes)
    shop = Shop(apps, nodes, work_s=0.01)
    app = await shop.start()
    await app.queues.pause("q")
    await apps.sleep(6)
    ids = [(await app.send("q", n)).id for n in range(20)]
    await apps.sleep(60)
    assert shop.begun == []
    await shop.nodes[-1].queues.resume("q")
    assert await shop.done(ids) < 7


@virtual
async def test_a_permit_that_is_given_back_during_a_look_is_not_overlooked() -> None:
    for latency_ms in range(1, 30):
        apps = Apps(shared=False)
        shop = Shop(apps, 1, work_s=0.05)
        app = await shop.start()
        await app.queues.configure("q", limit=1)
        apps.engines[0].latency_s = latency_ms / 1000
        ids = [(await app.send("q", n)).id for n in range(5)]
        assert await shop.done(ids) < 20
        apps.engines[0].latency_s = 0.0
        await app.stop()
