"""The WebSocket protocol on a socket, after the HTTP upgrade.

`websockets` (sans-I/O) does the handshake, parsing and closing; complete texts are parsed without
it. Outgoing messages are framed once for all readers and written unchanged. A limited amount is
buffered for a slow reader, then its connection is closed. The rate of incoming messages is limited,
and pings detect peers that are gone.
"""

import asyncio
import logging
import socket
from socket import AF_INET, AF_INET6
from typing import Any, Protocol

from uvicorn import Config
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN
from websockets.server import ServerProtocol

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import TABLE, OncewardError
from onceward.rooms.wire import Listener, Wire
from onceward.web.connections import Connections
from onceward.web.handshake import Admission
from onceward.web.http import Request as HttpRequest
from onceward.web.http import Response as HttpResponse
from onceward.web.http import Scope, problem
from onceward.web.text_frames import Texts

_PING = b"\x89\x00"
_CONTROL = (Opcode.PING, Opcode.PONG, Opcode.CLOSE)

logger = logging.getLogger("onceward.websocket")
# The library logs every connection.
_quiet = logging.getLogger("onceward.websocket.frames")
_quiet.setLevel(logging.WARNING)


class _Frames(ServerProtocol):
    """The library's protocol with our close code for large frames."""

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        if code == CloseCode.MESSAGE_TOO_BIG:
            code, reason = TABLE["frame_too_large"].close, "frame_too_large"
        super().fail(code, reason)


class Hearing(Wire, Protocol):
    """A wire that passes incoming messages to a listener."""

    async def hear(self, listener: Listener, rate: float) -> None:
        """Pass messages to the listener, limited to `rate` per second on average; returns when the
        connection has ended."""


class Admitting(Protocol):
    """Accepts connections: a `Server`."""

    @property
    def connections(self) -> Connections:
        """The limits of its connections."""

    async def admit(self, request: HttpRequest) -> Admission:
        """Check a request for a connection. Raises the reason to reject it."""

    async def hear(self, wire: Hearing, admission: Admission) -> None:
        """Serve an accepted connection until it ends."""


class WebSocket(asyncio.BufferedProtocol):
    """One connection, from its handshake on. A `Hearing` for its listener."""

    # Slots keep a connection compact in memory, because many are written to in each iteration.
    __slots__ = (
        *("_allowed", "_app", "_authenticated", "_backlog", "_backlog_bytes", "_charged_ns"),
        *("_closing", "_connections", "_drained", "_early", "_early_bytes", "_ended", "_full"),
        *("_gone", "_heard", "_holding", "_listener", "_loop", "_pieces", "_rate", "_request"),
        *("_response", "_slow", "_state", "_texts", "_timer", "_transport", "_ws"),
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The arguments are those of uvicorn. The application is an `Admitting`."""
        self._app: Admitting = config.loaded_app
        self._connections: Connections = self._app.connections
        self._state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        # Without compression, so a message is never larger than its bytes on the wire.
        self._ws = _Frames(max_size=limits.FRAME_BYTES_MAX, logger=_quiet)
        self._request: Request | None = None
        self._response: Response | None = None
        self._early = b""
        """Data that arrived before the application accepted."""
        self._authenticated = False
        """Whether the peer has sent valid credentials."""
        self._early_bytes = 0
        """The number of bytes received before that."""
        self._listener: Listener | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        """Whether sending has ended: a close frame was sent."""
        self._ended = False
        """Whether all data is sent and input is discarded."""
        self._full = False
        """Whether writing directly to the transport is blocked: its buffer is full, or sending has
        ended."""
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._slow = False
        """Whether it was closed because too much data waited for the reader."""
        self._drained: asyncio.Future[None] | None = None
        """Done when the transport's buffer has room, or sending has ended."""
        self._texts = Texts()
        self._pieces: bytearray | None = None
        """The received part of a fragmented message."""
        self._rate = float(limits.FRAMES_PER_S)
        self._allowed = self._rate
        self._charged_ns = boot_ns()
        self._holding: set[str] = set()
        """The reasons why reading is paused."""
        self._heard = True
        """Whether data has arrived since the last ping."""
        self._timer: asyncio.TimerHandle | None = None

    # Callbacks of the transport.

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        transport.set_write_buffer_limits(high=limits.WRITE_BYTES_HIGH)
        _keep_little(transport.get_extra_info("socket"))
        self._state.connections.add(self)  # type: ignore[arg-type]
        # The place of the HTTP request is free again.
        self._connections.add(self, transport.get_extra_info("peername"))

    def connection_lost(self, error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._connections.remove(self)
        self._set_timer(None)
        self._closing = self._full = True
        self._forget()
        self._wake()
        if not self._gone.done():
            self._gone.set_result(None)
        if self._listener is not None:
            self._listener.lost()

    def get_buffer(self, size_bytes: int) -> memoryview:
        connections = self._connections
        large = self._authenticated or self._ended
        return connections.buffer if large else connections.small_buffer

    def buffer_updated(self, count: int) -> None:
        if self._ended:
            self._discard(count)
        else:
            self.data_received(bytes(self._connections.buffer[:count]))

    def data_received(self, data: bytes) -> None:
        """Also called with data that followed the request."""
        self._heard = True
        if self._ended:
            return
        if self._request is not None and self._listener is None:
            self._early += data
            if len(self._early) > limits.FRAME_BYTES_MAX:
                self._transport.abort()
            return
        if self._listener is None:
            self._ws.receive_data(data)
            self._begin(self._ws.events_received())
            return
        rest, frames = data, 0
        if self._pieces is not None or self._closing:
            self._texts.follow(data)
        else:
            texts, frames, rest = self._texts.take(data)
            for text in texts:
                if not self._closing:
                    self._listener.receive(text)
        if rest:
            frames += self._read(rest)
        self._charge(frames + len(data) / limits.RATED_BYTES)
        if not self._authenticated and not self._closing:
            self._early_bytes += len(data)
            if self._early_bytes > limits.HELLO_BYTES_MAX:
                self.close(TABLE["frame_too_large"].close, "frame_too_large")
                self._end()  # regardless of the response

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = self._slow or self._closing  # messages would be missing in between
        backlog = self._backlog
        self._forget()
        if backlog and not self._closing:
            self._transport.write(b"".join(backlog))
        self._wake()

    def shutdown(self) -> None:
        """Called by uvicorn when it stops."""
        if self._listener is not None and not self._ended:
            self._listener.drain()
        else:
            self._transport.close()

    # Callbacks of the connection limits.

    def is_idle(self) -> bool:
        return True

    def evict(self) -> None:
        self.close(TABLE["too_many_connections"].close, "too_many_connections")
        self._transport.close()

    def go_on(self) -> None:
        """Not used: WebSocket connections do not wait for a share of the loop."""

    # The handshake.

    def _begin(self, events: list[Any]) -> None:
        """Ask the application whether to accept, once the request is complete."""
        if not events:
            self._flush()  # an error response for an invalid request
            return
        self._request, *_ = events
        self._response = self._ws.accept(self._request)
        if self._response.status_code != 101:
            self._answer(self._response)
            return
        self._hold("handshake")
        task = self._loop.create_task(self._run(), name="onceward-websocket")
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _run(self) -> None:
        try:
            try:
                admission = await self._app.admit(HttpRequest(self._scope()))
            except OncewardError as error:
                self._refuse(problem(error))
            else:
                self._accept(admission)
                await self._app.hear(self, admission)
        except Exception:
            logger.exception("a connection failed")
            self.close(TABLE["internal"].close, "internal")
        finally:
            if self._ws.state is CONNECTING and not self._ended:
                self._transport.close()

    def _scope(self) -> Scope:
        request = self._request
        assert request is not None
        path, _, query = request.path.partition("?")
        offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
        return {
            "type": "websocket",
            "method": "GET",
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in request.headers.raw_items()
            ],
            "subprotocols": [word.strip() for word in offered.split(",") if word.strip()],
        }

    def _accept(self, admission: Admission) -> None:
        assert self._response is not None
        if self._transport.is_closing():
            return
        if admission.subprotocol:
            self._response.headers["Sec-WebSocket-Protocol"] = admission.subprotocol
        self._answer(self._response)

    def _refuse(self, refusal: HttpResponse) -> None:
        if self._transport.is_closing():
            return
        headers = Headers([(name.decode(), value.decode()) for name, value in refusal.headers])
        headers["Connection"] = "close"
        self._answer(Response(refusal.status, "", headers, refusal.body))

    def _answer(self, response: Response) -> None:
        self._ws.send_response(response)
        self._flush()

    # The interface for the listener.

    async def hear(self, listener: Listener, rate: float) -> None:
        self._listener = listener
        self._rate = self._allowed = rate
        if self._gone.done():
            listener.lost()
            return
        self._set_timer(limits.PING_S)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)
        self._release("handshake")
        await asyncio.wait([self._gone])

    def send(self, frames: bytes) -> None:
        if not self._full:
            self._transport.write(frames)
            return
        if self._closing or self._slow:
            return
        self._backlog.append(frames)
        self._backlog_bytes += len(frames)
        if self._backlog_bytes > limits.READER_BYTES_MAX:
            self._forget()
            self._slow = True
            assert self._listener is not None
            self._listener.cut_off()

    def close(self, code: int, reason: str) -> None:
        if self._closing or self._ws.state is not OPEN:
            return
        if self._backlog:
            self._transport.write(b"".join(self._backlog))
            self._forget()
        self._closing = self._full = True
        self._wake()
        self._ws.send_close(code, _short(reason))
        self._flush()
        self._holding.clear()
        if not self._transport.is_closing():
            self._transport.resume_reading()  # to receive the close frame
            self._set_timer(limits.CLOSE_S)

    async def drained(self) -> None:
        while self._full and not self._closing:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.wait([self._drained])

    def pause(self) -> None:
        self._hold("listener")

    def resume(self) -> None:
        self._release("listener")

    def authenticate(self) -> None:
        self._authenticated = True
        self._connections.authenticate(self)

    # Other frames, and limits.

    def _read(self, data: bytes) -> int:
        """Parse data with the library; returns the number of frames."""
        self._ws.receive_data(data)
        events = self._ws.events_received()
        for event in events:
            assert isinstance(event, Frame)
            if event.opcode is Opcode.TEXT and event.fin and not self._closing:
                assert self._listener is not None
                self._listener.receive(bytes(event.data))
            else:
                self._take(event)
        self._flush()
        return len(events)

    def _take(self, frame: Frame) -> None:
        assert self._listener is not None
        if self._closing or frame.opcode in _CONTROL:
            return
        if frame.opcode is Opcode.BINARY or (frame.opcode is Opcode.CONT and self._pieces is None):
            self.close(1003, "messages must be text")
            return
        if self._pieces is None:
            self._pieces = bytearray()
        self._pieces += frame.data
        if frame.fin:
            message, self._pieces = bytes(self._pieces), None
            self._listener.receive(message)

    def _flush(self) -> None:
        """Write the output of the protocol: handshake, pongs and close frames."""
        for data in self._ws.data_to_send():
            if not data:
                self._end()
            elif self._full and not self._closing:
                self.send(data)  # after the waiting messages, and within their limit
            else:
                self._transport.write(data)

    def _end(self) -> None:
        """Finish after all data is sent. Input is discarded until the peer closes; unread, it would
        reset the connection and destroy the close frame."""
        self._closing = self._full = self._ended = True
        self._ws.reader.discard()
        self._pieces = None
        self._forget()
        self._wake()
        self._holding.clear()
        self._early_bytes = 0
        if self._ws.close_rcvd is not None:
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()
            self._transport.resume_reading()
        self._set_timer(limits.CLOSE_S)
        if self._listener is not None:
            self._listener.lost()

    def _discard(self, size_bytes: int) -> None:
        """Discard input after the end. Beyond a limit, stop reading until the time is over."""
        self._early_bytes += size_bytes
        if self._early_bytes > limits.LINGER_BYTES_MAX:
            self._transport.pause_reading()

    def _charge(self, frames: float) -> None:
        """Count received frames, and pause reading to keep the rate."""
        now_ns = boot_ns()
        self._allowed += (now_ns - self._charged_ns) / 1e9 * self._rate
        self._allowed = min(self._allowed, self._rate) - frames
        self._charged_ns = now_ns
        if self._allowed < 0 and not self._closing:
            self._hold("rate")
            self._loop.call_later(-self._allowed / self._rate, self._release, "rate")

    def _hold(self, why: str) -> None:
        if self._closing or self._transport.is_closing():
            return
        if not self._holding:
            self._transport.pause_reading()
        self._holding.add(why)

    def _release(self, why: str) -> None:
        if why in self._holding:
            self._holding.discard(why)
            if not self._holding and not self._transport.is_closing():
                self._transport.resume_reading()

    def _forget(self) -> None:
        self._backlog, self._backlog_bytes = [], 0

    def _wake(self) -> None:
        """Wake tasks that wait for the reader."""
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    def _set_timer(self, after_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if after_s is None else self._loop.call_later(after_s, self._look)

    def _look(self) -> None:
        """Check that the peer responds to pings and to the close."""
        if self._closing or (not self._heard and not self._holding):
            self._transport.abort()
            return
        self._heard = False
        self.send(_PING)
        self._set_timer(limits.PING_S)


def _keep_little(sock: Any) -> None:
    """Keep the kernel's send buffer small. Messages for a slow reader wait here, where all readers
    share them; the kernel would copy them for each."""
    lowat = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if lowat is not None and sock is not None and sock.family in (AF_INET, AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, lowat, limits.UNSENT_BYTES_MAX)


def _short(reason: str) -> str:
    """The part of a reason that fits into a close frame."""
    return reason.encode()[: limits.CLOSE_REASON_BYTES].decode(errors="ignore")
