"""The stage's HTTP server, on this machine only.

Below one secret path are the external services that receive effects: a carrier, the receiver of
timers, a bureau and Salesforce. Below another one is the control API of the landing page.
"""

import asyncio
import hmac
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal

import msgspec
import uvicorn
from msgspec import Meta

from apps.credit.bureau import Bureau
from apps.credit.salesforce import Salesforce
from apps.demo.landing import TOKEN
from apps.demo.traffic import Traffic
from onceward import BadInput, Ids
from onceward.web import Request, Response, Route, Site, parse

DELAY_S_MAX = 60.0
_SECRET_BYTES = 16


class Order(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A command of the page."""

    what: Literal["worker", "plug", "tenfold", "traffic", "storm", "timer"]
    on: bool = True
    """For switches."""
    delay_s: Annotated[float, Meta(ge=0.1, le=DELAY_S_MAX)] = 5.0
    """The delay of a timer."""


class Parcel(msgspec.Struct, omit_defaults=True):
    """A parcel that a worker delivers to the carrier."""

    order: str


class Called(msgspec.Struct, omit_defaults=True):
    """The body of a timer's call."""

    due_ms: int


class Desk:
    """The server, once opened."""

    def __init__(self, ids: Ids) -> None:
        self.token = ids.token(_SECRET_BYTES)
        """The token that the page sends with commands."""
        self._paths = {name: f"/{ids.token(_SECRET_BYTES)}" for name in ("outside", "control")}
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def outside(self) -> str:
        return self._url + self._paths["outside"]

    @property
    def control(self) -> str:
        return self._url + self._paths["control"]

    @asynccontextmanager
    async def open(
        self,
        traffic: Traffic,
        bureau: Bureau,
        salesforce: Salesforce,
        state: Callable[[], Any],
        do: Callable[[Order], Awaitable[Any]],
    ) -> AsyncIterator[None]:
        """Serve for the duration of the context."""

        async def carry(_: Any, request: Request) -> Response:
            parcel = parse(await request.body(), Parcel)
            traffic.orders.effect(parcel.order, _id(request, b"idempotency-key"))
            return Response.of({"carried": parcel.order})

        async def call(_: Any, request: Request) -> Response:
            called = parse(await request.body(), Called)
            timer = request.parameters["timer"]
            traffic.arrive(timer, _id(request, b"webhook-id"), called.due_ms)
            return Response.of({"heard": timer})

        async def tell(_: Any, request: Request) -> Response:
            return Response.of(state())

        async def order(_: Any, request: Request) -> Response:
            told = request.header(TOKEN.encode()) or ""
            if not hmac.compare_digest(told.encode(), self.token.encode()):
                raise BadInput(
                    f"send the token of the state in the header {TOKEN}", code="no_credentials"
                )
            wanted = parse(await request.body(), Order)
            return Response.of(await do(wanted) or {"done": wanted.what})

        routes = [
            *self._below("outside", bureau.routes),
            *self._below("outside", salesforce.routes),
            *self._below(
                "outside",
                [
                    Route("POST", "/carrier", carry, "Deliver a parcel"),
                    Route("POST", "/hook/{timer}", call, "Receive a timer's call"),
                ],
            ),
            *self._below(
                "control",
                [
                    Route("GET", "/state", tell, "Get the state"),
                    Route("POST", "/do", order, "Run a command"),
                ],
            ),
        ]
        config = uvicorn.Config(
            Site(routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve([self._listening]), name="demo-desk")
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving])

    def close(self) -> None:
        self._listening.close()

    def _below(self, name: str, routes: list[Route]) -> list[Route]:
        return [route._replace(path=self._paths[name] + route.path) for route in routes]


class _Server(uvicorn.Server):
    """Leaves signal handling to the stage."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _id(request: Request, name: bytes) -> str:
    """The id of an effect, from a header. Raises `BadInput` without it."""
    id_ = request.header(name)
    if not id_:
        raise BadInput(f"send an id in the header {name.decode()}", code="missing_key")
    return id_
