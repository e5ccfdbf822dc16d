"""Callers that ask more often than they may are refused, and others notice nothing."""

from onceward.app import App
from onceward.web.connections import Connections
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.web.test_sessions import Browser
from tests.work.apps import Apps

RATE = {"request_rate": 0.5, "request_burst": 3}


@virtual
async def test_a_caller_that_asks_too_often_is_told_when_to_come_again() -> None:
    auth, keys = keyed(ann="send:*", ben="send:*")
    apps = Apps(shared=False)
    async with serving(apps.make(), auth=auth, **RATE) as server:
        ann, ben = (Caller(server.server, keys[name]) for name in ("ann", "ben"))
        for number in range(3):
            await ann.ok("POST", "/v1/inbox/orders", {"body": 1, "key": str(number)})
        refused = await ann("POST", "/v1/inbox/orders", {"body": 1, "key": "3"})
        assert refused.verdict == (429, "rate_limited")
        assert (refused.headers["retry-after"], refused.json["retry"]) == ("2", True)
        assert refused.json["retry_after_s"] == 2.0
        assert "0.5 requests a second, 3 at once" in refused.json["detail"]
        # Nothing was done, whatever is asked for; and the others notice nothing.
        assert (await ann("GET", "/v1/jobs/nothing")).status == 429
        await ben.ok("POST", "/v1/inbox/orders", {"body": 1, "key": "3"})
        metrics = (await Caller(server.server)("GET", "/metrics")).body
        assert b"onceward_throttled_total 2\n" in metrics
        assert b"ann" not in metrics
        await apps.sleep(2)
        again = await ann.ok("POST", "/v1/inbox/orders", {"body": 1, "key": "3"})
        assert again["duplicate"] is False
        assert (await ann("GET", "/v1/activity")).status == 429


@virtual
async def test_signing_in_and_asking_for_the_session_count() -> None:
    auth, keys = keyed(ann="send:*", ben="send:*")
    apps = Apps(shared=False)
    async with serving(apps.make(), auth=auth, **RATE) as server:
        browser = Browser(server)
        for _ in range(2):
            assert (await browser.enter(token=keys["ann"])).status == 200
        assert (await browser("GET", "/v1/session")).status == 200
        assert (await browser("GET", "/v1/session")).verdict == (429, "rate_limited")
        assert (await browser.enter(token=keys["ann"])).verdict == (429, "rate_limited")
        assert (await Browser(server).enter(token=keys["ben"])).status == 200


@virtual
async def test_what_is_public_and_who_is_not_known_has_no_rate() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth, **RATE) as server:
        ann, nobody = Caller(server.server, keys["ann"]), Caller(server.server)
        for _ in range(9):
            assert (await ann("GET", "/healthz")).status == 200
            assert (await nobody("GET", "/v1/activity")).verdict == (401, "no_credentials")
        assert (await ann("GET", "/v1/activity")).status == 200


@virtual
async def test_without_the_setting_there_is_no_rate() -> None:
    async with serving() as caller:
        for _ in range(50):
            await caller.ok("GET", "/v1/activity")
        shown = (await caller("GET", "/metrics")).body
        assert b"\nonceward_throttled_total 0\n" in shown


@virtual
async def test_what_a_caller_does_at_the_console_counts_with_the_rest() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth, **RATE) as server:
        browser, ann = Browser(server), Caller(server.server, keys["ann"])
        await browser.enter(token=keys["ann"])
        for _ in range(2):
            assert (await browser("GET", "/v1/activity")).status == 200
        assert (await browser("GET", "/v1/activity")).status == 429
        assert (await ann("GET", "/v1/activity")).status == 429


@virtual
async def test_a_request_counts_once_however_often_it_is_asked_who_makes_it() -> None:
    async def whose(owner: object, request: Request) -> Response:
        names = [request.scope["onceward"].caller(request).name for _ in range(5)]
        return Response.of(names)

    app = Apps(shared=False).make()
    app.mount("/own", Site([Route("GET", "/whose", whose, "Who asks")]))
    async with serving(app, **RATE) as caller:
        for _ in range(3):
            assert (await caller.ok("GET", "/own/whose")) == ["developer"] * 5
        assert (await caller("GET", "/own/whose")).verdict == (429, "rate_limited")
        ann = Caller(caller.server, "dev:ann")
        assert (await ann.ok("GET", "/own/whose")) == ["ann"] * 5


@virtual
async def test_what_another_node_passes_on_was_counted_there() -> None:
    async with serving(**RATE) as caller:
        secret = caller.app.hub.owners._secret
        passed_on = [("authorization", f"Node {secret}"), ("onceward-user", "ann")]
        for _ in range(9):
            assert (await caller("GET", "/v1/activity", headers=passed_on)).status == 200
        ann = Caller(caller.server, "dev:ann")
        assert [(await ann("GET", "/v1/activity")).status for _ in range(4)] == [200, 200, 200, 429]


async def page(owner: object, request: Request) -> Response:
    return Response.of("here")


def shop() -> App:
    app = Apps(shared=False).make()
    app.mount("/shop", Site([Route("GET", "", page, "A page")]))
    app.mount("/club", Site([Route("GET", "", page, "A page")]))
    return app


@virtual
async def test_requests_to_what_is_mounted_count_for_their_caller() -> None:
    auth, keys = keyed(ann="", ben="")
    async with serving(shop(), auth=auth, **RATE) as server:
        ann, ben = (Caller(server.server, keys[name]) for name in ("ann", "ben"))
        await ann.ok("GET", "/shop")
        await ann.ok("GET", "/club")
        await ann.ok("GET", "/v1/queues")
        for path in ("/shop", "/club", "/v1/queues"):
            assert (await ann("GET", path)).verdict == (429, "rate_limited")
        await ben.ok("GET", "/shop")


@virtual
async def test_without_credentials_what_is_mounted_counts_by_address() -> None:
    auth, _ = keyed(ann="all")
    async with serving(shop(), auth=auth, **RATE) as server:
        bad = Caller(server.server, "ow_unknown")

        async def statuses(caller: Caller, path: str, host: str) -> list[int]:
            calls = [caller.call("GET", path, client=(host, port)) for port in range(4)]
            answers = [await call.run() for call in calls]
            return [answer.status for answer in answers if answer is not None]

        once = [200, 200, 200, 429]
        assert await statuses(server, "/shop", "192.0.2.1") == once
        assert await statuses(bad, "/shop", "192.0.2.2") == once
        assert await statuses(server, "/club", "192.0.2.1") == once
        assert await statuses(server, "/shop", "2001:db8::1") == once
        assert await statuses(server, "/shop", "2001:db8::2:1") == [429] * 4
        assert await statuses(server, "/shop", "::ffff:192.0.2.1") == [429] * 4
        # The console's own files are not of an application.
        assert await statuses(server, "/console", "192.0.2.1") == [200] * 4


@virtual
async def test_a_proxy_has_no_rate_for_those_behind_it() -> None:
    auth, _ = keyed(ann="all")
    proxied = Connections(proxies=["192.0.2.0/24"])
    async with serving(shop(), auth=auth, connections=proxied, **RATE) as server:
        for host, last in (("192.0.2.1", 200), ("198.51.100.1", 429)):
            calls = [server.call("GET", "/shop", client=(host, 1)) for _ in range(4)]
            answers = [await call.run() for call in calls]
            assert answers[-1] is not None
            assert answers[-1].status == last


@virtual
async def test_in_dev_mode_what_is_mounted_counts_for_the_developer() -> None:
    async with serving(shop(), **RATE) as caller:
        assert [(await caller("GET", "/shop")).status for _ in range(4)] == [200, 200, 200, 429]
