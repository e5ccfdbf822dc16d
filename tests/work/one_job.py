"""Runs a handler on one job."""

from collections.abc import Awaitable, Callable
from typing import Any

from onceward.schedule import Job as JobRecord
from onceward.schedule import steps_key
from onceward.work.job import Job
from tests.work.apps import Apps


async def run_one(
    fn: Callable[[Job], Awaitable[Any]], *, within_s: float = 3_000, **options: Any
) -> JobRecord:
    """Run a handler on one job, until that has ended."""
    apps = Apps(shared=False)
    app = apps.make()
    app.handler("q", **options)(fn)
    async with app:
        id_ = (await app.send("q", {"n": 1})).id
        job = await app.wait(id_, within_s)
    assert apps.problems == []
    if job.state in ("succeeded", "cancelled"):
        assert apps.value(steps_key(id_), internal=True) is None, "steps go with their job"
    return job
