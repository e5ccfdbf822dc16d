"""The server as an ASGI application."""

import asyncio
import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward import limits
from onceward.errors import EngineStopped, Unavailable
from onceward.web.auth import Auth, JwtKey
from onceward.web.http import is_loopback
from onceward.web.routes import Route
from onceward.web.server import Server
from tests.schedule.cluster import virtual
from tests.signed import signed
from tests.web.asgi import AsgiCaller, Caller, keyed, serving, serving_to
from tests.work.apps import Apps, no_tasks_left

GONE_TO_WAIT = {"wait_ms": 50_000, "lease_ms": 1_000}


class Life:
    """The life of a server, as an ASGI server lets it begin and end."""

    def __init__(self, server: Server) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.task = asyncio.create_task(server({"type": "lifespan"}, self.told.get, self.said.put))

    async def begin(self) -> Any:
        self.told.put_nowait({"type": "lifespan.startup"})
        return await self.said.get()

    async def end(self) -> Any:
        self.told.put_nowait({"type": "lifespan.shutdown"})
        return await self.said.get()


@virtual
async def test_it_lives_as_long_as_the_asgi_server_does() -> None:
    server = Server(Apps(shared=False).make(), Auth(dev=True))
    caller, life = Caller(server), Life(server)
    assert (await caller("GET", "/healthz")).verdict == (503, "node_stopped")
    assert await life.begin() == {"type": "lifespan.startup.complete"}
    assert (await caller("GET", "/readyz")).status == 200
    assert await life.end() == {"type": "lifespan.shutdown.complete"}
    await life.task
    assert (await caller("GET", "/readyz")).verdict == (503, "node_stopped")


@virtual
async def test_a_start_that_fails_is_told_to_the_asgi_server() -> None:
    apps = Apps(shared=False)
    life = Life(Server(apps.make(), Auth(dev=True)))
    apps.engines[0].cut_off = True
    said = await life.begin()
    assert said["type"] == "lifespan.startup.failed"
    assert "cut off" in said["message"]
    with pytest.raises(Unavailable):
        await life.task


@virtual
async def test_an_end_that_fails_is_told_to_the_asgi_server() -> None:
    apps = Apps(shared=False)
    server = Server(apps.make(), Auth(dev=True))
    life = Life(server)
    await life.begin()
    apps.engines[0].stopped = True
    assert (await Caller(server)("GET", "/readyz")).verdict == (503, "engine_stopped")
    assert (await life.end())["type"] == "lifespan.shutdown.failed"
    with pytest.raises(EngineStopped):
        await life.task


@virtual
async def test_it_can_be_started_again_and_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    apps = Apps(shared=False)
    server = Server(apps.make(), Auth(dev=True))
    for key in ("a", "b"):
        async with server:
            caller = Caller(server)
            assert (await caller("POST", "/v1/inbox/q", {"body": 1, "key": key})).status == 202
            assert (await caller("GET", "/readyz")).status == 200
        await server.stop()
        assert no_tasks_left(before) == []
    assert apps.problems == []


@virtual
async def test_websockets_are_turned_away_elsewhere() -> None:
    async with serving() as caller:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
        await caller.server(scope, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]


@virtual
async def test_a_head_request_is_answered_without_the_body() -> None:
    async with serving() as caller:
        whole = await caller("GET", "/healthz")
        head = await caller("HEAD", "/healthz")
        assert (head.status, head.body) == (200, b"")
        assert head.headers == whole.headers
        assert head.headers["content-length"] == str(len(whole.body))
        refused = await caller("HEAD", "/v1/jobs/x")
        assert (refused.status, refused.body) == (404, b"")


@virtual
async def test_options_are_not_answered_so_no_other_site_is_let_in() -> None:
    async with serving() as caller:
        answer = await caller("OPTIONS", "/v1/inbox/q", headers=[("origin", "http://evil.example")])
        assert answer.verdict == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"
        assert not [name for name in answer.headers if name.startswith("access-control")]


@virtual
async def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(server: Any, request: Any) -> Any:
        raise KeyError("secret")

    async with serving() as caller:
        route = next(route for route in caller.server.routes if route.path == "/v1/queues")
        caller.server.routes = caller.server.routes.__class__(
            [Route("GET", "/v1/queues", broken, route.summary)]
        )
        answer = await caller("GET", "/v1/queues")
        assert answer.verdict == (500, "internal")
        assert b"secret" not in answer.body
        [record] = caplog.records
        assert (record.name, record.levelno) == ("onceward.http", logging.ERROR)
        assert "secret" in str(record.exc_info)


@virtual
async def test_where_the_database_is_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    apps, (auth, keys) = Apps(shared=False), keyed(ann="all")
    async with serving(apps.make(), auth) as anyone:
        apps.engines[0].cut_off = True
        for caller in (anyone, Caller(anyone.server, keys["ann"])):
            answer = await caller("GET", "/readyz")
            assert answer.verdict == (503, "engine_unreachable")
            assert answer.json["detail"] == "The engine cannot be reached. Retry later."
        assert "cut off" in caplog.text
        apps.engines[0].cut_off = False


@virtual
async def test_it_can_be_mounted_in_another_application() -> None:
    async with serving() as caller:
        whole = Starlette(routes=[Mount("/a b/{shop}", caller.server)])
        mounted = AsgiCaller(caller.server, web=whole)
        path = "/a%20b/%C3%BC/v1/locks/x%2Fy"
        assert (await mounted("GET", path)).verdict == (404, "no_such_lock")
        await caller.ok("POST", "/v1/locks/acquire", {"names": ["x/y"]})
        assert (await mounted.ok("GET", path))["name"] == "x/y"
        assert (await mounted("GET", "/a%20b/%C3%BC/v2")).verdict == (404, "not_found")


@virtual
async def test_a_caller_who_goes_while_sending_is_not_answered() -> None:
    async with serving() as caller:
        call = caller.call("POST", "/v1/inbox/q", raw=[b'{"body":1,', b'"key":"k"}'])
        call.gone.set()
        assert await call.run() is None
        assert await caller.ok("POST", "/v1/queues/q/claim", {}) == {"jobs": []}


@virtual
async def test_a_claim_is_given_back_when_its_caller_goes_away() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        apps.engines[0].latency_s = 0.5
        ask = {"wait_ms": 50_000, "lease_ms": 3_600_000}
        call = caller.call("POST", "/v1/queues/q/claim", ask)
        waiting = asyncio.create_task(call.run())
        await apps.sleep(1.7)  # while it is being committed
        call.gone.set()
        await waiting
        apps.engines[0].latency_s = 0
        [job] = (await caller.ok("POST", "/v1/queues/q/claim", {"wait_ms": 10_000}))["jobs"]
        assert job["body"] == 1
        assert apps.loop.time() < 30


@virtual
async def test_nobody_waits_longer_when_it_drains() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        receipt = await caller.ok("POST", "/v1/inbox/idle", {"body": 1, "key": "k"})
        await caller.ok("POST", "/v1/locks/acquire", {"names": ["a"]})
        calls = [
            caller("POST", "/v1/queues/q/claim", GONE_TO_WAIT),
            caller("GET", f"/v1/jobs/{receipt['id']}?wait_ms=50000"),
            caller("POST", "/v1/inbox/idle?wait_ms=50000", {"body": 1, "key": "k"}),
            caller("POST", "/v1/locks/acquire", {"names": ["a"], "wait_ms": 50_000}),
        ]
        waiting = [asyncio.create_task(call) for call in calls]
        await apps.sleep(1)
        caller.server.drain()
        claims, job, again, lock = await asyncio.gather(*waiting)
        assert apps.loop.time() < 2
        assert claims.json == {"jobs": []}
        assert job.json["state"] == "queued"
        assert (again.status, again.json["state"]) == (200, "queued")
        # It may be asked for elsewhere.
        assert lock.verdict == (503, "node_stopped")
        assert lock.json["retry"]
        assert (await caller("GET", "/readyz")).verdict == (503, "node_stopped")
        assert (await caller("GET", "/healthz")).status == 200
        # What is not waited for goes on until the end.
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "last"})
        assert (await caller.ok("GET", "/v1/locks/a"))["waiting"] == 0


@virtual
async def test_requests_are_measured_by_route_and_not_by_what_callers_make_up() -> None:
    async with serving() as caller:
        await caller("GET", "/v1/jobs/a")
        await caller("GET", "/v1/jobs/b")
        await caller("PATCH", "/tea")
        await caller("PATCH", "/v1/jobs/a")
        counters = dict(caller.app.store.meters.counters())
        assert {
            tuple(dict(labels).values()): count
            for labels, count in counters["requests"].items()
            if count
        } == {
            ("/v1/jobs/{id}", "GET", "404"): 2,
            ("none", "any", "404"): 1,
            ("none", "any", "405"): 1,
        }


DEV_HOSTS = {
    "127.0.0.1:8080": True,
    "127.0.0.1": True,
    "127.0.0.2:80": True,
    "localhost:8080": True,
    "LOCALHOST": True,
    "[::1]:8080": True,
    "[::1]": True,
    "": False,
    "evil.example": False,
    "evil.example:8080": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "localhost:8080:evil": False,
    "0.0.0.0:8080": False,
    "10.0.0.1": False,
}


@pytest.mark.parametrize("host", DEV_HOSTS)
@virtual
async def test_dev_mode_answers_at_this_machines_own_names(host: str) -> None:
    async with serving() as caller:
        for path in ("/v1/queues", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
            answer = await caller("GET", path, headers=[("host", host)])
            if DEV_HOSTS[host]:
                assert answer.status == 200
            else:
                assert answer.verdict == (421, "wrong_host")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:8080", ""]
)
@virtual
async def test_dev_mode_answers_no_page_of_another_site(origin: str) -> None:
    async with serving() as caller:
        send = ("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        answer = await caller(*send, headers=[("origin", origin)])
        assert answer.verdict == (403, "origin_refused")
        assert (await caller(*send, headers=[("origin", "http://127.0.0.1:8080")])).status == 202


LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
EMBEDDED = [
    {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
    {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {},
]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@virtual
async def test_dev_mode_answers_no_page_that_names_no_origin(site: str) -> None:
    async with serving() as caller:
        for path in ("/v1/queues", "/metrics"):
            for headers in EMBEDDED:
                sent = list({"sec-fetch-site": site, **headers}.items())
                assert (await caller("GET", path, headers=sent)).verdict == (403, "origin_refused")
            # Whoever follows a link reads the answer, and the page with the link does not.
            followed = list({"sec-fetch-site": site, **LINK}.items())
            assert (await caller("GET", path, headers=followed)).status == 200
        # A form can be sent so, and that changes something.
        posted = await caller("POST", "/v1/inbox/q", {"body": 1, "key": "k"}, headers=followed)
        assert posted.verdict == (403, "origin_refused")


@pytest.mark.parametrize("site", ["same-origin", "none"])
@virtual
async def test_dev_mode_answers_its_own_pages_and_the_address_bar(site: str) -> None:
    async with serving() as caller:
        for headers in (*EMBEDDED, LINK):
            sent = list({"sec-fetch-site": site, **headers}.items())
            assert (await caller("GET", "/v1/queues", headers=sent)).status == 200


@virtual
async def test_with_keys_it_answers_at_any_name() -> None:
    async with serving_to(ann="all") as callers:
        headers = [("host", "api.example"), ("origin", "https://shop.example")]
        assert (await callers["ann"]("GET", "/v1/queues", headers=headers)).status == 200


@virtual
async def test_a_token_is_taken_until_it_expires_by_the_clock_of_the_server() -> None:
    apps, secret = Apps(shared=False), "s" * 32
    auth = Auth(jwt_keys=[JwtKey("HS256", secret, "onceward")])
    async with serving(apps.make(), auth) as anyone:
        now_s = anyone.app.store.clock.now_ms() // 1000
        ann = Caller(anyone.server, signed(secret, "ann", now_s + 60, send=["q"]))
        send = ("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        id_ = (await ann.ok(*send))["id"]
        assert (await ann("POST", "/v1/queues/q/claim", {})).verdict == (403, "not_allowed")
        # The same name is the same caller, but for what the scopes of this token are.
        other = Caller(anyone.server, signed(secret, "ann", now_s + 60, lock=["q"]))
        assert (await other("GET", f"/v1/jobs/{id_}")).verdict == (404, "no_such_job")
        await apps.sleep(60 + limits.TOKEN_SLACK_MS / 1000)
        assert (await ann(*send)).verdict == (401, "token_expired")
        assert (await anyone(*send)).verdict == (401, "no_credentials")


def test_loopback_is_this_machine_alone() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.example"):
        assert not is_loopback(host)
