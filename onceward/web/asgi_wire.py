"""WebSocket connections of a server that is mounted in an ASGI application.

Frames are encoded for each reader, so this is slower than `onceward serve`. The limits are the
same, except for fragments, which are not visible here.
"""

import asyncio
from collections import deque

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import TABLE
from onceward.rooms.wire import Listener, messages
from onceward.web.http import Receive, Send


class AsgiWire:
    """One accepted connection. A `Hearing` for its listener."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._slow = False
        """Whether it was closed because too much data waited for the reader."""
        self._listener: Listener | None = None
        self._close: tuple[int, str] | None = None
        """The close code and reason, once decided."""
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._may_read = asyncio.Event()
        self._may_read.set()

    async def hear(self, listener: Listener, rate: float) -> None:
        self._listener = listener
        reading = asyncio.create_task(self._read(listener, rate), name="onceward-wire-reads")
        writing = asyncio.create_task(self._write(), name="onceward-wire-writes")
        ending = asyncio.create_task(self._end(), name="onceward-wire-ends")
        all_ = [reading, writing, ending]
        try:
            await asyncio.wait(all_, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._empty.set()
            listener.lost()
            for task in all_:
                task.cancel()
            await asyncio.wait(all_)
        for task in all_:
            if not task.cancelled():
                task.result()

    def send(self, frames: bytes) -> None:
        if self._close is not None or self._slow:
            return
        self._out.append(frames)
        self._out_bytes += len(frames)
        self._empty.clear()
        if self._out_bytes > limits.READER_BYTES_MAX and len(self._out) > 1:
            self._out.clear()
            self._slow = True
            assert self._listener is not None
            self._listener.cut_off()
        self._news.set()

    def close(self, code: int, reason: str) -> None:
        if self._close is None:
            self._close = code, reason
            self._news.set()
            self._empty.set()
            self._ended.set()

    async def drained(self) -> None:
        await self._empty.wait()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def authenticate(self) -> None:
        """The outer server has its own limits."""

    async def _read(self, listener: Listener, rate: float) -> None:
        allowed, at_ns = rate, boot_ns()
        while True:
            await self._may_read.wait()
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            if text is None:
                self.close(1003, "messages must be text")
                continue
            raw = text.encode(errors="surrogatepass")
            if len(raw) > limits.FRAME_BYTES_MAX:
                self.close(TABLE["frame_too_large"].close, "frame_too_large")
            elif self._close is None:
                listener.receive(raw)
            now_ns = boot_ns()
            allowed = min(allowed + (now_ns - at_ns) / 1e9 * rate, rate)
            allowed -= 1 + len(raw) / limits.RATED_BYTES
            at_ns = now_ns
            if allowed < 0:
                await asyncio.sleep(-allowed / rate)

    async def _end(self) -> None:
        """Return when the close was decided and did not complete in time."""
        await self._ended.wait()
        await asyncio.sleep(limits.CLOSE_S)

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._out:
                frames = self._out.popleft()
                for message in messages(frames):
                    await self._send({"type": "websocket.send", "text": message.decode()})
                self._out_bytes -= len(frames)
            self._empty.set()
            if self._close is not None:
                code, reason = self._close
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
