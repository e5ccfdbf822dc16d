"""Callers that ask more often than they may are refused, and others notice nothing."""

from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site
from tests.service.apps import Apps
from tests.service.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.web.test_sessions import Browser

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
        assert "0.5 requests a second, and 3 at once" in refused.json["detail"]
        # Nothing was done, whatever is asked for; and the others notice nothing.
        assert (await ann("GET", "/v1/jobs/nothing")).status == 429
        await ben.ok("POST", "/v1/inbox/orders", {"body": 1, "key": "3"})
        metrics = (await Caller(server.server)("GET", "/metrics")).body
        assert b"onceward_throttled_total 2\n" in metrics
        assert b"ann" not in metrics
        await apps.sleep(2)
        again = await ann.ok("POST", "/v1/inbox/orders", {"body": 1, "key": "3"})
        assert again["duplicate"] is False
        assert (await ann("GET", "/v1/pulse")).status == 429


@virtual
async def test_what_is_public_and_who_is_not_known_has_no_rate() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth, **RATE) as server:
        ann, nobody = Caller(server.server, keys["ann"]), Caller(server.server)
        for _ in range(9):
            assert (await ann("GET", "/healthz")).status == 200
            assert (await nobody("GET", "/v1/pulse")).verdict == (401, "no_credentials")
        assert (await ann("GET", "/v1/pulse")).status == 200


@virtual
async def test_without_the_setting_there_is_no_rate() -> None:
    async with serving() as caller:
        for _ in range(50):
            await caller.ok("GET", "/v1/pulse")
        assert b"throttled" not in (await caller("GET", "/metrics")).body


@virtual
async def test_what_a_caller_does_at_the_console_counts_with_the_rest() -> None:
    auth, keys = keyed(ann="all")
    async with serving(auth=auth, **RATE) as server:
        browser, ann = Browser(server), Caller(server.server, keys["ann"])
        await browser.enter(token=keys["ann"])
        for _ in range(3):
            assert (await browser("GET", "/v1/pulse")).status == 200
        assert (await browser("GET", "/v1/pulse")).status == 429
        assert (await ann("GET", "/v1/pulse")).status == 429


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
            assert (await caller("GET", "/v1/pulse", headers=passed_on)).status == 200
        ann = Caller(caller.server, "dev:ann")
        assert [(await ann("GET", "/v1/pulse")).status for _ in range(4)] == [200, 200, 200, 429]
