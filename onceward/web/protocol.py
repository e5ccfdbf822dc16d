"""HTTP/1.1 on a connection: uvicorn listens and stops, this reads and writes.

uvicorn's own protocol is made for all ASGI applications, and takes as long as half a durable
accept. This one is made for ours, which answers at once and whole: it calls it when all of a
request has come, in one task for the whole connection, and writes each answer in one piece.

A request to speak WebSocket is handed over, with its connection, to uvicorn's protocol for that.

Nobody can fill the memory or keep connections for nothing: a request has limited size and
limited time to come. What is no HTTP, or could be read in two ways, gets a problem document.
"""

import asyncio
import re
from collections import deque
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.web.http import Request, Response, Scope, problem

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(200, 600)
}

_AUTHORITY = re.compile(rb"https?://([^/?#@\s]+)(?=[/?#]|$)", re.IGNORECASE)
_BODY_HEADERS = {b"content-length", b"transfer-encoding"}

Headers = list[tuple[bytes, bytes]]


class Protocol(asyncio.Protocol):
    """One connection. What comes is answered one after the other, in its order."""

    held_bytes: ClassVar[int] = 0
    """Of bodies that come in pieces, on all connections: nobody has shown credentials yet."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """As uvicorn calls it. The application sends each answer as a start and one body."""
        self._config = config
        self._app = config.loaded_app
        self._answer = getattr(self._app, "answer", None)
        """What answers a request in one piece, without the ways of ASGI."""
        self._refusal = getattr(self._app, "refusal", lambda path, error: problem(error))
        self._takes = getattr(self._app, "takes", lambda descriptor, connections: True)
        """Whether a new connection is taken."""
        self._app_state = app_state
        self._state = server_state
        self._keep_s = config.timeout_keep_alive
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[_Exchange] = deque()
        self._waiting: asyncio.Future[None] | None = None
        """Of the task, for something to come."""
        self._writable: asyncio.Future[None] | None = None
        """There while the caller does not take what it was sent."""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._answering = False
        self._reading = True
        self._last = False
        """Whether no more is read: what has come is answered, and that is the end."""
        self._handing_over = b""
        """The request that asks for another protocol, if it is the one that is spoken, too."""
        self._begun = True
        """Whether a request is to come soon: the first one, and any of which a part is there."""
        self._since_ns = boot_ns()
        """Since when it waits for the caller."""
        self._date: tuple[Headers, bytes] = ([], b"")
        self._body: bytes | bytearray = b""
        self._clear()

    # What the transport says.

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._client = transport.get_extra_info("peername")
        self._state.connections.add(self)  # type: ignore[arg-type]
        task = self._loop.create_task(self._run(), name="onceward-connection")
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        # One timer for the whole connection: to set one for each request takes longer than to
        # read it.
        self._timer = self._loop.call_later(limits.REQUEST_S, self._look)
        descriptor = transport.get_extra_info("socket").fileno()
        if not self._takes(descriptor, len(self._state.connections)):
            self._refuse(
                Unavailable("too many connections are open: retry later", code="overloaded")
            )

    def connection_lost(self, error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._timer.cancel()
        self._last = True
        self._gone.set_result(None)
        self._forget_body()
        self.resume_writing()
        self._wake()

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        if not self._begun:
            self._begun, self._since_ns = True, boot_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._last = True  # no other protocol is spoken here, but one
            if self._handing_over:
                self._hand_over(data[upgrade.args[0] :])
                return
        except httptools.HttpParserError as error:
            reason = error.__context__
            if not isinstance(reason, OncewardError):
                reason = BadInput("this is not HTTP, or contradicts itself")
            self._refuse(reason)
            return
        if self._begun:
            # Counted here: the parser tells of a header when all of it has come.
            self._sent_bytes += len(data)
            if self._in_head and self._sent_bytes > limits.HEAD_BYTES_MAX:
                self._refuse(
                    BadInput(
                        f"the head of a request has at most {limits.HEAD_BYTES_MAX} bytes",
                        code="head_too_large",
                    )
                )
            elif self._sent_bytes > limits.SENT_BYTES_MAX:
                # Of a body that is too large, as it was told, or of what should be none.
                self._transport.abort()

    def pause_writing(self) -> None:
        self._since_ns = boot_ns()
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def shutdown(self) -> None:
        """Answer what has come, and close. uvicorn calls it when it stops."""
        self._last = True
        if not self._answering and not self._exchanges:
            self._transport.close()

    # What the parser says.

    def _clear(self) -> None:
        self._url = b""
        self._headers: Headers = []
        self._by_name: dict[bytes, bytes] = {}
        self._in_head = True
        self._sent_bytes = 0
        self._forget_body()
        self._too_large = False

    def _forget_body(self) -> None:
        if type(self._body) is bytearray:
            Protocol.held_bytes -= len(self._body)
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Not what comes after the body: whoever has checked the head has not seen it.
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        version = self._parser.get_http_version()
        if not self._url.startswith(b"/"):
            self._headers = _with_host(self._headers, self._url)
        self._by_name = headers = dict(self._headers)
        if (
            version != "1.1"
            or b"host" not in headers
            or b"transfer-encoding" in headers
            or len(headers) < len(self._headers)
        ):
            _admit_framing(version, self._headers)
        if self._parser.should_upgrade() and not _BODY_HEADERS.isdisjoint(headers):
            # The parser takes what comes for the other protocol, and the body would be missing.
            raise BadInput("with a body no other protocol can be asked for", code="bad_header")
        if int(headers.get(b"content-length", 0)) > limits.MESSAGES_BYTES_MAX:
            self._leave_out()
        elif version == "1.1" and headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if not self._too_large:
            if not self._body:
                self._body = body
            else:
                if type(self._body) is bytes:
                    self._body = bytearray(self._body)
                    Protocol.held_bytes += len(self._body)
                self._body += body
                Protocol.held_bytes += len(body)
            if len(self._body) > limits.MESSAGES_BYTES_MAX:
                self._leave_out()
            elif Protocol.held_bytes > limits.BODIES_BYTES_MAX:
                raise Unavailable("too much is being sent: try again later", code="overloaded")

    def _leave_out(self) -> None:
        """Answer that a body is too large at once, and let the rest of it pass."""
        self._forget_body()
        self._too_large = True
        error = BadInput(
            f"the body of a request has at most {limits.MESSAGES_BYTES_MAX} bytes",
            code="body_too_large",
        )
        path = _path(self._url).partition(b"?")[0]
        self._add(_Exchange(self, refusal=self._refusal(path, error)))

    def on_message_complete(self) -> None:
        self._begun = False
        if self._parser.should_upgrade() and self._asks_for_websocket():
            head = [b"GET %b HTTP/1.1\r\n" % _path(self._url)]
            head += [b"%b: %b\r\n" % header for header in self._headers]
            self._handing_over = b"".join([*head, b"\r\n"])
        elif not self._too_large:
            path, _, query = _path(self._url).partition(b"?")
            scope = {
                "type": "http",
                "method": self._parser.get_method().decode("ascii"),
                "raw_path": path,
                "query_string": query,
                "headers": self._headers,
                "client": self._client,
            }
            body = bytes(self._body)  # itself, if it came in one piece
            last = not self._parser.should_keep_alive()
            self._add(_Exchange(self, scope, body, self._by_name, last=last))
        self._clear()

    def _asks_for_websocket(self) -> bool:
        return (
            self._config.ws_protocol_class is not None
            and self._parser.get_method() == b"GET"
            and self._parser.get_http_version() == "1.1"
            and self._by_name.get(b"upgrade", b"").lower() == b"websocket"
            # What came before it would be answered after it.
            and not (self._answering or self._exchanges)
        )

    def _hand_over(self, rest: bytes) -> None:
        """Let the other protocol have the connection."""
        self._state.connections.discard(self)
        self._timer.cancel()
        self._wake()
        protocol: Any = self._config.ws_protocol_class
        other = protocol(config=self._config, server_state=self._state, app_state=self._app_state)
        other.connection_made(self._transport)
        self._transport.set_protocol(other)
        other.data_received(self._handing_over)
        if rest:
            other.data_received(rest)

    def _add(self, exchange: "_Exchange") -> None:
        self._exchanges.append(exchange)
        self._wake()
        if len(self._exchanges) > 1 and self._reading:
            # What is sent before the last one is answered waits on the caller's side.
            self._reading = False
            self._transport.pause_reading()

    def _refuse(self, error: OncewardError) -> None:
        """Answer what is no request, behind all that came before it, and read no more."""
        self._last = True
        self._forget_body()
        self._add(_Exchange(self, refusal=problem(error), last=True))

    # Answers.

    async def _run(self) -> None:
        try:
            while (exchange := await self._next()) is not None:
                if exchange.last:
                    self._last = True
                    self._exchanges.clear()
                if exchange.refusal is not None:
                    await exchange.refusal.send(exchange.send)
                else:
                    self._answering = True
                    if self._answer is None:
                        await self._app(exchange.scope, exchange.receive, exchange.send)
                    else:
                        response = await self._answer(exchange.request())
                        if response is not None:
                            self.write(response.status, response.headers, response.body)
                    self._answering = False
                if self._gone.done():
                    return
                if self._writable is not None:
                    await self._writable
        finally:
            self._answering = False
            if not self._handing_over:
                self._transport.close()

    async def _next(self) -> "_Exchange | None":
        """What is to be answered next; None at the end."""
        if not self._exchanges:
            if self._last:
                return None
            if not self._begun:
                self._since_ns = boot_ns()
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
            self._waiting = self._loop.create_future()
            await self._waiting
            if not self._exchanges:
                return None
        return self._exchanges.popleft()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def write(self, status: int, headers: Headers, body: bytes) -> None:
        """Write an answer."""
        if self._gone.done():
            return
        known, date = self._date
        if known is not self._state.default_headers:  # uvicorn makes them anew each second
            known = self._state.default_headers
            date = b"".join([b"%s: %s\r\n" % header for header in known])
            self._date = known, date
        parts = [_STATUS_LINES[status], date]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if self._last and not self._exchanges:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        self._transport.write(b"".join(parts))

    async def gone(self) -> None:
        """Return when the caller has gone."""
        await asyncio.wait([self._gone])

    def _look(self) -> None:
        """Whether it has waited long enough for the caller."""
        bound_s = limits.REQUEST_S if self._begun else self._keep_s
        taken = self._writable is None
        left_s = bound_s
        if not taken or not (self._answering or self._exchanges):
            left_s -= (boot_ns() - self._since_ns) / 1e9
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        elif taken and self._begun and not self._last:
            self._refuse(
                BadInput(f"the request did not come within {bound_s:.0f} s", code="too_slow")
            )
        else:
            self._transport.abort()


class _Exchange:
    """A request as the application sees it; or the answer to what is none."""

    __slots__ = (
        *("_body", "_by_name", "_headers", "_protocol", "_status"),
        *("last", "refusal", "scope"),
    )

    def __init__(
        self,
        protocol: Protocol,
        scope: Scope | None = None,
        body: bytes = b"",
        by_name: dict[bytes, bytes] | None = None,
        *,
        refusal: Response | None = None,
        last: bool = False,
    ) -> None:
        self.scope = scope
        self.refusal = refusal
        self.last = last
        """Whether the connection ends with it."""
        self._protocol = protocol
        self._body: bytes | None = body
        self._by_name = by_name

    def request(self) -> Request:
        """The request, with all of its body."""
        assert self.scope is not None
        return Request(self.scope, self.receive, self._body, self._by_name)

    async def receive(self) -> Scope:
        """All of the body; after that, that the caller is gone."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._protocol.gone()
        return {"type": "http.disconnect"}

    async def send(self, message: Scope) -> None:
        """The head of the answer, which waits for the body."""
        if message["type"] == "http.response.start":
            self._status: int = message["status"]
            self._headers: Headers = message["headers"]
        else:
            self._protocol.write(self._status, self._headers, message["body"])


def _with_host(headers: Headers, url: bytes) -> Headers:
    """The headers with the host of an address that is given in full, which replaces that of the
    header Host (RFC 9112, 3.2.2). Raises `BadInput` if the address names none."""
    found = _AUTHORITY.match(url)
    if found is None:
        raise BadInput("the address is not understood")
    return [(name, found[1] if name == b"host" else value) for name, value in headers]


def _admit_framing(version: str, headers: Headers) -> None:
    """Raise `BadInput` for a head that others on the way may read otherwise (RFC 9112)."""
    if version not in ("1.0", "1.1"):
        raise BadInput(f"HTTP/{version} is not supported: use HTTP/1.1")
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise BadInput(f"a request has one header Host, not {hosts}", code="bad_header")
    values = [value for name, value in headers if name == b"transfer-encoding"]
    if not values:
        return
    if version == "1.0":
        raise BadInput("HTTP/1.0 has no Transfer-Encoding", code="bad_header")
    codings = [coding.strip().lower() for coding in b",".join(values).split(b",")]
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1:
        raise BadInput("Transfer-Encoding must end with chunked, once")
    if len(codings) > 1:
        raise BadInput(
            f"the transfer coding {codings[0][:100].decode('ascii', 'replace')!a} is not "
            "supported: use chunked alone",
            code="not_implemented",
        )


def _path(url: bytes) -> bytes:
    """Path and query of an address that may be given in full. Raises `BadInput`."""
    if url.startswith(b"/"):
        return url
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise BadInput("the address is not understood") from error
    return (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
