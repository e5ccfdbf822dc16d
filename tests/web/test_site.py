"""Routes of an application's own are answered as those of the API are."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward.errors import OncewardError, Unavailable
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site
from tests.console import blocks
from tests.needs import need
from tests.schedule.cluster import virtual
from tests.server_process import ROOT
from tests.web.asgi import AsgiCaller, serving
from tests.work.apps import Apps

pydantic = need("pydantic")


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


class Order(msgspec.Struct):
    item: str
    count: int = 1


@dataclass
class Address:
    city: str
    zip: int | None = None


async def any_json(owner: Any, request: Request) -> Response:
    return Response.of(await request.json())


async def order(owner: Any, request: Request) -> Response:
    return Response.of(await request.json(Order, most_bytes=50))


async def address(owner: Any, request: Request) -> Response:
    return Response.of(await request.json(Address, kind="text/plain"))


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined,unused-ignore]
    item: str
    at: date = date(2026, 5, 1)


async def model(owner: Any, request: Request) -> Response:
    return Response.of(await request.json(Model))


async def form(owner: Any, request: Request) -> Response:
    fields = await request.form()
    assert len(fields) == len(list(fields))
    return Response.of(
        [fields["item"], fields.get("note"), fields.get("x", "y"), fields.all("tag"), "x" in fields]
    )


BODIES = Site(
    [
        Route("POST", "/json", any_json, "Any JSON"),
        Route("POST", "/orders", order, "An order"),
        Route("POST", "/addresses", address, "An address"),
        Route("POST", "/models", model, "A model"),
        Route("POST", "/forms", form, "A form"),
    ]
)
URLENCODED = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("path", "kind", "raw", "found"),
    [
        ("json", "application/json; charset=utf-8", b'{"a": [1, "\xc3\xa9"]}', {"a": [1, "é"]}),
        ("orders", "application/json", b'{"item": "lamp"}', {"item": "lamp", "count": 1}),
        ("addresses", "text/plain", b'{"city": "Ulm", "zip": 1}', {"city": "Ulm", "zip": 1}),
        ("models", "application/json", b'{"item": "a"}', {"item": "a", "at": "2026-05-01"}),
        (
            "forms",
            URLENCODED + ";charset=UTF-8",
            b"item=a+b%26c&note=&tag=1&tag=2",
            ["a b&c", "", "y", ["1", "2"], False],
        ),
    ],
)
async def test_a_route_reads_json_and_forms(path: str, kind: str, raw: bytes, found: Any) -> None:
    caller = AsgiCaller(web=BODIES)
    answer = await caller("POST", f"/{path}", raw=raw, headers=[("content-type", kind)])
    assert (answer.status, answer.json) == (200, found)


@pytest.mark.parametrize(
    ("path", "kind", "raw", "verdict"),
    [
        ("json", "application/json", b"{", (400, "not_json")),
        ("json", "application/json", b"", (400, "not_json")),
        ("json", "application/json", b'"\xff"', (400, "not_text")),
        ("json", "application/json", b'{"a": 1, "a": 2}', (400, "duplicate_member")),
        ("json", "application/json", b"[" * 200 + b"]" * 200, (400, "too_deep")),
        ("json", "application/json", b"NaN", (400, "not_a_number")),
        ("json", URLENCODED, b"{}", (415, "not_this_type")),
        ("json", "application/json", b" " * (1 << 20) + b"1", (413, "body_too_large")),
        ("orders", "application/json", b"{}", (422, "missing_member")),
        ("orders", "application/json", b'{"item": 5}', (422, "wrong_type")),
        ("orders", "application/json", b"[]", (422, "wrong_type")),
        ("orders", "application/json", b" " * 51, (413, "body_too_large")),
        ("models", "application/json", b'{"item": "a", "item": "b"}', (400, "duplicate_member")),
        ("models", "application/json", b'{"item": 5}', (422, "wrong_type")),
        ("addresses", "application/json", b"{}", (415, "not_this_type")),
        ("addresses", "text/plain", b'{"city": "Ulm", "zip": "x"}', (422, "wrong_type")),
        ("forms", "application/json", b"item=a", (415, "not_this_type")),
        ("forms", "multipart/form-data; boundary=x", b"--x--", (415, "not_this_type")),
        ("forms", URLENCODED, b"item=%ff", (400, "not_text")),
        ("forms", URLENCODED, b"item=\xff", (400, "not_text")),
        ("forms", URLENCODED, b"note=1", (422, "missing_member")),
        ("forms", URLENCODED, b"item=1&item=2", (400, "duplicate_member")),
        ("forms", URLENCODED, b"item=1&note=1&note=", (400, "duplicate_member")),
        ("forms", URLENCODED, b"a&" * 1_000 + b"item=1", (413, "body_too_large")),
    ],
)
async def test_bad_json_and_forms_are_mistakes_of_the_caller(
    path: str, kind: str, raw: bytes, verdict: tuple[int, str]
) -> None:
    caller = AsgiCaller(web=BODIES)
    answer = await caller("POST", f"/{path}", raw=raw, headers=[("content-type", kind)])
    assert answer.verdict == verdict


def plain(owner: Any, request: Request) -> Response:
    return Response(200)


async def value(owner: Any, request: Request) -> Any:
    return {"left": 1}


@virtual
async def test_a_wrong_function_of_a_route_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Apps(shared=False).make()
    wrong: Any = [Route("GET", "", plain, "Plain"), Route("GET", "/v", value, "A value")]
    app.mount("/shop", Site(wrong))
    async with serving(app) as caller:
        for path, told in {
            "": "the function of GET / must be an async function, but plain is a plain one",
            "/v": "the function of GET /v must return a Response, not dict; use Response.of(value)",
        }.items():
            assert (await caller("GET", f"/shop{path}")).verdict == (500, "internal")
            assert told in caplog.text
