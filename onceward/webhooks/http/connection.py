"""One HTTP/1.1 connection to an endpoint, with keep-alive.

Of a response it reads the status, the relevant headers and the start of the body. Any irregularity
closes the connection, such as bytes after a complete response or before a request. So bytes of one
response cannot be read as part of another.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Any

import httptools

from onceward import limits
from onceward.errors import Unreachable
from onceward.file_descriptors import is_reserved

_BODILESS = (204, 304)


class Dropped(Exception):
    """The connection was closed before the first byte of a response."""


class Reply:
    """A response while it is received."""

    __slots__ = ("body", "date", "framed", "retry_after", "status")

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is complete."""
        self.retry_after: str | None = None
        self.date: str | None = None
        self.framed = False
        """Whether the body has an explicit end, other than the end of the connection."""
        self.body = b""


class Connection(asyncio.Protocol):
    """One connection. `ended` is called when it is closed."""

    def __init__(
        self, ended: "Callable[[Connection], None]", elapsed_ns: Callable[[], int]
    ) -> None:
        self.made_ns = elapsed_ns()
        self.idle_ns = 0
        """Since when it is idle."""
        self.asked = 0
        """The number of requests sent on it."""
        self._ended = ended
        self._elapsed_ns = elapsed_ns
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._reply = Reply()
        self._came_bytes = 0
        self._usable = False
        # One timer for all requests, since setting one for each takes longer than sending it.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._until_ns = 0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent, as far as is known."""
        return self._usable and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Whether no unread data has arrived. Data before a request would be read as its
        response."""
        socket = self._transport.get_extra_info("socket")
        if socket is None:
            return True
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    @property
    def is_reserved(self) -> bool:
        """Whether it uses a file descriptor that is reserved for the engine."""
        socket = self._transport.get_extra_info("socket")
        return socket is not None and is_reserved(socket.fileno())

    @property
    def began(self) -> bool:
        """Whether part of a response has arrived."""
        return self._came_bytes > 0

    def ask(self, request: bytes, until_ns: int) -> "asyncio.Future[Reply]":
        """Send a request; the future returns the response.

        Fails with `Dropped`, with `TimeoutError` if the response is incomplete at `until_ns`, or
        with `Unreachable` if it is invalid. A caller that stops waiting must call `abort`.
        """
        self.asked += 1
        self._usable = False
        self._reply = Reply()
        self._came_bytes = 0
        waiting = self._waiting = self._loop.create_future()
        self._until_ns = until_ns
        if self._timer is None or until_ns < self._timer_ns:
            self._set_timer()
        self._transport.write(request)
        return waiting

    def abort(self) -> None:
        """Close the connection immediately."""
        self._waiting = None
        self._usable = False
        self._transport.abort()

    def drop(self) -> None:
        """Close the connection immediately, as if the receiver had closed it."""
        self._usable = False
        self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._usable = True

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        if waiting is None:
            self.abort()  # data without a request
            return
        self._came_bytes += len(data)
        try:
            # The last byte is fed separately: if the response is complete without it, it is excess
            # data.
            self._parser.feed_data(data[:-1])
            if self._waiting is not waiting:
                self.abort()
                return
            self._parser.feed_data(data[-1:])
        except httptools.HttpParserUpgrade:
            self._finish(keep=False)
        except httptools.HttpParserError:
            # Ignored after a complete response.
            self._fail("the response is not HTTP")
        # Counted here because the parser reports headers only when they are complete.
        if self._came_bytes > limits.ANSWER_HEAD_BYTES_MAX and self._waiting is not None:
            if not self._reply.status:
                self._fail(
                    f"the head of the response has over {limits.ANSWER_HEAD_BYTES_MAX} bytes"
                )
            elif self._came_bytes > limits.ANSWER_BYTES_MAX:
                self._finish(keep=False)

    def connection_lost(self, error: Exception | None) -> None:
        self._usable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            if not self._came_bytes:
                self._end(Dropped())
            elif error is None and self._reply.status and not self._reply.framed:
                self._finish(keep=False)
            else:
                self._fail("the connection was closed in the middle of the response")
        self._ended(self)

    def eof_received(self) -> None:
        self._usable = False

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waiting is None:
            return  # a second response to one request
        # Compare lengths first: this is called for each header.
        length = len(name)
        if length == 11 and name.lower() == b"retry-after":
            self._reply.retry_after = value.decode("latin-1")
        elif length == 4 and name.lower() == b"date":
            self._reply.date = value.decode("latin-1")
        elif (length == 14 and value != b"0" and name.lower() == b"content-length") or (
            length == 17 and name.lower() == b"transfer-encoding"
        ):
            self._reply.framed = True

    def on_headers_complete(self) -> None:
        if self._waiting is None:
            return
        status = self._reply.status = self._parser.get_status_code()
        if self._reply.framed and (status < 200 or status in _BODILESS):
            # These statuses have no body, regardless of the headers.
            if status < 200:
                self._fail("an interim response announced a body")
            else:
                self._finish(keep=False)

    def on_body(self, body: bytes) -> None:
        if self._waiting is None:
            return
        reply = self._reply
        reply.body = reply.body + body if reply.body else body
        if len(reply.body) > limits.ANSWER_BODY_BYTES_MAX:
            reply.body = reply.body[: limits.ANSWER_BODY_BYTES_MAX]
            self._finish(keep=False)

    def on_message_complete(self) -> None:
        if self._waiting is None:
            return
        status = self._reply.status
        if status >= 200 or status == 101:
            keep = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
            self._finish(keep=keep and status != 101)
        else:
            self._reply = Reply()  # the final response follows

    # The end of a request.

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = self._until_ns
        left_s = (self._until_ns - self._elapsed_ns()) / 1e9
        self._timer = self._loop.call_later(max(0.0, left_s), self._look)

    def _look(self) -> None:
        """Check the deadline of the request."""
        self._timer = None
        if self._waiting is not None:
            if self._elapsed_ns() < self._until_ns:
                self._set_timer()
            else:
                self._end(TimeoutError())
                self.drop()

    def _finish(self, *, keep: bool) -> None:
        self._end(self._reply)
        # An endpoint can respond before it has read the whole request; then the connection is not
        # reusable.
        if keep and not self._transport.get_write_buffer_size():
            self._usable = True
        else:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        self._end(Unreachable(why))
        self._usable = False
        self._transport.abort()

    def _end(self, result: Reply | Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            return
        if isinstance(result, Reply):
            waiting.set_result(result)
        else:
            waiting.set_exception(result)
