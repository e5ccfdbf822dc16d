"""Endpoints that timers call, in a process of their own.

Run as `python -m tests.webhooks.sink_child HOW...`, where each HOW makes one endpoint: `answer`
does so at once, `slow` after a moment, `late` after 200 ms, `hang` never, and `drip` a byte a
second; `fifty` is late, and answers 503 to what comes while it has 50 requests. The ports are the
first line it says. Then it reads commands, one a line: `until COUNT` answers once so many
requests have come, `save FILE` writes down all requests. It ends with its input.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
DRIPS = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000)
FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
SLOW_S = 0.02
LATE_S = 0.2
FIFTY = 50


class Heard:
    """All requests: the message's id, the timer, when, and at which endpoint."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, float, int]] = []
        self._count = 0
        self._reached: asyncio.Future[None] | None = None
        self.under_way: dict[int, int] = {}
        """By endpoint."""

    def note(self, id_: str, timer: str, number: int) -> None:
        self.requests.append((id_, timer, time.time() * 1e3, number))
        if self._reached is not None and len(self.requests) >= self._count:
            self._reached.set_result(None)
            self._reached = None

    async def until(self, count: int) -> None:
        if len(self.requests) < count:
            self._count = count
            self._reached = asyncio.get_running_loop().create_future()
            await self._reached

    def save(self, path: str) -> None:
        with open(path, "w") as file:
            json.dump(self.requests, file)


class Endpoint(asyncio.Protocol):
    """One connection. Whoever calls waits for an answer before it sends more."""

    def __init__(self, heard: Heard, how: str, number: int) -> None:
        self._heard = heard
        self._how = how
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._came = b""
        self._dripping = -1

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end or len(body) < int(_header(head, b"Content-Length")):
            return
        self._came = b""
        id_, timer = _header(head, b"webhook-id"), _header(head, b"onceward-timer")
        self._heard.note(id_.decode(), timer.decode(), self._number)
        if self._how == "answer":
            self._transport.write(ANSWER)
        elif self._how == "slow":
            self._loop.call_later(SLOW_S, self._answer)
        elif self._how == "drip":
            self._drip()
        elif self._how in ("late", "fifty"):
            under_way = self._heard.under_way.get(self._number, 0)
            if self._how == "fifty" and under_way >= FIFTY:
                self._transport.write(FULL)
                return
            self._heard.under_way[self._number] = under_way + 1
            self._loop.call_later(LATE_S, self._answer_late)

    def _answer_late(self) -> None:
        self._heard.under_way[self._number] -= 1
        self._answer()

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(ANSWER)

    def _drip(self) -> None:
        if not self._transport.is_closing():
            self._dripping += 1
            self._transport.write(DRIPS[self._dripping : self._dripping + 1])
            self._loop.call_later(1, self._drip)


def _header(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


async def run(hows: list[str]) -> None:
    loop, heard = asyncio.get_running_loop(), Heard()
    ports = []
    for number, how in enumerate(hows):
        listening = await loop.create_server(
            lambda how=how, number=number: Endpoint(heard, how, number), "127.0.0.1", backlog=1_024
        )
        ports.append(listening.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, argument = line.split(maxsplit=1)
        if command == "until":
            await heard.until(int(argument))
        else:
            heard.save(argument.strip())
        print("done", flush=True)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1:]))
