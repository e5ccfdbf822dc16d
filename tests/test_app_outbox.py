"""Outward calls: repeated with the same id, or held in doubt, by the policy."""

import asyncio
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import NotDone
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


class Provider:
    """Somebody outside, to whom calls are made; a crash comes after some of them."""

    def __init__(self, apps: Apps) -> None:
        self.apps = apps
        self.calls: list[str] = []
        self.reached = asyncio.Event()
        self.cut = True

    async def call(self, job: Job) -> str:
        self.calls.append(job.id)
        self.reached.set()
        if self.cut:
            await self.apps.sleep(10_000)
        return f"answer {len(self.calls)}"


async def call_and_crash(policy: str, ask: Any = None) -> tuple[Apps, Provider, App, str]:
    """Make a call, crash before its answer is recorded, and start again."""
    apps = Apps()
    provider = Provider(apps)

    def declared() -> App:
        app = apps.make(node_lease_s=1)
        app.outbox("sms", policy=policy, ask=ask, lease_s=2)(provider.call)
        return app

    app = declared()
    process = await apps.start(app)
    receipt = await app.send("sms", {"to": "+49"}, key="k")
    await provider.reached.wait()
    process.kill()
    provider.cut = False
    app = declared()
    await app.start()
    return apps, provider, app, receipt.id


@virtual
async def test_a_call_that_was_cut_off_is_repeated_with_the_same_id() -> None:
    _, provider, app, id_ = await call_and_crash("repeat")
    job = await app.wait(id_, 100)
    assert (job.result, provider.calls) == ("answer 2", [id_, id_])
    await app.stop()


@virtual
async def test_a_call_that_must_not_be_repeated_is_held_until_someone_settles_it() -> None:
    _, provider, app, id_ = await call_and_crash("hold")
    assert (await app.wait(id_, 100)).state == "in_doubt"
    assert (await app.send("sms", {"to": "+49"}, key="k")).state == "in_doubt"
    await app.queues.settle(id_, "call", result="it was sent", done=True)
    assert (await app.wait(id_, 100)).result == "it was sent"
    assert provider.calls == [id_]
    await app.stop()


@pytest.mark.parametrize("done", [True, False])
@virtual
async def test_the_provider_is_asked_where_it_can_be_asked(done: bool) -> None:
    asked: list[str] = []

    async def ask(job: Job) -> str:
        asked.append(job.id)
        if not done:
            raise NotDone("they have not got it")
        return "they have it"

    _, provider, app, id_ = await call_and_crash("hold", ask)
    job = await app.wait(id_, 100)
    assert asked == [id_]
    assert (job.result, len(provider.calls)) == (("they have it", 1) if done else ("answer 2", 2))
    await app.stop()
