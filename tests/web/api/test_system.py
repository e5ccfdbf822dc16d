"""Whether it is well, and what it says of itself."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from onceward import limits
from onceward.work.sync_job import SyncJob
from tests.browser import browsing
from tests.schedule.cluster import virtual
from tests.server_process import ServerProcess
from tests.web.asgi import AsgiCaller, Caller, keyed, serving, serving_to
from tests.work.apps import Apps


@virtual
async def test_it_is_alive_and_ready() -> None:
    async with serving() as caller:
        assert await caller.ok("GET", "/healthz") == {"status": "ok"}
        assert await caller.ok("GET", "/readyz") == {"status": "ready"}


@virtual
async def test_it_is_alive_while_a_plain_handler_blocks() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    loop, begun, free = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @app.handler("q")
    def block(job: SyncJob) -> str:
        loop.call_soon_threadsafe(begun.set)
        assert free.wait(60)
        return "done"

    async with serving(app) as caller:
        id_ = (await app.send("q", None)).id
        await begun.wait()
        assert await caller.ok("GET", "/healthz") == {"status": "ok"}
        assert (await caller.ok("GET", f"/v1/jobs/{id_}"))["state"] == "running"
        free.set()
        assert (await app.wait(id_)).result == "done"


@virtual
async def test_alarms_are_shown_by_readiness_metrics_and_overview() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(ann="all", bob="operate:*", eve="send:*")
    async with serving(apps.make(), auth) as anyone:
        callers = {name: Caller(anyone.server, key) for name, key in keys.items()}
        ann = callers["ann"]
        ann.app.alarms.raise_("disk", "the disk is slow")
        since_ms = next(iter(ann.app.alarms)).since_ms
        ready = await ann.ok("GET", "/readyz")
        assert ready == {"status": "ready", "alarms": [{"code": "disk", "since_ms": since_ms}]}
        assert 'onceward_alarm{code="disk"} 1' in (await ann("GET", "/metrics")).body.decode()
        seen = {
            name: [
                (one["kind"], one["name"], one["said"])
                for one in (await caller.ok("GET", "/v1/overview"))["attention"]
            ]
            for name, caller in callers.items()
        }
        alarm = ("alarm", "disk", "the disk is slow")
        assert seen == {"ann": [alarm], "bob": [alarm], "eve": []}
        ann.app.alarms.clear("disk")
        await apps.sleep(limits.PUBLIC_S)
        assert await ann.ok("GET", "/readyz") == {"status": "ready"}
        assert 'onceward_alarm{code="disk"} 0' in (await ann("GET", "/metrics")).body.decode()


@virtual
async def test_operators_alone_see_and_confirm_the_clock() -> None:
    async with serving_to(ann="all", bob="operate:*", eve="operate:some* send:*") as callers:
        store = callers["ann"].app.store
        store.clock.hold(store.clock.now_ms() - 86_400_000)
        store.clock_held = True
        assert (await callers["bob"].ok("GET", "/v1/clock"))["held"]
        for method, path in (("GET", "/v1/clock"), ("POST", "/v1/clock/confirm")):
            assert (await callers["eve"](method, path)).code == "not_allowed"
        found = await callers["bob"].ok("POST", "/v1/clock/confirm")
        assert not found["held"]
        assert found["now_ms"] == found["wall_ms"]
        assert not (await callers["ann"].ok("POST", "/v1/clock/confirm"))["held"]


@pytest.mark.parametrize("code", ["engine_unreachable", "storage_full"])
@virtual
async def test_it_is_not_ready_while_storage_is_in_trouble_but_alive(code: str) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        apps.engines[0].cut_off, apps.engines[0].cut_off_code = True, code
        assert (await caller("GET", "/readyz")).code == code
        assert (await caller("GET", "/healthz")).status == 200
        refused = await caller("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        assert refused.code == code
        assert refused.json["retry"]
        apps.engines[0].cut_off = False
        await apps.sleep(limits.PUBLIC_S)
        assert (await caller("GET", "/readyz")).status == 200


@virtual
async def test_storage_that_does_not_answer_is_not_waited_for_long() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        apps.engines[0].hang()
        begun_s = apps.loop.time()
        assert (await caller("GET", "/readyz")).verdict == (503, "engine_unreachable")
        assert apps.loop.time() - begun_s == pytest.approx(limits.PROBE_S)
        apps.engines[0].free.set()
        assert (await caller("GET", "/readyz")).status == 200


@virtual
async def test_many_who_ask_at_once_cause_one_commit() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        apps.engines[0].latency_s = 0.1
        before = len(apps.commits)
        answers = await asyncio.gather(*[caller("GET", "/readyz") for _ in range(100)])
        assert {answer.status for answer in answers} == {200}
        assert len(apps.commits) - before == 1
        apps.engines[0].cut_off = True
        await apps.sleep(limits.PUBLIC_S)
        answers = await asyncio.gather(*[caller("GET", "/readyz") for _ in range(100)])
        assert {answer.status for answer in answers} == {503}


@virtual
async def test_readiness_is_probed_at_most_once_a_second() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        probes = 0
        probe = caller.app.probe

        async def counted() -> None:
            nonlocal probes
            probes += 1
            await probe()

        caller.server.health._probed._compute = counted
        for second in range(1, 4):
            for _ in range(20):
                assert (await caller("GET", "/readyz")).status == 200
            assert probes == second
            await apps.sleep(limits.PUBLIC_S)
        # What is refused is shared, too, and passes as soon.
        apps.engines[0].cut_off = True
        for _ in range(20):
            assert (await caller("GET", "/readyz")).status == 503
        assert probes == 4
        apps.engines[0].cut_off = False
        await apps.sleep(limits.PUBLIC_S)
        assert (await caller("GET", "/readyz")).status == 200


@virtual
async def test_metrics_are_computed_at_most_once_a_second() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        texts = []
        for _ in range(3):
            answers = await asyncio.gather(*[caller("GET", "/metrics") for _ in range(50)])
            [text] = {answer.body for answer in answers}
            texts.append(text)
            await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
            assert (await caller("GET", "/metrics")).body == text
            await apps.sleep(limits.PUBLIC_S)
        assert len(set(texts)) == 3


@virtual
async def test_metrics_can_require_a_key_with_their_scope() -> None:
    auth, keys = keyed(ann="metrics:*", bob="metrics:other", eve="send:* operate:*", zoe="all")
    async with serving(auth=auth, metrics_auth=True) as anyone:
        assert (await anyone("GET", "/metrics")).verdict == (401, "no_credentials")
        for name in ("ann", "zoe"):
            answer = await Caller(anyone.server, keys[name])("GET", "/metrics")
            assert (answer.status, b"onceward_requests_total" in answer.body) == (200, True)
        for name in ("bob", "eve"):
            answer = await Caller(anyone.server, keys[name])("GET", "/metrics")
            assert answer.verdict == (403, "not_allowed")
        assert (await anyone("GET", "/readyz")).status == 200
        ann = Caller(anyone.server, keys["ann"])
        assert (await ann("GET", "/v1/keys")).verdict == (403, "not_allowed")
    async with serving(metrics_auth=True) as developer:
        assert (await developer("GET", "/metrics")).status == 200


@virtual
async def test_metrics_tell_what_has_happened() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        await apps.sleep(2 * limits.CENSUS_S)
        answer = await caller("GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.body.decode().splitlines()
        for line in (
            'onceward_accepted_total{queue="q",duplicate="no"} 1',
            'onceward_accepted_total{queue="q",duplicate="yes"} 1',
            'onceward_requests_total{route="/v1/inbox/{queue}",method="POST",status="202"} 1',
            'onceward_jobs{queue="q",state="queued"} 1',
        ):
            assert line in lines


@virtual
async def test_the_document_and_its_page_are_there_for_everyone() -> None:
    async with serving_to(ann="all") as callers:
        anyone = Caller(callers["ann"].server)
        document = await anyone("GET", "/openapi.json")
        assert document.headers["content-type"] == "application/json"
        assert json.loads(document.body)["openapi"] == "3.1.0"
        mounted = await AsgiCaller(anyone.server, root_path="/at")("GET", "/at/openapi.json")
        assert mounted.json["servers"][0]["url"] == "/at"
        page = await anyone("GET", "/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b"openapi.json" in page.body
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await anyone("GET", path)).status == 200
        assert (await anyone("GET", "/v1/queues")).verdict == (401, "no_credentials")


# Of what stands in a line, the pairs that overlap.
CROWDED = """() => [...document.querySelectorAll("summary")].filter(line => {
  const [method, path, says] = [...line.children].map(part => part.getBoundingClientRect());
  return path.left < method.left + line.children[0].scrollWidth
    || (says.top < path.bottom && says.left < path.right)
    || Math.max(path.right, says.right) > innerWidth;
}).map(line => line.textContent)"""


def test_the_page_of_the_api_is_readable_on_a_phone(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, browsing() as page:
        for width in (390, 1_200):
            page.set_viewport_size({"width": width, "height": 844})
            page.goto(f"{server.url}/docs")
            page.get_by_text("/v1/timers/{id}/resend").click()
            page.locator("details[open]").get_by_text("not_failed").first.wait_for()
            assert page.locator("section#timers > h3").text_content() == "timers"
            assert page.locator("section#timers details#timers_resend[open]").count() == 1
            assert page.evaluate(CROWDED) == []
            assert page.evaluate("document.documentElement.scrollWidth") == width
