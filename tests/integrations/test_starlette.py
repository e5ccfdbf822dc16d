"""Onceward in applications of Starlette and FastAPI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import onceward
from onceward import App, BadInput, Unavailable
from onceward.integrations import fastapi, starlette
from onceward.integrations.fastapi import CurrentApp, install
from onceward.sync import App as SyncApp
from onceward.web import Auth, Server


def shop() -> App:
    app = App("memory://")

    @app.handler("orders")
    async def order(job: Any) -> str:
        return "sold"

    return app


@asynccontextmanager
async def calling(web: Any) -> AsyncIterator[AsyncClient]:
    transport = ASGITransport(web, client=("127.0.0.1", 1))
    async with (
        web.router.lifespan_context(web),
        AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def send(request: Request) -> JSONResponse:
    app = starlette.current_app(request)
    receipt = await app.send("orders", await request.json(), key=request.path_params["key"])
    job = await app.wait(receipt.id, timeout_s=30)
    return JSONResponse({"result": job.result})


async def fail(request: Request) -> JSONResponse:
    raise {
        "bad": BadInput("no such lamp", code="not_found"),
        "away": Unavailable("secret.example cannot be reached"),
        "busy": onceward.QueueFull("too fast", retry_after_s=3.0),
    }[request.path_params["key"]]


def site() -> Starlette:
    routes = [Route("/orders/{key}", send, methods=["PUT"]), Route("/fail/{key}", fail)]
    return Starlette(routes=routes)


async def test_a_route_sends_jobs_and_the_handlers_run() -> None:
    web, app = site(), shop()
    starlette.install(web, app)
    async with calling(web) as client:
        assert (await client.put("/orders/1", json="lamp")).json() == {"result": "sold"}
        assert (await client.get("/onceward/readyz")).status_code == 404
    with pytest.raises(Unavailable):
        await app.send("orders", 1)


async def test_errors_become_problems_and_tell_no_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    web = site()
    starlette.install(web, shop())
    async with calling(web) as client:
        bad = await client.get("/fail/bad")
        assert (bad.status_code, bad.json()["detail"]) == (404, "no such lamp")
        assert bad.headers["content-type"] == "application/problem+json"
        busy = await client.get("/fail/busy")
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "3")
        away = await client.get("/fail/away")
        assert (away.status_code, away.json()["code"]) == (503, "engine_unreachable")
        assert "secret" not in away.text
        assert "GET /fail/away: secret.example cannot be reached" in caplog.text
        await client.put("/orders/1", json="lamp")
        assert (await client.put("/orders/1", json="sofa")).json()["code"] == "key_reused"


async def test_the_server_is_mounted_with_its_credentials() -> None:
    web, app = FastAPI(), shop()
    install(web, app, path="/onceward", auth=Auth(dev=True), origins=["https://app.example.com"])
    async with calling(web) as client:
        url = "/onceward/v1/inbox/orders?wait_ms=30000"
        sent = await client.post(url, json={"body": 1, "key": "k"})
        assert sent.json()["result"] == "sold"
        foreign = await client.get("/onceward/v1/jobs", headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
    locked = FastAPI()
    install(locked, shop(), path="/onceward", auth=Auth())
    async with calling(locked) as client:
        assert (await client.get("/onceward/v1/jobs")).status_code == 401


async def test_handlers_can_be_left_to_other_processes() -> None:
    for path, auth in (("", None), ("/onceward", Auth(dev=True))):
        web, app = FastAPI(), shop()
        install(web, app, path=path, auth=auth, work=False)
        async with web.router.lifespan_context(web):
            receipt = await app.send("orders", 1)
            assert (await app.wait(receipt.id, timeout_s=0)).state == "queued"


@pytest.mark.parametrize("served", [False, True])
async def test_the_own_lifespan_runs_within(served: bool) -> None:
    app, steps = shop(), list[str]()

    @asynccontextmanager
    async def own(web: Any) -> AsyncIterator[dict[str, str]]:
        steps.append((await app.send("orders", 1, key="k")).state)
        yield {"own": "state"}
        steps.append((await app.send("orders", 1, key="k")).state)

    running = Server(app, Auth(dev=True)) if served else app
    async with starlette.lifespan(running, own)(None) as state:
        assert state == {"own": "state"}
    assert len(steps) == 2
    with pytest.raises(Unavailable):
        await app.send("orders", 1)

    @asynccontextmanager
    async def broken(web: Any) -> AsyncIterator[None]:
        raise OSError("no port")
        yield

    with pytest.raises(OSError, match="no port"):
        async with starlette.lifespan(app, broken)(None):
            pass
    with pytest.raises(Unavailable):
        await app.send("orders", 1)


async def test_a_parameter_gets_the_application_and_tests_can_replace_it() -> None:
    web, app, other = FastAPI(), shop(), shop()
    install(web, app)

    @web.get("/name")
    async def name(app: CurrentApp) -> str:
        return app.name

    @web.websocket("/live")
    async def live(socket: WebSocket, app: CurrentApp) -> None:
        await socket.accept()
        await socket.send_text((await app.send("orders", 1)).state)
        await socket.close()

    @web.websocket("/wrong")
    async def wrong(socket: WebSocket, app: CurrentApp) -> None:
        await socket.accept()
        await app.send("", 1)

    other.name = "other"
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def keep(message: Any) -> None:
        sent.append(message)

    async with calling(web) as client:
        assert (await client.get("/name")).json() == "app"
        scope: Any = {"type": "websocket", "headers": [], "query_string": b""}
        await web({**scope, "path": "/live"}, receive, keep)
        assert [message["type"] for message in sent] == [
            "websocket.accept",
            "websocket.send",
            "websocket.close",
        ]
        assert sent[1]["text"] in ("queued", "running")
        await web({**scope, "path": "/wrong"}, receive, keep)
        assert sent[-1] == {"type": "websocket.close", "code": 4422, "reason": "bad_name"}
        web.dependency_overrides[fastapi.current_app] = lambda: other
        assert (await client.get("/name")).json() == "other"


def test_mistakes_are_found_when_it_is_installed() -> None:
    web, app = FastAPI(), shop()
    for options in (
        {"path": "/onceward"},
        {"auth": Auth(dev=True)},
        {"telemetry": True},
        {"path": "onceward", "auth": Auth(dev=True)},
        {"path": "/", "auth": Auth(dev=True)},
    ):
        with pytest.raises(BadInput, match="path"):
            install(web, app, **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"an `onceward\.App`, not onceward\.sync"):
        install(web, SyncApp("memory://"))  # type: ignore[arg-type]
    install(web, app)
    with pytest.raises(BadInput, match="already installed"):
        install(web, app)
    request = Request({"type": "http", "app": FastAPI()})
    with pytest.raises(BadInput, match=r"call install\(web, app\)"):
        starlette.current_app(request)
