"""Load for a server: persistent connections, each with one request at a time.

It runs in a separate process with its own core, and prints its results as JSON. It implements HTTP
directly: a client library would take longer than the servers.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import uvloop

BODY = {"text": "x" * 100}
# The first part of the time is for warm-up and does not count.
WARM_PART = 0.2
# The number of messages per request that fills the queue, and of jobs per second of work.
BATCH = 500
JOBS_PER_SECOND = 10_000
LEASE_MS = 600_000
# Time for at least one round.
A_MOMENT_S = 0.01

Answer = tuple[int, bytes]
Round = Generator[bytes, Answer, None]
"""A repeated exchange of a connection: it yields requests, and gets their responses."""


class Connection(asyncio.Protocol):
    """One connection, which repeats its rounds until the time is over."""

    def __init__(self, begin: Callable[[str], Round]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin = begin
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def run(self, name: str, until: float) -> list[float]:
        """Start; returns a list that will contain the duration of each round once it has
        `ended`."""
        self._name, self._until = name, until
        self._took: list[float] = []
        self._next_round()
        return self._took

    def _next_round(self) -> None:
        self._begun = time.perf_counter()
        if self._begun >= self._until:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._round = self._begin(f"{self._name}-{len(self._took):07d}")
        self._transport.write(next(self._round))

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        head, blank, body = received.partition(b"\r\n\r\n")
        if not blank or len(body) < content_length(head):
            self._received = received
            return
        self._received = b""
        try:
            self._transport.write(self._round.send((int(head[9:12]), body)))
        except StopIteration:
            self._took.append(time.perf_counter() - self._begun)
            self._next_round()
        except Exception as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("the server has closed a connection"))

    def _fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self._transport.close()


def content_length(head: bytes) -> int:
    start = head.lower().index(b"content-length:") + 15
    end = head.find(b"\r", start)
    return int(head[start : None if end < 0 else end])


class Rounds:
    """The exchanges of connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        head, body = self._request("/v1/inbox/bench", {"body": BODY})
        self._accept = (head + b"Idempotency-Key: ", b"\r\n\r\n" + body)
        self._claim = self._post(
            "/v1/queues/bench/claim", {"max": 1, "lease_ms": LEASE_MS, "worker": "load"}
        )

    def accept(self, name: str) -> Round:
        """Send a message with a new key."""
        before, after = self._accept
        insist(202, (yield before + name.encode() + after))

    def work(self, name: str) -> Round:
        """Claim a job, and complete it."""
        jobs = json.loads(insist(200, (yield self._claim)))["jobs"]
        if not jobs:
            raise RuntimeError("all jobs are used up; increase JOBS_PER_SECOND")
        [job] = jobs
        done = {"token": job["token"], "result": "x"}
        insist(200, (yield self._post(f"/v1/jobs/{job['id']}/complete", done)))

    def fill(self, count: int) -> Round:
        """Send `count` messages, many per request."""
        for start in range(0, count, BATCH):
            keys = [f"fill-{number}" for number in range(start, start + BATCH)]
            messages = [{"body": BODY, "key": key} for key in keys]
            insist(200, (yield self._post("/v1/inbox/bench/batch", {"messages": messages})))

    def _post(self, path: str, document: Any) -> bytes:
        head, body = self._request(path, document)
        return head + b"\r\n" + body

    def _request(self, path: str, document: Any) -> tuple[bytes, bytes]:
        body = json.dumps(document, separators=(",", ":")).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        return head.encode(), body


def insist(status: int, answer: Answer) -> bytes:
    if answer[0] != status:
        raise RuntimeError(f"{answer[0]}: {answer[1].decode()[:200]}")
    return answer[1]


async def run(
    port: int, begin: Callable[[str], Round], name: str, connections: int, seconds: float
) -> list[float]:
    """Run rounds on a number of connections for a while."""
    loop = asyncio.get_running_loop()
    opened = []
    for _ in range(connections):
        _, connection = await loop.create_connection(lambda: Connection(begin), "127.0.0.1", port)
        opened.append(connection)
    until = time.perf_counter() + seconds
    took = [one.run(f"{name}-{number}", until) for number, one in enumerate(opened)]
    await asyncio.gather(*[one.ended for one in opened])
    return [each for some in took for each in some]


async def measure(
    port: int, pids: list[int], what: str, connections: int, seconds: float
) -> dict[str, float]:
    """The figures of one run, with the processor time of the processes `pids`."""
    rounds = Rounds(port)
    warm_s = seconds * WARM_PART
    if what == "work":
        count = int(JOBS_PER_SECOND * (seconds + warm_s))
        await run(port, lambda _: rounds.fill(count), "fill", 1, A_MOMENT_S)
    begin = getattr(rounds, what)
    await run(port, begin, "warm", connections, warm_s)
    start, used = time.perf_counter(), cpu_s(pids)
    took = sorted(await run(port, begin, "run", connections, seconds))
    passed, used = time.perf_counter() - start, cpu_s(pids) - used
    count = len(took)
    return {
        "per_second": count / passed,
        "p50_ms": took[count // 2] * 1e3,
        "p99_ms": took[int(count * 0.99)] * 1e3,
        "max_ms": took[-1] * 1e3,
        "cpu_us": used / count * 1e6,
    }


def cpu_s(pids: list[int]) -> float:
    """The processor time of processes with all their threads."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(*json.loads(sys.argv[1])))))
