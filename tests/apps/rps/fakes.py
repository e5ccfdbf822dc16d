"""Providers of texts on this machine: they take what the real ones take, and fail on demand."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

ACCOUNT, TOKEN = "AC" + "0" * 32, "twilio token"


class Fake:
    """An HTTP server that notes requests; `answers` may say what comes next, one by one."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = []
        self.answers: list[Callable[[web.Request], Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.method, request.path_qs, headers, form))
        if self.answers:
            answer = self.answers.pop(0)(request)
            return await answer if asyncio.iscoroutine(answer) else answer
        return await self.answer(request, headers, form)

    async def answer(
        self, request: web.Request, headers: dict[str, str], form: dict[str, str]
    ) -> web.StreamResponse:
        raise NotImplementedError


class FakeTwilio(Fake):
    """Keeps messages, and lists them, the newest first."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.stores: Callable[[str], Any] = lambda body: body
        """What it keeps of the body of a message."""

    async def answer(
        self, request: web.Request, headers: dict[str, str], form: dict[str, str]
    ) -> web.StreamResponse:
        basic = base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
        if headers.get("authorization") != f"Basic {basic}":
            return web.json_response({"code": 20003, "message": "Authenticate"}, status=401)
        if request.path != f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json":
            return web.json_response({"code": 20404, "message": "not found"}, status=404)
        if request.method == "POST":
            return web.json_response(self.keep(form), status=201)
        wanted = request.query
        found = [
            message
            for message in reversed(self.messages)
            if (message["to"], message["from"]) == (wanted["To"], wanted["From"])
        ]
        return web.json_response({"messages": found[: int(wanted["PageSize"])]})

    def keep(self, form: dict[str, str]) -> dict[str, Any]:
        message = {
            "sid": f"SM{len(self.messages):032x}",
            "to": form["To"],
            "from": form["From"],
            "body": self.stores(form["Body"]),
            "direction": "outbound-api",
            "date_created": formatdate(),
            "status": "queued",
        }
        self.messages.append(message)
        return message

    def keep_and_hang_up(self, request: web.Request) -> Any:
        """Takes the message, and the answer is lost."""
        self.keep(self.requests[-1][3])
        return hang_up(request)


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def error(status: int, code: int, **headers: str) -> Callable[[web.Request], Any]:
    """An error of Twilio's."""

    def answer(request: web.Request) -> web.StreamResponse:
        body = {"code": code, "message": "because", "status": status}
        return web.json_response(body, status=status, headers=headers)

    return answer


class FakeSns(Fake):
    """Publishes texts."""

    async def answer(
        self, request: web.Request, headers: dict[str, str], form: dict[str, str]
    ) -> web.StreamResponse:
        said = f"<PublishResult><MessageId>m{len(self.requests)}</MessageId></PublishResult>"
        request_id = "<ResponseMetadata><RequestId>d74b8436</RequestId></ResponseMetadata>"
        return _xml("PublishResponse", said + request_id)


def sns_error(status: int, code: str, message: str = "because") -> Callable[[web.Request], Any]:
    def answer(request: web.Request) -> web.StreamResponse:
        said = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
        whole = f"<Error>{said}</Error><RequestId>d74b8436</RequestId>"
        return _xml("ErrorResponse", whole, status)

    return answer


def _xml(name: str, inner: str, status: int = 200) -> web.StreamResponse:
    """An answer of SNS, in its namespace."""
    space = "http://sns.amazonaws.com/doc/2010-03-31/"
    text = f'<{name} xmlns="{space}">{inner}</{name}>'
    return web.Response(text=text, status=status, content_type="text/xml")


@asynccontextmanager
async def standing(fake: Any) -> AsyncIterator[Any]:
    """A provider that can be called at its `url`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
