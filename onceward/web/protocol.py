"""HTTP on a connection: uvicorn's protocol, with an end to what may come before an answer."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from onceward import limits
from onceward.errors import BadInput
from onceward.web.http import Response, problem


class Protocol(HttpToolsProtocol):
    """Takes a head of limited size, and each request within limited time, so that nobody can
    fill the memory or keep connections for nothing. What is no HTTP gets a problem document."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._whole = False
        """Whether all of a request has come, and nothing of the next one."""
        self._in_head = True
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._whole:
            if self._late is not None:
                self._wait_no_more()
            return
        if self._late is None:
            self._wait()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > limits.HEAD_BYTES_MAX and not self.transport.is_closing():
                self._refuse(
                    f"the head of a request has at most {limits.HEAD_BYTES_MAX} bytes",
                    "head_too_large",
                )

    def on_message_begin(self) -> None:
        self._whole, self._in_head, self._head_bytes = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("this is not HTTP, or contradicts itself", "bad_request")

    def _refuse(self, why: str, code: str) -> None:
        response: Response = problem(BadInput(why, code=code), [(b"connection", b"close")])
        lines = [b"%s: %s\r\n" % header for header in response.headers]
        head = b"".join([STATUS_LINE[response.status], *lines, b"\r\n"])
        self.transport.write(head + response.body)
        self.transport.close()

    def _wait(self) -> None:
        self._late = self.loop.call_later(limits.REQUEST_S, self._too_late)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._wait()  # not the caller is slow, but the answer before
        elif getattr(self.cycle, "response_complete", True):  # or there has not been any
            self._refuse(f"the request did not come within {limits.REQUEST_S:.0f} s", "too_slow")
        else:
            self.transport.abort()  # the body does not come: whoever waits for it hears so
