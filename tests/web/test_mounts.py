"""Applications have pages of their own beside the API, below prefixes."""

import errno
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import BadInput, OncewardError
from onceward.web import asgi
from onceward.web.auth import Auth
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.server import Server
from onceward.web.site import Site
from tests.schedule.cluster import virtual
from tests.web.asgi import keyed, serving
from tests.work.apps import Apps

NO_APP = "memory://"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was asked; in pieces, and without a length, as many applications do."""
    message = await receive()
    said = f"{scope['method']} {scope['root_path']} {scope['path']}".encode()
    headers = [(b"Content-Type", b"text/plain")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": said, "more_body": True})
    await send({"type": "http.response.body", "body": b" " + message["body"]})


async def whoami(scope: Any, receive: Any, send: Any) -> None:
    """Lets the server find out who calls."""
    caller = scope["onceward"].caller(Request(scope))
    caller.insist("manage", "shop")
    await asgi.respond(Response.of({"name": caller.name}), send)


async def broken(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"].endswith("raise"):
        raise ValueError("a bug")


@virtual
async def test_what_is_below_a_prefix_is_answered_by_what_is_mounted_there() -> None:
    app = Apps(shared=False).make()
    app.mount("/shop", echo)
    app.mount("/shop/inner", whoami)
    async with serving(app) as caller:
        answer = await caller("POST", "/shop/a%20b?x=1", raw=b"lamp")
        assert answer.status == 201
        assert answer.body == b"POST /shop /shop/a b lamp"
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.headers["content-type"] == "text/plain"
        assert (await caller("GET", "/shop")).body == b"GET /shop /shop "
        assert (await caller("HEAD", "/shop")).body == b""
        assert b"console/app.js" in (await caller("GET", "/")).body
        assert await caller.ok("GET", "/shop/inner/most") == {"name": "developer"}
        assert (await caller("GET", "/shopping")).verdict == (404, "not_found")
        assert await caller.ok("GET", "/v1/queues") is not None
        metrics = (await caller("GET", "/metrics")).body.decode()
        assert 'requests_total{route="/shop",method="POST",status="201"} 1' in metrics


@virtual
async def test_what_is_mounted_can_ask_for_credentials() -> None:
    app = Apps(shared=False).make()
    app.mount("/shop", whoami)
    auth, keys = keyed(ann="manage:shop", bob="send:shop")
    async with serving(app, auth) as caller:
        assert (await caller("GET", "/shop")).verdict == (401, "no_credentials")
        for name, status in (("ann", 200), ("bob", 403)):
            header = ("Authorization", f"Bearer {keys[name]}")
            assert (await caller("GET", "/shop", headers=[header])).status == status


@virtual
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((b"x", b"a\r\nSet-Cookie: b"), (b"x", b"a\nb"), (b"x", b"a\rb"), (b"x", b"a\0b")),
        *((b"x\r\ny", b"a"), (b"x: y", b"a"), (b"x y", b"a"), (b"", b"a"), (b"x\0", b"a")),
    ],
)
async def test_headers_of_what_is_mounted_begin_no_other_header(name: bytes, value: bytes) -> None:
    async def splitting(scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"Content-Type", b"text/plain"), (name, value)]})
        await send({"type": "http.response.body", "body": b"ok"})

    app = Apps(shared=False).make()
    app.mount("/shop", splitting)
    async with serving(app) as caller:
        answer = await caller("GET", "/shop")
        assert answer.verdict == (500, "internal")
        assert name.decode() not in answer.headers


@virtual
@pytest.mark.parametrize("status", [204, 304, 200, 100, 600])
async def test_how_an_answer_is_framed_is_not_for_what_is_mounted(status: int) -> None:
    async def framing(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"9"), (b"X", b"y")]
        headers += [(b"Connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"body"})

    app = Apps(shared=False).make()
    app.mount("/shop", framing)
    async with serving(app) as caller:
        answer = await caller("GET", "/shop")
        if status == 200:
            assert (answer.headers, answer.body) == ({"content-length": "4", "x": "y"}, b"body")
        elif status in (204, 304):
            assert (answer.status, answer.headers, answer.body) == (status, {"x": "y"}, b"")
        else:
            assert answer.verdict == (500, "internal")


@virtual
async def test_a_process_without_file_descriptors_is_overloaded_not_broken() -> None:
    async def opening(scope: Any, receive: Any, send: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    app = Apps(shared=False).make()
    app.mount("/shop", opening)
    async with serving(app) as caller:
        answer = await caller("GET", "/shop")
        assert answer.verdict == (503, "overloaded")
        assert answer.json["retry"]


@virtual
async def test_a_bug_in_what_is_mounted_is_told_as_one() -> None:
    app = Apps(shared=False).make()
    app.mount("/broken", broken)
    async with serving(app) as caller:
        assert (await caller("GET", "/broken/raise")).verdict == (500, "internal")
        assert (await caller("GET", "/broken")).verdict == (500, "internal")


async def test_what_cannot_be_mounted_is_refused() -> None:
    app = App(NO_APP)
    app.mount("/shop", echo)
    for prefix in ("", "shop", "/shop/", "/a b", "//x", "/shop"):
        with pytest.raises(BadInput):
            app.mount(prefix, echo)
    for prefix in ("/event-links", "/event-links/x"):
        with pytest.raises(BadInput, match=f"at {prefix}: the pages of event links are below /ev"):
            app.mount(prefix, echo)
    app.mount("/event-linkss", echo)
    for prefix in ("/v1", "/timers/x", "/metrics"):
        other = App(NO_APP)
        other.mount(prefix, echo)
        with pytest.raises(OncewardError, match="it belongs to the API"):
            Server(other, Auth(dev=True))
    async with app:
        with pytest.raises(BadInput, match="running"):
            app.mount("/late", echo)


async def test_what_is_mounted_says_in_its_own_words_that_a_body_is_too_large() -> None:
    class Polite:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

        def refusal(self, error: OncewardError) -> Response:
            return Response(400, error.code.encode(), b"text/plain")

    app = App(NO_APP)
    app.mount("/polite", Polite())
    app.mount("/plain", echo)
    server = Server(app, Auth(dev=True))
    error = BadInput("too large", code="body_too_large")
    assert server.refusal({"raw_path": b"/polite/x"}, error).body == b"body_too_large"
    for path in (b"/plain", b"/elsewhere", b"/%ff"):
        assert server.refusal({"raw_path": path}, error).status == 413


@virtual
async def test_the_front_page_can_be_mounted_alone() -> None:
    app = Apps(shared=False).make()

    async def front(site: Any, request: Request) -> Response:
        return Response.elsewhere("/shop")

    app.mount("/", Site([Route("GET", "/", front, "Leads to the shop")]))
    app.mount("/shop", echo)
    async with serving(app) as caller:
        for path in ("/", "/?x=1"):
            answer = await caller("GET", path)
            assert (answer.status, answer.headers["location"]) == (302, "/shop")
        assert (await caller("GET", "/shop")).status == 201
        assert (await caller("GET", "/other")).verdict == (404, "not_found")
        assert (await caller("GET", "/healthz")).status == 200
