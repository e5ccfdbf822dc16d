"""The HTTP/1.1 protocol on a socket; uvicorn listens and shuts down.

uvicorn's own protocol serves all ASGI applications, and takes half as long as a durable accept.
This one is specialized: it calls the server with complete requests, in one task per connection, and
writes each complete response at once.

WebSocket upgrades are handed over, with their connection, to the WebSocket protocol.

Requests are limited in size and time, and the buffered bytes of incomplete requests are limited for
all connections together (`connections`). Invalid or ambiguous HTTP gets a problem document.
"""

import asyncio
import re
import typing
from collections import deque
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.web.connections import Budget, Connections
from onceward.web.http import CONNECTION, Request, Response, Scope, body_too_large, problem

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(200, 600)
}

_AUTHORITY = re.compile(rb"https?://([^/?#@\s]+)(?=[/?#]|$)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_BODY_HEADERS = {b"content-length", b"transfer-encoding"}

Headers = list[tuple[bytes, bytes]]


class Answering(typing.Protocol):
    """Responds to requests: a `Server`."""

    @property
    def connections(self) -> Connections:
        """The limits of its connections."""

    def takes(self, descriptor: int, connections: int) -> bool:
        """Whether to accept a new connection, by its file descriptor and the number of
        connections."""

    def vouch(self, request: Request) -> bool:
        """Whether a request has valid credentials, before its body is read. Raises the reason to
        reject it."""

    def refusal(self, scope: Scope, error: OncewardError) -> Response:
        """The response to a request whose body is not read. The scope has its path."""

    async def answer(self, request: Request) -> Response:
        """The response to a request."""


class Protocol(asyncio.BufferedProtocol):
    """One connection. Requests are served one after the other, in order."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The arguments are those of uvicorn. The application is an `Answering`."""
        self._config = config
        self._app: Answering = config.loaded_app
        self._connections: Connections = self._app.connections
        self._app_state = app_state
        self._state = server_state
        self._keep_s = config.timeout_keep_alive
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[_Exchange] = deque()
        self._waiting: asyncio.Future[None] | None = None
        """Set while the task waits for a request."""
        self._writable: asyncio.Future[None] | None = None
        """Set while the send buffer is full."""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._answering = False
        self._reading = True
        self._rest = b""
        """Received data that is not parsed yet."""
        self._in_line = False
        """Whether it waits for its share of the event loop as an anonymous connection."""
        self._authenticated = False
        """Whether a request on this connection had valid credentials."""
        self._held: tuple[Budget, int] = self._connections.anonymous, 0
        """The budget and the bytes of incomplete requests counted for it."""
        self._last = False
        """Whether reading has ended: pending requests are answered, then the connection closes."""
        self._stopping = False
        self._lingering = False
        """Whether all responses are sent and input is discarded until the caller closes."""
        self._handing_over = b""
        """The upgrade request, if it asks for WebSocket."""
        self._begun = True
        """Whether a request is expected soon: the first one, or the rest of a partial one."""
        self._since_ns = boot_ns()
        """Since when it waits for the caller."""
        self._date: tuple[Headers, bytes] = ([], b"")
        # State of the incoming request:
        self._in_head = True
        self._sent_bytes = 0
        self._left_bytes = 0
        """The remaining bytes of a body with a Content-Length."""
        self._seam = b""
        """The last bytes of a piece, if the end of the head may be split between two."""
        self._body: bytes | bytearray = b""
        self._judged = False
        """Whether its credentials were checked before its body arrived."""
        self._trusted = False
        """Whether these credentials are valid."""
        self._discarding = False
        """Whether it already has a response, and its rest is discarded."""
        self._clear()

    # Callbacks of the transport.

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._client = transport.get_extra_info("peername")
        self._state.connections.add(self)  # type: ignore[arg-type]
        task = self._loop.create_task(self._run(), name="onceward-connection")
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        # One timer for the whole connection, since setting one for each request takes longer than
        # reading it.
        self._timer = self._loop.call_later(limits.REQUEST_S, self._look)
        descriptor = transport.get_extra_info("socket").fileno()
        if not self._app.takes(descriptor, len(self._state.connections)):
            self._connections.relieve()
        elif self._connections.add(self, self._client):
            return
        self._stopping = True
        self._refuse(_too_many())

    def connection_lost(self, error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._connections.remove(self)
        self._timer.cancel()
        self._last = True
        self._gone.set_result(None)
        self._forget()
        self.resume_writing()
        self._wake()

    def get_buffer(self, size_bytes: int) -> memoryview:
        connections = self._connections
        large = self._authenticated or self._last
        return connections.buffer if large else connections.small_buffer

    def buffer_updated(self, count: int) -> None:
        if self._last:
            self._discard(count)
            return
        data = bytes(self._connections.buffer[:count])
        if self._rest:
            self._rest += data
        elif self._authenticated or self._connections.turns.begin(self):
            self._feed(data)
        else:
            self._rest, self._in_line = data, True
            self._pause()
            self._hold()

    def pause_writing(self) -> None:
        self._since_ns = boot_ns()
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def shutdown(self) -> None:
        """Respond to received requests, then close. Called by uvicorn when it stops."""
        self._last = self._stopping = True
        if self.is_idle():
            self._transport.close()

    # Callbacks of the connection limits.

    def is_idle(self) -> bool:
        return not self._answering and not self._exchanges

    def evict(self) -> None:
        if self._writable is not None or self._lingering:
            self._transport.abort()
            return
        if self._sent_bytes:
            self._last = True
            self._write(problem(_too_many()))
        self.shutdown()
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # the peer does not read; waiting would keep the file open

    def go_on(self) -> None:
        self._in_line = False
        if not self._last:
            self._feed_rest()

    def authenticate(self) -> None:
        """Record that a request on this connection has valid credentials. Called by the
        application."""
        if not self._authenticated:
            self._authenticated = True
            self._connections.authenticate(self)

    # Incoming data.

    def _feed(self, data: bytes) -> None:
        """Parse data, up to the limit of waiting requests. The rest stays unparsed, which takes the
        least memory, and reading pauses."""
        begun_ns = 0 if self._authenticated else boot_ns()
        ahead = limits.REQUESTS_AHEAD_MAX if self._authenticated else 1
        at, end = 0, len(data)
        while at < end and not self._last and len(self._exchanges) < ahead:
            stop = self._piece_end(data, at)
            self._take(data[at:stop], data, stop)
            at = stop
        self._rest = b"" if self._last else data[at:]
        if self._rest:
            self._pause()
        if not self._last and (self._begun or self._rest or self._held[1]):
            self._hold()
        if begun_ns:
            self._connections.turns.charge(boot_ns() - begun_ns)

    def _feed_rest(self) -> None:
        """Parse data that waited."""
        rest, self._rest = self._rest, b""
        if rest:
            self._feed(rest)
        if not (self._rest or self._exchanges or self._reading or self._last):
            self._reading = True
            self._transport.resume_reading()

    def _piece_end(self, data: bytes, at: int) -> int:
        """The end of the next piece to parse: the end of a head, or of a part of a body. A piece
        has at most one request."""
        if self._left_bytes:
            return min(at + self._left_bytes, len(data))
        if self._seam:
            seam = self._seam + data[at : at + 3]
            found = seam.find(_HEAD_END)
            if found >= 0:
                return at + found + len(_HEAD_END) - len(self._seam)
        found = data.find(_HEAD_END, at)
        return len(data) if found < 0 else found + len(_HEAD_END)

    def _take(self, piece: bytes, data: bytes, stop: int) -> None:
        """Parse one piece of data, which ends at `stop`."""
        if not self._begun:
            self._begun, self._since_ns = True, boot_ns()
        size_bytes = len(piece)
        self._sent_bytes += size_bytes
        if self._left_bytes:
            self._left_bytes -= size_bytes
        elif self._in_head and self._sent_bytes > limits.HEAD_BYTES_MAX:
            self._refuse(_head_too_large(f"{limits.HEAD_BYTES_MAX} bytes"))
            return
        else:
            self._seam = b"" if piece.endswith(_HEAD_END) else (self._seam + piece)[-3:]
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._last = True  # only WebSocket is supported as another protocol
            if self._handing_over:
                self._hand_over(piece[upgrade.args[0] :] + data[stop:])
        except httptools.HttpParserError as error:
            self._refuse(_reason(error, piece, begins=self._sent_bytes == len(piece)))
        else:
            if self._in_head and len(self._headers) > limits.HEADERS_MAX:
                self._refuse(_head_too_large(f"{limits.HEADERS_MAX} headers"))
            elif self._sent_bytes > limits.SENT_BYTES_MAX:
                # The body exceeds its announced length or the limit, or should be empty.
                self._last = True
                self._wake()

    def _hold(self) -> None:
        """Count the bytes of incomplete requests, and reject them over the limit."""
        try:
            if self._begun and not self._in_head:
                self._judge()
            if self._in_head:
                trusted, size_bytes = self._authenticated, self._sent_bytes
            else:
                trusted, size_bytes = self._trusted, len(self._body)
                most_bytes = limits.ANONYMOUS_BODY_BYTES_MAX
                if not trusted and size_bytes > most_bytes:
                    raise body_too_large(most_bytes, "a request without credentials in its head")
            connections = self._connections
            budget = connections.authenticated if trusted else connections.anonymous
            self._hold_bytes(budget, size_bytes + len(self._rest))
        except OncewardError as error:
            self._refuse(error)

    def _hold_bytes(self, budget: Budget, size_bytes: int) -> None:
        """Raises `overloaded`."""
        before, before_bytes = self._held
        if before is budget:
            budget.hold(size_bytes - before_bytes)
        else:
            budget.hold(size_bytes)
            before.hold(-before_bytes)
        self._held = budget, size_bytes

    def _judge(self) -> None:
        """Check the credentials of a request once, before its body is buffered."""
        if self._judged or self._discarding:
            return
        self._judged = True
        path, _, query = _path(self._url).partition(b"?")
        request = Request(self._scope(path, query), headers=self._by_name)
        try:
            self._trusted = self._app.vouch(request)
        except OncewardError as error:
            self._leave_out(error)
        if self._trusted:
            self.authenticate()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _discard(self, size_bytes: int) -> None:
        """Discard data after the last request. Beyond a limit, stop reading until the linger time
        ends."""
        self._sent_bytes += size_bytes
        if self._sent_bytes > limits.LINGER_BYTES_MAX:
            self._pause()

    # Callbacks of the parser.

    def _clear(self) -> None:
        self._url = b""
        self._headers: Headers = []
        self._by_name: dict[bytes, bytes] = {}
        self._in_head = True
        self._sent_bytes = self._left_bytes = 0
        self._seam = self._body = b""
        self._judged = self._trusted = self._discarding = False

    def _forget(self) -> None:
        """Drop the incomplete request."""
        self._body = self._rest = b""
        self._hold_bytes(self._held[0], 0)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored: proxies that checked the head have not seen them.
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self._headers) > limits.HEADERS_MAX:
            raise _head_too_large(f"{limits.HEADERS_MAX} headers")
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
            # The parser would treat the body as data of the other protocol.
            raise BadInput(
                "a request with a body cannot upgrade the protocol; omit one of them",
                code="bad_header",
            )
        self._left_bytes = int(headers.get(b"content-length", 0))
        if self._left_bytes > limits.MESSAGES_BYTES_MAX:
            self._leave_out(body_too_large(limits.MESSAGES_BYTES_MAX))
        if version == "1.1" and headers.get(b"expect", b"").lower() == b"100-continue":
            self._judge()
            if not self._discarding:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                # The caller may omit the body, so the start of its next request is unknown.
                self._exchanges[-1].last = True

    def on_body(self, body: bytes) -> None:
        if self._discarding:
            return
        if not self._body:
            self._body = body
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += body
        if len(self._body) > limits.MESSAGES_BYTES_MAX:
            self._leave_out(body_too_large(limits.MESSAGES_BYTES_MAX))

    def _leave_out(self, error: OncewardError) -> None:
        """Respond before the body has arrived, and discard the body."""
        self._body = b""
        self._discarding = True
        path = _path(self._url).partition(b"?")[0]
        self._add(_Exchange(self._app.refusal({"raw_path": path}, error)))

    def on_message_complete(self) -> None:
        self._begun = False
        if self._parser.should_upgrade() and self._asks_for_websocket():
            head = [b"GET %b HTTP/1.1\r\n" % _path(self._url)]
            head += [b"%b: %b\r\n" % header for header in self._headers]
            self._handing_over = b"".join([*head, b"\r\n"])
        elif not self._discarding:
            path, _, query = _path(self._url).partition(b"?")
            body = bytes(self._body)  # without a copy if it arrived in one piece
            last = not self._parser.should_keep_alive()
            scope = self._scope(path, query)
            self._add(_Exchange(Request(scope, body, self.gone, self._by_name), last=last))
        elif not self._parser.should_keep_alive():
            self._last = True
            self._wake()
        self._clear()

    def _scope(self, path: bytes, query: bytes) -> Scope:
        return {
            "type": "http",
            "method": self._parser.get_method().decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "headers": self._headers,
            "client": self._client,
            CONNECTION: self,
        }

    def _asks_for_websocket(self) -> bool:
        return (
            self._config.ws_protocol_class is not None
            and self._parser.get_method() == b"GET"
            and self._parser.get_http_version() == "1.1"
            and self._by_name.get(b"upgrade", b"").lower() == b"websocket"
            # Otherwise earlier requests would be answered after it.
            and not (self._answering or self._exchanges)
        )

    def _hand_over(self, rest: bytes) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._state.connections.discard(self)
        self._connections.remove(self)
        self._connections.turns.charge(limits.ANONYMOUS_HANDSHAKE_NS)
        self._forget()
        self._timer.cancel()
        self._wake()
        protocol: Any = self._config.ws_protocol_class
        other = protocol(config=self._config, server_state=self._state, app_state=self._app_state)
        if not self._reading:
            self._transport.resume_reading()
        other.connection_made(self._transport)
        self._transport.set_protocol(other)
        other.data_received(self._handing_over)
        if rest:
            other.data_received(rest)

    def _add(self, exchange: "_Exchange") -> None:
        self._exchanges.append(exchange)
        self._wake()
        if len(self._exchanges) > 1:
            # Data that is sent before the last response stays in the caller's buffers.
            self._pause()

    def _refuse(self, error: OncewardError) -> None:
        """Respond to invalid input after all earlier requests, and stop reading."""
        self._last = True
        self._headers = []
        self._forget()
        self._add(_Exchange(problem(error), last=True))

    # Responses.

    async def _run(self) -> None:
        try:
            while (exchange := await self._next()) is not None:
                if exchange.last:
                    self._last = True
                    self._exchanges.clear()
                response = exchange.subject
                if isinstance(response, Request):
                    if not self._authenticated:
                        self._connections.turns.charge(limits.ANONYMOUS_REQUEST_NS)
                    self._answering = True
                    response = await self._app.answer(response)
                self._write(response)
                self._answering = False
                if self._gone.done():
                    return
                if self._writable is not None:
                    await self._writable
        finally:
            self._answering = False
            if not self._handing_over:
                self._linger()

    async def _next(self) -> "_Exchange | None":
        """Return the next exchange; None at the end."""
        while not self._exchanges:
            if self._last:
                return None
            if not self._begun:
                self._since_ns = boot_ns()
            if (self._rest or not self._reading) and not self._in_line:
                self._continue()
            if not self._exchanges and not self._last:
                self._waiting = self._loop.create_future()
                await self._waiting
        return self._exchanges.popleft()

    def _continue(self) -> None:
        """After the last response, parse data that waited and resume reading."""
        if not self._rest or self._authenticated or self._connections.turns.begin(self):
            self._feed_rest()
        else:
            self._in_line = True

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _linger(self) -> None:
        """Close after the caller has read the last response. Unread input would reset the
        connection and destroy that response."""
        self._last = True
        self._forget()
        if self._stopping or self._transport.is_closing():
            self._transport.close()
            return
        self._lingering = True
        self._sent_bytes = 0
        self._timer.cancel()
        self._timer = self._loop.call_later(limits.LINGER_S, self._transport.abort)
        self._transport.write_eof()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _write(self, response: Response) -> None:
        if self._gone.done():
            return
        known, date = self._date
        if known is not self._state.default_headers:  # uvicorn replaces them every second
            known = self._state.default_headers
            date = b"".join([b"%s: %s\r\n" % header for header in known])
            self._date = known, date
        parts = [_STATUS_LINES[response.status], date]
        for name, value in response.headers:
            parts += (name, b": ", value, b"\r\n")
        if self._last and not self._exchanges:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", response.body)
        self._transport.write(b"".join(parts))

    async def gone(self) -> None:
        """Return when the caller has disconnected."""
        await asyncio.wait([self._gone])

    def _look(self) -> None:
        """Check the time limit of the connection."""
        bound_s = limits.REQUEST_S if self._begun else self._keep_s
        taken = self._writable is None
        left_s = bound_s
        if not taken or not (self._answering or self._exchanges):
            left_s -= (boot_ns() - self._since_ns) / 1e9
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        elif taken and self._begun and not self._last:
            self._timer = self._loop.call_later(bound_s, self._transport.abort)
            why = f"the request did not arrive within {bound_s:.0f} s"
            self._refuse(BadInput(why, code="too_slow"))
        else:
            self._transport.abort()


class _Exchange:
    """A request, or the response to a request that is not read or is invalid."""

    __slots__ = ("last", "subject")

    def __init__(self, subject: Request | Response, *, last: bool = False) -> None:
        self.subject = subject
        self.last = last
        """Whether the connection closes after it."""


def _with_host(headers: Headers, url: bytes) -> Headers:
    """Replace the header Host by the host of an absolute URL (RFC 9112, 3.2.2). Raises `BadInput`
    if the URL has none."""
    found = _AUTHORITY.match(url)
    if found is None:
        raise BadInput(
            f"invalid URL {url[:100].decode('ascii', 'replace')!a} in the request line; "
            "send a path, or a URL with a host"
        )
    return [(name, found[1] if name == b"host" else value) for name, value in headers]


def _admit_framing(version: str, headers: Headers) -> None:
    """Raise `BadInput` for a head that proxies may read differently (RFC 9112)."""
    if version not in ("1.0", "1.1"):
        raise BadInput(f"HTTP/{version} is not supported; use HTTP/1.1")
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise BadInput(f"a request needs exactly one header Host, not {hosts}", code="bad_header")
    values = [value for name, value in headers if name == b"transfer-encoding"]
    if not values:
        return
    if version == "1.0":
        raise BadInput(
            "HTTP/1.0 does not support Transfer-Encoding; use HTTP/1.1", code="bad_header"
        )
    codings = [coding.strip().lower() for coding in b",".join(values).split(b",")]
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1:
        raise BadInput(
            f"Transfer-Encoding must end with chunked, once, not {b', '.join(codings)[:100]!r}"
        )
    if len(codings) > 1:
        raise BadInput(
            f"unsupported transfer coding {codings[0][:100].decode('ascii', 'replace')!a}; "
            "use chunked alone",
            code="not_implemented",
        )


def _path(url: bytes) -> bytes:
    """Path and query of a URL, which may be absolute. Raises `BadInput`."""
    if url.startswith(b"/"):
        return url
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise BadInput(
            f"invalid URL {url[:100].decode('ascii', 'replace')!a} in the request line; "
            "send a path, or a URL with a host"
        ) from error
    return (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")


def _reason(error: httptools.HttpParserError, piece: bytes, *, begins: bool) -> OncewardError:
    """The error for invalid input. `begins` is whether it is the first piece of a request."""
    reason = error.__context__
    if isinstance(reason, OncewardError):
        return reason
    # All parsed methods begin with a capital letter, so a request that has begun did.
    if isinstance(error, httptools.HttpParserInvalidMethodError) and not (
        begins and not piece.lstrip(b"\r\n")[:1].isupper()
    ):
        return BadInput(
            f"unknown method in {piece[:20].decode('ascii', 'replace')!a}; use GET, POST, PUT, "
            "PATCH or DELETE",
            code="not_implemented",
        )
    return BadInput(f"the request is not valid HTTP: {str(error)[:100]}; use HTTP/1.1")


def _head_too_large(most: str) -> BadInput:
    return BadInput(f"the head of a request must have at most {most}", code="head_too_large")


def _too_many() -> Unavailable:
    return Unavailable("too many connections; retry later", code="too_many_connections")
