"""The landing page is for this machine, in dev mode, and says so when its stage does not answer."""

from apps.demo.landing import Landing
from onceward.app import App
from onceward.web.auth import Auth
from onceward.web.server import Server
from tests.web.asgi import Caller, keyed

GONE = "http://127.0.0.1:9/nobody"


def app() -> App:
    app, landing = App("memory://"), Landing(GONE)
    app.mount("/", landing.front())
    app.mount("/demo", landing.site())
    return app


async def test_without_its_stage_the_page_is_there_and_says_that_nobody_answers() -> None:
    async with Server(app(), Auth(dev=True)) as server:
        caller = Caller(server)
        page = await caller("GET", "/")
        assert (page.status, b"demo.js" in page.body) == (200, True)
        assert (await caller("GET", "/demo/cards.js")).status == 200
        for path in ("/demo/none.js", "/demo/demo.html/x", "/demo/..%2Flanding.py"):
            assert (await caller("GET", path)).verdict == (404, "not_found")
        for method, path, body in (("GET", "/demo/state", None), ("POST", "/demo/do", {})):
            answer = await caller(method, path, body)
            assert answer.status == 503
            assert "is it stopping?" in answer.json["detail"]


async def test_it_gives_a_way_into_the_console_that_counts_once() -> None:
    async with Server(app(), Auth(dev=True)) as server:
        caller = Caller(server)
        address = (await caller.ok("POST", "/demo/console", {}))["address"]
        link = {"link": address.removeprefix("/console#enter=")}
        answers = [await caller("POST", "/v1/session", link) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 401]


async def test_where_there_are_keys_it_does_nothing() -> None:
    auth, keys = keyed(ann="all")
    async with Server(app(), auth) as server:
        for token in (None, keys["ann"]):
            for method, path in (("GET", "state"), ("POST", "do"), ("POST", "console")):
                answer = await Caller(server, token)(method, f"/demo/{path}")
                assert answer.verdict == (401, "no_credentials")
