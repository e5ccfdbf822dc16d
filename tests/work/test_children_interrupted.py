"""An interrupted attempt leaves out no children and creates none twice."""

from onceward.app import App
from onceward.schedule.children import family_key
from onceward.work.children import ChildJob
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_an_interrupted_creation_continues_where_it_was() -> None:
    apps = Apps()
    ran: list[int] = []

    def make() -> App:
        app = apps.make(slots=4, node_lease_s=2)

        @app.handler("task", concurrency=4)
        async def task(job: Job) -> int:
            ran.append(job.body)
            return int(job.body)

        @app.handler("parent", lease_s=3)
        async def parent(job: Job) -> int:
            return sum(await job.gather(*[ChildJob("task", n) for n in range(300)]))

        return app

    first = make()
    apps.engines[0].latency_s = 0.01
    process = await apps.start(first)
    id_ = (await process.spawn(first.send("parent", None))).id

    def created() -> int:
        return int((apps.value(family_key(id_, 1), internal=True) or {}).get("created", 0))

    while not created():
        await apps.sleep(0.001)
    process.kill()
    assert 0 < created() < 300
    second = make()
    async with second:
        parent = await second.wait(id_, 600)
        assert (parent.state, parent.result) == ("succeeded", sum(range(300)))
    assert sorted(set(ran)) == list(range(300))
    assert apps.problems == []
