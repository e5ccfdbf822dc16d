"""Internal queues: only code of the application sends to them, whatever the scopes of a caller."""

import pytest

from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps

SCOPES = {
    "root": "all",
    "wide": "send:* work:* timer:* manage:* operate:*",
    "narrow": "send:inner work:inner timer:* manage:inner manage:open",
}
INNER = [
    ("POST", "/v1/inbox/{}", {"key": "k", "body": 1}),
    ("POST", "/v1/inbox/{}/batch", {"messages": [{"key": "k", "body": 1}]}),
    ("POST", "/v1/timers", {"queue": "{}", "delay_ms": 0, "body": 1}),
    ("POST", "/v1/timers", {"queue": "{}", "every_ms": 1_000, "body": 1}),
    ("PUT", "/v1/queues/open", {"failure_queue": "{}"}),
    ("POST", "/v1/queues/{}/claim", {}),
    ("PUT", "/v1/queues/{}", {"internal": False}),
    ("PUT", "/v1/queues/{}", {"remote_work": True}),
]


def app_of(apps: Apps):  # type: ignore[no-untyped-def]
    app = apps.make()
    app.queue("inner", internal=True)
    app.queue("parcels", internal=True, remote_work=True)
    return app


@virtual
@pytest.mark.parametrize("name", [*SCOPES, "developer"])
async def test_no_caller_enters_an_internal_queue(name: str) -> None:
    app = app_of(Apps(shared=False))
    auth, keys = keyed(**SCOPES)
    async with serving(app, None if name == "developer" else auth) as caller:
        caller = Caller(caller.server, keys.get(name, ""))
        for method, path, body in INNER:
            asked = {key: "inner" if value == "{}" else value for key, value in body.items()}
            found = await caller(method, path.format("inner"), asked)
            assert found.verdict == (403, "not_allowed"), (path, body)
        assert await app.claim("inner", "w", lease_s=1, wait_s=5) == []


@virtual
async def test_every_node_refuses_what_one_has_declared() -> None:
    apps = Apps(shared=True)
    other = apps.make()
    async with app_of(apps), serving(other) as caller:
        found = await caller("POST", "/v1/inbox/inner", {"key": "k", "body": 1})
        assert found.verdict == (403, "not_allowed")
        assert "internal" in found.json["detail"]


@virtual
async def test_code_of_the_application_sends_to_an_internal_queue() -> None:
    app = app_of(Apps(shared=False))
    async with serving(app) as caller:
        receipt = await app.send("inner", 1, key="k")
        await app.timers.set("t", queue="inner", delay_s=0)
        claims = await app.claim("inner", "w", lease_s=9, max=1, wait_s=5)
        assert receipt.id in {claim.id for claim in claims}
        token = {"token": claims[0].token, "result": 1}
        done = await caller("POST", f"/v1/jobs/{claims[0].id}/complete", token)
        assert done.verdict == (404, "no_such_job"), "nobody ends another's job from outside"


@virtual
async def test_remote_workers_need_a_setting_of_the_queue() -> None:
    app = app_of(Apps(shared=False))
    async with serving(app) as caller:
        await app.send("parcels", 1, key="k")
        sent = await caller("POST", "/v1/inbox/parcels", {"key": "k2", "body": 1})
        assert sent.verdict == (403, "not_allowed")
        [job] = (await caller.ok("POST", "/v1/queues/parcels/claim", {}))["jobs"]
        await caller.ok("POST", f"/v1/jobs/{job['id']}/complete", {"token": job["token"]})
        assert (await app.job(job["id"])).state == "succeeded"


@virtual
async def test_queues_of_onceward_itself_are_internal_without_a_setting() -> None:
    async with serving() as caller:
        for path in (f"/v1/inbox/{WEBHOOKS}", "/v1/inbox/onceward.anything"):
            found = await caller("POST", path, {"key": "k", "body": 1})
            assert found.verdict == (403, "not_allowed")
        await caller.ok("GET", f"/v1/queues/{WEBHOOKS}")
