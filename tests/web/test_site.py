"""Routes of an application's own are answered as those of the API are."""

from pathlib import Path
from typing import Any

import pytest

from onceward.errors import OncewardError, Unavailable
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site
from tests.console import blocks
from tests.schedule.cluster import virtual
from tests.server_process import ROOT
from tests.web.asgi import serving
from tests.work.apps import Apps


async def greet(owner: Any, request: Request) -> Response:
    return Response.of({"owner": owner, "name": request.parameters["name"]})


async def read(owner: Any, request: Request) -> Response:
    return Response(200, await request.body(10, "text/plain"), b"text/plain")


async def fail(owner: Any, request: Request) -> Response:
    raise {
        "bad": OncewardError("no", code="wrong_type"),
        "away": Unavailable("secret.example cannot be reached"),
        "bug": ValueError("a bug"),
    }[request.parameters["how"]]


SITE = Site(
    [
        Route("GET", "/names/{name}", greet, "Greets"),
        Route("POST", "/texts", read, "Reads"),
        Route("GET", "/fail/{how}", fail, "Fails"),
    ],
    "me",
)


@virtual
async def test_a_site_answers_below_where_it_is_mounted() -> None:
    app = Apps(shared=False).make()
    app.mount("/shop", SITE)
    async with serving(app) as caller:
        assert await caller.ok("GET", "/shop/names/a%2Fb") == {"owner": "me", "name": "a/b"}
        assert (await caller("HEAD", "/shop/names/a")).body == b""
        assert (await caller("GET", "/shop/nothing")).verdict == (404, "not_found")
        answer = await caller("PUT", "/shop/texts")
        assert answer.verdict == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


@virtual
async def test_a_body_is_of_the_type_and_size_that_the_route_takes() -> None:
    app = Apps(shared=False).make()
    app.mount("/shop", SITE)
    async with serving(app) as caller:
        plain = [("content-type", "Text/Plain; charset=utf-8")]
        assert (await caller("POST", "/shop/texts", raw=b"hello", headers=plain)).body == b"hello"
        answer = await caller("POST", "/shop/texts", raw=b"hello")
        assert answer.verdict == (415, "not_this_type")
        assert "text/plain" in answer.json["detail"]
        answer = await caller("POST", "/shop/texts", raw=b"x" * 11, headers=plain)
        assert answer.verdict == (413, "body_too_large")


@virtual
async def test_errors_become_problems_and_tell_no_secrets() -> None:
    app = Apps(shared=False).make()
    app.mount("/shop", SITE)
    async with serving(app) as caller:
        assert (await caller("GET", "/shop/fail/bad")).verdict == (422, "wrong_type")
        away = await caller("GET", "/shop/fail/away")
        assert away.verdict == (503, "engine_unreachable")
        assert b"secret" not in away.body
        assert (await caller("GET", "/shop/fail/bug")).verdict == (500, "internal")


async def test_the_site_of_the_guide_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    *_, guide = blocks(ROOT / "docs" / "server.md", "python")
    names: dict[str, Any] = {}
    exec(guide, names)
    async with serving(names["app"]) as caller:
        assert await caller.ok("GET", "/shop/stock/lamp") == {"left": None}


async def test_mounted_elsewhere_it_says_nothing_to_who_has_gone() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "GET", "path": "/fail/bad", "headers": []}
    await SITE(scope, receive, send)
    with pytest.raises(RuntimeError, match="websocket"):
        await SITE({"type": "websocket"}, receive, send)
