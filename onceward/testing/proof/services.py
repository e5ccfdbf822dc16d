"""The outside world of a simulated application: HTTP services, reached by httpx, aiohttp, requests.

Calls of these libraries are intercepted at their transport while a simulation runs. Each URL is a
record: PUT and PATCH replace it, DELETE removes it, and GET returns it, or 404. Each POST takes
effect, unless its idempotency key is known at that URL: then it returns the first response.

Faults: a call fails before it arrives, or its response is lost after it took effect.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple

KEY_HEADERS: Final = ("idempotency-key", "x-idempotency-key", "x-request-id")
JOB: ContextVar[str] = ContextVar("job", default="")
"""The id of the job whose handler runs."""


class Posted(NamedTuple):
    """A POST that took effect."""

    url: str
    key: str
    body: Any


class Reply(NamedTuple):
    """A response of a service."""

    status: int
    body: Any


class Lost(Exception):
    """A call failed; `sent` shows whether it took effect."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("the response was lost" if sent else "the connection failed")
        self.sent = sent


class Services:
    """All services of one run."""

    def __init__(
        self,
        random: Random,
        *,
        allow: Callable[[str], bool] = lambda what: True,
        note: Callable[[str], None] = lambda text: None,
        loss: float = 0.0,
    ) -> None:
        """`loss` is the rate of failed calls; `allow` may forbid a fault."""
        self.records: dict[str, Any] = {}
        self.posted: list[Posted] = []
        self.changed: dict[str, str] = {}
        """A call that repeats with the same key and another body, by its URL."""
        self.by_job: Counter[str] = Counter()
        """The number of calls that took effect, by job."""
        self.last: dict[str, Any] = {}
        """The last response by job."""
        self.calls = 0
        self._replies: dict[tuple[str, str], tuple[Any, Reply]] = {}
        self._random = random
        self._allow = allow
        self._note = note
        self._loss = loss

    def calm(self) -> None:
        """End all faults."""
        self._loss = 0.0

    async def call(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Make a call over a network with delays. Raises `Lost`."""
        await asyncio.sleep(self._random.random() * 0.2)
        reply = self.call_now(method, url, headers, body)
        await asyncio.sleep(self._random.random() * 0.2)
        return reply

    def call_now(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Make a call. Raises `Lost`."""
        self.calls += 1
        before, after = self._random.random() < self._loss, self._random.random() < self._loss
        what = f"{method} {url}"
        if before and self._allow("call failed"):
            self._note(f"{what} fails before it arrives")
            raise Lost(sent=False)
        low = {name.lower(): value for name, value in headers.items()}
        key = next((str(low[name]) for name in KEY_HEADERS if name in low), "")
        reply = self._act(method.upper(), url, key, _decoded(body))
        self.by_job[JOB.get()] += method.upper() != "GET"
        self.last[JOB.get()] = reply.body
        if after and self._allow("response lost"):
            self._note(f"{what} takes effect, its response is lost")
            raise Lost(sent=True)
        self._note(f"{what} {_short(_decoded(body))}-> {reply.status}")
        return reply

    def _act(self, method: str, url: str, key: str, body: Any) -> Reply:
        if method == "POST":
            known = self._replies.get((url, key)) if key else None
            if known is not None:
                if known[0] != body:
                    self.changed[url] = f"key {key}: first {known[0]}, then {body}"
                return known[1]
            # Bodies may contain ids of jobs, so outcomes must not show this id: it looks like one.
            text = f"{url}{json.dumps(body, sort_keys=True)}"
            id_ = "0" + blake2b(text.encode(), digest_size=14).hexdigest().upper()
            reply = Reply(200, {"id": id_, "status": "ok"})
            self.posted.append(Posted(url, key, body))
            self._replies[url, key] = body, reply
            return reply
        if method in ("PUT", "PATCH"):
            self.records[url] = body
            return Reply(200, body)
        if method == "DELETE":
            return Reply(404 if self.records.pop(url, None) is None else 204, None)
        return Reply(200, self.records[url]) if url in self.records else Reply(404, None)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode("utf-8", "replace")


def _short(body: Any) -> str:
    text = "" if body is None else f"{json.dumps(body)} "
    return text if len(text) < 60 else f"{text[:57]}… "


@contextmanager
def intercepted(current: Callable[[], Services]) -> Iterator[None]:
    """Send the calls of the HTTP libraries that are loaded to `current()`."""
    undo: list[Callable[[], None]] = []

    def patch(owner: Any, name: str, function: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, function)
        undo.append(lambda: setattr(owner, name, original))

    for name, change in (("httpx", _httpx), ("requests", _requests), ("aiohttp", _aiohttp)):
        if name in sys.modules:
            change(sys.modules[name], patch, current)
    try:
        yield
    finally:
        for restore in undo:
            restore()


def _httpx(httpx: Any, patch: Callable[..., None], current: Callable[[], Services]) -> None:
    def error(lost: Lost, request: Any) -> Exception:
        kind = httpx.ReadTimeout if lost.sent else httpx.ConnectError
        made: Exception = kind(str(lost), request=request)
        return made

    def response(reply: Reply, request: Any) -> Any:
        return httpx.Response(reply.status, content=json.dumps(reply.body), request=request)

    async def handle_async_request(self: Any, request: Any) -> Any:
        body = await request.aread()
        try:
            reply = await current().call(request.method, str(request.url), request.headers, body)
        except Lost as lost:
            raise error(lost, request) from None
        return response(reply, request)

    def handle_request(self: Any, request: Any) -> Any:
        try:
            reply = current().call_now(
                request.method, str(request.url), request.headers, request.read()
            )
        except Lost as lost:
            raise error(lost, request) from None
        return response(reply, request)

    patch(httpx.AsyncHTTPTransport, "handle_async_request", handle_async_request)
    patch(httpx.HTTPTransport, "handle_request", handle_request)


def _requests(requests: Any, patch: Callable[..., None], current: Callable[[], Services]) -> None:
    def send(self: Any, request: Any, **options: Any) -> Any:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        try:
            reply = current().call_now(request.method, request.url, request.headers, body)
        except Lost as lost:
            kind = requests.ReadTimeout if lost.sent else requests.ConnectionError
            raise kind(str(lost), request=request) from None
        response = requests.Response()
        response.status_code, response.url, response.request = reply.status, request.url, request
        response._content = json.dumps(reply.body).encode()
        response.headers["content-type"] = "application/json"
        return response

    patch(requests.adapters.HTTPAdapter, "send", send)


class _AiohttpResponse:
    """The part of `aiohttp.ClientResponse` that applications use."""

    def __init__(self, reply: Reply, url: str, aiohttp: Any) -> None:
        self.status = reply.status
        self.ok = reply.status < 400
        self.url = url
        self.headers = {"content-type": "application/json"}
        self._body = reply.body
        self._aiohttp = aiohttp

    async def json(self, **options: Any) -> Any:
        return self._body

    async def text(self, *arguments: Any, **options: Any) -> str:
        return json.dumps(self._body)

    async def read(self) -> bytes:
        return json.dumps(self._body).encode()

    def raise_for_status(self) -> None:
        if not self.ok:
            raise self._aiohttp.ClientResponseError(None, (), status=self.status)

    def release(self) -> None:
        pass

    close = release

    async def __aenter__(self) -> "_AiohttpResponse":
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


def _aiohttp(aiohttp: Any, patch: Callable[..., None], current: Callable[[], Services]) -> None:
    async def _request(self: Any, method: str, url: Any, **options: Any) -> Any:
        body = options.get("data") or b""
        if options.get("json") is not None:
            body = json.dumps(options["json"])
        body = body.encode() if isinstance(body, str) else body
        base = str(getattr(self, "_base_url", None) or "")
        headers = {**dict(self.headers), **dict(options.get("headers") or {})}
        place = str(url) if "://" in str(url) else base + str(url)
        try:
            reply = await current().call(method, place, headers, body)
        except Lost as lost:
            kind = aiohttp.ServerTimeoutError if lost.sent else aiohttp.ClientConnectionError
            raise kind(str(lost)) from None
        response = _AiohttpResponse(reply, place, aiohttp)
        if options.get("raise_for_status", getattr(self, "_raise_for_status", False)) is True:
            response.raise_for_status()
        return response

    patch(aiohttp.ClientSession, "_request", _request)
